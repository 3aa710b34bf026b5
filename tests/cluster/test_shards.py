"""Tar shards on the workers of a cluster: the same shards, indexes and reports as in one process."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import pytest

import nbdata
from nbdata.client.context import capture
from nbdata.client.opened import Opened
from nbdata.engine.job.dealing import PartReport
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.engine.pack import dealt
from nbdata.engine.shards.dealt import DealtShards
from nbdata.engine.shards.found import Found
from nbdata.formats.sample_index import IndexWriter, SampleIndex
from nbdata.formats.sample_objects import ShardMember
from nbdata.reading.shards.indexing import Indexing, index_path
from nbdata.reading.source_file import SourceFile
from tests.cluster.conftest import Put
from tests.cluster.test_verbs import alike, files_in
from tests.formats.test_shards import FILE, shard

pytestmark = pytest.mark.usefixtures("inline")

Stored = Callable[[str], dict[str, bytes]]
SAMPLES = 90


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have parts of at most two shards, so that there are several."""
    monkeypatch.setattr(DealtPlan, "most", 2)


def loose() -> dict[str, bytes]:
    source = random.Random(1)
    return {
        f"{number % 3}/{number:03}.{name}": source.randbytes(source.randrange(4000))
        for number in range(SAMPLES)
        for name in ("jpg", "cls")
    }


def shards(count: int = 7) -> dict[str, bytes]:
    """Return shards of ten samples, each with a field of its own, and with a member that is in no sample."""
    found = {}
    for number in range(count):
        names = [f"{number}/{at}.{name}" for at in range(10) for name in ("jpg", f"f{number}")]
        members = [(name, FILE, b"x" * (at + number)) for at, name in enumerate(names)]
        found[f"x-{number}.tar"] = shard([*members, ("README", FILE, b"")])
    return found


@pytest.mark.long
@pytest.mark.parametrize("action", ["ls", "verify"])
def test_shards_by_workers_has_the_report_of_one_process(
    action: str, put: Put, workers: distributed.Client
) -> None:
    found = shards()
    source = put({**found, "x-3.tar": found["x-3.tar"][:3000]}) + "x-*.tar"
    alone = nbdata.shards(action, source, on_error="report", quiet=True)
    report = nbdata.shards(action, source, on_error="report", cluster=workers, quiet=True)
    assert report.counts == {"ok": 6, "failed": 1}
    for one in (alone, report):
        one.details["left_out_names"].sort()
        one.notes = [note for note in one.notes if "in no sample" not in note]  # it names the first ones
    alike(report, alone)


def test_an_index_by_workers_is_the_index_of_one_process(put: Put, workers: distributed.Client) -> None:
    source = put(shards()) + "x-*.tar"
    read = nbdata.SampleSource(source)
    path = index_path(read, Opened(read))
    alone = nbdata.shards("index", source, quiet=True)
    made = {name: bytes(column) for name, column in SampleIndex(path).columns.items()}
    Path(path).unlink()
    report = nbdata.shards("index", source, cluster=workers, quiet=True)
    index = SampleIndex(path)
    assert {name: bytes(column) for name, column in index.columns.items()} == made
    assert index.about["left_out"] == 7
    alike(report, alone)


def index_in(folder: Path, *numbers: int) -> bytes:
    """Return the index that a worker makes of some of the shards, with one sample each."""
    writer = IndexWriter()
    for number in numbers:
        writer.add_members(f"{number}", [ShardMember(f"f{number}", number, 512, 1, 0)])
    return b"".join(writer.pieces({"left_out": 0, "left_out_names": [], "unproven": 0}))


class Merged:
    """Stands for the results of a job."""

    def merge(self, part: PartReport) -> None:
        pass


@pytest.fixture
def joined(tmp_path: Path) -> tuple[DealtShards, Indexing]:
    """The coordinator's side of an index of three shards."""
    run: Any = SimpleNamespace(folder=str(tmp_path), listed={})
    files, indexing = [SourceFile("s3://b/", f"x-{n}.tar", f"x-{n}.tar", 1) for n in range(3)], Indexing()
    results: Any = Merged()
    return DealtShards(run, nbdata.Plan("shards"), results, files, Found(), indexing), indexing


def reported(folder: Path, *numbers: int) -> PartReport:
    return PartReport(details=vars(Found()), data=index_in(folder, *numbers))


def test_indexes_that_come_in_another_order_are_joined_in_that_of_the_shards(
    joined: tuple[DealtShards, Indexing], tmp_path: Path
) -> None:
    work, indexing = joined
    rows = {row.path: row for row in work.rows()}
    work.take({"2": rows["2"]}, reported(tmp_path, 2))
    work.take({"0": rows["0"], "1": rows["1"]}, reported(tmp_path, 0, 1))
    index = indexing.save(capture(nbdata.SampleSource("s3://b/")), str(tmp_path / "whole"), "", "")
    assert [index.key(number) for number in range(len(index))] == ["0", "1", "2"]
    assert [name.name for name in tmp_path.iterdir()] == ["whole"]


def test_an_index_of_something_else_is_refused(joined: tuple[DealtShards, Indexing], tmp_path: Path) -> None:
    work, _ = joined
    rows = {row.path: row for row in work.rows()}
    with pytest.raises(nbdata.NbdataError, match="an index of something else"):
        work.take({"0": rows["0"]}, reported(tmp_path, 7))
    work.close()
    assert list(tmp_path.iterdir()) == []


def test_objects_packed_by_workers_are_the_same_shards(
    put: Put, bucket: str, stored: Stored, workers: distributed.Client
) -> None:
    source = put(loose())
    options: dict[str, Any] = {"shard_size": 40_000, "shuffle": True, "seed": 3, "quiet": True}
    alone = nbdata.pack(source, f"s3://{bucket}/alone/x-%d.tar", **options)
    report = nbdata.pack(source, f"s3://{bucket}/dealt/x-%d.tar", cluster=workers, **options)
    assert report.counts["packed"] > 4
    alike(report, alone)
    assert stored("dealt/") == stored("alone/"), "also the index beside them"
    again = nbdata.pack(source, f"s3://{bucket}/dealt/x-%d.tar", **options)
    assert again.counts.keys() == {"unchanged"}


def test_shards_of_a_store_become_shards_on_this_disk(
    put: Put, tmp_path: Path, beside: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealt, "_MOST", 25)  # the coordinator makes larger ones itself
    source = put(shards()) + "x-*.tar"
    options: dict[str, Any] = {"shard_size": 45_000, "keys": "%05d", "sort": True, "quiet": True}
    alone = nbdata.pack(source, f"{tmp_path}/alone/y-%d.tar", **options)
    report = nbdata.pack(source, f"{tmp_path}/dealt/y-%d.tar", cluster=beside, **options)
    alike(report, alone)
    assert files_in(tmp_path / "dealt") == files_in(tmp_path / "alone")


def test_ffrecord_files_by_workers_are_those_of_one_process(
    put: Put, bucket: str, stored: Stored, workers: distributed.Client
) -> None:
    # Each key comes twice, also at the end of a file and the beginning of the next.
    same = shard([(f"{at:02}.jpg", FILE, bytes([at]) * 3000) for at in range(8)])
    source = put({"x-0.tar": same, "x-1.tar": same}) + "x-*.tar"
    options: dict[str, Any] = {"shard_samples": 3, "sort": True, "quiet": True}
    alone = nbdata.pack(source, f"s3://{bucket}/alone/y-%d.ffr", **options)
    report = nbdata.pack(source, f"s3://{bucket}/dealt/y-%d.ffr", cluster=workers, **options)
    assert report.counts == {"packed": 6}
    alike(report, alone)
    assert stored("dealt/") == stored("alone/")


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(
    ("target", "options"),
    [("x.tar.gz", {}), ("out/", {"format": "files"}), ("x-%d.tar", {"map": dict})],
)
def test_what_is_no_shard_is_packed_by_one_process(target: str, options: dict[str, Any]) -> None:
    with pytest.raises(nbdata.BadOption, match="--cluster"):
        nbdata.Pack("s3://b/in/", f"/w/{target}", cluster="local", **options)
