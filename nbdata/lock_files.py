"""Locks by flock: held on a file by one process, until it ends or lets go."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import weakref

from nbdata.errors import NbdataError
from nbdata.optional_calls import flock
from nbdata.runtime import runtime_folder

__all__ = ["INSTEAD", "LockFile", "file_lock", "held", "is_lockable", "lock_for_children"]

#: Suffix of the files in the runtime folder that are locked in place of others.
INSTEAD = ".disk"


class LockFile:
    """An open file for flock; the copies in forked children are closed, because a copy would hold the lock on.

    The lock ends with the process, however that ends. This makes it a sign of life, which a pid is not. On a disk
    without locks, a file in the runtime folder is locked in its place: that keeps out this machine's processes.

    Attributes
    ----------
    fd : int
        The descriptor; -1 while it is closed.
    """

    fd = -1
    path = ""  # of a file in the runtime folder
    _instead: LockFile | None = None

    def open(self, path: str, flags: int = 0, *, at: int | None = None) -> None:
        """Open `path` for reading and writing, with the further `flags`; with `at`, a name in that open folder."""
        # A child that is forked before the descriptor is recorded finds its copy by the path.
        _opening.append((path, at))
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600, dir_fd=at)
            _open.add(self)
        finally:
            _opening.remove((path, at))

    def lock(self, *, wait: bool = True) -> bool:
        """Take the exclusive flock; without `wait`, return False if another process holds it."""
        try:
            return flock(self.fd, wait=wait) or self._lock_instead(wait=wait)
        except BlockingIOError:
            return False

    def _lock_instead(self, *, wait: bool) -> bool:
        """Lock a file of the runtime folder, named after this one's path."""
        path = _in_runtime_folder(self.fd)
        while True:
            file = LockFile()
            file.open(path, os.O_CREAT)
            try:
                _lock_plainly(file.fd, path, wait=wait)
                if _is_there(path, file.fd):
                    self._instead, file.path = file, path
                    return True
            except BaseException:
                file.close()
                raise
            file.close()

    def close(self) -> None:
        """Release the lock; harmless if the file is closed already."""
        if self._instead is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._instead.path)
            self._instead.close()
            self._instead = None
        elif self.fd >= 0:
            # Closing alone is not enough: a child that is being forked right now has a copy.
            with contextlib.suppress(OSError):  # it was not locked, since its disk has no locks
                fcntl.flock(self.fd, fcntl.LOCK_UN)
        self.close_copy()
        _open.discard(self)

    def close_copy(self) -> None:
        """Close the copy in a child of a fork: the lock belongs to the parent."""
        self._instead = None  # which is closed as this one is
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _in_runtime_folder(fd: int) -> str:
    """Return the path of the file that is locked in the place of an open file on a disk without locks."""
    try:
        name = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # not Linux
        status = os.fstat(fd)
        name = f"{status.st_dev}:{status.st_ino}"
    folder = os.path.join(runtime_folder(), "locks")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest() + INSTEAD)


def lock_for_children(fd: int) -> int:
    """Lock an open file for this process and those that inherit the descriptor; return the one that holds the lock.

    On a disk without locks, that is another one, of a file in the runtime folder; `fd` is closed then.

    Raises
    ------
    BlockingIOError
        If another process holds the lock.
    """
    if flock(fd, wait=False):
        return fd
    path = _in_runtime_folder(fd)
    while True:
        instead = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock_plainly(instead, path, wait=False)
            if _is_there(path, instead):
                os.close(fd)
                return instead
        except BaseException:
            os.close(instead)
            raise
        os.close(instead)


def _lock_plainly(fd: int, path: str, *, wait: bool) -> None:
    """Lock a file of the runtime folder, whose disk must have locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError as error:
        raise NbdataError(
            f"the disk of the runtime folder has no locks ({error.strerror})",
            path=os.path.dirname(path),
            remedy="Name a folder on another disk in NBDATA_RUNTIME_DIR",
        ) from error


def _is_there(path: str, fd: int) -> bool:
    """True if an open file still has its name: its last holder may have removed it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


class file_lock:  # noqa: N801  reads as a verb where it is used: with file_lock(path):
    """An exclusive flock on a file, held as a context manager or until `release`.

    The file itself stays: removing it would let two processes hold "the" lock on two inodes. Where its holder may
    remove it after all, the next holder checks that it still `stands`.

    Parameters
    ----------
    path : str
        With `at`, a name.
    at : int, optional
        A descriptor of the folder that the file is in, open while the lock is taken: nobody can lead it elsewhere.
    """

    def __init__(self, path: str, at: int | None = None) -> None:
        self.path, self._at = path, at
        self._file = LockFile()

    def acquire(self, *, wait: bool = True, make: bool = True) -> bool:
        """Take the lock; without `wait`, return False if another process holds it. `make` makes a missing file."""
        self._file.open(self.path, os.O_CREAT if make else 0, at=self._at)
        taken = False
        try:
            taken = self._file.lock(wait=wait)
        finally:
            if not taken:
                self._file.close()
        return taken

    def stands(self) -> bool:
        """True if the locked file still has its name."""
        try:
            return os.path.samestat(os.stat(self.path, dir_fd=self._at), os.fstat(self._file.fd))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock; harmless if it is not held."""
        self._file.close()

    def __enter__(self) -> file_lock:
        self.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


_open: weakref.WeakSet[LockFile] = weakref.WeakSet()
# Paths that some thread is opening right now, and the folders in which they are names.
_opening: list[tuple[str, int | None]] = []


def _after_fork() -> None:
    for file in list(_open):
        file.close_copy()
    _open.clear()
    for path, at in _opening:
        _close_all_of(path, at)
    _opening.clear()


def _close_all_of(path: str, at: int | None) -> None:
    """Close all descriptors that this process has of a file."""
    with contextlib.suppress(OSError):
        wanted = os.stat(path, dir_fd=at, follow_symlinks=False)
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
                if os.path.samestat(os.fstat(int(name)), wanted):
                    os.close(int(name))


os.register_at_fork(after_in_child=_after_fork)


def is_lockable(path: str, at: int | None = None) -> bool:
    """True if a lock can be held on `path`. A link or a folder is never opened, so nobody holds one there."""
    try:
        mode = os.lstat(path, dir_fd=at).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def held(path: str, at: int | None = None) -> bool:
    """True if some process holds the flock on `path`, in the open folder `at`; makes no file."""
    if not is_lockable(path, at):
        return False
    lock = file_lock(path, at)
    try:
        if lock.acquire(wait=False, make=False):
            lock.release()
            return False
    except FileNotFoundError:
        return False
    return True
