"""The index of samples: it reads what it wrote, for all keys and ETags, and reports damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbdata.errors import BadOption, NbdataError
from nbdata.formats.sample_index import IndexWriter, SampleIndex, SampleObject
from nbdata.formats.sample_objects import ShardMember

MD5 = '"900150983cd24fb0d6963f7d28e17f72"'
SAMPLES = {
    "a/1": [SampleObject("jpg", "a/1.jpg", 10, MD5), SampleObject("cls", "a/1.cls", 0, MD5)],
    "a/ü\udcff": [SampleObject("seg.png", "a/ü\udcff.seg.png", 1 << 40, '"abc-3"')],
    "odd": [
        SampleObject("mask", "masks/odd.png", 5, ""),
        SampleObject("jpg", "odd.JPG", -1, 'W/"x"', 1.5, "v1"),
        SampleObject("npy", "odd.npy", 7, MD5, None, "v2"),
    ],
    "bare": [SampleObject("", "bare", 1, MD5.upper())],
}


def written(tmp_path: Path) -> Path:
    writer = IndexWriter()
    for key, objects in SAMPLES.items():
        writer.add(key, objects)
    path = tmp_path / "x.idx"
    path.write_bytes(b"".join(writer.pieces({"prefix": "p/"})))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    index = SampleIndex(str(written(tmp_path)))
    assert len(index) == 4
    assert {index.key(number): index.objects(number) for number in range(4)} == SAMPLES
    assert [index.size(number) for number in range(4)] == [10, 1 << 40, 12, 1]
    assert (index.bytes, index.about["prefix"]) == (10 + (1 << 40) + 13, "p/")


def test_an_index_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = path.read_bytes()
    for size in (0, 7, 15, 40, len(data) // 2, len(data) - 9):
        path.write_bytes(data[:size])
        with pytest.raises(NbdataError, match="damaged"):
            SampleIndex(str(path))


def test_too_many_fields_are_told() -> None:
    writer = IndexWriter()
    for number in range(1 << 16):
        writer.add(str(number), [SampleObject(f"f{number}", f"{number}.f{number}", 1, MD5)])
    with pytest.raises(BadOption, match='by="file"'):
        writer.add("one more", [SampleObject("x", "one more.x", 1, MD5)])


def test_fields_that_come_twice_are_found() -> None:
    writer = IndexWriter()
    writer.add("a", [SampleObject("jpg", "a.jpg", 1, MD5), SampleObject("cls", "a.cls", 1, MD5)])
    writer.add("b", [SampleObject("jpg", "b.jpg", 1, MD5), SampleObject("jpg", "b.JPG", 1, MD5)])
    assert [writer.field_twice(0), writer.field_twice(1)] == [None, "jpg"]
    assert [writer.key(0), writer.key(1)] == ["a", "b"]


def of_shards(*numbers: int) -> IndexWriter:
    """Return the samples of some shards, with fields of their own, and paths other than KEY.FIELD."""
    writer = IndexWriter()
    for shard in numbers:
        for at in range(3):
            fields = [("jpg", shard, 100 * at, 10 + at, 7 * at), (f"f{shard}", shard, 100 * at + 50, 5, 1)]
            paths = [f"{shard}/ü{at}.jpg", f"odd/{shard}"] if at == 1 else []
            writer.add_members(f"{shard}/ü{at}", [ShardMember(*field) for field in fields], paths)
    return writer


def test_indexes_of_shards_joined_are_the_index_of_all(tmp_path: Path) -> None:
    whole = IndexWriter()
    for numbers in ((0,), (1, 2), (), (3,)):
        path = tmp_path / f"{numbers}"
        path.write_bytes(b"".join(of_shards(*numbers).pieces({})))
        whole.add_all(SampleIndex(str(path)))
    assert b"".join(whole.pieces({})) == b"".join(of_shards(0, 1, 2, 3).pieces({}))
