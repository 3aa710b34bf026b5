"""The folder of one cache: private, alive while its lock is held, and gone when its owner is.

``DIR/.nbdata/cache-XXXX/`` holds one folder for each slot, ``DIR/.nbdata/cache-XXXX.lock`` the flock. A cache whose
owner died is found by its lock being free, and removed by whoever makes the next cache there or runs ``cleanup``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator

from nbdata.disk import disk_error
from nbdata.paths import OWN_FOLDER
from nbdata.runtime import file_lock, held
from nbdata.space.limits import round_up

__all__ = ["LOCK", "CacheFolder", "cache_folders", "room_of"]

_PREFIX = "cache-"
#: What the name of its lock has more.
LOCK = ".lock"
# Bytes that a folder's entry for one file takes, beside the name: more than any common file system needs.
_ENTRY = 64


def room_of(files: list[tuple[str, int]], block: int) -> int:
    """Bytes of disk that files (relative path, size) take at most in a folder of their own, with their folders."""
    folders: dict[str, int] = {"": 0}
    total = 0
    for path, size in files:
        total += round_up(size, block)
        *above, name = path.split("/")
        at = ""
        for part in above:
            inner = f"{at}/{part}"
            if inner not in folders:
                folders[inner] = 0
                folders[at] += len(os.fsencode(part)) + _ENTRY
            at = inner
        folders[at] += len(os.fsencode(name)) + _ENTRY
    return total + sum(round_up(max(names, 1), block) for names in folders.values())


class CacheFolder:
    """A cache's own folder on the disk; a context manager that leaves nothing behind.

    Parameters
    ----------
    parent : str
        Made if it is not there.
    block : int
        Bytes of a block of its disk.
    """

    #: Files and folders of its own, in blocks: the folder, the lock, and what they add to their parent.
    OVERHEAD_BLOCKS = 4

    def __init__(self, parent: str, block: int) -> None:
        self._own = os.path.join(parent, OWN_FOLDER)
        self.path = os.path.join(self._own, f"{_PREFIX}{secrets.token_hex(8)}")
        self.overhead = self.OVERHEAD_BLOCKS * block

    def __enter__(self) -> CacheFolder:
        try:
            os.makedirs(os.path.dirname(self._own), exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._own, 0o700)
            if not stat.S_ISDIR(os.lstat(self._own).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self._own)
            _remove_dead(self._own)
            self._lock = file_lock(self.path + LOCK)
            self._lock.acquire()
            os.mkdir(self.path, 0o700)
        except OSError as error:
            raise disk_error(error, self._own) from error
        return self

    def __exit__(self, *exc: object) -> None:
        _remove(self.path, self._lock)
        with contextlib.suppress(OSError):  # others may have something there
            os.rmdir(self._own)

    def slot(self, number: int) -> str:
        """The folder of a slot; made by who writes there."""
        return f"{self.path}/{number}"

    def remove(self, number: int) -> None:
        """Delete what a slot has; AccessDenied and the like if that cannot be."""
        path = self.slot(number)
        try:
            if os.path.islink(path):  # the user's code moved it away: what it leads to is not ours
                os.unlink(path)
                return
            with contextlib.suppress(OSError):  # then the thorough way finds out why
                _remove_files(path)
                return
            shutil.rmtree(path)
        except FileNotFoundError:  # nothing was written, or the user's code deleted it
            shutil.rmtree(path, ignore_errors=True)
            if os.path.lexists(path):
                raise disk_error(OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)), path) from None
        except OSError as error:
            raise disk_error(error, path) from error


def _remove_files(path: str) -> None:
    """A folder and all in it; in half the time of `shutil.rmtree`, which minds that others may put links there."""
    with os.scandir(path) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                _remove_files(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(path)


def cache_folders(own: str, prefix: str = _PREFIX) -> Iterator[tuple[str, bool]]:
    """The caches in a ``.nbdata`` folder whose names begin so, and whether their owners live."""
    with os.scandir(own) as found:
        names = sorted(e.name for e in found if e.name.startswith(prefix) and e.is_dir(follow_symlinks=False))
    for name in names:
        path = os.path.join(own, name)
        yield path, held(path + LOCK)


def _remove_dead(own: str) -> None:
    for path, alive in cache_folders(own):
        if not alive:
            lock = file_lock(path + LOCK)
            if lock.acquire(wait=False):
                _remove(path, lock)


def _remove(path: str, lock: file_lock) -> None:
    """The folder first: while it is there, so is the lock that says whose it is."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + LOCK)
    lock.release()
