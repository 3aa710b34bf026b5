"""untar_volumes into tar shards: what it refuses or gives up, to protect archives and memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from nbdata.demo.server import EmbeddedServer
from nbdata.engine.planning.growing_outputs import GrowingOutput, GrowingOutputs
from nbdata.engine.unpack.targets.shards import keys_again, send_shards
from nbdata.errors import AccessDenied, BadOption, TransferFailed
from nbdata.stores import local
from nbdata.stores.s3.store import S3Store
from nbdata.writing.growing_shard import GrowingShard
from tests.engine.unpack.checkpointing import packed
from tests.engine.unpack.test_untar_to_shards import MIB, SHARD, as_entries, members, samples, stopped
from tests.engine.unpack.test_untar_to_store import stored
from tests.engine.unpack.unpacking import untar
from tests.faults.proxy import BEFORE, Fault, FaultProxy
from tests.faults.test_lines import always, proxy

__all__ = ["proxy"]

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]
OWN = "would replace those that they are made of"


def archive(count: int = 60) -> bytes:
    return packed(as_entries(samples(count)))[0]


@pytest.mark.parametrize("options", [{}, {"overwrite": "always"}], ids=["", "always"])
def test_shards_never_replace_the_archive_that_they_are_made_of(
    options: dict[str, Any], put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    there = {"n/train-000.tar": archive()}
    url = put(there)
    for source in ("n/train-000.tar", "n/*.tar"):
        with pytest.raises(BadOption, match=OWN):
            untar(f"{url}{source}", f"{url}n/train-%03d.tar", shard_size=SHARD, **options)
    with pytest.raises(BadOption, match=OWN):
        untar([f"{url}n/train-000.tar"], f"{url}n/train-%03d.tar", shard_size=SHARD, **options)
    assert stored(s3, bucket, "") == there


def test_shards_never_replace_their_archive_through_links_on_the_disk(tmp_path: Path) -> None:
    folder, out = tmp_path / "n", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    data = archive()
    (folder / "train-000.tar").write_bytes(data)
    (tmp_path / "same").symlink_to(folder)
    (tmp_path / "link.tar").symlink_to(folder / "train-000.tar")
    (out / "train-007.tar").symlink_to(folder / "train-000.tar")
    for source, target in (
        (folder / "train-000.tar", folder),
        (folder / "train-000.tar", tmp_path / "same"),
        (tmp_path / "same" / "train-000.tar", folder),
        (tmp_path / "link.tar", folder),
        (out / "train-007.tar", out),
    ):
        with pytest.raises(BadOption, match=OWN):
            untar(source, f"{target}/train-%03d.tar", shard_size=SHARD, overwrite="always")
    assert (folder / "train-000.tar").read_bytes() == data
    assert untar(folder / "train-000.tar", f"{folder}/other-%03d.tar", shard_size=SHARD).ok


def test_shards_never_replace_another_archive_of_the_same_command(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    there = {"in/in.tar": archive(), "in/x-000000.tar": archive(5)}
    url = put(there)
    with pytest.raises(BadOption, match=OWN):
        untar(f"{url}in/*.tar", f"{url}x-%06d.tar", shard_size=SHARD, overwrite="always")
    assert stored(s3, bucket, "") == there


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> tuple[list[GrowingOutput], list[int]]:
    """All shards that were begun, and the number of open shards each time."""
    begin, outputs, counts = GrowingOutputs.begin, list[GrowingOutput](), list[int]()

    def spy(self: GrowingOutputs, name: str) -> GrowingOutput:
        outputs.append(begin(self, name))
        counts.append(len(self._open))
        return outputs[-1]

    monkeypatch.setattr(GrowingOutputs, "begin", spy)
    return outputs, counts


def each_of(size: int, count: int) -> bytes:
    source = random.Random(4)
    return packed([(f"{n:03}.bin", "file", source.randbytes(size)) for n in range(count)])[0]


@pytest.mark.in_ci("create-*")
@pytest.mark.parametrize(("action", "size"), [("put", 1000), ("create", 9 * MIB)])
def test_shards_that_fail_hold_nothing(
    action: str, size: int, proxy: FaultProxy, put: Put, begun: tuple[list[GrowingOutput], list[int]]
) -> None:
    url = put({"v/a.tar": each_of(size, 6)})
    proxy.begin(always(Fault("refuse", BEFORE, status=400), action=action))
    with pytest.raises(TransferFailed) as failed:
        untar(f"{url}v/", f"{url}out/x-%06d.tar", shard_size=1 << 10)
    assert len(failed.value.report.failures) == 6
    outputs, counts = begun
    assert len(outputs) == 6
    assert max(counts) <= 3  # one is growing, one is being finished, and one waits for that
    for output in outputs:
        assert isinstance(output, GrowingShard)
        assert not output._buffer
        assert not output._sent


@pytest.mark.in_ci("put-1000")
@pytest.mark.parametrize(("action", "size"), [("put", 1000), ("create", 9 * MIB)])
def test_a_target_that_denies_access_ends_it(
    action: str, size: int, proxy: FaultProxy, put: Put, begun: tuple[list[GrowingOutput], list[int]]
) -> None:
    url = put({"v/a.tar": each_of(size, 6)})
    proxy.begin(always(Fault("refuse", BEFORE, status=403), action=action))
    with pytest.raises(AccessDenied):
        untar(f"{url}v/", f"{url}out/x-%06d.tar", shard_size=1 << 10)
    assert len(begun[0]) <= 4
    report = untar(f"{url}v/", f"{url}out/x-%06d.tar", shard_size=1 << 10, on_error="report")
    assert [name for name, _ in report.failures] == ["a.tar"]
    assert len(begun[0]) <= 8


def test_a_large_sample_is_refused_where_it_would_have_to_be_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_shards, "IN_MEMORY", 100_000)
    made = [
        ("a.bin", "file", b"a" * 60_000),
        ("b.bin", "file", b"b" * 60_000),
        ("b.png", "file", b"b" * 60_000),
    ]
    (tmp_path / "a.tar").write_bytes(packed(made)[0])
    options: dict[str, Any] = {"shard_size": 50_000}
    memory = fsspec.filesystem("memory")
    with pytest.raises(BadOption, match="so that a sample has to be in memory"):
        untar(tmp_path / "a.tar", "memory://large/out/x-%06d.tar", **options)
    assert all(path.endswith("x-000000.tar") for path in memory.find("/large"))
    assert untar(tmp_path / "a.tar", "memory://large/out/x-%06d.tar", exclude=["b.png"], **options).ok
    memory.rm("/large", recursive=True)
    assert untar(tmp_path / "a.tar", f"{tmp_path}/out/x-%06d.tar", **options).ok  # the disk accepts all sizes


def test_other_folders_beside_the_shards_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders of other people beside the shards cannot keep shards from being written."""
    for name in ("theirs", "x-theirs"):
        (tmp_path / "out" / name).mkdir(parents=True)
    (tmp_path / "a.tar").write_bytes(archive(5))
    scandir = os.scandir

    def denied(path: Any) -> Any:
        if str(path).endswith("theirs"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(local.os, "scandir", denied)
    for target in ("x-%06d.tar", "%06d.tar"):
        assert untar(tmp_path / "a.tar", f"{tmp_path}/out/{target}").ok
        assert set(untar(tmp_path / "a.tar", f"{tmp_path}/out/{target}").counts) == {"unchanged"}


def test_only_names_that_begin_as_those_of_the_shards_are_listed(
    put: Put, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = put({"v/a.tar": archive(), "train-x/1": b"", "trail": b""}), list[str]()
    list_all, list_folder = S3Store.list, S3Store.list_folder

    def one_level(self: S3Store, prefix: str) -> Any:
        asked.append(f"{prefix}/")
        return list_folder(self, prefix)

    def all_levels(self: S3Store, prefix: str, **options: Any) -> Any:
        asked.append(prefix)
        return list_all(self, prefix, **options)

    monkeypatch.setattr(S3Store, "list_folder", one_level)
    monkeypatch.setattr(S3Store, "list", all_levels)
    assert untar(f"{url}v/a.tar", f"{url}train-%06d.tar", shard_size=SHARD).ok
    assert {prefix for prefix in asked if not prefix.startswith("v/")} == {"train-/"}
    found = stored(s3, bucket, "train-")
    assert members({name: data for name, data in found.items() if name != "x/1"}) == list(samples().items())


@pytest.mark.usefixtures("small_steps")
def test_repeated_keys_are_also_counted_for_earlier_runs(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = packed(
        [(f"{n % 50:03}.bin", "file", b"x" * 20_000) for n in range(100)] + [("z.bin", "file", b"")]
    )[0]
    url = put({"v/a.tar": twice})
    target = f"{url}out/x-%06d.tar"
    stopped(90, f"{url}v/", target, shard_size=SHARD)
    report = untar(f"{url}v/", target, shard_size=SHARD)
    assert report.details["resumed_at"] > 0
    (told,) = (note for note in report.notes if "repeat the key of an earlier sample" in note)
    assert told.startswith("at least ")
    assert 20 < int(told.split()[2]) < 50
    monkeypatch.setattr(keys_again, "KEYS", 10)
    report = untar(f"{url}v/", f"{url}few/x-%06d.tar", shard_size=SHARD)
    assert any(
        note.startswith("at least 10 samples repeat the key of an earlier sample") for note in report.notes
    )


def test_of_two_members_of_one_name_the_first_is_in_the_shard(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    url = put({"v/a.tar": packed([("a.bin", "file", b"first"), ("a.bin", "file", b"last")])[0]})
    report = untar(f"{url}v/", f"{url}out/x-%06d.tar")
    assert members(stored(s3, bucket, "out/")) == [("a.bin", b"first")]
    assert [row.path for row in report.rows if row.action == "left out"] == ["a.bin"]
