"""Unfinished splits are in an own folder that this user finds again, and that nobody else enters."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.client.converting import conversion
from nbdata.errors import NbdataError
from tests.client.converting.data import BYTES, module, tree

# It fails once, after its files are made.
FAILS = BYTES.replace(
    "\ndef get_datasets",
    """
    def get_meta(self):
        import pathlib
        failing = pathlib.Path(FAILING)
        assert not failing.exists(), "not now"

def get_datasets""",
)


@pytest.fixture(params=["002", "022", "077", "000"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(mask := int(request.param, 8))
    yield mask
    os.umask(before)


@pytest.fixture(params=[0o1777, 0o2775, 0o755])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The folder of a data set, in which others may write, or not."""
    path = tmp_path / "out"
    path.mkdir()
    path.chmod(request.param)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode) & 0o777


def convert(folder: Path) -> nbdata.Report:
    report = nbdata.convert(folder / "dataset.py", folder / "in", folder / "out", quiet=True)
    assert isinstance(report, nbdata.Report)
    return report


@pytest.mark.in_ci("1533-022")
def test_the_folder_of_an_unfinished_split_is_found_again_and_closed_to_others(
    tmp_path: Path, folder: Path, umask: int
) -> None:
    failing = tmp_path / "failing"
    failing.touch()
    module(tmp_path, FAILS.replace("FAILING", repr(str(failing))))
    with pytest.raises(NbdataError, match="not now"):
        convert(tmp_path)
    assert mode(folder / ".nbdata") == (0o755 if mode(folder) & 0o022 else 0o700) & ~umask
    assert mode(folder / ".nbdata/converting") == 0o700
    failing.unlink()
    assert convert(tmp_path).counts == {"unchanged": 2}, "its files are used"
    assert sorted(os.listdir(folder)) == ["train", "val"]
    for made in (folder / "train", folder / "train/ffrdata"):
        assert mode(made) == 0o777 & ~umask, "a finished split is as any new folder"
    for name in tree(folder):
        assert mode(folder / name) == 0o666 & ~umask


def test_the_folders_are_made_again_if_another_conversion_removes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, left = conversion.make_unfinished_folder, [3]

    def removed(folder: str) -> str:
        path = make(folder)
        if left[0]:
            left[0] -= 1
            shutil.rmtree(folder)
        return path

    monkeypatch.setattr(conversion, "make_unfinished_folder", removed)
    module(tmp_path, BYTES)
    assert convert(tmp_path).counts == {"converted": 2}
    assert left == [0]
