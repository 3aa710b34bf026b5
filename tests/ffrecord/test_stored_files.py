"""FileReader on a real store works as on the disk, with ranged reads."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata import BadArchive, BadOption, ChecksumMismatch, NotFound
from nbdata.ffrecord import FileReader, PackedFolder, pack_folder
from tests.ffrecord.test_files import contents, made

Put = Callable[[dict[str, bytes]], str]
SAMPLES = [os.urandom(size % 3000) for size in range(0, 60_000, 700)]


@pytest.fixture
def place(put: Put) -> str:
    return put(
        {"a/PART_0.ffr": made(SAMPLES[:50]), "a/PART_1.ffr": made(SAMPLES[50:]), "a/b/PART_2.ffr": made([])}
    )


def test_files_of_a_store_are_read_as_those_of_the_disk_are(place: str, tmp_path: Path) -> None:
    with FileReader(f"{place}a/") as reader:
        assert reader.fnames == [f"{place}a/PART_0.ffr", f"{place}a/PART_1.ffr"]
        assert contents(reader) == SAMPLES
        one, same = reader.read([3, 3])
        one[0] ^= 1
        assert bytes(same) == SAMPLES[3]
        assert reader.get_offsets(1)[0] == 12 + 12 * (len(SAMPLES) - 50)
        with pytest.raises(BadOption, match="there is no sample -1"):
            reader.read_one(-1)
        with pickle.loads(pickle.dumps(reader)) as again:
            assert contents(again) == SAMPLES
        pid = os.fork()
        if not pid:
            os._exit(0 if contents(reader) == SAMPLES else 1)
        assert os.waitpid(pid, 0)[1] == 0
    (tmp_path / "x.ffr").write_bytes(made([b"local"]))
    with FileReader([tmp_path / "x.ffr", f"{place}a/PART_1.ffr"]) as mixed:
        assert contents(mixed) == [b"local", *SAMPLES[50:]]


def test_a_packed_folder_in_a_store(put: Put, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/one").write_bytes(b"1")
    pack_folder(tmp_path / "in", tmp_path / "x.ffr")
    with PackedFolder(put({"x.ffr": (tmp_path / "x.ffr").read_bytes()}) + "x.ffr") as folder:
        assert bytes(folder.read_one("one")) == b"1"


def test_damage_is_found(put: Put) -> None:
    whole = made(SAMPLES)
    place = put(
        {"cut.ffr": whole[:-1], "spoilt.ffr": whole[:-1] + bytes([whole[-1] ^ 1]), "empty.ffr": bytes(99)}
    )
    for name in ("cut", "spoilt"):
        with FileReader(f"{place}{name}.ffr") as reader, pytest.raises(ChecksumMismatch):
            contents(reader)
    with FileReader(f"{place}spoilt.ffr", check_data=False) as reader:
        assert len(contents(reader)) == len(SAMPLES)
    with pytest.raises(BadArchive, match="never finished"):
        FileReader(f"{place}empty.ffr")


def test_options_that_make_no_sense_are_refused(place: str) -> None:
    with pytest.raises(BadOption, match="on the disk"):
        FileReader(f"{place}a/", mapped=True)
    with pytest.raises(NotFound):
        FileReader(f"{place}no.ffr")
    secret = {"key": "k", "secret": "s"}
    with pytest.raises(BadOption, match="not pickled"):
        pickle.dumps(_with(place, secret))


def _with(place: str, options: dict[str, str]) -> FileReader:
    reader = FileReader(f"{place}a/")
    object.__setattr__(reader._operation, "storage_options", options)
    return reader


def test_a_header_too_large_for_memory_is_refused_before_it_is_read(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "nbdata.reading.records.remote"
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}._MOST_HEADS", 12 + 12 * 50)
        with pytest.raises(BadArchive, match="too large to be held in memory together"):
            FileReader(f"{place}a/")
    monkeypatch.setattr(f"{module}._MOST_HEAD", 12 + 12 * 49)
    with pytest.raises(BadArchive, match=r"too large to be held in memory: .*PART_0\.ffr .*got 612"):
        FileReader(f"{place}a/")
