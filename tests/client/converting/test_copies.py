"""What ``get_files_or_dirs`` names is copied by the rules of other verbs: no pipe, no device, no records of nbdata."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import nbdata
from nbdata.client.converting.contract import Copy
from nbdata.client.converting.process import _copied
from nbdata.errors import SourceChanged, UnsafeMember
from nbdata.guarded_folders import GuardedFolders
from tests.client.converting.data import BYTES, module, tree

NAMED = BYTES + "\ndef get_files_or_dirs():\n    return ['ann']\n"


@pytest.fixture
def ann(tmp_path: Path) -> Path:
    """A folder that is to be copied, with a file."""
    module(tmp_path, NAMED)
    (tmp_path / "in/ann/sub").mkdir(parents=True)
    (tmp_path / "in/ann/sub/a.txt").write_text("a")
    return tmp_path / "in/ann"


def convert(folder: Path) -> nbdata.Report:
    report = nbdata.convert(folder / "dataset.py", folder / "in", folder / "out", quiet=True)
    assert isinstance(report, nbdata.Report)
    return report


def test_pipes_devices_and_links_that_lead_nowhere_are_left_out_and_named(tmp_path: Path, ann: Path) -> None:
    os.mkfifo(ann / "pipe")
    (ann / "zero").symlink_to("/dev/zero")
    (ann / "broken").symlink_to("nowhere")
    (ann / "folder").symlink_to(tmp_path)
    report = convert(tmp_path)
    assert report.counts == {"converted": 2, "copied": 1}
    assert tree(tmp_path / "out/files") == ["ann/sub/a.txt"]
    (note,) = [note for note in report.notes if "cannot be copied" in note]
    for name, kind in {"pipe": "named pipe", "zero": "device", "broken": "link that leads nowhere",
                       "folder": "link to a folder"}.items():  # fmt: skip
        assert f"{ann / name} ({kind})" in note


def test_many_that_are_left_out_are_counted(tmp_path: Path, ann: Path) -> None:
    for number in range(12):
        (ann / f"{number:02}").symlink_to("nowhere")
    (note,) = [note for note in convert(tmp_path).notes if "cannot be copied" in note]
    assert note.endswith("/04 (link that leads nowhere) and 7 more")


def test_a_pipe_that_is_named_itself_is_left_out(tmp_path: Path, ann: Path) -> None:
    shutil.rmtree(ann)
    os.mkfifo(ann)
    assert "cannot be copied" in " ".join(convert(tmp_path).notes)
    assert not (tmp_path / "out/files").exists()


def test_a_link_to_a_file_is_copied_as_that_file(tmp_path: Path, ann: Path) -> None:
    (tmp_path / "b.txt").write_text("b")
    (ann / "link").symlink_to(tmp_path / "b.txt")
    convert(tmp_path)
    assert not (tmp_path / "out/files/ann/link").is_symlink()
    assert (tmp_path / "out/files/ann/link").read_text() == "b"


def test_records_of_nbdata_are_not_copied(tmp_path: Path, ann: Path) -> None:
    for name in (".nbdata", "sub/.nbdata-1000"):
        (ann / name).mkdir()
        (ann / name / "x").write_text("a record")
    convert(tmp_path)
    assert tree(tmp_path / "out/files") == ["ann/sub/a.txt"]


@pytest.mark.parametrize("what", ["longer", "shorter", "pipe", "device"])
def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path, what: str) -> None:
    path = tmp_path / "a"
    path.write_text("abcdef")
    copy = Copy(str(path), "a", 6)
    if what in ("longer", "shorter"):
        path.write_text("abcdefg" if what == "longer" else "abc")
    else:
        path.unlink()
        os.mkfifo(path) if what == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(
        (SourceChanged, UnsafeMember), match=r"a file to copy changed|has the place of a file"
    ):
        list(_copied([copy], str(tmp_path / "out"), GuardedFolders(str(tmp_path / "out"))))
    assert tree(tmp_path / "out") == []


@pytest.mark.in_ci("deep/../link", "link/b.txt")
@pytest.mark.parametrize("named", ["link", "link/b.txt", "deep/../link", "deep/link/"])
def test_a_link_to_a_folder_leads_what_is_named_not_out_of_input(tmp_path: Path, named: str) -> None:
    """Whoever made INPUT put it there; DATASET.py names places of its own, too."""
    private = tmp_path / "private"
    private.mkdir()
    (private / "b.txt").write_text("b")
    names = [named, "within", (str(private), "own")]
    module(tmp_path, f"{BYTES}\ndef get_files_or_dirs():\n    return {names!r}\n")
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/a.txt").write_text("a")
    (tmp_path / "in/link").symlink_to(private)
    (tmp_path / "in/deep/link").symlink_to(private)
    (tmp_path / "in/within").symlink_to("deep")
    report = convert(tmp_path)
    assert tree(tmp_path / "out/files") == ["own/b.txt", "within/a.txt"]
    assert f"{tmp_path}/in/{named} (link to a folder)" in " ".join(report.notes)
