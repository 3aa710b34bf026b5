"""A finished split counts as unchanged only with this user's seal on its record, and with the files of that record."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import BadOption, NbdataError
from nbdata.ffrecord import FileReader, GeneralDataset
from nbdata.seals import Seals
from tests.client.converting.data import BYTES, module

NOTE = "train: 6 files are made anew: no seal of yours is on what was there"
EXPECTED = [f"train {n}".encode().ljust(1000, b".") for n in range(30)]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own; the key of the seals is in it."""
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def convert(folder: Path, **options: object) -> nbdata.Report:
    report = nbdata.convert(
        folder / "dataset.py", folder / "in", folder / "out", file_size="4KiB", quiet=True, **options
    )
    assert isinstance(report, nbdata.Report)
    return report


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A finished split of this user."""
    module(tmp_path, BYTES)
    assert convert(tmp_path).counts == {"converted": 8}
    return tmp_path / "out/train"


@pytest.fixture
def converting(tmp_path: Path, train: Path) -> Path:
    """The folder of unfinished splits."""
    folder = tmp_path / "out/.nbdata/converting"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    return folder


def holds_what_it_should(folder: Path) -> None:
    assert FileReader(folder / "out/train/ffrdata").n == 30
    assert GeneralDataset(folder / "out", "train")[list(range(30))] == EXPECTED


def spoil(split: Path) -> None:
    """Put other samples into a file of a split, and let its record say so."""
    part = split / "ffrdata/PART_00002.ffr"
    part.write_bytes(part.read_bytes().replace(b"train", b"fraud"))
    record = json.loads((split / "nbdata.json").read_text())
    record["files"][2]["mtime_ns"] = part.stat().st_mtime_ns
    (split / "nbdata.json").write_text(json.dumps(record))


def forged(train: Path) -> None:
    """Make a split that of another user, who has converted the same data set and changed it."""
    record = json.loads((train / "nbdata.json").read_text())
    record["seal"] = "0" * len(record["seal"])
    (train / "nbdata.json").write_text(json.dumps(record))
    spoil(train)


def test_a_split_of_another_user_is_made_anew(tmp_path: Path, train: Path, state: Path) -> None:
    shutil.rmtree(state)
    spoil(train)
    report = convert(tmp_path)
    assert report.counts == {"converted": 8}
    assert NOTE in report.notes
    holds_what_it_should(tmp_path)
    assert convert(tmp_path).counts == {"unchanged": 8}


def test_the_plan_says_that_a_split_of_another_user_is_made_anew(tmp_path: Path, train: Path) -> None:
    forged(train)
    operation = nbdata.Convert(
        str(tmp_path / "dataset.py"), str(tmp_path / "in"), str(tmp_path / "out"), file_size=4096
    )
    plan = operation.plan()
    assert plan.actions["replace"][0] == 6
    assert plan.actions["unchanged"][0] == 2
    assert NOTE in plan.notes


@pytest.mark.parametrize("seal", [None, "", 5, "é" * 32, ["x"], "0" * 32])
@pytest.mark.in_ci("None", "seal4", 1)
def test_a_split_with_another_seal_is_made_anew(tmp_path: Path, train: Path, seal: object) -> None:
    record = json.loads((train / "nbdata.json").read_text())
    (train / "nbdata.json").write_text(json.dumps({**record, "seal": seal}))
    report = convert(tmp_path)
    assert report.counts == {"converted": 6, "unchanged": 2}
    assert NOTE in report.notes


def test_a_link_to_another_split_of_this_user_does_not_get_the_name(
    tmp_path: Path, train: Path, converting: Path
) -> None:
    train.rename(tmp_path / "elsewhere")
    (converting / "train.old").symlink_to(tmp_path / "elsewhere")
    assert convert(tmp_path).counts == {"converted": 6, "unchanged": 2}
    assert not train.is_symlink()
    holds_what_it_should(tmp_path)
    assert FileReader(tmp_path / "elsewhere/ffrdata").n == 30


def test_a_replaced_split_without_a_seal_does_not_get_the_name(
    tmp_path: Path, train: Path, converting: Path
) -> None:
    """A data set may come with one, for a conversion that fails."""
    forged(train)
    train.rename(converting / "train.old")
    module(tmp_path, BYTES.replace("def serialize_sample", "def other"))
    with pytest.raises(NbdataError):
        convert(tmp_path, store="bytes")
    assert not train.exists()
    module(tmp_path, BYTES)
    assert convert(tmp_path).counts == {"converted": 6, "unchanged": 2}
    holds_what_it_should(tmp_path)


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("record", ["edited", "as it was"])
def test_a_split_with_a_file_of_somebody_else_is_made_anew(tmp_path: Path, train: Path, record: str) -> None:
    before = (train / "nbdata.json").read_text()
    spoil(train)
    if record == "as it was":
        (train / "nbdata.json").write_text(before)
    report = convert(tmp_path)
    assert report.counts == {"converted": 6, "unchanged": 2}
    assert NOTE in report.notes
    holds_what_it_should(tmp_path)


def exchanged_by_another(part: Path) -> None:
    """Exchange a file for another user's, of the same size and time."""
    found = part.stat()
    part.write_bytes(part.read_bytes().replace(b"train", b"fraud"))
    os.chown(part, 54_321, 54_321)
    os.utime(part, ns=(found.st_mtime_ns, found.st_mtime_ns))


@pytest.mark.needs("other users")
def test_a_split_with_a_file_of_another_owner_is_made_anew(tmp_path: Path, train: Path) -> None:
    """The owner of the folder can put it there, beside the sealed record."""
    exchanged_by_another(train / "ffrdata/PART_00002.ffr")
    report = convert(tmp_path)
    assert report.counts == {"converted": 6, "unchanged": 2}
    assert NOTE in report.notes
    holds_what_it_should(tmp_path)


@pytest.mark.needs("other users")
def test_a_split_with_a_file_of_another_owner_does_not_take_the_name_after_a_kill(
    tmp_path: Path, train: Path, converting: Path
) -> None:
    shutil.copytree(train, converting / "train")
    exchanged_by_another(converting / "train/ffrdata/PART_00002.ffr")
    train.rename(converting / "train.old")
    assert convert(tmp_path).counts == {"unchanged": 8}, "the earlier split has its name again"
    holds_what_it_should(tmp_path)


def test_a_file_that_is_a_link_is_none_of_a_split(tmp_path: Path, train: Path) -> None:
    part, elsewhere = train / "ffrdata/PART_00002.ffr", tmp_path / "elsewhere.ffr"
    part.rename(elsewhere)
    part.symlink_to(elsewhere)
    assert convert(tmp_path).counts == {"converted": 6, "unchanged": 2}
    assert not part.is_symlink()
    assert elsewhere.is_file()


def test_a_record_without_data_is_no_split(tmp_path: Path, train: Path) -> None:
    record = json.loads((train / "nbdata.json").read_text())
    shutil.rmtree(train / "ffrdata")
    (train / "nbdata.json").write_text(json.dumps({**record, "files": []}))
    report = convert(tmp_path)
    assert report.counts == {"converted": 6, "unchanged": 2}
    assert NOTE in report.notes
    holds_what_it_should(tmp_path)


def test_a_split_with_one_file_more_is_made_anew(tmp_path: Path, train: Path) -> None:
    shutil.copy2(tmp_path / "out/val/ffrdata/PART_00000.ffr", train / "ffrdata/PART_00099.ffr")
    assert convert(tmp_path).counts == {"converted": 6, "unchanged": 2}
    holds_what_it_should(tmp_path)


def test_a_sealed_record_that_names_other_files_is_that_of_another_split(
    tmp_path: Path, train: Path, state: Path
) -> None:
    record = json.loads((train / "nbdata.json").read_text())
    (train / record["files"].pop()["name"]).unlink()
    del record["seal"]
    record["seal"] = Seals(str(state)).of("converted", "train", record)
    (train / "nbdata.json").write_text(json.dumps(record))
    assert convert(tmp_path).counts == {"converted": 6, "unchanged": 2}
    holds_what_it_should(tmp_path)


def test_a_split_that_lacks_a_file_is_made_anew_without_a_word_of_seals(tmp_path: Path, train: Path) -> None:
    (train / "ffrdata/PART_00003.ffr").unlink()
    report = convert(tmp_path)
    assert report.counts == {"converted": 6, "unchanged": 2}
    assert not any("seal" in note for note in report.notes)
    holds_what_it_should(tmp_path)


def test_a_split_that_is_another_one_is_replaced_without_a_word_of_seals(tmp_path: Path, train: Path) -> None:
    forged(train)
    module(tmp_path, BYTES + "\n# changed")
    report = convert(tmp_path)
    assert report.counts == {"converted": 8}
    assert not any("seal" in note for note in report.notes)


def test_a_split_of_another_user_is_refused_where_nothing_may_be_replaced(
    tmp_path: Path, train: Path
) -> None:
    forged(train)
    with pytest.raises(BadOption, match="holds something else"):
        convert(tmp_path, overwrite="never")


def test_a_data_set_may_be_moved_and_copied_with_its_times(tmp_path: Path, train: Path) -> None:
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "copy").rename(tmp_path / "out")
    assert convert(tmp_path).counts == {"unchanged": 8}


def test_a_sealed_split_gets_its_name_after_a_kill_between_the_renames(
    tmp_path: Path, train: Path, converting: Path
) -> None:
    shutil.copytree(train, converting / "train.old")
    forged(converting / "train.old")
    train.rename(converting / "train")
    (converting / "train.begun").write_text("{}")
    assert convert(tmp_path).counts == {"unchanged": 8}
    holds_what_it_should(tmp_path)
    assert not (tmp_path / "out/.nbdata").exists()


@pytest.mark.in_ci("no record", "one file more", 1)
@pytest.mark.parametrize("how", ["no seal", "other file", "one file more", "other split", "no record"])
def test_a_split_without_a_seal_does_not_take_the_name_of_one_after_a_kill(
    tmp_path: Path, train: Path, converting: Path, how: str
) -> None:
    evil = converting / "train"
    shutil.copytree(tmp_path / "out/val" if how == "other split" else train, evil)
    if how == "no seal":
        forged(evil)
    elif how == "other file":
        record = (evil / "nbdata.json").read_bytes()
        spoil(evil)
        (evil / "nbdata.json").write_bytes(record)
    elif how == "one file more":
        shutil.copy2(evil / "ffrdata/PART_00000.ffr", evil / "ffrdata/PART_00099.ffr")
    elif how == "no record":
        (evil / "nbdata.json").unlink()
        os.mkfifo(evil / "nbdata.json")
    train.rename(converting / "train.old")
    assert convert(tmp_path).counts == {"unchanged": 8}, "the earlier split has its name again"
    holds_what_it_should(tmp_path)


def test_a_whole_split_and_an_earlier_one_of_somebody_else_are_both_made_anew(
    tmp_path: Path, train: Path, converting: Path
) -> None:
    forged(train)
    shutil.copytree(train, converting / "train.old")
    train.rename(converting / "train")
    report = convert(tmp_path)
    assert report.counts == {"converted": 6, "unchanged": 2}
    assert NOTE in report.notes
    holds_what_it_should(tmp_path)
    assert not (tmp_path / "out/.nbdata").exists()
