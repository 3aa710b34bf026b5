"""The state folder is this user's, and nobody else can change what is in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import platformdirs
import pytest

import nbdata
from nbdata.cache.known import known_caches, note_cache
from nbdata.client.kept_lists import keep_list
from nbdata.disk import make_folders
from nbdata.errors import AccessDenied, BadOption
from nbdata.history import past_jobs
from nbdata.own_files import write_record
from nbdata.runtime import _refuse_shared, _usable_state, endpoint, runtime_folder, state_folder
from nbdata.seals import Seals
from nbdata.space.limits import limited_folders, set_limit
from nbdata.transfer import uploads
from nbdata.transfer.index import Index, index_file, written_below
from nbdata.verbs.pull import Pull

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that ``NBDATA_STATE_DIR`` names; it is not there yet."""
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "own/state"))
    return tmp_path / "own/state"


def test_a_missing_folder_is_made_for_this_user_alone(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_folder() == str(state)
    assert state.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("NBDATA_STATE_DIR", "")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(state))
    assert Path(state_folder()).stat().st_mode & 0o777 == 0o700
    assert Path(state_folder()).is_relative_to(state)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o702])
def test_a_folder_in_which_others_may_write_is_refused(state: Path, tmp_path: Path, mode: int) -> None:
    state.mkdir(parents=True)
    state.chmod(mode)
    (tmp_path / "a").write_text("a")
    with pytest.raises(AccessDenied, match="the state folder is not private") as refused:
        nbdata.pull(tmp_path / "a", tmp_path / "out/", quiet=True)
    error = refused.value
    assert error.path == str(state)
    assert f"user {os.geteuid()} in which nobody else may write" in str(error)
    assert "chmod go-w, or name another one in NBDATA_STATE_DIR" in str(error)
    assert list(state.iterdir()) == []
    state.chmod(0o755)
    assert state_folder() == str(state)


def test_a_relative_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBDATA_STATE_DIR", "state")
    with pytest.raises(BadOption, match=r"NBDATA_STATE_DIR is relative.*got state"):
        state_folder()


@pytest.mark.parametrize("name", ["thesis.txt", ".bashrc", "holder-of-the-chair", "ledger.lock.txt"])
@pytest.mark.parametrize("kind", ["state", "runtime"])
def test_a_named_folder_with_other_things_in_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / name).write_text("theirs")
    (folder / "key").write_text("theirs")
    (tmp_path / "a").write_text("a")
    monkeypatch.setenv(f"NBDATA_{kind.upper()}_DIR", str(folder))
    with pytest.raises(
        BadOption, match=rf"NBDATA_{kind.upper()}_DIR names a folder with other things.*got {name}\)"
    ) as refused:
        nbdata.pull(tmp_path / "a", tmp_path / "out/", quiet=True)
    assert f"Name {folder}/nbdata" in str(refused.value)
    assert content(folder) == {name: "theirs", "key": "theirs"}
    monkeypatch.setenv(f"NBDATA_{kind.upper()}_DIR", f"{folder}/nbdata")
    nbdata.pull(tmp_path / "a", tmp_path / "out/", quiet=True)


def test_what_nbdata_leaves_in_a_folder_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where both are one folder."""
    folder, path = tmp_path / "own", str(tmp_path / "own")
    monkeypatch.setenv("NBDATA_STATE_DIR", path)
    monkeypatch.setenv("NBDATA_RUNTIME_DIR", path)
    folder.mkdir(mode=0o700)
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_text("a")
    nbdata.pull(f"{tmp_path}/source/", tmp_path / "out", quiet=True)
    nbdata.quota(tmp_path / "out", limit="1GB", quiet=True)
    Seals(path).of("x")
    note_cache(path, str(tmp_path))
    keep_list(piped(tmp_path))
    uploads.remember(path, "s3://b/", "k", "id")
    for late in ("jobs.log", "jobs.log.new", "ledger.json.new", "key.0123456789abcdef", ".nfs00000000000a0b"):
        (folder / late).touch()
    for kind in ("alive", "log", "sock", "start"):
        (folder / f"{endpoint().name}.{kind}").touch()
    assert {"caches", "index", "key", "ledger.json", "limits.json", "lists", "uploads.log"} < set(
        os.listdir(folder)
    )
    _usable_state.cache_clear()
    _refuse_shared.cache_clear()
    assert state_folder() == runtime_folder() == path


@pytest.mark.parametrize("text", ['{"mine": 1}', "[1, 2]", "notes", '{"/a": "1GB"}', '{"/a": null}'])
def test_a_file_that_is_called_like_that_of_the_limits_is_not_replaced(
    state: Path, tmp_path: Path, text: str
) -> None:
    state.mkdir(parents=True, mode=0o700)
    (state / "limits.json").write_text(text)
    assert limited_folders(str(state), {}) == {}
    with pytest.raises(AccessDenied, match="no limits that nbdata wrote"):
        set_limit(str(state), str(tmp_path), 1 << 30)
    assert content(state) == {"limits.json": text}


def test_a_link_of_this_user_may_lead_to_the_folder(state: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    state.parent.mkdir()
    state.symlink_to(tmp_path / "disk")
    assert state_folder() == str(tmp_path / "disk")
    _usable_state.cache_clear()
    (tmp_path / "disk").chmod(0o777)
    with pytest.raises(AccessDenied, match="not private"):
        state_folder()


def test_a_disk_that_gives_all_files_one_owner_and_mode_can_hold_it(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As FAT, and NFS with squashed users. What only looks so is made by others, and cannot be made here."""
    state.mkdir(parents=True)
    state.chmod(0o777)
    with pytest.raises(AccessDenied):
        state_folder()
    real = os.open

    def opened(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        fd = real(path, flags, mode, **more)
        if flags & os.O_CREAT:
            os.fchmod(fd, 0o777)
        return fd

    monkeypatch.setattr(os, "open", opened)
    assert state_folder() == str(state)
    assert list(state.iterdir()) == []


def test_no_link_in_the_folder_is_followed(state: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    source, target = str(tmp_path / "source/"), str(tmp_path / "out")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_text("a")
    (tmp_path / "out").mkdir()
    log = Path(index_file(str(state), f"{source}/", target))
    log.parent.mkdir(parents=True, mode=0o700)
    for name in ("jobs.log", "jobs.log.new", "uploads.log", "limits.json", "key"):
        (state / name).symlink_to(tmp_path / "theirs")
    log.symlink_to(tmp_path / "theirs")
    found = os.stat(target)
    with pytest.raises(nbdata.NbdataError, match="something else has the place"):
        Index(str(state), f"{source}/", target, (found.st_dev, found.st_ino))
    assert list(written_below(str(state), target)) == []
    with pytest.raises(nbdata.NbdataError, match="something else has the place"):
        uploads.remember(str(state), "s3://b/", "k", "id")
    with pytest.raises(nbdata.NbdataError, match="something else has the place"):
        uploads.remembered(str(state))
    with pytest.raises(nbdata.NbdataError, match="something else has the place"):
        set_limit(str(state), target, 1 << 30)
    assert past_jobs(str(state)) == []
    with pytest.raises(nbdata.NbdataError):
        nbdata.pull(f"{source}/", target, quiet=True)
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_folder_that_cannot_be_made_hinders_nobody(state: Path) -> None:
    state.parent.write_text("in the way")
    assert state_folder() == f"{runtime_folder()}/state"


@pytest.mark.parametrize("found", ["~/.local/state/nbdata", "", RuntimeError("no home"), KeyError("uid")])
def test_without_a_home_folder_it_is_in_the_runtime_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str | Exception
) -> None:
    """A data set could bring a folder called ~ along."""

    def user_state_dir(_: str) -> str:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setenv("NBDATA_STATE_DIR", "")
    monkeypatch.setattr(platformdirs, "user_state_dir", user_state_dir)
    (tmp_path / "~/.local/state/nbdata").mkdir(parents=True, mode=0o700)
    monkeypatch.chdir(tmp_path)
    assert state_folder() == f"{runtime_folder()}/state"


def test_a_relative_folder_is_made_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_folders("a/b", 0o700)
    make_folders("a/b", 0o700)
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700


# -- what another user puts in there, where root runs with the home folder of that user --


@pytest.fixture
def private(state: Path, tmp_path: Path) -> Path:
    """A folder elsewhere, with old files whose names are like those of nbdata, and one whose name is not."""
    state.mkdir(parents=True, mode=0o700)
    (tmp_path / "private").mkdir(mode=0o700)
    for name in ("secret.conf", "0123456789abcdef", "0123456789abcdef.nbdata-stdin", "0123456789abcdef.new"):
        (tmp_path / "private" / name).write_text("secret")
        os.utime(tmp_path / "private" / name, (0, 0))
    return tmp_path / "private"


def piped(tmp_path: Path) -> Pull:
    """A pull whose list of paths comes by a pipe."""
    reading, writing = os.pipe()
    os.write(writing, b"a\n")
    os.close(writing)
    return Pull(tmp_path / "source", tmp_path / "out", files_from=f"/dev/fd/{reading}")


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["caches", "lists", "index", "samples"])
def test_a_link_in_the_place_of_a_folder_in_it_leads_no_write_and_no_deletion_elsewhere(
    state: Path, private: Path, tmp_path: Path, name: str
) -> None:
    before = content(private)
    (state / name).symlink_to(private)
    if name == "caches":
        note_cache(str(state), str(tmp_path))
        assert known_caches(str(state)) == []
    elif name == "lists":
        with pytest.raises(nbdata.NbdataError, match="the list cannot be kept"):
            keep_list(piped(tmp_path))
    elif name == "index":
        with pytest.raises(nbdata.NbdataError, match=f"something else has the place .* {state / 'index'} "):
            Index(str(state), "s3://b/", str(tmp_path), (1, 2))
    else:
        with pytest.raises(OSError, match="Not a directory"):
            write_record(str(state / "samples/0123456789abcdef"), [b"index"])
    assert content(private) == before


def test_only_files_with_names_that_nbdata_gives_are_deleted_there(
    state: Path, private: Path, tmp_path: Path
) -> None:
    """The user may have put others into these folders."""
    private.rename(state / "caches")
    shutil.copytree(state / "caches", state / "lists")
    assert known_caches(str(state)) == []
    assert "secret.conf" in content(state / "caches")
    assert "0123456789abcdef" in content(
        state / "caches"
    )  # it does not hold the path that its name is made of
    note_cache(str(state), str(tmp_path / "gone"))
    assert len(content(state / "caches")) == 5
    assert known_caches(str(state)) == []
    assert len(content(state / "caches")) == 4
    kept = keep_list(piped(tmp_path)).files_from
    assert kept is not None
    assert set(content(state / "lists")) == {"secret.conf", "0123456789abcdef", os.path.basename(kept)}


@pytest.mark.parametrize("name", ["limits.json", "uploads.log", "jobs.log", "caches/0123456789abcdef", "key"])
def test_a_pipe_in_the_place_of_a_file_makes_nobody_wait(state: Path, tmp_path: Path, name: str) -> None:
    (state / name).parent.mkdir(parents=True, mode=0o700)
    os.mkfifo(state / name)
    assert past_jobs(str(state)) == []
    assert known_caches(str(state)) == []
    if name == "key":
        with pytest.raises(AccessDenied, match="no key of nbdata"):
            Seals(str(state)).of("a")
    else:
        assert Seals(str(state)).of("a")
    if name == "limits.json":
        with pytest.raises(nbdata.NbdataError, match="something else has the place"):
            set_limit(str(state), str(tmp_path), 1 << 30)
    if name == "uploads.log":
        with pytest.raises(nbdata.NbdataError, match="something else has the place"):
            uploads.remember(str(state), "s3://b/", "k", "id")
