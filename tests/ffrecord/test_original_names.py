"""The smaller names of the ffrecord library: dump, ReaderRegistry, checkFsAlign and __version__."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata import BadOption, ffrecord
from nbdata.ffrecord import FileReader
from nbdata.ffrecord.utils import dump
from nbdata.loaders.ffrecord import Dataset, ReaderRegistry
from tests.ffrecord.test_files import contents, write


class Texts(Sequence[Any]):
    """Numbers as texts; like many data sets, these cannot be pickled."""

    def __init__(self, count: int, broken: int = -1) -> None:
        self.count, self.broken, self.lock = count, broken, threading.Lock()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        if index == self.broken:
            raise ArithmeticError(f"sample {index}")
        return b"%d" % index


@pytest.mark.in_ci("10-16-10")
@pytest.mark.parametrize(("count", "files", "made"), [(200, 8, 8), (200, 64, 50), (10, 16, 10), (0, 2, 1)])
def test_a_data_set_is_dumped_into_several_files(
    tmp_path: Path, count: int, files: int, made: int, recwarn: pytest.WarningsRecorder
) -> None:
    dump(Texts(count), tmp_path / "x", nfiles=files)
    assert sorted(os.listdir(tmp_path / "x")) == [f"PART_{number:05d}.ffr" for number in range(made)]
    assert contents(FileReader(tmp_path / "x")) == [b"%d" % number for number in range(count)]
    assert [str(one.message) for one in recwarn] == (
        [f"{count} samples make {made} files, not {files}"] if made != files else []
    )


def test_a_data_set_is_dumped_into_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ffrecord.utils.dump(Texts(20), tmp_path / "x.ffr", 1, verbose=True)
    assert contents(FileReader(tmp_path / "x.ffr")) == [b"%d" % number for number in range(20)]
    assert capsys.readouterr().out == f"{tmp_path}/x.ffr: 20 samples\n"


def test_an_error_of_one_sample_is_raised_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ArithmeticError, match="sample 17"):
        dump(Texts(40, broken=17), tmp_path / "x", nfiles=4)
    assert os.listdir(tmp_path / "x") == []


def test_what_would_be_read_with_other_files_is_not_dumped(tmp_path: Path) -> None:
    write(tmp_path / "PART_00007.ffr", [b"old"])
    with pytest.raises(BadOption, match=r"already has FFRecord files \(PART_00007\.ffr\)"):
        dump(Texts(4), tmp_path, nfiles=2)
    assert os.listdir(tmp_path) == ["PART_00007.ffr"]
    with pytest.raises(BadOption, match="pack --format ffrecord"):
        dump(Texts(4), "s3://bucket/x", nfiles=2)
    with pytest.raises(BadOption, match="nfiles=0"):
        dump(Texts(4), tmp_path / "y", nfiles=0)


def test_a_registry_lists_the_readers_of_its_attributes(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ffr", [b"1"])

    class Pair(ReaderRegistry):
        def __init__(self) -> None:
            self.one, self.other = FileReader(path), FileReader(path)

    class Data(Dataset):
        def __init__(self) -> None:
            self.pair, self.size = Pair(), 3
            self.reader = FileReader(path)

    data = Data()
    assert data.ffreaders() == [data.reader, data.pair.one, data.pair.other]
    del data.pair
    assert data.ffreaders() == [data.reader]
    assert ffrecord.ReaderRegistry is ReaderRegistry


def test_a_file_system_that_needs_no_aligned_reads_is_none_of_the_originals(tmp_path: Path) -> None:
    with open(tmp_path / "x", "wb") as file:
        assert ffrecord.checkFsAlign(file.fileno()) is False


def test_the_version_is_that_of_nbdata() -> None:
    assert ffrecord.__version__ == nbdata.__version__
