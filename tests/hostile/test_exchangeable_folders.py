"""The runtime folder and the state folder are not where another user could exchange them for others."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

import nbdata
from nbdata.other_users import exchangeable_by_others
from nbdata.runtime import state_folder
from nbdata.sealed_lines import format_line
from tests.agent.rig import tmpfs
from tests.hostile.users import ANNA, BERT, User, anna, bert, reachable
from tests.waiting import PATIENCE

__all__ = ["anna", "bert", "reachable"]

pytestmark = pytest.mark.needs("other users")

DAEMONS = pwd.getpwnam("daemon").pw_gid
# A group that the user database knows, and of which it tells no members.
NAMED = next(
    group.gr_gid
    for group in grp.getgrall()
    if not group.gr_mem and group.gr_gid not in {user.pw_gid for user in pwd.getpwall()}
)
# A group that the user database does not know.
UNKNOWN = 60_001
STATE = "from nbdata.runtime import state_folder; print(state_folder())"


def made(folder: Path, owner: int, group: int, mode: int) -> Path:
    """Make a folder of a user and a group."""
    folder.mkdir(parents=True)
    os.chown(folder, owner, group)
    folder.chmod(mode)
    return folder


# Owner, group and mode of a folder around that of Anna, and whether hers is there yet.
OPEN = [
    (BERT, BERT, 0o1777, True),
    (BERT, BERT, 0o1777, False),
    (BERT, BERT, 0o711, True),
    (0, 0, 0o777, True),
    (0, 0, 0o777, False),
    (0, DAEMONS, 0o775, True),
    (ANNA, DAEMONS, 0o775, True),
]


@pytest.mark.in_ci(
    "0-0-511-False-runtime",
    "0-1-509-True-runtime",
    "54322-54322-1023-True-state",
)
@pytest.mark.parametrize("kind", ["runtime", "state"])
@pytest.mark.parametrize(("owner", "group", "mode", "there"), OPEN)
def test_a_folder_that_another_user_could_exchange_is_refused(
    anna: User, tmp_path: Path, kind: str, owner: int, group: int, mode: int, there: bool
) -> None:
    around = made(tmp_path / "around", owner, group, mode)
    if there:
        made(around / "own", ANNA, ANNA, 0o700)
    (tmp_path / "a.txt").write_text("a")
    named = {f"NBDATA_{kind.upper()}_DIR": str(around / "own")}
    done = anna.nbdata("pull", tmp_path / "a.txt", anna.root / "out/", **named)
    assert done.returncode == 1
    assert f"another user could exchange the {kind} folder: {around}/own " in done.stdout
    assert f"got {around} of user {owner} with mode " in done.stdout
    assert f"a folder elsewhere in NBDATA_{kind.upper()}_DIR" in done.stdout
    assert (f"Close {around} to others with chmod go-w" in done.stdout) == (owner == ANNA)
    assert done.stdout.count("\n") == 1
    assert not (anna.root / "out").exists()
    if there or kind == "state":
        assert sorted(os.listdir(around)) == (["own"] if there else [])


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("owner", [0, BERT])
def test_a_container_s_volume_of_root_is_used(anna: User, tmp_path: Path, owner: int) -> None:
    """Volumes of containers are often open to all, without a sticky bit."""
    with tmpfs(tmp_path / "volume", size="1m") as volume:
        os.chown(volume, owner, owner)
        volume.chmod(0o777)
        named = {"NBDATA_STATE_DIR": str(volume / "state")}
        done = anna.run([sys.executable, "-c", STATE], **named)
        assert (done.returncode == 0) == (owner == 0), done.stdout


def test_records_that_another_user_forged_delete_nothing(anna: User, bert: User, tmp_path: Path) -> None:
    """Bert exchanged her state folder, in a sticky folder of his, for one that says what nbdata wrote."""
    project, work = made(tmp_path / "project", BERT, BERT, 0o1777), made(tmp_path / "work", ANNA, ANNA, 0o755)
    (work / "thesis.tex").write_text("three years of work")
    os.chown(work / "thesis.tex", ANNA, ANNA)
    found, thesis = work.stat(), (work / "thesis.tex").stat()
    forged = made(project / "state", ANNA, ANNA, 0o700)
    index = made(forged / "index", ANNA, ANNA, 0o700) / f"{'0' * 32}.log"
    record = thesis.st_size, thesis.st_size, thesis.st_mtime_ns, thesis.st_ctime_ns, thesis.st_ino
    with index.open("wb") as file:
        file.write(format_line(["nbdata-index", 3, found.st_dev, found.st_ino, str(work), ""]))
        file.write(format_line(["thesis.tex", "etag x", *record]))
    os.chown(index, ANNA, ANNA)
    done = anna.nbdata("cleanup", work, "--all", NBDATA_STATE_DIR=str(forged))
    assert (work / "thesis.tex").exists(), done.stdout
    assert "could exchange the state folder" in done.stdout
    done = anna.nbdata(
        "cleanup", work, "--all", NBDATA_STATE_DIR=str(forged.rename(tmp_path / "anna/forged"))
    )
    assert not (work / "thesis.tex").exists(), "the records are right"


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("kind", ["runtime", "state"])
def test_an_own_link_leads_through_no_link_of_another_user(anna: User, tmp_path: Path, kind: str) -> None:
    """Whoever made the second one could choose among her folders."""
    shared, real = made(tmp_path / "shared", 0, 0, 0o1777), made(tmp_path / "anna/real", ANNA, ANNA, 0o700)
    (shared / "theirs").symlink_to(real.parent)
    (anna.root / "mine").symlink_to(shared / "theirs")
    for link, owner in ((shared / "theirs", BERT), (anna.root / "mine", ANNA)):
        os.chown(link, owner, owner, follow_symlinks=False)
    named = {f"NBDATA_{kind.upper()}_DIR": str(anna.root / "mine/real")}
    done = anna.run([sys.executable, "-c", f"import nbdata.runtime as r; print(r.{kind}_folder())"], **named)
    assert f"another user could exchange the {kind} folder: {anna.root}/mine/real " in done.stdout
    assert f"got {shared}/theirs of user {BERT} with mode lrwxrwxrwx" in done.stdout
    os.chown(shared / "theirs", ANNA, ANNA, follow_symlinks=False)
    done = anna.run([sys.executable, "-c", f"import nbdata.runtime as r; print(r.{kind}_folder())"], **named)
    assert done.returncode == 0, done.stdout


def test_a_loop_of_links_leads_nowhere(anna: User, tmp_path: Path) -> None:
    (anna.root / "loop").symlink_to("loop/..")
    with pytest.raises(OSError, match="symbolic links"):
        exchangeable_by_others(str(anna.root / "loop/state"), any_owner=True)


# -- ordinary places ------------------------------------------------------------------------------


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("kind", ["sticky", "closed", "of a link", "below another"])
def test_a_named_folder_that_only_its_user_can_exchange_is_used(
    anna: User, tmp_path: Path, kind: str
) -> None:
    around = made(tmp_path / "around", *((0, 0, 0o1777) if kind == "sticky" else (ANNA, ANNA, 0o700)))
    made(around / "open", ANNA, ANNA, 0o700 if kind == "sticky" else 0o777)
    named = real = made(around / "open/own", ANNA, ANNA, 0o700)
    if kind == "of a link":
        named = tmp_path / "anna/link"
        named.symlink_to("../around/open/own")
        os.chown(named, ANNA, ANNA, follow_symlinks=False)
    elif kind == "below another":
        named = real = real / "new/new"
    done = anna.run([sys.executable, "-c", STATE], NBDATA_STATE_DIR=str(named))
    assert done.stdout.strip() == str(real)


# Owner, group and mode of Anna's home folder and of .local in it, and whether she may use the state folder there.
HOMES = {
    "as made": ((ANNA, ANNA, 0o755), (ANNA, ANNA, 0o700), True),
    "closed": ((ANNA, ANNA, 0o700), (ANNA, DAEMONS, 0o777), True),
    "of a group, as in images of notebooks": ((ANNA, DAEMONS, 0o2775), (ANNA, DAEMONS, 0o2775), True),
    "open to all": ((0, 0, 0o777), (ANNA, ANNA, 0o755), True),
    "of another user, as with random users": ((BERT, DAEMONS, 0o777), (BERT, DAEMONS, 0o777), True),
    "a group that she is alone in": ((ANNA, ANNA, 0o755), (ANNA, ANNA, 0o775), True),
    "opened in it": ((ANNA, ANNA, 0o755), (ANNA, DAEMONS, 0o775), False),
    "opened to more in it": ((ANNA, DAEMONS, 0o775), (ANNA, DAEMONS, 0o777), False),
    "with a folder of another user": ((0, 0, 0o1777), (BERT, BERT, 0o777), False),
}


@pytest.mark.in_ci("as made", "of another user, *", "open to all", "opened in it", 1)
@pytest.mark.parametrize("home", HOMES)
def test_the_home_folder_is_trusted_and_what_is_more_open_in_it_is_not(
    anna: User, tmp_path: Path, home: str
) -> None:
    """Whoever can change things in a home folder can act as its user anyway."""
    around, inner, used = HOMES[home]
    made(tmp_path / "home", *around)
    made(tmp_path / "home/.local", *inner)
    names = {"HOME": str(tmp_path / "home"), "NBDATA_STATE_DIR": "", "XDG_STATE_HOME": ""}
    done = anna.run([sys.executable, "-c", STATE], **names)
    if used:
        assert done.stdout.strip() == f"{tmp_path}/home/.local/state/nbdata"
    else:
        assert (
            f"another user could exchange the state folder: {tmp_path}/home/.local/state/nbdata "
            in done.stdout
        )
        assert f"got {tmp_path}/home/.local of user" in done.stdout


@pytest.mark.parametrize("groups", [[UNKNOWN], []])
def test_a_disk_of_a_group_that_a_container_got_for_it_is_used(tmp_path: Path, groups: list[int]) -> None:
    """As with ``fsGroup`` in Kubernetes: the disk belongs to a group that has no name."""
    disk = made(tmp_path / "disk", 0, UNKNOWN, 0o2775)
    done = subprocess.run(
        [sys.executable, "-c", STATE], env={**os.environ, "NBDATA_STATE_DIR": f"{disk}/state"}, text=True,
        extra_groups=groups, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.stdout.strip() == f"{disk}/state") == bool(groups), done.stderr


def test_a_further_group_counts_only_without_a_name(tmp_path: Path) -> None:
    """The user databases of many machines do not tell all members of a group."""
    disk = made(tmp_path / "disk", 0, NAMED, 0o2775)
    done = subprocess.run(
        [sys.executable, "-c", STATE], env={**os.environ, "NBDATA_STATE_DIR": f"{disk}/state"}, text=True,
        extra_groups=[NAMED], capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    assert "another user could exchange the state folder" in done.stderr


@pytest.mark.parametrize("squashed", [True, False])
def test_a_disk_that_gives_all_files_one_owner_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squashed: bool
) -> None:
    """As NFS with squashed users, often with a mode that is open to all."""
    disk, real = made(tmp_path / "disk", BERT, BERT, 0o777), os.open
    (disk / "link").symlink_to(tmp_path)
    os.chown(disk / "link", BERT, BERT, follow_symlinks=False)

    def opened(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        fd = real(path, flags, mode, **more)
        if flags & os.O_CREAT:
            os.fchown(fd, BERT, BERT)
        return fd

    if squashed:
        monkeypatch.setattr(os, "open", opened)
    for way in (f"{disk}/state", f"{disk}/link/state"):
        assert exchangeable_by_others(way) == (None if squashed else str(disk))
    assert os.listdir(disk) == ["link"]


@pytest.mark.parametrize(("group", "used"), [(ANNA, True), (DAEMONS, False)])
@pytest.mark.parametrize("home", [True, False])
def test_root_uses_a_state_folder_of_its_own_on_the_disk_of_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int, used: bool, home: bool
) -> None:
    """As in a container that runs as root over a disk of the user who started it, whose own group may write."""
    around = made(tmp_path / "around", ANNA, ANNA, 0o755)
    disk = made(around / "disk", ANNA, group, 0o775)
    monkeypatch.setenv("HOME", str(around if home else tmp_path))
    monkeypatch.setenv("NBDATA_STATE_DIR", f"{disk}/state")
    if used:
        assert state_folder() == f"{disk}/state"
    else:
        with pytest.raises(nbdata.AccessDenied, match=f"got {disk} of user {ANNA}"):
            state_folder()


def test_after_newgrp_the_primary_group_is_still_that_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = made(tmp_path / "around", 0, 0, 0o775)
    monkeypatch.setattr(os, "getegid", lambda: UNKNOWN)
    assert exchangeable_by_others(f"{around}/state") is None


# Enters a user namespace that maps Anna alone, after all is imported: she may not read the files of Python from there.
APART = """
import ctypes, os
from nbdata import runtime

user = os.geteuid()
assert ctypes.CDLL(None).unshare(0x10000000) == 0
with open("/proc/self/uid_map", "w") as file:
    file.write(f"0 {user} 1")
assert os.stat("/").st_uid not in (0, user)
assert os.geteuid() == 0
stat = os.stat  # the root folder of a container is hers
os.stat = lambda path, **how: stat(os.environ["HOME"] if path == "/" else path, **how)
print(runtime.state_folder(), runtime.runtime_folder())
"""


@pytest.mark.usefixtures("namespaces")
def test_root_that_a_user_namespace_does_not_know_is_trusted(anna: User, tmp_path: Path) -> None:
    """As in a container without root, into which folders of the machine are mounted."""
    around = made(tmp_path / "around", 0, 0, 0o1777)
    named = {
        name: str(made(around / name, ANNA, ANNA, 0o700))
        for name in ("NBDATA_STATE_DIR", "NBDATA_RUNTIME_DIR")
    }
    done = anna.run([sys.executable, "-c", APART], **named)
    assert done.stdout.split() == list(named.values())
