"""Two users of one machine: neither leads the other's nbdata astray, and both can work in a folder that they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.guarded_folders import GuardedFolders
from nbdata.own_files import own_folder
from nbdata.runtime import state_folder
from nbdata.transfer.committer import Committer, PendingFile
from tests.hostile.users import ANNA, BERT, User, anna, bert, reachable
from tests.stores.folder_server import FolderServer, folder_server
from tests.waiting import PATIENCE

__all__ = ["anna", "bert", "reachable"]

pytestmark = pytest.mark.needs("other users")

# Modes of folders that others may write in: with the sticky bit, and without.
SHARED = {"sticky": 0o1777, "open": 0o777}


@pytest.fixture(params=SHARED)
def shared(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder in which both may write."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(SHARED[request.param])
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FolderServer]:
    (tmp_path / "served/sub").mkdir(parents=True)
    for name in ("a.txt", "sub/b.txt"):
        (tmp_path / "served" / name).write_text(name)
    with folder_server(tmp_path / "served") as running:
        yield running


def planted(shared: Path, owner: int) -> dict[str, bytes]:
    """Let a user make ``.nbdata`` first, for anybody to write in, and return what is in it."""
    own = shared / ".nbdata"
    own.mkdir()
    (own / "x").write_text("mine")
    for path in (own, own / "x"):
        os.chown(path, owner, owner)
    own.chmod(0o777)
    return files(own)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.in_ci(1)
def test_nobody_works_in_the_own_folder_of_another_user(
    anna: User, shared: Path, server: FolderServer
) -> None:
    before = planted(shared, BERT)
    done = anna.nbdata("pull", server.url, shared)
    assert done.returncode == 0, done.stdout
    assert (shared / "sub/b.txt").read_text() == "sub/b.txt"
    assert files(shared / ".nbdata") == before
    assert sorted(os.listdir(shared)) == [".nbdata", "a.txt", "sub"]


def test_the_own_folder_of_a_user_can_be_read_by_others_and_only_written_by_that_user(
    anna: User, bert: User, shared: Path
) -> None:
    planted(shared, BERT)
    made = anna.python(
        "import sys; from nbdata.own_files import make_own_folder; print(make_own_folder(sys.argv[1]))",
        shared,
    ).strip()
    assert made == f"{shared}/.nbdata-{ANNA}"
    found = os.stat(made)
    assert (found.st_uid, found.st_mode & 0o777) == (ANNA, 0o755)
    said = bert.python(
        "import sys\ntry: open(sys.argv[1], 'w')\nexcept OSError as error: print(type(error).__name__)",
        f"{made}/x",
    )
    assert said.strip() == "PermissionError"


def test_a_folder_that_a_group_may_write_in_is_shared(anna: User, bert: User, tmp_path: Path) -> None:
    """Bert is of the group of Anna's folder, and may write in the ``.nbdata`` that she made there."""
    lab = tmp_path / "lab"
    (lab / ".nbdata").mkdir(parents=True)
    for path in (lab, lab / ".nbdata"):
        os.chown(path, ANNA, BERT)
        path.chmod(0o2775)
    said = "import sys; from nbdata.own_files import own_folder; print(own_folder(sys.argv[1]))"
    assert bert.python(said, lab).strip() == f"{lab}/.nbdata-{BERT}"
    assert own_folder(str(lab)) == f"{lab}/.nbdata-{os.geteuid()}"
    (lab / ".nbdata").chmod(0o2755)
    assert bert.python(said, lab).strip() == f"{lab}/.nbdata-{BERT}"
    assert anna.python(said, lab).strip() == f"{lab}/.nbdata"


HOLD = """
import sys
from nbdata.own_files import make_own_folder
from nbdata.transfer.marks import Mark
from nbdata.transfer.staging import Staging
mark = Mark(Staging(make_own_folder(sys.argv[1])), "a" * 12)
print("held", flush=True)
sys.stdin.read()
mark.remove()
"""
LOOK = """
import sys
from nbdata.own_files import make_own_folder
from nbdata.transfer.marks import worker_elsewhere
print(worker_elsewhere(make_own_folder(sys.argv[1])))
"""


@pytest.mark.in_ci("sticky")
def test_jobs_of_two_users_in_one_folder_see_each_other(anna: User, bert: User, shared: Path) -> None:
    with bert.start(HOLD, shared) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert anna.python(LOOK, shared).strip() == os.uname().nodename
        holder.communicate()
    assert anna.python(LOOK, shared).strip() == "None"


@pytest.mark.in_ci("sticky")
def test_two_users_pull_into_one_folder(
    tmp_path: Path, anna: User, bert: User, shared: Path, server: FolderServer
) -> None:
    """What the second user may not replace is told in one line, and stays whole."""
    assert anna.nbdata("pull", server.url, shared).returncode == 0
    (tmp_path / "served/a.txt").write_text("changed since")
    done = bert.nbdata("pull", server.url, shared)
    assert done.returncode == 1
    assert "internal error" not in done.stdout
    assert "the disk refuses" in done.stdout
    sticky = shared.stat().st_mode & 0o1000
    assert files(shared) == {"a.txt": b"a.txt" if sticky else b"changed since", "sub/b.txt": b"sub/b.txt"}
    assert anna.nbdata("pull", server.url, shared).returncode == (0 if sticky else 1)


SAMPLES = """
import sys, nbdata
with nbdata.samples(sys.argv[1], cache="2MB", cache_dir=sys.argv[2]) as samples:
    print([sample["txt"].decode() for sample in samples])
"""


@pytest.mark.long
def test_two_users_have_a_kept_cache_each_in_one_folder(
    anna: User, bert: User, shared: Path, server: FolderServer
) -> None:
    for user in (anna, bert, anna):
        assert user.python(SAMPLES, server.url, shared).strip() == "['a.txt', 'sub/b.txt']"
    assert sorted(os.listdir(shared)) == [".nbdata", f".nbdata-{BERT}"]


def test_in_a_folder_of_another_user_nothing_is_done_and_the_error_is_clear(
    anna: User, bert: User, tmp_path: Path, server: FolderServer
) -> None:
    (tmp_path / "hers").mkdir()
    os.chown(tmp_path / "hers", ANNA, ANNA)
    assert anna.python(SAMPLES, server.url, tmp_path / "hers").strip() == "['a.txt', 'sub/b.txt']"
    before = files(tmp_path / "hers")
    for done in (
        bert.nbdata("pull", server.url, tmp_path / "hers"),
        bert.nbdata("untar_volumes", tmp_path / "none.tar", tmp_path / "hers"),
        bert.nbdata("cleanup", tmp_path / "hers", "--all"),
        bert.run([sys.executable, "-c", SAMPLES, server.url, str(tmp_path / "hers")]),
    ):
        assert "internal error" not in done.stdout, done.stdout
        assert "PermissionError" not in done.stdout, done.stdout
        assert files(tmp_path / "hers") == before


@pytest.mark.in_ci(1)
def test_cleanup_leaves_what_another_user_left(anna: User, bert: User, shared: Path) -> None:
    before = planted(shared, BERT)
    done = anna.nbdata("cleanup", shared, "--all")
    assert done.returncode == 0, done.stdout
    assert files(shared / ".nbdata") == before


@pytest.mark.in_ci(1)
def test_cleanup_leaves_the_unfinished_file_of_another_user(anna: User, bert: User, shared: Path) -> None:
    """Its lock cannot be asked for, so whether somebody still writes to it is not known; one's own beside it goes."""
    left, own = (shared / f".{digit * 16}.nbdata-partial" for digit in "01")
    for path, owner in ((left, BERT), (own, ANNA)):
        path.write_text("an unfinished file")
        os.chown(path, owner, owner)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    done = anna.nbdata("cleanup", shared, "--all")
    assert "internal error" not in done.stdout
    assert left.read_text() == "an unfinished file"
    assert not own.exists()


@pytest.mark.parametrize("name", [".nbdata", f".nbdata-{ANNA}", ".NBDATA-0"])
def test_no_own_folder_of_any_user_is_data(tmp_path: Path, inline: None, name: str) -> None:
    data = tmp_path / "data"
    (data / name).mkdir(parents=True)
    (data / name / "x").write_text("a record")
    (data / "a.txt").write_text("a.txt")
    nbdata.push(f"{data}/", f"{tmp_path / 'pushed'}/", quiet=True)
    nbdata.pack(f"{data}/", str(tmp_path / "packed.tar"), format="tar", quiet=True)
    nbdata.untar_volumes(str(tmp_path / "packed.tar"), tmp_path / "unpacked", quiet=True)
    for made in ("pushed", "unpacked"):
        assert list(files(tmp_path / made)) == ["a.txt"]
    assert [row.path for row in nbdata.ls(f"{data}/", recursive=True, quiet=True).rows] == ["a.txt"]
    (tmp_path / "empty").mkdir()
    nbdata.push(f"{tmp_path / 'empty'}/", f"{data}/", delete=True, force=True, quiet=True)
    assert (data / name / "x").exists()


def test_root_works_in_the_own_folder_of_the_owner_of_a_folder(tmp_path: Path) -> None:
    """As in a container that runs as root over a user's disk."""
    data = tmp_path / "data"
    (data / ".nbdata").mkdir(parents=True, mode=0o700)
    for path in (data, data / ".nbdata"):
        os.chown(path, ANNA, ANNA)
    assert own_folder(str(data)) == f"{data}/.nbdata"
    for shared in (0o1777, 0o775):
        data.chmod(shared)
        assert own_folder(str(data)) == f"{data}/.nbdata-0"


PUT = """
import os, sys
size = os.lstat(sys.argv[1]).st_size
os.unlink(sys.argv[1])
with open(sys.argv[1], "wb") as file:
    file.write(bytes(size))
os.chmod(sys.argv[1], 0o600)
"""


@pytest.mark.parametrize("size", [10_000, 17 << 20])
def test_root_takes_no_file_of_the_owner_of_a_folder_for_the_one_that_it_wrote(
    bert: User, tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The new file may get the inode of the one that was there."""
    source, data, real = tmp_path / "source", tmp_path / "data", Committer._commit_batch
    (data / ".nbdata").mkdir(parents=True, mode=0o700)
    for path in (data, data / ".nbdata"):
        os.chown(path, BERT, BERT)
    source.mkdir()
    (source / "x").write_bytes(os.urandom(size))

    def exchanged(committer: Committer, batch: list[PendingFile]) -> None:
        monkeypatch.setattr(Committer, "_commit_batch", real)
        bert.python(PUT, batch[0].temporary)
        real(committer, batch)

    monkeypatch.setattr(Committer, "_commit_batch", exchanged)
    with pytest.raises(nbdata.NbdataError, match="exchanged by somebody else"):
        nbdata.pull(f"{source}/", data, quiet=True)
    assert "unchanged" not in nbdata.pull(f"{source}/", data, quiet=True).counts
    assert files(data) == files(source)


def test_root_opens_no_folder_of_another_user_further(tmp_path: Path) -> None:
    """Its owner gave it the name of one that root just made, in a folder that is his."""
    out, closed = tmp_path / "out", tmp_path / "closed"
    out.mkdir()
    closed.mkdir(mode=0o700)
    os.chown(closed, BERT, BERT)

    def mkdir(name: str, above: int | None, path: str) -> None:
        os.mkdir(name, dir_fd=above)
        os.rmdir(path)
        closed.rename(path)

    os.close(GuardedFolders(str(out), umask=0o022, mkdir=mkdir).open_to_write(f"{out}/sub"))
    assert (out / "sub").stat().st_mode & 0o777 == 0o700


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("kind", ["another user's", "a link", "a file"])
def test_what_has_the_place_of_the_second_name_is_refused(anna: User, tmp_path: Path, kind: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    planted(shared, BERT)
    place = shared / f".nbdata-{ANNA}"
    if kind == "a link":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "a file":
        place.touch()
    else:
        place.mkdir()
    os.chown(place, BERT, BERT, follow_symlinks=False)
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_text("a")
    done = anna.nbdata("pull", f"{tmp_path / 'source'}/", shared)
    assert done.returncode == 1
    assert f".nbdata-{ANNA}" in done.stdout
    assert "internal error" not in done.stdout
    assert not (shared / "a.txt").exists()


@pytest.mark.long
@pytest.mark.parametrize("verb", ["pull", "push", "untar_volumes", "md5check", "cleanup"])
def test_a_home_folder_that_cannot_be_written_hinders_no_verb(
    anna: User, tmp_path: Path, server: FolderServer, verb: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    os.chown(out, ANNA, ANNA)
    (tmp_path / "closed").mkdir(mode=0o555)
    nothing = {"HOME": str(tmp_path / "closed"), "NBDATA_STATE_DIR": ""}
    assert anna.nbdata("pull", server.url, out, **nothing).returncode == 0
    assert anna.nbdata("pack", out, tmp_path / "anna/x.tar", "--format", "tar", **nothing).returncode == 0
    words = {
        "pull": (server.url, out),
        "push": (out, tmp_path / "anna/pushed/"),
        "untar_volumes": (tmp_path / "anna/x.tar", tmp_path / "anna/unpacked"),
        "md5check": (out, "--write"),
        "cleanup": (out, "--all"),
    }[verb]
    done = anna.nbdata(verb, *words, **nothing)
    assert done.returncode == 0, done.stdout
    assert os.listdir(tmp_path / "closed") == []


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("kind", ["a folder", "a link"])
def test_a_state_folder_of_another_user_is_not_used(anna: User, tmp_path: Path, kind: str) -> None:
    """Its records would say which files are unchanged, and a link in there led writes to files of hers."""
    state = tmp_path / "state"
    if kind == "a folder":
        state.mkdir()
        state.chmod(0o777)
    else:
        state.symlink_to(anna.root / "home")
    os.chown(state, BERT, BERT, follow_symlinks=False)
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_text("a")
    done = anna.nbdata("pull", f"{tmp_path / 'source'}/", anna.root / "home/out", NBDATA_STATE_DIR=str(state))
    assert done.returncode == 1
    if kind == "a folder":
        assert f"the state folder is not private: {state} (expected a folder of user {ANNA}" in done.stdout
        assert f"got owner {BERT}" in done.stdout
    else:
        assert f"another user could exchange the state folder: {state} " in done.stdout
        assert f"got {state} of user {BERT} with mode l" in done.stdout
    assert "NBDATA_STATE_DIR" in done.stdout
    assert os.listdir(anna.root / "home") == []


def test_root_uses_the_state_folder_of_the_user_whose_home_it_has_and_no_other(
    anna: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container over a user's disk."""
    state = anna.root / "home/.local/state/nbdata"
    state.mkdir(parents=True)
    for path in (state, *state.parents):
        if path.is_relative_to(anna.root / "home"):
            os.chown(path, ANNA, ANNA)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("NBDATA_STATE_DIR", "")
    monkeypatch.setenv("HOME", str(anna.root / "home"))
    assert state_folder() == str(state)
    monkeypatch.setenv("NBDATA_STATE_DIR", str(state))
    with pytest.raises(nbdata.AccessDenied, match="not private"):
        state_folder()


@pytest.mark.parametrize("link", [".local/state/nbdata", ".local/state", ".local"])
def test_root_follows_no_link_of_that_user_to_a_state_folder(
    anna: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """It could lead to any folder of root's, whose files would be deleted and replaced."""
    (tmp_path / "private/state/nbdata").mkdir(parents=True, mode=0o700)
    (tmp_path / "private/nbdata").mkdir(mode=0o700)
    home = anna.root / "home"
    (home / link).parent.mkdir(parents=True, exist_ok=True)
    (home / link).symlink_to(tmp_path / "private")
    os.chown(home / link, ANNA, ANNA, follow_symlinks=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("NBDATA_STATE_DIR", "")
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(
        nbdata.AccessDenied, match=f"could exchange the state folder.* got {home / link} of user {ANNA} "
    ):
        state_folder()


def test_whether_a_state_folder_can_be_used_is_decided_once(anna: User, tmp_path: Path) -> None:
    """Bert could open his to her after it was found to be closed, and before it is used."""
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    os.chown(state, BERT, BERT)
    program = f"""
import os
from nbdata.runtime import state_folder
os.environ["NBDATA_STATE_DIR"] = {str(state)!r}
print(state_folder(), flush=True)
input()
print(state_folder())
"""
    running = anna.start(program)
    assert running.stdin is not None
    assert running.stdout is not None
    found = [running.stdout.readline().strip()]
    state.chmod(0o777)
    found += [running.communicate("go\n", PATIENCE)[0].strip()]
    assert found == [str(anna.root / "run/state")] * 2
