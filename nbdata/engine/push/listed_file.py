"""Opens a local file to send as it was listed, and checks that it is still the same."""

from __future__ import annotations

import os
import stat

from nbdata.disk import disk_error
from nbdata.errors import SourceChanged

__all__ = ["differs", "open_listed", "still_same"]


def differs(now: os.stat_result, before: os.stat_result) -> bool:
    """True if a file may hold other bytes, or has no name any more.

    Other hard links may come and go; that changes its status (ctime) but not its bytes.
    """
    relinked = now.st_nlink != before.st_nlink and now.st_nlink
    return (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or (
        now.st_ctime_ns != before.st_ctime_ns and not relinked
    )


def open_listed(path: str, size: int, mtime_ns: int) -> tuple[int, os.stat_result]:
    """Open a file that was listed with this size and time; return it with its current stat.

    Raises
    ------
    SourceChanged
        If it has changed since it was listed.
    """
    try:
        # A listed file may be a named pipe by now; opening that would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise disk_error(error, path) from error
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or (found.st_size, found.st_mtime_ns) != (size, mtime_ns):
        os.close(fd)
        raise SourceChanged("the file changed after it was listed", path=path, remedy="Run the command again")
    if not found.st_size and os.pread(fd, 1, 0):
        os.close(fd)
        raise SourceChanged(
            "the file reports no size but holds bytes, like files in /proc",
            path=path,
            remedy="Push a copy that you make with cat",
        )
    return fd, found


def still_same(fd: int, before: os.stat_result, path: str) -> None:
    """SourceChanged if an open file has changed since before it was read."""
    now = os.fstat(fd)
    if differs(now, before):
        what = "changed" if now.st_nlink else "was deleted or replaced"
        raise SourceChanged(f"the file {what} while it was sent", path=path, remedy="Run the command again")
