"""The key of the seals: private, made once, and no other file is taken for it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata import seals
from nbdata.errors import AccessDenied
from nbdata.seals import Seals


@pytest.fixture(autouse=True)
def _keys_are_read_anew() -> None:
    seals._key.cache_clear()


def anew(state: Path) -> Seals:
    """Return seals as another process would have them."""
    seals._key.cache_clear()
    return Seals(str(state))


def test_a_seal_holds_for_what_it_was_made_of_and_nothing_else(tmp_path: Path) -> None:
    seal = Seals(str(tmp_path)).of("part", {"path": "a", "size": 5})
    assert anew(tmp_path).holds(seal, "part", {"size": 5, "path": "a"})
    for other in (("part", {"path": "b", "size": 5}), ("parts", {"path": "a", "size": 5}), ("part",)):
        assert not Seals(str(tmp_path)).holds(seal, *other)
    for wrong in (None, 5, "", seal[:-1], seal + "0", "é" * 32, [seal]):
        assert not Seals(str(tmp_path)).holds(wrong, "part", {"path": "a", "size": 5})
    assert not Seals(str(tmp_path / "other")).holds(seal, "part", {"path": "a", "size": 5})


def test_only_the_user_can_read_the_key(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        Seals(str(tmp_path / "state")).of("x")
    finally:
        os.umask(mask)
    assert (tmp_path / "state/key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert os.listdir(tmp_path / "state") == ["key"]


def test_processes_that_begin_at_once_have_one_key(tmp_path: Path) -> None:
    say = "import sys; from nbdata.seals import Seals; print(Seals(sys.argv[1]).of('x'))"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", say, str(tmp_path / "state")],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for _ in range(6)
    ]
    assert len({process.communicate()[0] for process in running}) == 1


def test_who_may_read_the_folder_cannot_hold_up_the_making_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who names a folder of mode 0755 would wait as long as another user holds a lock on it."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("it waits for a lock"))
    monkeypatch.setattr(fcntl, "lockf", lambda *_: pytest.fail("it waits for a lock"))
    assert anew(tmp_path).holds(Seals(str(tmp_path)).of("x"), "x")


def test_on_a_disk_without_hard_links_the_first_key_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seals, "hard_link", lambda *_, **__: False)
    seal = Seals(str(tmp_path)).of("x")
    looks: list[Callable[[str], bytes | None]] = [
        lambda _: None
    ]  # the first one comes before the other process
    read_it = seals._read

    def read(path: str) -> bytes | None:
        return (looks.pop() if looks else read_it)(path)

    monkeypatch.setattr(seals, "_read", read)
    assert anew(tmp_path).of("x") == seal
    assert os.listdir(tmp_path) == ["key"]


@pytest.mark.parametrize("kind", ["readable by others", "too short", "too long", "empty", "a link", "a pipe"])
def test_what_is_no_key_of_this_user_is_refused_and_left(tmp_path: Path, kind: str) -> None:
    """It may be a file of the user, where `NBDATA_STATE_DIR` names a folder of theirs."""
    state, key = tmp_path / "state", tmp_path / "state/key"
    state.mkdir()
    known = {"too short": b"x" * 31, "too long": b"x" * 33, "empty": b""}.get(kind, b"x" * 32)
    if kind == "a link":
        (tmp_path / "known").write_bytes(known)
        (tmp_path / "known").chmod(0o600)
        key.symlink_to(tmp_path / "known")
    elif kind == "a pipe":
        os.mkfifo(key, 0o600)
    else:
        key.write_bytes(known)
        key.chmod(0o644 if kind == "readable by others" else 0o600)
    before = key.lstat()
    with pytest.raises(AccessDenied, match=r"no key of nbdata.*Delete it, or move it away"):
        Seals(str(state)).of("x")
    assert os.path.samestat(before, key.lstat())
    assert key.is_fifo() or key.read_bytes() == known
    assert os.listdir(state) == ["key"]
    key.unlink()
    assert anew(state).holds(Seals(str(state)).of("x"), "x")


def test_the_key_of_another_user_stays_and_this_user_has_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where root and a user have one home folder in turn."""
    (tmp_path / "key").write_bytes(b"x" * 32)
    (tmp_path / "key").chmod(0o600)
    real, theirs = os.lstat, os.stat(tmp_path / "key")

    def owned(path: str) -> os.stat_result:
        found = real(path)
        return os.stat_result((*found[:4], 54321, *found[5:])) if os.path.samestat(found, theirs) else found

    monkeypatch.setattr(os, "lstat", owned)
    seal = Seals(str(tmp_path)).of("x")
    assert anew(tmp_path).holds(seal, "x")
    assert sorted(os.listdir(tmp_path)) == ["key", f"key-{os.geteuid()}"]
    assert (tmp_path / "key").read_bytes() == b"x" * 32


def test_a_disk_that_gives_all_files_one_mode_holds_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def opened(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        fd = real(path, flags, mode, **more)
        if flags & os.O_CREAT:
            os.fchmod(fd, 0o755)
        return fd

    monkeypatch.setattr(os, "open", opened)
    seal = Seals(str(tmp_path)).of("x")
    assert Seals(str(tmp_path)).holds(seal, "x")
    assert os.listdir(tmp_path) == []


def test_where_no_key_can_be_kept_seals_hold_until_the_process_ends(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    seal = Seals(str(tmp_path / "state")).of("x")
    assert Seals(str(tmp_path / "state")).holds(seal, "x")
    assert not anew(tmp_path / "state").holds(seal, "x")
