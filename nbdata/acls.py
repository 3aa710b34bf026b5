"""POSIX access control lists and groups: what a file gets from its folder, or from a file that it replaces (acl(5)).

A file that is made elsewhere, and renamed into a folder, has none of that folder's list; it may have one of the folder
in which it was made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct

__all__ = [
    "created_with",
    "default_of",
    "drop",
    "drop_foreign",
    "give",
    "give_group",
    "names_others",
    "successor_mode",
    "without_group",
]

_ACCESS, _DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
# A list: its version, and entries of a tag, permissions and an id.
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_USER_OBJ, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x04, 0x10, 0x20
# Errors of files and disks without such lists.
_NONE = (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL) if hasattr(errno, "ENODATA") else ()


def default_of(folder: int | str) -> bytes | None:
    """Return the list that new files in a folder get; None if it has none."""
    return _read(folder, _DEFAULT)


def names_others(folder: str) -> bool:
    """Return whether a folder has a list, which may name further users and groups that its mode does not show."""
    return _read(folder, _ACCESS) is not None


def _read(folder: int | str, name: str) -> bytes | None:
    if not hasattr(os, "getxattr"):  # not Linux
        return None
    try:
        return os.getxattr(folder, name)
    except OSError as error:
        if error.errno in _NONE:
            return None
        raise


def created_with(default: bytes, mode: int) -> bytes:
    """Return the list of a file that is made with a mode, in a folder with a default list; umask does not count."""
    entries = list(_ENTRY.iter_unpack(default[_HEAD.size :]))
    group = _MASK if any(tag == _MASK for tag, *_ in entries) else _GROUP_OBJ
    most = {_USER_OBJ: mode >> 6 & 7, group: mode >> 3 & 7, _OTHER: mode & 7}
    return default[: _HEAD.size] + b"".join(
        _ENTRY.pack(tag, allowed & most.get(tag, 7), who) for tag, allowed, who in entries
    )


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


def successor_mode(new: int, replaced: os.stat_result | None) -> int:
    """Return the mode of a file that gets a name: `new`, but no more open than the file that it replaces.

    So a file that its owner has closed stays closed, and one that somebody left open to all does not stay open. The
    mode is for the same group: see `give_group`.
    """
    return new if replaced is None else new & (replaced.st_mode | 0o600)
