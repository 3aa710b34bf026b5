"""Opens the folders in which files are written or deleted, so that no link leads out of the folder that the user named.

What lies below that folder may have come from anybody. So a folder is opened name by name, from the descriptor of the
folder above it, and its files are written and deleted relative to its own descriptor. A folder that is swapped for a
link meanwhile is noticed, or has no effect.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable

from nbdata.errors import UnsafeMember
from nbdata.paths import is_ours

__all__ = ["GuardedFolders", "MakeFolder"]

#: Makes a folder: see `GuardedFolders`.
MakeFolder = Callable[[str, "int | None", str], None]

# How many folders are remembered. Others are looked at again.
_KNOWN = 50_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Folders on the way need not be readable, where the system can open them so.
_ON_THE_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


# Folders of this process that are being made, and have no mode yet; the event says that they have. See `_set_mode`.
_unready: dict[str, threading.Event] = {}
os.register_at_fork(after_in_child=_unready.clear)


class GuardedFolders:
    """The folders below a place that the user named. All methods may be called from several threads.

    Parameters
    ----------
    named : str
        The absolute path of a folder or a file, which may not exist. Links in it are followed.
    umask : int, optional
        The umask of the user who owns new folders. None: the process's.
    mkdir : callable, optional
        Called with a name, the descriptor of the folder above it (None: the name is absolute), and the path: makes a
        folder, as `os.mkdir` does.
    made : callable
        Called with the path of each new folder, once it has its mode.
    """

    def __init__(
        self,
        named: str,
        *,
        umask: int | None = None,
        mkdir: MakeFolder | None = None,
        made: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._named = named.rstrip("/") or "/"
        self._umask, self._made = umask, made
        self._mkdir = mkdir or (lambda name, above, _: os.mkdir(name, dir_fd=above))
        self._known: dict[str, tuple[int, int]] = {}  # folders that no link leads out: device and inode

    def open_to_write(self, folder: str, *, make: bool = True) -> int:
        """Open a folder to write files in it; makes it and those above it if missing. The caller closes it.

        A link below the named folder is followed only to a folder that lies in there too, and is not nbdata's own.

        Raises
        ------
        UnsafeMember
            If a link leads out of the named folder, or to nbdata's own.
        """
        known = self._known.get(folder)
        if known is not None:
            with contextlib.suppress(OSError):  # the way below finds the reason
                fd = os.open(folder, _FOLDER)
                if _identity(fd) == known:
                    return fd
                os.close(fd)
        root = self._root(folder)
        if make:
            self._make_root(root)
        try:
            fd = self._walk_inside(root, folder, make=make)
        except _LinkError as link:
            raise UnsafeMember(
                f"a symbolic link leads {link.where}",
                path=link.path,
                expected=f"a path below {root}",
                got=os.path.realpath(link.path),
            ) from link
        if len(self._known) >= _KNOWN:  # otherwise memory could hold a million folders
            self._known.clear()
        self._known[folder] = _identity(fd)
        return fd

    def open_to_delete(self, folder: str) -> int:
        """Open a folder to delete or change what is in it. The caller closes it.

        Raises
        ------
        UnsafeMember
            If there is a link on the way from the named folder: nothing below a link is deleted.
        """
        root = self._root(folder)
        try:
            return self._walk(root, folder, _ON_THE_WAY, make=False)
        except _LinkError as link:
            raise UnsafeMember(
                "nothing below a symbolic link is deleted", path=link.path, expected=f"a folder below {root}"
            ) from link

    def unlink(self, path: str, expected: Callable[[os.stat_result], bool] = lambda _: True) -> bool:
        """Delete a file, or a link itself, unless there is a link above it; see `open_to_delete`.

        Returns False, and deletes nothing, if its status is not `expected`.
        """
        folder, _, name = path.rpartition("/")
        above = self.open_to_delete(folder)
        try:
            if not expected(os.lstat(name, dir_fd=above)):
                return False
            os.unlink(name, dir_fd=above)
            return True
        finally:
            os.close(above)

    def rmdir(self, path: str) -> None:
        """Delete an empty folder, unless there is a link above it; see `open_to_delete`."""
        folder, _, name = path.rpartition("/")
        above = self.open_to_delete(folder)
        try:
            os.rmdir(name, dir_fd=above)
        finally:
            os.close(above)

    def set_time(self, path: str, mtime_ns: int) -> None:
        """Set the time of a folder, unless there is a link above it or in its place; see `open_to_delete`."""
        folder, _, name = path.rpartition("/")
        above = self.open_to_delete(folder)
        try:
            if stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode):
                os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=above, follow_symlinks=False)
        finally:
            os.close(above)

    def _root(self, folder: str) -> str:
        """Return the part of a path that the user named: that folder, or the one with the file that was named."""
        if folder == self._named or folder.startswith(self._named.rstrip("/") + "/"):
            return self._named
        return os.path.commonpath((self._named, folder))

    def _walk_inside(self, root: str, folder: str, *, make: bool) -> int:
        """Open a folder to write in. A link to another folder below the root is followed."""
        try:
            return self._walk(root, folder, _FOLDER, make=make)
        except _LinkError as link:
            above, real = os.path.realpath(root), os.path.realpath(folder)
            if real != above and not real.startswith(above.rstrip("/") + "/"):
                raise
            if is_ours(real[len(above) :]):  # what is in there counts as no data, and cleanup removes it
                raise _LinkError(link.path, "to nbdata's own folder") from link
        return self._walk(above, real, _FOLDER, make=make)

    def _walk(self, root: str, folder: str, flags: int, *, make: bool) -> int:
        """Open a folder, and with `make` create it, without following links below the root."""
        names = [name for name in folder[len(root) :].split("/") if name]
        fd = os.open(root, _ON_THE_WAY if names else flags)
        for number, name in enumerate(names, 1):
            above, path = fd, f"{root.rstrip('/')}/{'/'.join(names[:number])}"
            try:
                last = number == len(names)
                fd = self._below(above, name, path, flags if last else _ON_THE_WAY, make=make)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP) and _is_link(above, name):
                    raise _LinkError(path) from error
                raise
            finally:
                os.close(above)
        return fd

    def _below(self, above: int, name: str, path: str, flags: int, *, make: bool) -> int:
        """Open a folder, which may be missing with `make`, in an open one."""
        flags |= os.O_NOFOLLOW
        try:
            fd = os.open(name, flags, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
            self._make(name, above, path)
            return os.open(name, flags, dir_fd=above)
        _wait_for(path)
        return fd

    def _make_root(self, root: str) -> None:
        """Make the named folder and those above it, of any depth, unlike `os.makedirs`."""
        missing = []
        while not os.path.isdir(root):
            missing.append(root)
            root = os.path.dirname(root)
        _wait_for(root)
        for folder in reversed(missing):
            self._make(folder, None, folder)

    def _make(self, name: str, above: int | None, path: str) -> None:
        """Make a folder with the mode of its user, unless something is there, which the next step reports."""
        ready = threading.Event()
        try:
            while _unready.setdefault(path, ready) is not ready:
                _wait_for(path)
            self._mkdir(name, above, path)
            if self._umask is not None:
                _set_mode(name, above, 0o777 & ~self._umask)
        except FileExistsError:  # another thread or program was faster
            return
        finally:
            if _unready.get(path) is ready:
                del _unready[path]
            ready.set()
        self._made(path)


class _LinkError(Exception):
    """There is a link on the way; `path` names it, and `where` says where it may lead."""

    def __init__(self, path: str, where: str = "out of the target") -> None:
        super().__init__(path)
        self.path, self.where = path, where


def _wait_for(path: str) -> None:
    """Wait if another thread has made a folder, but has not set its mode: a folder with files in it gets none."""
    if (ready := _unready.get(path)) is not None:
        ready.wait()


def _set_mode(name: str, above: int | None, mode: int) -> None:
    """Set the permissions of a folder that was just made, unless another folder has its name by now.

    That may be a private one: who owns the folder above can exchange the two. The new one is this user's, and empty.
    It keeps the set-group-id and sticky bits that the disk gave it.
    """
    fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    try:
        found = os.fstat(fd)
        mode |= found.st_mode & 0o7000
        if found.st_mode & 0o7777 != mode and found.st_uid == os.geteuid() and not os.listdir(fd):
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _is_link(above: int, name: str) -> bool:
    try:
        os.readlink(name, dir_fd=above)
    except OSError:
        return False
    return True
