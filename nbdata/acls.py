"""POSIX access control lists and groups: what a file gets from its folder, or from a file that it replaces (acl(5)).

A file that is made elsewhere, and renamed into a folder, has none of that folder's list; it may have one of the folder
in which it was made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from typing import NamedTuple

__all__ = [
    "Replaced",
    "created_with",
    "default_of",
    "drop",
    "drop_foreign",
    "give",
    "give_group",
    "names_others",
    "replaced_file",
    "replaced_folder",
    "successor_mode",
    "without_group",
]

_ACCESS, _DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
# A list: its version, and entries of a tag, permissions and an id.
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
# Errors of files and disks without such lists.
_NONE = (
    (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM)
    if hasattr(errno, "ENODATA")
    else ()
)


def default_of(folder: int | str) -> bytes | None:
    """Return the list that new files in a folder get; None if it has none."""
    return _read(folder, _DEFAULT)


def names_others(folder: int | str) -> bool:
    """Return whether a folder has a list, which may name further users and groups that its mode does not show."""
    return _read(folder, _ACCESS) is not None


def _read(path: int | str, name: str, *, follow_symlinks: bool = True) -> bytes | None:
    if not hasattr(os, "getxattr"):  # not Linux
        return None
    try:
        return os.getxattr(path, name, follow_symlinks=follow_symlinks)
    except OSError as error:
        if error.errno in _NONE:
            return None
        raise


def created_with(default: bytes, mode: int) -> bytes:
    """Return the list of a file that is made with a mode, in a folder with a default list; umask does not count."""
    entries = _entries(default)
    group = _MASK if any(tag == _MASK for tag, *_ in entries) else _GROUP_OBJ
    most = {_USER_OBJ: mode >> 6 & 7, group: mode >> 3 & 7, _OTHER: mode & 7}
    return default[: _HEAD.size] + b"".join(
        _ENTRY.pack(tag, allowed & most.get(tag, 7), who) for tag, allowed, who in entries
    )


def _entries(acl: bytes) -> list[tuple[int, int, int]]:
    return list(_ENTRY.iter_unpack(acl[_HEAD.size :]))


def give(fd: int, default: bytes, mode: int) -> None:
    """Give an open file the list that it would have got in a folder with a default list."""
    os.setxattr(fd, _ACCESS, created_with(default, mode))


def drop(fd: int) -> None:
    """Take the list of an open file away; its mode stays."""
    _remove(fd, _ACCESS)


def drop_foreign(fd: int, around: int | str) -> None:
    """Take the default list of an open folder away, unless the folder around it has the same."""
    mine = default_of(fd)
    if mine is not None and mine != default_of(around):
        _remove(fd, _DEFAULT)


def give_group(fd: int, group: int) -> bool:
    """Give an open file a group; False if the system refuses, as for a group of which the user is no member."""
    if os.fstat(fd).st_gid != group:
        try:
            os.fchown(fd, -1, group)
        except OSError:
            return False
    return True


def without_group(mode: int) -> int:
    """Return a mode for a file of the wrong group: that group, and all others, may do only what both may."""
    both = mode >> 3 & mode & 7
    return mode & ~0o77 | both << 3 | both


def _remove(fd: int, name: str) -> None:
    with contextlib.suppress(AttributeError):  # not Linux
        try:
            os.removexattr(fd, name)
        except OSError as error:
            if error.errno not in _NONE:
                raise


class Replaced(NamedTuple):
    """What counts of a file or folder that another will replace: its group, and the mode that lets nobody do more."""

    group: int
    mode: int


def replaced_file(path: str, *, dir_fd: int | None = None, default: bytes | None) -> Replaced | None:
    """Return what counts of the regular file that has a name which another file will get; None if there is none.

    Parameters
    ----------
    path : str
        With `dir_fd`, a name in that open folder.
    default : bytes or None
        The list that new files in its folder get. If the file has the same one, so will the new one.
    """
    try:
        status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return None
        at = path if dir_fd is None else f"/proc/self/fd/{dir_fd}/{path}"  # getxattr knows no dir_fd
        acl = _read(at, _ACCESS, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return _replaced(status, acl, default)


def replaced_folder(fd: int, *, default: bytes | None) -> Replaced:
    """Return what counts of an open folder that another one will replace: see `replaced_file`."""
    return _replaced(os.fstat(fd), _read(fd, _ACCESS), default)


def _replaced(status: os.stat_result, acl: bytes | None, default: bytes | None) -> Replaced:
    mode = stat.S_IMODE(status.st_mode)
    if acl is not None and (default is None or _named(acl) != _named(default)):
        mode = _without_list(mode, acl)
    return Replaced(status.st_gid, mode)


def _named(acl: bytes) -> list[tuple[int, int, int]]:
    """Return the entries of a list that the mode of a file does not change."""
    return sorted(entry for entry in _entries(acl) if entry[0] in (_USER, _GROUP_OBJ, _GROUP))


def _without_list(mode: int, acl: bytes) -> int:
    """Return a mode without a list that lets nobody do more than the mode with that list, whose mask it shows.

    The users and groups that the list names are members of the file's group, or others, by then.
    """
    mask, group, others = mode >> 3 & 7, mode >> 3 & 7, mode & 7
    for tag, allowed, _ in _entries(acl):
        if tag in (_USER, _GROUP_OBJ):
            group &= allowed
        if tag in (_USER, _GROUP):
            others &= allowed & mask
    return mode & ~0o77 | group << 3 | others


def successor_mode(new: int, replaced: Replaced | None) -> int:
    """Return the mode of a file that gets a name: `new`, but no more open than the file that it replaces.

    So a file that its owner has closed stays closed, and one that somebody left open to all does not stay open. Who may
    read a file may execute it, if `new` says so. The mode is for the same group: see `give_group`.
    """
    if replaced is None:
        return new
    allowed = replaced.mode | 0o600
    return new & (allowed | (allowed & 0o444) >> 2)
