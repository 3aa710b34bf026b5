"""Readers of data sets that somebody else made wait for no pipe, read no device, and pack no records of nbdata."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.client.records.named import NamedRecords
from nbdata.errors import BadOption, NbdataError, UnsafeMember
from nbdata.ffrecord import FileWriter, GeneralDataset, PackedFolder, pack_folder
from nbdata.formats.ffrecord import HeadWriter
from nbdata.formats.packed_folder import MARK


def a_pipe(at: Path) -> None:
    os.mkfifo(at)


def a_device(at: Path) -> None:
    at.symlink_to("/dev/zero")


def a_folder(at: Path) -> None:
    at.mkdir()


KINDS = [a_pipe, a_device, a_folder]


def records(folder: Path) -> Path:
    folder.mkdir(parents=True)
    with FileWriter(folder / "PART_00000.ffr", n=2) as writer:
        writer.write_one(b"a")
        writer.write_one(b"b")
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["nbdata.json", "meta.pkl", "meta.json"])
def test_records_beside_a_split_are_files(tmp_path: Path, kind: Callable[[Path], None], name: str) -> None:
    folder = records(tmp_path / "train/ffrdata").parent
    if name != "nbdata.json":
        (folder / "nbdata.json").write_text('{"stored": "bytes"}')
    kind(folder / name)
    with pytest.raises(UnsafeMember, match="has the place of a file") as told:
        GeneralDataset(tmp_path, "train")
    assert told.value.path == str(folder / name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["filename2idx.json", "filename2idx.pkl"])
def test_an_index_of_names_is_a_file(tmp_path: Path, kind: Callable[[Path], None], name: str) -> None:
    kind(records(tmp_path / "train") / name)
    with pytest.raises(UnsafeMember, match="has the place of a file"):
        NamedRecords(tmp_path / "train")


def a_hole(at: Path) -> None:
    """Make a file of 64 MiB that takes no room; one of terabytes takes none, either."""
    with open(at, "wb") as file:
        file.truncate(64 << 20)


@pytest.mark.parametrize("name", ["nbdata.json", "filename2idx.json", "filename2idx.pkl"])
def test_a_record_that_is_larger_than_it_can_be_is_refused(tmp_path: Path, name: str) -> None:
    folder = records(tmp_path / "train/ffrdata").parent
    a_hole(folder / name if name == "nbdata.json" else folder / "ffrdata" / name)
    with pytest.raises(NbdataError, match="larger than its content can be"):
        GeneralDataset(tmp_path, "train") if name == "nbdata.json" else NamedRecords(folder / "ffrdata")


@pytest.mark.parametrize("reader", [PackedFolder, nbdata.samples])
def test_names_of_a_packed_folder_in_a_hole_are_refused(
    tmp_path: Path, reader: Callable[[str], object]
) -> None:
    head = HeadWriter([1, 64 << 20])
    head.found(0, zlib.crc32(b"x"))
    with open(tmp_path / "a.ffr", "wb") as file:
        file.write(b"".join(head.pieces()) + b"x" + MARK)
        file.truncate(head.starts()[-1])
    with pytest.raises(BadOption, match="the names of this packed folder are too large"):
        reader(str(tmp_path / "a.ffr"))


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    folder = records(tmp_path / "train/ffrdata").parent
    (folder / "nbdata.json").write_text('{"stored": "bytes"}')
    (tmp_path / "meta").write_text('{"a": 1}')
    (folder / "meta.json").symlink_to(tmp_path / "meta")
    assert GeneralDataset(tmp_path, "train").meta == {"a": 1}


def test_a_packed_folder_has_no_records_of_nbdata(tmp_path: Path) -> None:
    for name in (".nbdata/x", "sub/.nbdata-1000/x", "sub/a.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)
    pack_folder(tmp_path / "in", tmp_path / "in.ffr")
    with PackedFolder(tmp_path / "in.ffr") as packed:
        assert list(packed.files()) == ["sub/a.txt"]
        assert packed.list() == ["sub"]


def test_a_pipe_that_takes_the_place_of_a_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbdata.client.records import packed

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsafeMember, match="has the place of a file"):
        packed._read(str(tmp_path / "pipe"), 5)
