"""The runtime folder, in which the processes of nbdata find each other."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from nbdata import runtime
from nbdata.engine.runner import forget_the_dead
from nbdata.space.holders import dead_holders, lives
from nbdata.transfer.locks import TargetLock, dead_locks


@pytest.mark.parametrize(
    ("systemd", "lingers", "used"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_a_folder_that_is_removed_at_logout_is_not_used_as_runtime_folder(
    systemd: bool, lingers: bool, used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "user" / str(os.getuid())
    own.mkdir(parents=True)
    if systemd:
        (tmp_path / "systemd/system").mkdir(parents=True)
    if lingers:
        (tmp_path / "linger").mkdir()
        (tmp_path / "linger" / pwd.getpwuid(os.getuid()).pw_name).touch()
    monkeypatch.setattr(runtime, "_RUN", str(tmp_path))
    monkeypatch.setattr(runtime, "_LINGERING", str(tmp_path / "linger"))
    monkeypatch.delenv("NBDATA_RUNTIME_DIR", raising=False)
    assert (runtime.runtime_folder() == f"{own}/nbdata") == used


def test_only_files_with_names_that_nbdata_gives_are_deleted_in_it() -> None:
    """Whoever names a folder may have such things in its `jobs` and `locks`."""
    folder = Path(runtime.runtime_folder())
    theirs = [
        "jobs/my thesis, chapters 1 to 12..../t",
        "jobs/D41D8CD98F00B204E9800998ECF8427E/t",
        "locks/poetry.lock",
        "locks/0123456789abcdef0.claim",
        "holder-of-the-chair.txt",
    ]
    left = [
        "jobs/d41d8cd98f00b204e9800998ecf8427e/t",
        "locks/0123456789abcdef.lock",
        "holder-0123456789abcdef",
    ]
    for name in (*theirs, *left):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("[]")
    assert not lives(str(folder), "holder-of-the-chair.txt")
    forget_the_dead()
    assert dead_holders() == 1
    assert dead_locks() == 1
    lock = TargetLock(str(folder / "target"), "job")
    assert lock.acquire(claims=True) is None
    lock.release()
    assert [name for name in (*theirs, *left) if (folder / name).exists()] == theirs
