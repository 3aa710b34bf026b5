"""Deletes trees below a folder by descriptors, so that no link leads out of it, and nothing mounted is entered.

Nobody can put a link on the way meanwhile (openat(2)).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable

from nbdata.optional_calls import fsync
from nbdata.paths import is_own_name

__all__ = ["Below", "is_mounted", "remove_folder"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# From this depth on, folders that are to be deleted are moved up first. Each level takes two descriptors.
_DEEPEST = 16


class Below:
    """What lies below a folder, reached by descriptors and through no link. A context manager.

    Paths are relative to the folder. One descriptor is kept, of the parent used last. From one of nbdata's own folders
    on, nothing that is mounted is entered: nbdata mounts nothing there.

    Parameters
    ----------
    root : str
        The folder. It may be a link itself.
    fd : int, optional
        Its descriptor, which is closed with this object. None: the folder is opened by its path.

    Raises
    ------
    OSError
        From all methods. ENOTDIR or ELOOP if a link, or a file, has the place of a folder on the way; EXDEV if a
        file system is mounted there.
    """

    def __init__(self, root: str, fd: int | None = None) -> None:
        self._is_own = any(map(is_own_name, root.split("/")))
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if fd is None else fd
        self._parent, self._fd = "", self._root

    def __enter__(self) -> Below:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptors."""
        self._leave()
        os.close(self._root)

    def _leave(self) -> None:
        if self._fd != self._root:
            os.close(self._fd)
        self._parent, self._fd = "", self._root

    def at(self, path: str) -> tuple[int, str]:
        """Return the descriptor of a path's folder, valid until the next call, and its last name."""
        parent, _, name = path.rpartition("/")
        if parent != self._parent:
            self._leave()
            fd = self._root
            own = self._is_own
            for part in parent.split("/") if parent else ():
                try:
                    inner = _entered(part, fd) if own else os.open(part, _FOLDER, dir_fd=fd)
                finally:
                    if fd != self._root:
                        os.close(fd)
                fd, own = inner, own or is_own_name(part)
            self._parent, self._fd = parent, fd
        return self._fd, name

    def lstat(self, path: str) -> os.stat_result:
        """Return what is there, of a link the link."""
        fd, name = self.at(path)
        return os.lstat(name, dir_fd=fd)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        fd, name = self.at(path)
        inner = _entered(name, fd)
        try:
            return os.listdir(inner)
        finally:
            os.close(inner)

    def mkdir(self, path: str) -> None:
        """Make a folder, if it is missing, and make its name durable where the disk can."""
        fd, name = self.at(path)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=fd)
        with contextlib.suppress(OSError):
            fsync(fd)

    def unlink(self, path: str) -> None:
        """Delete a file or a link."""
        fd, name = self.at(path)
        os.unlink(name, dir_fd=fd)

    def rmdir(self, path: str) -> None:
        """Delete an empty folder."""
        fd, name = self.at(path)
        if self._parent == path:
            self._leave()
        os.rmdir(name, dir_fd=fd)

    def remove(self, path: str) -> None:
        """Delete a file or a link, or a folder with all that is in it; raises the first error of what stays."""
        fd, name = self.at(path)
        if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
            remove_folder(name, fd)
        else:
            os.unlink(name, dir_fd=fd)

    def remove_tree(self, path: str) -> None:
        """Delete a folder with all that is in it, or a file, as far as the system lets us."""
        with contextlib.suppress(OSError):
            self.remove(path)


def is_mounted(path: str) -> bool:
    """True if a folder is the top of a mounted file system, or of a part of one that is mounted there again."""
    try:
        with Below(os.path.dirname(path)) as below:
            fd, name = below.at(os.path.basename(path))
            os.close(_entered(name, fd))
    except OSError as error:
        return error.errno == errno.EXDEV
    return False


def _entered(name: str, above: int) -> int:
    """Open a folder in an open one; OSError (EXDEV) if a file system is mounted there."""
    fd = os.open(name, _FOLDER, dir_fd=above)
    if _mount(fd) != _mount(above):
        os.close(fd)
        raise OSError(errno.EXDEV, "a file system is mounted there", name)
    return fd


def _mount(fd: int) -> tuple[int, bytes]:
    """Return what tells the mount of an open folder: its device and, where the system says it, the mount's number."""
    device = os.fstat(fd).st_dev
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{fd}", "rb") as lines:
        return device, next((line for line in lines if line.startswith(b"mnt_id:")), b"")
    return device, b""


def remove_folder(name: str, above: int, expected: Callable[[int], bool] = lambda _: True) -> bool:
    """Delete a folder in an open one with all that is in it; raises the first error of what stays.

    Returns False, and deletes nothing, if the folder that was opened is not `expected`.
    """
    fd = _entered(name, above)
    try:
        if not expected(fd):
            return False
        _Emptying(fd).run()
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=above)
    return True


class _Emptying:
    """Deletes all that is in a folder, however deep, with few descriptors: see `_DEEPEST`."""

    def __init__(self, top: int) -> None:
        self._top, self._moved = top, True
        self._error: OSError | None = None

    def run(self) -> None:
        """Delete it; raises the first error of what stays."""
        while self._moved:
            self._moved, self._error = False, None
            self._empty(self._top, 1)
        if self._error is not None:
            raise self._error

    def _empty(self, fd: int, depth: int) -> None:
        with os.scandir(fd) as entries:
            for entry in entries:
                try:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.name, dir_fd=fd)
                    elif depth < _DEEPEST:
                        self._remove(entry.name, fd, depth + 1)
                    else:
                        self._move_up(entry.name, fd)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._error = self._error or error

    def _remove(self, name: str, above: int, depth: int) -> None:
        fd = _entered(name, above)
        try:
            self._empty(fd, depth)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=above)

    def _move_up(self, name: str, above: int) -> None:
        try:
            os.rename(name, secrets.token_hex(12), src_dir_fd=above, dst_dir_fd=self._top)
            self._moved = True
        except PermissionError as refused:  # one that cannot be written may still be empty
            try:
                os.rmdir(name, dir_fd=above)
            except OSError:
                raise refused from None
