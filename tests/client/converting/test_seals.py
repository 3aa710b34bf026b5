"""Files of an unfinished split count only if this user's nbdata made them; others are made anew."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import NbdataError, UnsafeMember
from nbdata.ffrecord import GeneralDataset
from tests.client.converting.data import BYTES, module, tree

TRAIN = ".nbdata/converting/train"
EXPECTED = [f"train {n}".encode().ljust(1000, b".") for n in range(30)]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own; the conversions' keys are in it."""
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def convert(folder: Path) -> nbdata.Report:
    report = nbdata.convert(
        folder / "dataset.py", folder / "in", folder / "out", file_size="4KiB", quiet=True
    )
    assert isinstance(report, nbdata.Report)
    return report


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """The files of split ``train``, which an earlier run has made; it made all, and failed at the end."""
    flag = tmp_path / "late"
    flag.touch()
    # Its module stays the same, since that is part of what a conversion is.
    late = f"""
    def get_meta(self):
        import os
        assert not os.path.exists({str(flag)!r}), "not now"
"""
    module(tmp_path, BYTES.replace("\ndef get_datasets", late + "\ndef get_datasets"))
    with pytest.raises(NbdataError, match="not now"):
        convert(tmp_path)
    flag.unlink()
    made = sorted((tmp_path / "out" / TRAIN / "ffrdata").iterdir())
    assert len(made) == 6
    return made


def holds_what_it_should(folder: Path) -> None:
    assert GeneralDataset(folder / "out", "train")[list(range(30))] == EXPECTED
    assert not (folder / "out/.nbdata").exists()


def spoil(part: Path) -> None:
    """Put other samples into a file of the same form."""
    data = part.read_bytes()
    part.write_bytes(data.replace(b"train", b"fraud"))


def test_files_of_an_earlier_run_are_kept(tmp_path: Path, parts: list[Path]) -> None:
    assert convert(tmp_path).counts == {"unchanged": 8}
    holds_what_it_should(tmp_path)


def test_a_folder_that_another_user_made_is_made_anew(tmp_path: Path, parts: list[Path], state: Path) -> None:
    for part in parts:
        spoil(part)
    shutil.rmtree(state)  # so the seals are of another key
    report = convert(tmp_path)
    assert report.counts == {"converted": 8}
    assert "train: 6 files are made anew: no seal of yours is on what was there" in report.notes
    holds_what_it_should(tmp_path)


def test_a_file_that_was_put_in_the_place_of_one_is_made_anew(tmp_path: Path, parts: list[Path]) -> None:
    spoil(parts[2])
    report = convert(tmp_path)
    assert report.counts == {"converted": 1, "unchanged": 7}
    assert "train: 1 file is made anew: no seal of yours is on what was there" in report.notes
    holds_what_it_should(tmp_path)


@pytest.mark.needs("other users")
def test_a_file_of_another_owner_is_made_anew(tmp_path: Path, parts: list[Path]) -> None:
    """The owner of the folder can give it the size and the time that the seal is of."""
    found = parts[2].stat()
    spoil(parts[2])
    os.chown(parts[2], 54_321, 54_321)
    os.utime(parts[2], ns=(found.st_mtime_ns, found.st_mtime_ns))
    assert convert(tmp_path).counts == {"converted": 1, "unchanged": 7}
    holds_what_it_should(tmp_path)


def test_a_record_that_claims_a_file_is_not_believed(tmp_path: Path, parts: list[Path]) -> None:
    spoil(parts[0])
    record = tmp_path / "out" / f"{TRAIN}.begun"
    said = json.loads(record.read_text())
    found = parts[0].lstat()
    said["parts"][parts[0].name] = [found.st_size, found.st_mtime_ns]
    record.write_text(json.dumps(said))
    assert convert(tmp_path).counts == {"converted": 6, "unchanged": 2}
    holds_what_it_should(tmp_path)


def test_a_record_of_the_format_before_seals_is_not_believed(tmp_path: Path, parts: list[Path]) -> None:
    record = tmp_path / "out" / f"{TRAIN}.begun"
    identity = json.loads(record.read_text())["identity"]
    record.unlink()
    (tmp_path / "out" / TRAIN / "begun.json").write_text(json.dumps({"identity": identity}))
    assert convert(tmp_path).counts == {"converted": 6, "unchanged": 2}
    holds_what_it_should(tmp_path)
    assert not (tmp_path / "out/train/begun.json").exists()


@pytest.mark.in_ci("pipe", "deep", 1)
@pytest.mark.parametrize("what", ["pipe", "folder", "zeros", "deep", "list", "text"])
def test_what_is_no_record_is_none(tmp_path: Path, parts: list[Path], what: str) -> None:
    record = tmp_path / "out" / f"{TRAIN}.begun"
    record.unlink()
    if what == "pipe":
        os.mkfifo(record)
    elif what == "folder":
        record.mkdir()
    elif what == "zeros":
        record.symlink_to("/dev/zero")
    else:
        record.write_text(
            {"deep": "[" * 100_000, "list": "[5]", "text": '{"identity": 5, "parts": [], "seal": {}}'}[what]
        )
    assert convert(tmp_path).counts == {"converted": 6, "unchanged": 2}
    holds_what_it_should(tmp_path)


def test_a_kill_after_the_last_rename_leaves_nothing_behind(tmp_path: Path, parts: list[Path]) -> None:
    record = tmp_path / "out" / f"{TRAIN}.begun"
    kept = record.read_bytes()
    convert(tmp_path)
    record.parent.mkdir(parents=True)
    record.write_bytes(kept)
    assert convert(tmp_path).counts == {"unchanged": 8}
    assert not (tmp_path / "out/.nbdata").exists()


def test_files_beside_the_splits_are_not_copied_through_a_link(tmp_path: Path) -> None:
    module(tmp_path, BYTES + "\ndef get_files_or_dirs():\n    return [('a.txt', 'sub/a.txt')]\n")
    (tmp_path / "in/a.txt").write_text("new")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "out/files").mkdir(parents=True)
    (tmp_path / "out/files/sub").symlink_to(tmp_path / "theirs")
    with pytest.raises(UnsafeMember, match="leads out of the target"):
        convert(tmp_path)
    assert tree(tmp_path / "theirs") == []
