"""Holders: the ledger's names for processes. Each process holds a flock on its own file while it lives.

Process ids are not used, because they are reused and differ between containers.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets

from nbdata.lock_files import file_lock, held
from nbdata.runtime import runtime_folder
from nbdata.threads import ForkLock

__all__ = ["dead_holders", "holder_of", "is_alive", "lives", "this_process", "touch_books"]

# The names of the files.
_NAMES = re.compile("holder-[0-9a-f]{16}")

_holders: dict[str, file_lock] = {}
_holders_lock = ForkLock()


def holder_of(folder: str) -> str:
    """The name of the file that this process holds a flock on. Call it while holding the ledger's lock."""
    with _holders_lock:
        if folder not in _holders or not _holders[folder].stands():  # the whole folder may have been deleted
            lock = file_lock(os.path.join(folder, f"holder-{secrets.token_hex(8)}"))
            lock.acquire()
            _holders[folder] = lock
        return os.path.basename(_holders[folder].path)


def lives(folder: str, name: str) -> bool:
    """Whether the process with that name lives. Removes the file of a dead one."""
    own = _holders.get(folder)
    if own is not None and os.path.basename(own.path) == name:
        return True
    path = os.path.join(folder, name)
    if not _NAMES.fullmatch(name):  # a file of the user
        return False
    if held(path):
        return True
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return False


def this_process() -> str:
    """A name of this process, for `is_alive`."""
    folder = runtime_folder()
    with file_lock(os.path.join(folder, "ledger.lock")):
        return holder_of(folder)


def is_alive(name: str) -> bool:
    """Whether the process with that name from `this_process`, on this machine, lives."""
    folder = runtime_folder()
    with file_lock(os.path.join(folder, "ledger.lock")):
        return lives(folder, name)


def touch_books() -> None:
    """Touch the ledger's and this process's files, so that cleaners of old temporary files keep them."""
    folder = runtime_folder()
    own = _holders.get(folder)
    for path in (
        os.path.join(folder, "ledger.lock"),
        os.path.join(folder, "ledger.json"),
        own.path if own else "",
    ):
        with contextlib.suppress(OSError):
            os.utime(path)


def dead_holders(folder: str | None = None, *, remove: bool = True) -> int:
    """Remove the files of dead holders, and return their number. With `remove` False, only count them."""
    folder = folder or runtime_folder()
    with file_lock(os.path.join(folder, "ledger.lock")):
        names = [name for name in os.listdir(folder) if _NAMES.fullmatch(name)]
        return sum(not (lives(folder, n) if remove else held(os.path.join(folder, n))) for n in names)


def _after_fork() -> None:
    """Forget all holders in the child of a fork: `file_lock` has closed its copies of the locks."""
    _holders.clear()


os.register_at_fork(after_in_child=_after_fork)
