"""Who can rename folders gives none of them, and nothing in them, to nbdata to delete."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.cache.kept_folder import KeptFolder
from nbdata.engine.job.task import Task
from nbdata.engine.upkeep import cleanup
from nbdata.errors import UnsafeMember
from nbdata.made_folders import MADE, MadeFolders
from nbdata.report import Snapshot
from nbdata.runtime import state_folder
from nbdata.seals import Seals
from nbdata.transfer.marks import mark_of
from nbdata.transfer.part_records import names
from nbdata.transfer.target_folder import TargetFolder
from tests.client.converting.data import BYTES, module
from tests.hostile.users import ANNA, BERT, User, anna, reachable

__all__ = ["anna", "reachable"]

pytestmark = [pytest.mark.needs("other users"), pytest.mark.usefixtures("inline")]

CACHE, OF = "cache-0123456789abcdef", "s3://bucket/x/"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def given(path: Path, owner: int) -> None:
    """Give a folder, and all that is in it, to a user."""
    for each in (path, *path.rglob("*")):
        os.chown(each, owner, owner, follow_symlinks=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/x.bin").write_bytes(b"x" * 10)
    return tmp_path / "source"


# -- a folder of this user's gets the name of nbdata's ----------------------------------------------


@pytest.fixture
def his(tmp_path: Path) -> Path:
    """A sticky folder of Bert's, in which he can rename the folders of others."""
    folder = tmp_path / "his"
    folder.mkdir()
    os.chown(folder, BERT, BERT)
    folder.chmod(0o1777)
    return folder


@pytest.mark.in_ci(".nbdata")
@pytest.mark.parametrize("name", [".nbdata", f".nbdata-{ANNA}"])
def test_files_of_the_user_stay_in_a_folder_that_somebody_called_nbdata(
    anna: User, his: Path, source: Path, name: str
) -> None:
    objects = his / "objects"
    for path in (
        "5f2d1c0e9b1e8a3d4c6f7a8b", "5f2d1c0e9b1e0", names("other.bin")[0], "readme.txt", "converting/plan.txt",
        f"{CACHE}/model", "kept-0123456789abcdef/notes",
    ):  # fmt: skip
        (objects / path).parent.mkdir(parents=True, exist_ok=True)
        (objects / path).write_text("the only copy")
        os.utime(objects / path, (1_000_000_000, 1_000_000_000))
    given(objects, ANNA)
    before = files(objects)
    own = objects.rename(his / name)
    assert anna.nbdata("pull", f"{source}/", f"{his}/").returncode == 0
    assert files(own) == before
    for words in ((), ("--all",)):
        done = anna.nbdata("cleanup", his, *words)
        assert done.returncode == 0, done.stdout
        assert "left alone" in done.stdout
        assert f"{own}/converting: nothing proves that nbdata made it" in done.stdout
        assert files(own) == before


LEAVE = """
import os, sys
from nbdata.own_files import make_own_folder
from nbdata.transfer.marks import Mark
from nbdata.transfer.staging import Staging
own = make_own_folder(sys.argv[1])
mark = Mark(Staging(own), "a" * 12)
open(own + "/" + "a" * 12 + "1", "w").write("a temporary")
os._exit(0)
"""


@pytest.mark.long
@pytest.mark.parametrize("verb", ["pull", "cleanup"])
def test_temporaries_of_a_dead_job_go_there_with_their_mark(
    anna: User, his: Path, source: Path, verb: str
) -> None:
    anna.run([sys.executable, "-c", LEAVE, str(his)])
    assert len(files(his / ".nbdata")) == 2
    done = anna.nbdata(verb, *([f"{source}/", f"{his}/"] if verb == "pull" else [his]))
    assert done.returncode == 0, done.stdout
    assert not (his / ".nbdata").exists()


def test_a_job_that_ends_removes_its_mark_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TargetFolder(str(tmp_path / "out"), Task(Snapshot(id="t", verb="pull")), umask=0o022)
    target.enter()
    _, staging = target.prepare("a")
    for _ in range(3):
        os.close(target.temporary(staging)[0])
    deleted, real = list[str](), os.unlink

    def unlink(name: Any, **options: Any) -> None:
        deleted.append(os.fspath(name))
        real(name, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    target.leave()
    mark = mark_of(deleted[0])
    assert deleted[-1] == mark
    assert len(deleted) == 4


# -- root works in the folder of a user, who puts another one there ---------------------------------


@pytest.fixture
def hers(tmp_path: Path) -> Path:
    """A folder of Anna's with her ``.nbdata``, in which root works."""
    own = tmp_path / "hers/.nbdata"
    own.mkdir(parents=True, mode=0o700)
    given(tmp_path / "hers", ANNA)
    return tmp_path / "hers"


def planted(hers: Path, name: str, *, owner: int = ANNA) -> Path:
    """Put a folder into Anna's ``.nbdata`` in which she cannot delete everything."""
    folder = hers / "folder"
    (folder / "root").mkdir(parents=True)
    (folder / "root/file").write_text("root's")
    (folder / "bert").mkdir()
    (folder / "bert/file").write_text("Bert's")
    given(folder / "bert", BERT)
    os.chown(folder, owner, owner)
    return folder.rename(hers / ".nbdata" / name)


def stream(source: Path, hers: Path) -> None:
    with nbdata.cache_stream(
        str(source), by="file", max_size="2MB", cache_dir=str(hers), quiet=True
    ) as items:
        assert list(items)


def refused(run: Callable[..., Any], *args: Any, **options: Any) -> None:
    with pytest.raises(UnsafeMember, match="nothing proves that nbdata made this folder"):
        run(*args, **options)


def test_a_folder_in_the_place_of_a_cache_is_left_by_root(hers: Path, source: Path) -> None:
    folder = planted(hers, CACHE)
    stream(source, hers)
    report = nbdata.cleanup(hers, quiet=True)
    assert isinstance(report, nbdata.Report)
    assert any(str(folder) in note for note in report.notes)
    assert files(folder) == ["bert/file", "root/file"]


def test_a_folder_in_the_place_of_an_unfinished_file_is_an_error(
    hers: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (source / "x.bin").open("wb") as file:
        file.truncate(40_000_000)
    folder = planted(hers, names("x.bin")[0])
    with pytest.raises(nbdata.NbdataError, match="something else has the place of a file of nbdata") as error:
        nbdata.pull(f"{source}/", hers, quiet=True)
    assert str(folder) in str(error.value)
    nbdata.cleanup(hers, all=True, quiet=True)
    assert files(folder) == ["bert/file", "root/file"]


@pytest.mark.parametrize("owner", [ANNA, 0])
def test_a_folder_in_the_place_of_unfinished_splits_is_refused(
    tmp_path: Path, hers: Path, owner: int
) -> None:
    folder = planted(hers, "converting", owner=owner)
    dataset = module(tmp_path, BYTES)
    refused(nbdata.convert, dataset, tmp_path / "in", hers, quiet=True)
    nbdata.cleanup(hers, quiet=True)
    assert {"bert/file", "root/file"} <= {*files(folder)}


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_root_seals_no_empty_folder_in_which_another_user_may_write(
    tmp_path: Path, hers: Path, mode: int
) -> None:
    folder = hers / ".nbdata/converting"
    folder.mkdir()
    folder.chmod(mode)
    if mode == 0o700:
        os.chown(folder, ANNA, ANNA)
    with pytest.raises(UnsafeMember):
        nbdata.convert(module(tmp_path, BYTES), tmp_path / "in", hers, quiet=True)
    assert not (folder / MADE).exists()


def test_a_folder_in_the_place_of_a_kept_cache_is_refused_or_nothing_but_its_files_go(
    tmp_path: Path, hers: Path
) -> None:
    def kept() -> KeptFolder:
        return KeptFolder(str(hers), OF, 4096, "boot", Seals(str(tmp_path / "state")))

    folder = planted(hers, kept()._name, owner=0)
    (folder / ("0" * 32)).write_text("root's")
    refused(kept().__enter__)
    assert files(folder) == ["0" * 32, "bert/file", "root/file"]
    # What lies in a folder of hers, she can delete as well.
    os.chown(folder, ANNA, ANNA)
    with kept() as opened:
        assert len(list(opened.found())) == 1
    assert {"bert/file", "root/file"} <= {*files(folder)}


@pytest.fixture
def left(hers: Path) -> Path:
    """A cache that a killed process of root's left in Anna's folder."""
    folder = hers / ".nbdata" / CACHE
    (folder / "0/root").mkdir(parents=True, mode=0o700)
    fd = os.open(folder, os.O_RDONLY)
    shutil.move(folder / "0", hers / "0")
    MadeFolders(Seals(state_folder())).seal(CACHE, fd)
    shutil.move(hers / "0", folder / "0")
    os.close(fd)
    (folder / "0/root/file").write_text("an item")
    return folder


@pytest.mark.parametrize("how", ["stream", "cleanup"])
def test_what_root_left_goes_with_its_seal(hers: Path, source: Path, left: Path, how: str) -> None:
    if how == "stream":
        stream(source, hers)
    else:
        nbdata.cleanup(hers, quiet=True)
    assert not left.exists()


@pytest.mark.parametrize("how", ["stream", "cleanup"])
@pytest.mark.parametrize("what", ["copied", "renamed", "another key"])
def test_a_seal_proves_one_folder_with_one_name_for_one_user(
    hers: Path, source: Path, left: Path, how: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "copied":
        folder = planted(hers, "new")
        shutil.copy(left / MADE, folder / MADE)
        shutil.rmtree(left)
        folder.rename(left)
    elif what == "renamed":
        left.rename(left.with_name("cache-" + "f" * 16))
    else:
        monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "another"))
    before = files(hers)
    if how == "stream":
        stream(source, hers)
    else:
        nbdata.cleanup(hers, all=True, quiet=True)
    assert {*before} - {*files(hers)} <= {f".nbdata/{CACHE}.lock"}


def test_a_folder_that_is_exchanged_after_cleanup_has_looked_is_left(
    hers: Path, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's file there has the path of one that is to be deleted."""
    other = hers / "other"
    (other / "0").mkdir(parents=True)
    os.chown(other, ANNA, ANNA)
    planted(hers, "new").joinpath("root").rename(other / "0/root")
    real = cleanup._Cleaning.run_all

    def run_all(cleaning: cleanup._Cleaning) -> nbdata.Report:
        left.rename(hers / "aside")
        other.rename(left)
        return real(cleaning)

    monkeypatch.setattr(cleanup._Cleaning, "run_all", run_all)
    nbdata.cleanup(hers, quiet=True)
    assert files(left) == ["0/root/file"]
    assert (left / "0/root/file").read_text() == "root's"
