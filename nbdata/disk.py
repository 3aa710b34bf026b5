"""Local disk access: the system's errors as nbdata's errors, durable folders and files, syncing."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import linecache
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence

from nbdata.acls import default_of, give_group, replaced_file, successor_mode, without_group
from nbdata.errors import (
    ROOM_THEN_AGAIN,
    AccessDenied,
    BadOption,
    NbdataError,
    NotEnoughSpace,
    NotFound,
    SourceChanged,
    StoreUnavailable,
    UnsafeMember,
)
from nbdata.optional_calls import fdatasync, flock, fsync, is_refusal, set_mode
from nbdata.same_files import same_file

__all__ = [
    "NO_INODES",
    "PARTIAL",
    "QUOTA",
    "begin_writing",
    "disk_error",
    "exchanged",
    "file_error",
    "full_disk_told",
    "give_name",
    "internal_error",
    "is_full",
    "is_unfinished",
    "make_durable",
    "make_folders",
    "new_file",
    "open_regular",
    "read_regular",
    "special_kind",
    "sync_disk",
    "sync_disks",
    "sync_folder",
    "syncfs",
    "write_file",
]

#: Suffix of files that are still being written; listings skip them.
PARTIAL = ".nbdata-partial"
#: Message for a disk that has free bytes but can hold no more files.
NO_INODES = "the disk has no inodes left for more files"
#: Name of the limit if the file system reports that its quota is used up.
QUOTA = "the quota of the file system"
# The name of a file that is still being written.
_UNFINISHED = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(PARTIAL)}")


def is_unfinished(name: str) -> bool:
    """True for the name that nbdata gives to a file that is still being written."""
    return _UNFINISHED.fullmatch(name) is not None


def is_full(error: OSError) -> bool:
    """True if the disk, or this user's quota on it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_error(error: OSError, path: str) -> NbdataError:
    """Convert an OSError of the local disk into an NbdataError."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFound("no such file or folder", path=path)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason = "the file system is read-only" if error.errno == errno.EROFS else "the disk refuses"
        return AccessDenied(reason, path=path, remedy="Choose another folder, or change its permissions")
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
            # Not every system can say how much of a quota is left; the free space of the disk would be too high.
            details={"free": 0, "source": QUOTA} if quota else {},
        )
    call = _call_of(error)
    why = f"{call}: {error.strerror or error}" if call else str(error.strerror or error)
    if error.errno in _FAILED:
        return StoreUnavailable(f"the disk failed ({why})", path=path)
    for numbers, what, remedy in _REFUSED:
        if error.errno in numbers:
            return NbdataError(f"{what} ({why})", path=path, remedy=remedy)
    return NbdataError(f"the system refuses this ({why})", path=path)


# What the system says of a disk that does not work.
_FAILED = {
    errno.EIO,
    errno.ESTALE,
    errno.ENODEV,
    errno.ENXIO,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.EREMOTEIO,
}
# What it says of one file, in words, with a remedy.
_REFUSED: tuple[tuple[tuple[int, ...], str, str], ...] = (
    (
        (errno.EFBIG,),
        "the file is larger than this disk or the limit of this process allows",
        "Use another disk, or raise the limit (`ulimit -f`)",
    ),
    (
        (errno.EMFILE, errno.ENFILE),
        "too many files are open at the same time",
        "Raise the limit (`ulimit -n`), or use a smaller --concurrency",
    ),
    ((errno.ELOOP,), "symbolic links lead in a circle there", "Remove the link"),
    (
        (errno.EBUSY, errno.ETXTBSY),
        "the file is in use",
        "End the program that uses it, or unmount what is there",
    ),
    ((errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST), "something else is in its place", "Move that away"),
)
# A system call in a line of Python.
_CALL = re.compile(r"\bos\.(?!fspath|fsdecode|strerror|path)(\w+)\(")


def _call_of(error: OSError) -> str:
    """Return the name of the system call that failed, from the line that made it; empty if the line lacks it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    names = _CALL.findall(linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno))
    return str(names[0]) if len(names) == 1 else ""


def internal_error(error: BaseException) -> NbdataError:
    """Convert an error that ends a whole job or request, and that no code expected.

    It is a fault of nbdata, unless the system refused a call, for example for a file that nbdata keeps beside the data.
    """
    if isinstance(error, NbdataError):
        return error
    if isinstance(error, OSError) and error.errno:
        return file_error(error, "the folder for running jobs, or nbdata's records")
    return NbdataError(f"internal error: {type(error).__name__}: {error}")


def file_error(error: Exception, path: str) -> NbdataError:
    """Return the failure of one file: a call that the system refused counts as one, whichever it was.

    Any other unexpected error is a fault of nbdata, and is raised. The path in an OSError is more exact than `path`, if
    it is absolute.
    """
    if isinstance(error, NbdataError):
        return error
    if not isinstance(error, OSError):
        raise error
    own = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    explained = disk_error(error, own if os.path.isabs(own) else path)
    explained.__cause__ = error
    return explained


@contextlib.contextmanager
def full_disk_told(where: str | None) -> Iterator[None]:
    """Raise NotEnoughSpace if a disk or quota is full at a call that does not expect it; None: no disk of ours.

    Not only writes can fail so. Copy-on-write file systems need room to truncate a file, and file systems that allocate
    late report the error at a sync.
    """
    try:
        yield
    except OSError as error:
        if where is None or isinstance(error, NbdataError) or not is_full(error):
            raise
        raise disk_error(error, str(error.filename or where)) from error


def _lacks_inodes(path: str) -> bool:
    """True if the disk of a path has free bytes but no free inodes."""
    try:
        figures = os.statvfs(os.path.dirname(path) or ".")
    except OSError:  # the path is unknown, or one of its folders could not be made
        return False
    return figures.f_files > 0 and figures.f_favail == 0 and figures.f_bavail > 0


def special_kind(mode: int) -> str:
    """Name the kind of a file that is neither a regular file, a folder nor a link."""
    if stat.S_ISFIFO(mode):
        return "named pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else ""


def open_regular(path: str, flags: int = 0, *, dir_fd: int | None = None) -> int:
    """Open a file to read without waiting, and return its descriptor. Links are followed, unless `flags` say otherwise.

    Raises
    ------
    UnsafeMember
        If it is a named pipe, a device, a folder or the like: reading those may never end.
    OSError
        If it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=dir_fd)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    kind = special_kind(mode) or "folder"
    raise UnsafeMember(
        f"a {kind} has the place of a file", path=path, expected="a regular file", remedy="Remove it"
    )


def read_regular(path: str, flags: int = 0, *, most: int | None = None) -> bytes:
    """Return the bytes of a file: as many as its size says. See `open_regular`.

    Raises
    ------
    SourceChanged, NbdataError
        If it grows or shrinks meanwhile; if it has more than `most` bytes, which a hole on the disk can have.
    """
    with open(open_regular(path, flags), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise NbdataError(
                "the file is larger than its content can be", path=path, expected=f"at most {most:,} bytes",
                got=f"{size:,}", remedy="Look where it came from, and make it again",
            )  # fmt: skip
        data = file.read(size + 1)
    if len(data) != size:
        raise SourceChanged("a file changed while it was read", path=path, remedy="Run the command again")
    return data


def sync_folder(path: str) -> None:
    """Make the names in a folder durable (fsync)."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fsync(fd)
    finally:
        os.close(fd)


def write_file(
    path: str,
    pieces: Iterable[bytes | memoryview],
    *,
    umask: int | None = None,
    folder: int | None = None,
) -> os.stat_result:
    """Write a file of these bytes, whole and durable or not at all; return its stat result.

    A file gets its permissions from `umask` (None: the process's umask). An existing file is replaced, and its
    successor is no more open; a link is replaced itself.

    Parameters
    ----------
    folder : int, optional
        A descriptor of the folder that the file is in, open for reading. None: it is opened by its path.

    Raises
    ------
    NbdataError
        If the disk refuses; errors of `pieces` pass through.
    """
    above = path.rpartition("/")[0]
    try:
        at = os.open(above or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if folder is None else folder
        try:
            return _write_in(at, path, pieces, umask)
        finally:
            if at != folder:
                os.close(at)
    except OSError as error:
        if isinstance(error, NbdataError):
            raise
        raise disk_error(error, path) from error


def _write_in(
    folder: int, path: str, pieces: Iterable[bytes | memoryview], umask: int | None
) -> os.stat_result:
    """Do the work of `write_file`, relative to an open folder."""
    # In the same folder, so that the rename stays on one disk; a short name, however long the final one is.
    partial = f".{secrets.token_hex(8)}{PARTIAL}"
    try:
        fd = new_file(partial, path, umask, dir_fd=folder)
        try:
            for piece in pieces:
                written, view = 0, memoryview(piece)
                while written < len(view):
                    written += os.write(fd, view[written:])
            fsync(fd)
            status = give_name(partial, path, os.fstat(fd), dir_fd=folder)
        finally:
            os.close(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=folder)
        raise
    fsync(folder)
    return status


def new_file(partial: str, path: str, umask: int | None, *, dir_fd: int | None = None) -> int:
    """Make an unfinished file beside its final path, and open it.

    It has its final mode, and lets nobody do more than the file that it replaces: see `successor_mode`. While it is
    open, it has a flock, which shows `cleanup` anywhere that it still grows.

    Parameters
    ----------
    partial : str
        A name in the open folder `dir_fd`; without one, an absolute path.
    path : str
        The final path.
    umask : int or None
        The umask of the file's user. None: the process's.
    """
    default = default_of(os.path.dirname(path) if dir_fd is None else dir_fd)
    listed = default is not None  # then no umask counts
    replaced = replaced_file(_in_folder(path, dir_fd), dir_fd=dir_fd, default=default)
    mode = successor_mode(0o666 if listed else 0o666 & ~(umask or 0), replaced)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(partial, flags, mode, dir_fd=dir_fd)
    try:
        if umask is not None and not listed:  # the process may have another one
            set_mode(fd, mode)
        if replaced is not None and (made := os.fstat(fd)).st_gid != replaced.group:
            # Somebody of the wrong group may have opened this one. The next is closed until it has its group.
            os.unlink(partial, dir_fd=dir_fd)
            closed = os.open(partial, flags, 0o600, dir_fd=dir_fd)
            os.close(fd)
            fd = closed
            mode = stat.S_IMODE(made.st_mode)
            set_mode(fd, mode if give_group(fd, replaced.group) else without_group(mode))
        flock(fd, wait=False)
    except BaseException:
        os.close(fd)
        raise
    return fd


def give_name(
    partial: str, path: str, written: os.stat_result, *, dir_fd: int | None = None
) -> os.stat_result:
    """Rename a written file to its final path; return its status.

    Parameters
    ----------
    partial, path : str
        See `new_file`.
    written : os.stat_result
        The status of the written file, from its descriptor.

    Raises
    ------
    AccessDenied
        If another file got the name, because somebody exchanged the unfinished one.
    """
    name = _in_folder(path, dir_fd)
    os.replace(partial, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not same_file(status, written):
        raise exchanged(path)
    return status


def _in_folder(path: str, dir_fd: int | None) -> str:
    """Return the name of a file in its open folder; without one, its path."""
    return path if dir_fd is None else path.rpartition("/")[2]


def exchanged(path: str) -> AccessDenied:
    """Return the error of a file that is not the one which was written."""
    return AccessDenied(
        "the file was exchanged by somebody else while it got its name",
        path=path,
        expected="the file that was written",
        got="another one",
        remedy="Look who may rename files in this folder, and run the command again in one that is yours alone",
    )


_sync_file_range: Callable[[int, ctypes.c_int64, ctypes.c_int64, int], int] | None
try:
    _sync_file_range = ctypes.CDLL(None).sync_file_range
except (AttributeError, OSError):  # not Linux
    _sync_file_range = None
_WRITE = 2  # SYNC_FILE_RANGE_WRITE of <fcntl.h>


def begin_writing(fd: int, start: int, count: int) -> None:
    """Start writing these bytes of a file to the disk, where the system can; does not wait.

    A later sync has less to do: for 512 MiB it took 0.01 s instead of 0.32 s.
    """
    if _sync_file_range is not None:
        _sync_file_range(fd, ctypes.c_int64(start), ctypes.c_int64(count), _WRITE)


def make_folders(path: str, mode: int) -> None:
    """Make a folder and its parents, durably where the disk supports it."""
    if not path or os.path.isdir(path):  # nothing is above a relative path
        return
    above = os.path.dirname(path)
    make_folders(above, mode)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
    with contextlib.suppress(OSError):
        sync_folder(above)


#: The function of libc; None where it is missing.
syncfs: Callable[[int], int] | None
try:
    syncfs = ctypes.CDLL(None, use_errno=True).syncfs
except (AttributeError, OSError):  # not Linux
    syncfs = None


def make_durable(files: Sequence[tuple[int | None, str]]) -> None:
    """Sync the bytes of all files to disk: one syncfs for many, else fdatasync for each (as for one or two).

    Anything else in the place of a file, such as a link, is passed over.

    Parameters
    ----------
    files : sequence of (int or None, str)
        For each file, the descriptor of its folder and its name there, as for `os.open`.
    """
    if len(files) > 2 and sync_disks(files):
        return
    for at, name in files:
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                continue
            raise
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                fdatasync(fd)
        finally:
            os.close(fd)


def sync_disks(files: Sequence[tuple[int | None, str]]) -> bool:
    """Sync all bytes and names on the disks that hold these files; see `make_durable`. False: the system cannot."""
    for at, folder in {(at, name.rpartition("/")[0] or ".") for at, name in files}:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        try:
            if not sync_disk(fd):
                return False
        finally:
            os.close(fd)
    return True


def sync_disk(fd: int) -> bool:
    """Sync all bytes and names on the disk of an open file or folder; return False if the system cannot."""
    if syncfs is None:
        return False
    if syncfs(fd):
        code = ctypes.get_errno()
        if not is_refusal(code, "syncing"):
            raise OSError(code, os.strerror(code))
        return False
    return True
