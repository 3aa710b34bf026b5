"""Tar shards on the workers of a cluster: the same shards, indexes and reports as in one process."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import pytest

import nbdata
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.engine.pack import dealt
from nbdata.formats.sample_index import SampleIndex
from nbdata.reading.shards.indexing import index_path
from nbdata.runtime import state_folder
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
    path = index_path(nbdata.SampleSource(source), state_folder())
    alone = nbdata.shards("index", source, quiet=True)
    made = {name: bytes(column) for name, column in SampleIndex(path).columns.items()}
    Path(path).unlink()
    report = nbdata.shards("index", source, cluster=workers, quiet=True)
    index = SampleIndex(path)
    assert {name: bytes(column) for name, column in index.columns.items()} == made
    assert index.about["left_out"] == 7
    alike(report, alone)


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
    put: Put, tmp_path: Path, workers: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealt, "_MOST", 25)  # the coordinator makes larger ones itself
    source = put(shards()) + "x-*.tar"
    options: dict[str, Any] = {"shard_size": 45_000, "keys": "%05d", "sort": True, "quiet": True}
    alone = nbdata.pack(source, f"{tmp_path}/alone/y-%d.tar", **options)
    report = nbdata.pack(source, f"{tmp_path}/dealt/y-%d.tar", cluster=workers, **options)
    alike(report, alone)
    assert files_in(tmp_path / "dealt") == files_in(tmp_path / "alone")


@pytest.mark.parametrize(
    ("target", "options"),
    [("x.tar.gz", {}), ("x.ffr", {}), ("out/", {"format": "files"}), ("x-%d.tar", {"map": dict})],
)
def test_what_is_no_shard_is_packed_by_one_process(target: str, options: dict[str, Any]) -> None:
    with pytest.raises(nbdata.BadOption, match="--cluster"):
        nbdata.Pack("s3://b/in/", f"/w/{target}", cluster="local", **options)
