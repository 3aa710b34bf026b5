"""The machine fails at any moment of a command: no recorded data is missing, and the same command resumes.

This is a short part of ``make machine-loss``. See `disk` for what a failure may lose, `loss` for the rules that must
hold then, and `loss_cases` for the commands.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.transfer.index import Index, Record
from nbdata.transfer.uploads import remember, remembered
from tests.faults.content import Content
from tests.faults.disk import Disk, Tree
from tests.faults.loss_cases import CASES, lost

pytestmark = pytest.mark.usefixtures("inline")


@pytest.mark.parametrize(
    "name", [name for name in CASES if name != "push"]
)  # the push of changes includes these
@pytest.mark.in_ci("pull", "extraction")
def test_nothing_that_was_recorded_is_missing(name: str, s3: EmbeddedServer) -> None:
    again = 1 if name == "push of changes" else 2
    with lost(name, s3) as loss:
        assert loss.examine(seeds=1, again=again, source=random.Random(name), all_moments=False) == []
        assert (loss.states > 50, loss.repeated >= again) == (True, True)


# -- the model of a disk --------------------------------------------------------------------------------


def replayed(root: Path, *log: tuple[object, ...], data: bytes = b"new") -> Disk:
    disk = Disk(root)
    for what in log:
        disk.take([*what], memoryview(data if what[0] == "write" else b""))
    return disk


def seeds(disk: Disk) -> list[Tree]:
    return [disk.left(f"seed {number}") for number in range(60)]


def test_a_file_that_was_not_synced_may_be_there_empty_in_zeros_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    path = f"{tmp_path}/d/f"
    disk = replayed(tmp_path, ("open", 3, path, False), ("write", 3, 0, 3))
    found = {
        kind: disk.left(kind).files.get("d/f")
        for kind in ("nothing", "bytes", "names", "sizes", "everything")
    }
    texts = {kind: content and bytes(content) for kind, content in found.items()}
    assert texts == {"nothing": None, "bytes": None, "names": b"", "sizes": b"\0\0\0", "everything": b"new"}
    disk.take(["sync", 3], memoryview(b""))
    assert [bytes(disk.left("names").files["d/f"]), disk.left("nothing").files] == [b"new", {}]
    disk.take(["open", 4, f"{tmp_path}/d", False], memoryview(b""))
    disk.take(["sync", 4], memoryview(b""))
    assert all(bytes(tree.files["d/f"]) == b"new" for tree in [disk.left("nothing"), *seeds(disk)])


def test_a_rename_that_was_not_synced_leaves_what_was_there_or_the_new_one(tmp_path: Path) -> None:
    for folder, data in (("a", b"new"), ("b", b"old")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "f").write_bytes(data)
    disk = replayed(tmp_path, ("rename", f"{tmp_path}/a/f", f"{tmp_path}/b/f"))
    left = {(bytes(t.files["b/f"]), "a/f" in t.files) for t in [disk.left("nothing"), *seeds(disk)]}
    assert left == {(b"old", True), (b"new", True), (b"new", False)}
    disk.take(["open", 3, f"{tmp_path}/a", False], memoryview(b""))
    disk.take(["sync", 3], memoryview(b""))
    assert {(bytes(t.files["b/f"]), "a/f" in t.files) for t in seeds(disk)} == {(b"new", False)}


def test_the_bytes_of_a_content_are_those_that_were_written() -> None:
    source = random.Random(1)
    content, right = Content(), bytearray()
    for _ in range(50):
        at, data = source.randrange(300_000), source.randbytes(source.randrange(90_000))
        content = content.written(at, memoryview(data))
        right.extend(bytes(max(0, at + len(data) - len(right))))
        right[at : at + len(data)] = data
        size = source.randrange(400_000)
        if source.random() < 0.2:
            content = content.truncated(size)
            right = bytearray(bytes(right[:size]).ljust(size, b"\0"))
        assert bytes(content) == right
    assert content == Content.of(bytes(right))


# -- a torn state file ----------------------------------------------------------------------------------


def index_of(folder: Path) -> Index:
    return Index(str(folder), "s3://b/", "/target", (1, 2))


@pytest.mark.long
def test_of_an_index_that_is_torn_anywhere_what_comes_before_holds(tmp_path: Path) -> None:
    records = {f"f{number}": Record(f"etag {number}", 5, 5, number, number) for number in range(3)}
    index = index_of(tmp_path)
    index.open((1, 2))
    for name, record in records.items():
        index.put({name: record})
    index.close()
    whole = Path(index.path).read_bytes()
    held = set()
    for end in range(len(whole)):
        for rest in (b"", bytes(len(whole) - end), b"\xff" * 40, b"\n"):
            Path(index.path).write_bytes(whole[:end] + rest)
            torn = index_of(tmp_path)
            assert all(torn.get(name) in (record, None) for name, record in records.items())
            kept = len(torn.paths())
            held.add(kept)
            torn.open((1, 2))
            torn.put({"new": records["f0"]})
            torn.close()
            again = index_of(tmp_path)
            assert (again.get("new"), len(again.paths())) == (records["f0"], kept + 1)
    assert held == {*range(4)}


@pytest.mark.long
def test_of_remembered_uploads_that_are_torn_anywhere_what_comes_before_holds(tmp_path: Path) -> None:
    for number in range(3):
        remember(str(tmp_path), "s3://b/", f"k{number}", f"id{number}")
    whole = (tmp_path / "uploads.log").read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for end in range(len(whole)):
        for rest in (b"", bytes(len(whole) - end)):
            (tmp_path / "uploads.log").write_bytes(whole[:end] + rest)
            before = {f"id{number}" for number, at in enumerate(ends) if at <= end}
            assert remembered(str(tmp_path)).keys() == before
            remember(str(tmp_path), "s3://b/", "k", "new")
            after = remembered(str(tmp_path)).keys()
            assert {*before, "new"} <= after <= {*(f"id{number}" for number in range(3)), "new"}


def test_what_was_announced_and_did_not_come_to_be_is_as_it_was(tmp_path: Path) -> None:
    old = Record("etag 1", 5, 5, 1, 1)
    index = index_of(tmp_path)
    index.open((1, 2))
    index.put({"a": old, "b": old})
    index.announce({"a": "etag 2", "b": "etag 2", "new": "etag 2"})
    assert index_of(tmp_path).get("a") == Record("etag 2", 0, -1, 0, 0)
    assert index_of(tmp_path).get("new") is None
    index.put({"b": Record("etag 2", 6, 6, 2, 2)})
    index.close()
    after = index_of(tmp_path)
    assert (after.get("a"), after.get("b")) == (old, Record("etag 2", 6, 6, 2, 2))


def test_temporaries_of_a_lost_machine_go_although_their_mark_says_nothing(put: Any, tmp_path: Path) -> None:
    own = tmp_path / "out" / ".nbdata"
    own.mkdir(parents=True)
    for name in ("0123456789ab0", "0123456789ab1", "ba98765432101f"):  # the last folder has lost its marker
        (own / name).write_bytes(b"")
        os.utime(own / name, (0, 0))
    (own / "aaaaaaaaaaaa1").write_bytes(b"")  # a young file: its marker may still follow
    nbdata.pull(put({"a": b"1"}), tmp_path / "out", quiet=True)
    assert [path.name for path in own.iterdir()] == ["aaaaaaaaaaaa1"]
