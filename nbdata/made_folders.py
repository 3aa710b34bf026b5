"""Proves which folders nbdata made: only those are deleted with all that is in them.

A name proves nothing. Who owns the folder around can give it to any folder there, also to one that they may not look
into. So a folder that nbdata makes has a file ``.made`` with a seal (`nbdata.seals`) of its name and its inode. Another
folder has another inode, so that a copied file proves nothing there.

A folder of this user's in ``.nbdata/`` needs no seal if nobody else can have put it there. So folders of older versions
count, and those whose key is gone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from nbdata.acls import names_others
from nbdata.errors import UnsafeMember
from nbdata.other_users import is_own_group
from nbdata.own_files import owner_here, read_small
from nbdata.seals import Seals

__all__ = ["MADE", "MadeFolders", "is_of_another", "names_prove", "unproven"]

#: The file that proves a folder.
MADE = ".made"
# The most bytes of it.
_MOST = 64
# The names of files that folders have before they are sealed.
_BEFORE = ("alive", "lock")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class MadeFolders:
    """Seals the folders that this user's nbdata makes, and knows them again."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def seal(self, name: str, fd: int) -> None:
        """Seal an open folder, which has this name, unless anybody else can have made it, or put anything into it."""
        if self.is_sealed(name, fd) or not (_is_closed(fd) and _is_empty(fd)):
            return
        new = f"{MADE}.{secrets.token_hex(8)}"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=fd)
        try:
            os.write(file, self._seals.of(*_said(fd, name)).encode("ascii"))
        finally:
            os.close(file)
        os.replace(new, MADE, src_dir_fd=fd, dst_dir_fd=fd)

    def has(self, name: str, fd: int) -> bool:
        """True if this user's nbdata has made an open folder in ``.nbdata/``, or nobody else can have put it there."""
        if self.is_sealed(name, fd):
            return True
        with contextlib.suppress(OSError):
            own = os.open("..", _FOLDER, dir_fd=fd)
            try:
                return _is_this_users(fd) and _is_this_users(own) and not _may_be_renamed(own)
            finally:
                os.close(own)
        return False

    def is_sealed(self, name: str, fd: int) -> bool:
        """True if this user's nbdata has made an open folder, wherever it is, and has given it this name."""
        try:
            seal = read_small(MADE, _MOST, at=fd).decode("ascii", "replace")
        except OSError:
            return False
        return self._seals.holds(seal, *_said(fd, name))


def names_prove(own: int) -> bool:
    """True if files in an open ``.nbdata`` may be deleted because of their names.

    Nobody else can have given its name to a folder of this user's. Of another user's, its owner can delete them anyway.
    """
    return not _is_this_users(own) or not _may_be_renamed(own)


def is_of_another(fd: int) -> bool:
    """True if another user owns an open folder and the ``.nbdata/`` around it: that user can delete the files in it."""
    around = os.stat("..", dir_fd=fd).st_uid
    return os.fstat(fd).st_uid == around and not _is_this_users(fd)


def unproven(path: str) -> UnsafeMember:
    """Return the error of a folder that others could have put into ``.nbdata/``."""
    return UnsafeMember(
        "nothing proves that nbdata made this folder, and others could have put it there",
        path=path,
        expected="a folder with your seal",
        remedy="Look what is in it, and remove it",
    )


def _is_this_users(fd: int) -> bool:
    status = os.fstat(fd).st_uid
    if status == os.geteuid():
        return True
    try:
        return status == owner_here(fd)
    except OSError:
        return False


def _may_be_renamed(own: int) -> bool:
    """True if another user, but root, may rename folders in the one around an open ``.nbdata``."""
    around = os.open("..", _FOLDER, dir_fd=own)
    try:
        status = os.fstat(around)
        closed = 0 if status.st_mode & stat.S_ISVTX else stat.S_IWGRP | stat.S_IWOTH
        if (
            closed & status.st_mode == stat.S_IWGRP
            and is_own_group(status.st_gid)
            and not names_others(around)
        ):
            closed = 0
        if status.st_uid in (os.geteuid(), 0, os.stat("/").st_uid) and not status.st_mode & closed:
            return False
        return not _makes_all_alike(around, status)
    finally:
        os.close(around)


def _makes_all_alike(folder: int, status: os.stat_result) -> bool:
    """True on a disk that gives all files one owner and mode: nothing in an open folder is safe from others there."""
    probe = secrets.token_hex(12)
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError:
        return False
    try:
        made = os.fstat(fd)
        return made.st_uid == status.st_uid and not status.st_mode & ~made.st_mode & (
            stat.S_IWGRP | stat.S_IWOTH
        )
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(probe, dir_fd=folder)


def _is_closed(fd: int) -> bool:
    """True if nobody else can put anything into an open folder."""
    return not os.fstat(fd).st_mode & (stat.S_IWGRP | stat.S_IWOTH) and _is_this_users(fd)


def _is_empty(fd: int) -> bool:
    with os.scandir(fd) as entries:
        return all(
            (entry.name in _BEFORE or entry.name.startswith(MADE)) and not entry.is_dir(follow_symlinks=False)
            for entry in entries
        )


def _said(fd: int, name: str) -> tuple[str, str, int]:
    # Not the device: its number changes with each start of a container, and on network disks.
    return "folder", name, os.fstat(fd).st_ino
