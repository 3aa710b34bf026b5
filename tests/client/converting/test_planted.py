"""Files and links that somebody puts beside an unfinished split get into no data set, and lead no write elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import NbdataError
from nbdata.ffrecord import FileReader, GeneralDataset
from tests.client.converting.data import BYTES, module, tree

TRAIN = ".nbdata/converting/train"
FILES = ["ffrdata/PART_00000.ffr", "meta.json", "meta.pkl", "nbdata.json"]
# ``get_meta`` runs after the last file is made, and before those beside it. It fails once, and runs `late.py`.
META = """
    def get_meta(self):
        import pathlib, sys
        failing, late = pathlib.Path({folder!r}, "failing"), pathlib.Path({folder!r}, "late.py")
        assert not failing.exists(), "not now"
        if self.name == "train" and late.exists():
            exec(late.read_text(), {{}})
        return {{"classes": ["a", "b"]}}
"""


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    """A file of the user, which must stay as it is."""
    path = tmp_path / "thesis.txt"
    path.write_text("thesis")
    return path


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """The folder of an unfinished split: its only file is whole."""
    meta = META.format(folder=str(tmp_path))
    module(tmp_path, BYTES.replace("\ndef get_datasets", meta + "\ndef get_datasets"))
    (tmp_path / "failing").touch()
    with pytest.raises(NbdataError, match="not now"):
        convert(tmp_path)
    (tmp_path / "failing").unlink()
    assert tree(tmp_path / "out" / TRAIN) == FILES[:1]
    return tmp_path / "out" / TRAIN


def convert(folder: Path) -> nbdata.Report:
    report = nbdata.convert(folder / "dataset.py", folder / "in", folder / "out", quiet=True)
    assert isinstance(report, nbdata.Report)
    return report


def holds_what_it_should(folder: Path) -> None:
    out = folder / "out"
    assert [path.name for path in (out / "train").rglob("*") if path.is_symlink()] == []
    assert tree(out / "train") == FILES
    assert len(list((out / "train").rglob("*"))) == 5, "and no pipe"
    assert json.loads((out / "train/meta.json").read_text()) == {"classes": ["a", "b"]}
    assert len(GeneralDataset(out, "train")) == FileReader(out / "train/ffrdata").n == 30
    assert not (out / ".nbdata").exists()


def a_link(at: Path, thesis: Path) -> None:
    at.symlink_to(thesis)


def a_dangling_link(at: Path, thesis: Path) -> None:
    at.symlink_to(thesis.parent / "none")


def a_pipe(at: Path, thesis: Path) -> None:
    os.mkfifo(at)


def a_folder(at: Path, thesis: Path) -> None:
    (at / "inner").mkdir(parents=True)
    (at / "inner/link").symlink_to(thesis.parent)


def a_file(at: Path, thesis: Path) -> None:
    at.write_text("theirs")


KINDS = [a_link, a_dangling_link, a_pipe, a_folder, a_file]
PLACES = ["meta.json", "meta.pkl", "nbdata.json", "extra.txt", "ffrdata/PART_00099.ffr", "ffrdata/extra.txt"]


@pytest.mark.in_ci("a_link", "a_folder", 1)
@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_beside_the_files_of_an_earlier_run_is_removed(
    tmp_path: Path, split: Path, thesis: Path, kind: Callable[[Path, Path], None]
) -> None:
    for place in PLACES:
        kind(split / place, thesis)
    assert convert(tmp_path).counts == {"unchanged": 2}
    holds_what_it_should(tmp_path)
    assert thesis.read_text() == "thesis"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_ci("a_dangling_link")
def test_what_is_put_beside_the_files_during_the_run_is_removed(
    tmp_path: Path, split: Path, thesis: Path, kind: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "late.py").write_text(
        "import pathlib\n"
        f"from tests.client.converting.test_planted import {kind.__name__}\n"
        f"for place in {PLACES}:\n"
        f"    {kind.__name__}(pathlib.Path({str(split)!r}, place), pathlib.Path({str(thesis)!r}))\n"
    )
    assert convert(tmp_path).counts == {"unchanged": 2}
    holds_what_it_should(tmp_path)
    assert thesis.read_text() == "thesis"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("what", ["link", "pipe", "none", "other bytes"])
@pytest.mark.in_ci("link")
def test_a_file_that_is_exchanged_during_the_run_is_refused_and_made_anew(
    tmp_path: Path, split: Path, what: str
) -> None:
    part, copy = split / FILES[0], tmp_path / "copy"
    copy.write_bytes(part.read_bytes().replace(b"train", b"fraud"))
    how = {"link": f"os.symlink({str(copy)!r}, part)", "pipe": "os.mkfifo(part)", "none": "pass",
           "other bytes": f"os.rename({str(copy)!r}, part)"}[what]  # fmt: skip
    (tmp_path / "late.py").write_text(f"import os\npart = {str(part)!r}\nos.unlink(part)\n{how}\n")
    with pytest.raises(
        NbdataError, match=r"changed or removed by somebody else.*makes this file anew"
    ) as told:
        convert(tmp_path)
    assert told.value.path == str(part)
    assert not (tmp_path / "out/train").exists()
    (tmp_path / "late.py").unlink()
    assert convert(tmp_path).counts == {"converted": 1, "unchanged": 1}
    holds_what_it_should(tmp_path)
    assert GeneralDataset(tmp_path / "out", "train")[0].startswith(b"train 0.")
