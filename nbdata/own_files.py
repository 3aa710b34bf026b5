"""The one way into nbdata's own folders: what lies in a user's ``.nbdata/`` may have come from anybody.

No link there is followed. A folder that another user has made, and could change, is never entered: this user's is then
``.nbdata-UID`` beside it. What is deleted or read is reached by descriptors, so that nobody can put a link on the way
meanwhile (openat(2)).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator

from nbdata.acls import drop_foreign
from nbdata.disk import disk_error, make_folders, write_file
from nbdata.errors import NbdataError, UnsafeMember
from nbdata.paths import OWN_FOLDER, is_own_name

__all__ = [
    "again_if_removed",
    "folder_of",
    "has_own_folder",
    "is_ours",
    "is_own_file",
    "is_shared",
    "make_own_folder",
    "new_record",
    "open_own_folder",
    "own_folder",
    "own_folders_in",
    "own_mode",
    "owner_here",
    "read_small",
    "remove",
    "small_file",
    "taken",
    "through_no_link",
    "without_waiting",
    "write_record",
]

# How often files are made if another job removes their folder meanwhile.
_TRIES = 100
# Others may make files in such a folder; with the sticky bit, nobody removes those of others.
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def own_folder(folder: str, *names: str) -> str:
    """Return the path of this user's own folder in `folder`, or of what lies below it; refuses links on the way.

    It need not exist. It is ``.nbdata``, or ``.nbdata-UID`` if that is there or ``.nbdata`` is another user's. *Another
    user's* is what this user cannot use, and what has neither the owner and the mode that a folder made there now would
    have, nor the owner of `folder`, if nobody else can make files in that.

    Parameters
    ----------
    folder : str
        The user's folder, which may itself be a link.
    *names : str
        The folders below ``.nbdata``, outermost first.

    Raises
    ------
    UnsafeMember
        If one of these is there and is not a folder, or others may write in it, or ``.nbdata-UID`` is another user's.
    """
    path, is_open, users, open_modes = folder, True, {os.geteuid()}, 0
    try:
        for number, name in enumerate((_own_name(folder), *names)):
            path = os.path.join(path, name)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                status = os.lstat(path)
                if not stat.S_ISDIR(status.st_mode):
                    raise _not_a_folder(path, status.st_mode)
                if not number:
                    users.add(status.st_uid)
                    open_modes = status.st_mode & _OTHERS_WRITE  # that of a disk with one mode for everything
                elif is_open and (status.st_uid not in users or status.st_mode & _OTHERS_WRITE & ~open_modes):
                    raise _not_private(path)
                is_open = is_open and bool(status.st_mode & _OTHERS_ENTER)
    except OSError as error:
        if isinstance(error, NbdataError):
            raise
        raise disk_error(error, path) from error
    return path


def make_own_folder(folder: str) -> str:
    """Make this user's own folder in `folder`, if it is not there, and return its path.

    Raises
    ------
    UnsafeMember
        As `own_folder`.
    FileNotFoundError
        If it was removed, or another user made one at the same moment. Try again.
    """
    path = own_folder(folder)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, own_mode(folder))
    found, fd = open_own_folder(folder)
    os.close(fd)
    if found != path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return path


def open_own_folder(folder: str) -> tuple[str, int]:
    """Open this user's own folder in `folder`, and return its path and descriptor. The caller closes it.

    It loses a default access control list that is not that of `folder`: files in it get their final names later.

    Raises
    ------
    UnsafeMember
        As `own_folder`.
    FileNotFoundError
        If it was removed or exchanged meanwhile. Try again.
    """
    path = own_folder(folder)
    fd = os.open(path, _FOLDER)
    try:
        if not _is_ours(folder, os.fstat(fd), path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        drop_foreign(fd, folder)
    except BaseException:
        os.close(fd)
        raise
    return path, fd


def again_if_removed(make: Callable[[], None]) -> None:
    """Make files in a ``.nbdata`` folder, again if another job that ends removes the folder while it is empty."""
    for left in reversed(range(_TRIES)):
        try:
            make()
        except FileNotFoundError:
            if not left:
                raise
        else:
            return


def is_ours(path: str) -> bool:
    """True if one of nbdata's own folders, found by its name, belongs to this user: see `own_folder`."""
    try:
        return _is_ours(os.path.dirname(path), os.lstat(path), path)
    except OSError:
        return False


def has_own_folder(folder: str) -> bool:
    """True if this user may have an own folder in `folder`."""
    names = (OWN_FOLDER, f"{OWN_FOLDER}-{os.geteuid()}")
    return any(os.path.isdir(os.path.join(folder, name)) for name in names)


def is_shared(folder: str) -> bool:
    """True if other users may make files in a folder."""
    try:
        return bool(os.stat(folder).st_mode & _OTHERS_WRITE)
    except OSError:
        return False


def own_mode(folder: str) -> int:
    """Return the mode of nbdata's own folder in `folder`. Of a shared one, others see which jobs work there."""
    return 0o755 if is_shared(folder) else 0o700


def is_own_file(path: str) -> bool:
    """True if a file has the owner of this user's files: another user can set any size and time."""
    owner = os.lstat(path).st_uid
    if owner == os.geteuid():
        return True
    fd = os.open(os.path.dirname(path), _FOLDER)
    try:
        return owner == owner_here(fd)
    finally:
        os.close(fd)


def owner_here(folder: int) -> int:
    """Return the owner that a file of this user has in an open folder: some disks have one for everything."""
    probe = secrets.token_hex(12)
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(probe, dir_fd=folder)


def own_folders_in(folder: str) -> list[str]:
    """Return the names of all of nbdata's own folders in `folder`, also of other users; links and files are none."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if is_own_name(e.name) and e.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _own_name(folder: str) -> str:
    other = f"{OWN_FOLDER}-{os.geteuid()}"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not _is_ours(folder, os.lstat(path := os.path.join(folder, other)), path):
            raise UnsafeMember(
                "another user has a folder with the name of yours",
                path=path,
                expected=f"a folder that user {os.geteuid()} made",
                remedy="Choose another folder",
            )
        return other
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not _is_ours(folder, os.lstat(path := os.path.join(folder, OWN_FOLDER)), path):
            return other
    return OWN_FOLDER


def _is_ours(folder: str, status: os.stat_result, path: str) -> bool:
    if not stat.S_ISDIR(status.st_mode):
        # It is refused anyway if this user, or the folder's owner, has put it there.
        return status.st_uid in (os.geteuid(), os.stat(folder).st_uid)
    if not _is_usable(path):
        return False
    if status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE:
        return True
    around = os.stat(folder)
    private = not status.st_mode & _OTHERS_WRITE
    if private and status.st_uid == around.st_uid and not around.st_mode & (stat.S_ISVTX | _OTHERS_WRITE):
        return True
    return _said(status) == _made_now(folder)


def _is_usable(path: str) -> bool:
    """True if this user may read, write and enter a folder; raises FileNotFoundError if it was removed meanwhile."""
    try:
        fd = os.open(path, _FOLDER)
    except PermissionError:
        return False
    try:
        effective = os.access in os.supports_effective_ids
        return os.access(".", os.R_OK | os.W_OK | os.X_OK, dir_fd=fd, effective_ids=effective)
    finally:
        os.close(fd)


def _said(status: os.stat_result) -> tuple[int, int]:
    return status.st_uid, status.st_mode & 0o777


def _made_now(folder: str) -> tuple[int, int] | None:
    """Return the owner and the mode that a folder gets here: some disks have one of each for everything."""
    probe = os.path.join(folder, f"{OWN_FOLDER}-{10**17 + secrets.randbelow(10**17)}")
    try:
        os.mkdir(probe, own_mode(folder))
    except OSError:
        return None
    try:
        return _said(os.lstat(probe))
    finally:
        os.rmdir(probe)


def _not_a_folder(path: str, mode: int) -> UnsafeMember:
    kind = "link" if stat.S_ISLNK(mode) else "file"
    return UnsafeMember(
        f"a {kind} has the place of a folder of nbdata",
        path=path,
        expected="a folder that nbdata made",
        remedy="Look where it came from, and remove it",
    )


def taken(path: str) -> UnsafeMember | None:
    """Return the error of a file of nbdata that cannot be opened, if that is because something else has its place.

    That may also be the place of its folder.
    """
    at = os.path.dirname(path)
    try:
        if stat.S_ISDIR(os.lstat(at).st_mode):
            at = path
            if stat.S_ISREG(os.lstat(path).st_mode):
                return None
    except OSError:
        return None
    return _no_file(at)


def _no_file(path: str) -> UnsafeMember:
    return UnsafeMember(
        "something else has the place of a file of nbdata",
        path=path,
        expected="a file that nbdata made",
        remedy="Look where it came from, and remove it",
    )


def remove(path: str, *, at: int | None = None) -> None:
    """Delete one of nbdata's own files, or what has its place: a link, or an empty folder.

    With `at`, the descriptor of a folder, the path is a name in there. A folder with anything in it is not nbdata's.

    Raises
    ------
    OSError
        If the disk refuses. It is no error if nothing is there.
    """
    try:
        os.unlink(path, dir_fd=at)
    except FileNotFoundError:
        pass
    except OSError:
        if not stat.S_ISDIR(os.lstat(path, dir_fd=at).st_mode):
            raise
        try:
            os.rmdir(path, dir_fd=at)
        except OSError as error:
            raise _no_file(path) from error


def _not_private(path: str) -> UnsafeMember:
    return UnsafeMember(
        "others may write in a folder of nbdata",
        path=path,
        expected="a folder that nbdata made",
        remedy="Look where it came from, and remove it",
    )


def without_waiting(path: str, flags: int) -> int:
    """Open a file of nbdata for ``open(opener=…)``; a named pipe in its place is empty, and opens without a writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def through_no_link(path: str, flags: int) -> int:
    """Open a file of the state folder for ``open(opener=…)``; no link in its place, or in its folder's, is followed.

    Raises
    ------
    OSError
        Also if anything but a regular file is there, such as a pipe.
    """
    with folder_of(path) as (at, name):
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=at)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file", path)
    return fd


@contextlib.contextmanager
def folder_of(path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Open the folder of a file of the state folder, and yield its descriptor and the file's name.

    A link in the place of the folder is an OSError. With `make`, the folder is made if it is missing.
    """
    folder, name = os.path.split(path)
    if make:
        make_folders(folder, 0o700)
    fd = os.open(folder, _FOLDER)
    try:
        yield fd, name
    finally:
        os.close(fd)


def write_record(path: str, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file of the state folder, whole and durable or not at all; see `folder_of` and `write_file`."""
    with folder_of(path, make=True) as (at, _):
        write_file(path, pieces, umask=0o077, folder=at)


def new_record(name: str, at: int, flags: int = os.O_WRONLY) -> int:
    """Open a new file of nbdata in an open folder, which nobody else may read; what has its name is deleted."""
    remove(name, at=at)
    return os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=at)


@contextlib.contextmanager
def small_file(path: str, most: int, *, at: int | None = None) -> Iterator[int]:
    """Open a record to read, which nbdata wrote with at most `most` bytes; see `remove` for `at`.

    Raises
    ------
    FileNotFoundError
        If it is not there, or anything else has its name: a link, a pipe, a device, or a larger file.
    OSError
        If the disk cannot read it.
    """
    try:
        fd = os.open(path, _FILE, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV, errno.ENOTDIR):
            raise FileNotFoundError(errno.ENOENT, "no record", path) from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise FileNotFoundError(errno.ENOENT, "no record", path)
        yield fd
    finally:
        os.close(fd)


def read_small(path: str, most: int, *, at: int | None = None) -> bytes:
    """Return the content of a record, with the errors and parameters of `small_file`."""
    with small_file(path, most, at=at) as fd:
        data = b""
        while len(data) <= most and (more := os.read(fd, most + 1 - len(data))):
            data += more
        if len(data) > most:  # it grew meanwhile
            raise FileNotFoundError(errno.ENOENT, "no record", path)
        return data
