"""Calls that some disks refuse, and that nbdata goes on without; the report of a job says which.

FAT, CIFS, NFS without its lock daemon, and many file systems in user space (FUSE) keep no permissions or times, make no
hard links, know no locks, or cannot sync a folder. Their errors say that the disk cannot do it at all. Any other error
is raised: EIO is a disk that fails, and ENOSPC one that is full.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from typing import NamedTuple

__all__ = [
    "CALLS",
    "Watch",
    "fdatasync",
    "flock",
    "fsync",
    "hard_link",
    "is_refusal",
    "pass_over",
    "set_mode",
    "set_time",
]


class _Call(NamedTuple):
    """A call that a disk may refuse: the errors that say so, and what a report then says."""

    errors: tuple[int, ...]
    told: str


_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)

#: The calls. The errors are those of chmod(2), utimensat(2), fsync(2), flock(2) and link(2), and those that disks were
#: seen to give.
CALLS: dict[str, _Call] = {
    "permissions": _Call(
        (errno.EPERM, errno.EACCES, *_UNKNOWN),
        "the disk takes no permissions: its files have those that it gives them",
    ),
    "times": _Call(
        (errno.EPERM, errno.EACCES, *_UNKNOWN),
        "the disk takes no times: its files have that of their writing",
    ),
    "syncing": _Call(
        _UNKNOWN, "the disk cannot sync all that was written: a power cut may lose the newest files and names"
    ),
    "locks": _Call(
        (errno.ENOLCK, *_UNKNOWN),
        "the disk has no locks: let no other machine work in the same folder meanwhile",
    ),
    "hard links": _Call(
        (errno.EPERM, errno.EMLINK, errno.EXDEV, *_UNKNOWN),
        "the disk makes no hard links: they became copies",
    ),
}
# The most disks whose refusals are remembered; the oldest is forgotten first.
_DISKS = 100
# For a disk (st_dev) and a call, the number of its last refusal. Python's dicts keep the order of their keys.
_refused: dict[tuple[int, str], int] = {}
_count = 0


class Watch:
    """Tells which calls were refused since it was made."""

    def __init__(self) -> None:
        self._began = _count

    def notes(self, places: Iterable[str]) -> list[str]:
        """Return a sentence for each call that the disk of one of these paths has refused."""
        disks = set()
        for place in places:
            try:
                disks.add(os.stat(place).st_dev)
            except OSError:  # it was never made
                continue
        new = {
            call for (disk, call), number in list(_refused.items()) if disk in disks and number > self._began
        }
        return [note for call, (_, note) in CALLS.items() if call in new]


def is_refusal(code: int | None, call: str) -> bool:
    """Return whether an error's number (errno) says that the disk cannot do a call at all."""
    return code in CALLS[call].errors


def pass_over(error: OSError, call: str, where: int | str) -> None:
    """Note that a disk cannot do a call; raise the error if it says anything else.

    Parameters
    ----------
    error : OSError
        The error of the call.
    call : str
        A key of `CALLS`.
    where : int or str
        An open file or folder on that disk, or a path.
    """
    global _count
    if not is_refusal(error.errno, call):
        raise error
    disk = (os.fstat(where) if isinstance(where, int) else os.stat(where)).st_dev
    _count += 1
    _refused.pop((disk, call), None)
    _refused[disk, call] = _count
    while len(_refused) > _DISKS * len(CALLS):
        _refused.pop(next(iter(_refused)), None)


def set_mode(fd: int, mode: int) -> None:
    """Set the permissions of an open file or folder."""
    try:
        os.fchmod(fd, mode)
    except OSError as error:
        pass_over(error, "permissions", fd)


def set_time(name: int | str, mtime_ns: int, *, dir_fd: int | None = None) -> None:
    """Set the time of an open file, or of a name in an open folder; a link is not followed."""
    times = (mtime_ns, mtime_ns)
    try:
        if isinstance(name, int):
            os.utime(name, ns=times)
        else:
            os.utime(name, ns=times, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        pass_over(error, "times", name if isinstance(name, int) or dir_fd is None else dir_fd)


def fsync(fd: int) -> None:
    """Make an open file durable, or the names in an open folder."""
    try:
        os.fsync(fd)
    except OSError as error:
        pass_over(error, "syncing", fd)


def fdatasync(fd: int) -> None:
    """Make the bytes of an open file durable, without its times."""
    try:
        os.fdatasync(fd)
    except OSError as error:
        pass_over(error, "syncing", fd)


def flock(fd: int, *, wait: bool = True) -> bool:
    """Take the exclusive flock of an open file or folder; return False if its disk has no locks.

    Raises
    ------
    BlockingIOError
        If another process holds it, and `wait` is False.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError as error:
        pass_over(error, "locks", fd)
        return False
    return True


def hard_link(name: str, new: str, *, src_dir_fd: int | None, dst_dir_fd: int | None, on: int) -> bool:
    """Make a hard link; return False if the disk, of which `on` is an open folder, makes none."""
    try:
        os.link(name, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)
    except OSError as error:
        pass_over(error, "hard links", on)
        return False
    return True
