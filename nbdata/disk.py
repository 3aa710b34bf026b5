"""What the operating system says and does with disks: its errors in nbdata's words, folders made, bytes synced."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence

from nbdata.errors import (
    ROOM_THEN_AGAIN,
    AccessDenied,
    BadOption,
    NbdataError,
    NotEnoughSpace,
    NotFound,
    StoreUnavailable,
)

__all__ = [
    "NO_INODES",
    "PARTIAL",
    "QUOTA",
    "begin_writing",
    "disk_error",
    "full_disk_told",
    "is_full",
    "make_durable",
    "make_folders",
    "special_kind",
    "sync_disks",
    "sync_folder",
    "syncfs",
    "write_file",
]

#: How the names of files end that are being written; never listed.
PARTIAL = ".nbdata-partial"
#: What is said of a disk that has bytes left, and can hold no more files.
NO_INODES = "the disk has no inodes left for more files"
#: Who limits, where the file system says that its quota is used up.
QUOTA = "the quota of the file system"


def is_full(error: OSError) -> bool:
    """Whether the disk, or this user's share of it, has no room for more."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_error(error: OSError, path: str) -> NbdataError:
    """The error of the interface for an error of the local disk."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFound("no such file or folder", path=path)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason = "the file system is read-only" if error.errno == errno.EROFS else "the disk refuses"
        return AccessDenied(reason, path=path, remedy="Choose another folder, or mend its permissions")
    if error.errno == errno.ENAMETOOLONG:
        return BadOption(
            "the path is longer than the disk takes", path=path, remedy="Use a folder with a shorter path"
        )
    if is_full(error):
        quota = error.errno == errno.EDQUOT
        full = NO_INODES if _lacks_inodes(path) else "the disk became full"
        return NotEnoughSpace(
            "the disk quota is used up" if quota else full,
            path=path,
            remedy=f"{ROOM_THEN_AGAIN}. %quota shows the disks",
            # How much a quota of the file system's leaves can not be asked for everywhere; what the disk has is more.
            details={"free": 0, "source": QUOTA} if quota else {},
        )
    return StoreUnavailable(f"the disk failed ({os.strerror(error.errno or 0)})", path=path)


@contextlib.contextmanager
def full_disk_told(where: str | None) -> Iterator[None]:
    """NotEnoughSpace for what a full disk or quota refuses where nobody expects it; None: no disk of ours.

    Not only a write may meet that: copy-on-write file systems need room to cut a file, and those that allocate late
    tell it at a sync.
    """
    try:
        yield
    except OSError as error:
        if where is None or isinstance(error, NbdataError) or not is_full(error):
            raise
        raise disk_error(error, str(error.filename or where)) from error


def _lacks_inodes(path: str) -> bool:
    """Whether the disk of a path has bytes left and no inodes."""
    try:
        found = os.statvfs(os.path.dirname(path) or ".")
    except OSError:  # its path is not known, or goes through what could not be made
        return False
    return found.f_files > 0 and found.f_favail == 0 and found.f_bavail > 0


def special_kind(mode: int) -> str:
    """What stands there, if it is neither a file, a folder nor a link."""
    if stat.S_ISFIFO(mode):
        return "named pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else ""


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(
    path: str, pieces: Iterable[bytes | memoryview], *, umask: int | None = None
) -> os.stat_result:
    """Make a file of these bytes, whole and durable or not at all; what it then is.

    An existing file is replaced, and its permissions are kept; a new one gets them by `umask`, None: the process's.

    Raises
    ------
    NbdataError
        What the disk refuses, and whatever `pieces` raises.
    """
    folder = os.path.dirname(path)
    # In the same folder, so that the rename crosses no disks; short, whatever the name's length.
    partial = f"{folder}/.{secrets.token_hex(8)}{PARTIAL}"
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with contextlib.suppress(FileNotFoundError):
                if umask is not None:
                    os.fchmod(fd, 0o666 & ~umask)
                os.fchmod(fd, os.stat(path).st_mode & 0o777)
            for piece in pieces:
                written, view = 0, memoryview(piece)
                while written < len(view):
                    written += os.write(fd, view[written:])
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(partial, path)
        sync_folder(folder)
        return os.stat(path)
    except OSError as error:
        if isinstance(error, NbdataError):
            raise
        raise disk_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


_sync_file_range: Callable[[int, ctypes.c_int64, ctypes.c_int64, int], int] | None
try:
    _sync_file_range = ctypes.CDLL(None).sync_file_range
except (AttributeError, OSError):  # not Linux
    _sync_file_range = None
_WRITE = 2  # SYNC_FILE_RANGE_WRITE of <fcntl.h>


def begin_writing(fd: int, start: int, count: int) -> None:
    """Have the system begin to bring these bytes of a file to the disk, where it can; waits for none of it.

    A sync that comes later has less to do: of 512 MiB it took 0.01 s in place of 0.32.
    """
    if _sync_file_range is not None:
        _sync_file_range(fd, ctypes.c_int64(start), ctypes.c_int64(count), _WRITE)


def make_folders(path: str, mode: int) -> None:
    """Make a folder and those above it, durably where the disk can do that."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folders(above, mode)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
    with contextlib.suppress(OSError):
        sync_folder(above)


#: Of libc; None where it is missing.
syncfs: Callable[[int], int] | None
try:
    syncfs = ctypes.CDLL(None, use_errno=True).syncfs
except (AttributeError, OSError):  # not Linux
    syncfs = None


def make_durable(files: Sequence[str]) -> None:
    """Bytes of all files on disk: one syncfs for many, else fdatasync each (as for one or two)."""
    if len(files) > 2 and syncfs is not None:
        sync_disks(files)
        return
    for file in files:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)


def sync_disks(files: Sequence[str]) -> None:
    """All bytes and names on the disks that these files are on."""
    assert syncfs is not None
    for folder in {file.rpartition("/")[0] for file in files}:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(fd)
