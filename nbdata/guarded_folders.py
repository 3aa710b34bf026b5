"""Opens the folders in which files are written or deleted, so that no link leads out of the folder that the user named.

What lies below that folder may have come from anybody. So a folder is opened name by name, from the descriptor of the
folder above it, and its files are written and deleted relative to its own descriptor. A folder that is swapped for a
link meanwhile is noticed, or has no effect. That is done each time: the number (inode) of a folder that was right
says nothing later, because the next folder gets the number of a deleted one.

The named folder itself is opened once, and its descriptor is kept: the owner of the folder above it can exchange it at
any time. If the name leads elsewhere by now, the work ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable

from nbdata.acls import default_of
from nbdata.errors import NbdataError, UnsafeMember
from nbdata.optional_calls import set_mode, set_time
from nbdata.paths import is_inside, is_ours

__all__ = ["GuardedFolders", "MakeFolder", "NamedFolders", "TargetLost", "exchanged_folder", "open_straight"]

#: Makes a folder: see `GuardedFolders`.
MakeFolder = Callable[[str, "int | None", str], None]

# How many named folders a job keeps open: it writes in one or two.
_MOST_NAMED = 256
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Folders on the way need not be readable, where the system can open them so.
_ON_THE_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


# Folders of this process that are being made, and have no mode yet; the event says that they have. See `_set_mode`.
_unready: dict[str, threading.Event] = {}
os.register_at_fork(after_in_child=_unready.clear)


class TargetLost(NbdataError):
    """The folder that the user named was exchanged or deleted meanwhile; ends the job."""


class NamedFolders:
    """The folders that one job was given by name, each open from its first use on. For several threads.

    A descriptor is closed once nothing uses it and this object is closed or gone.

    Parameters
    ----------
    here : tuple of (path, st_dev, st_ino), optional
        The working folder of the user, below which relative names were meant: what lies there is opened from it. If
        another folder or a link has its name, or one of those above it, methods raise TargetLost.
    """

    def __init__(self, here: tuple[str, int, int] | None = None) -> None:
        self._here = here
        self._open: dict[str, _Named] = {}
        self._above: dict[str, _Named] = {}  # of folders that were missing: the nearest one above each

    def hold(self, path: str) -> None:
        """Open a folder before its first use, so that nothing else is taken for it; or the nearest one above it."""
        path = path.rstrip("/") or "/"
        self._hold(path)
        if path not in self._open:  # a file, or it may become one: then its folder is what is used
            self._hold(os.path.dirname(path))

    def _hold(self, path: str) -> None:
        if path not in self._open and path not in self._above:
            with contextlib.suppress(OSError):  # the first use tells what is wrong
                nearest = self._nearest(path)
                if nearest.path == path:
                    self.keep(nearest)
                    return
                known = (
                    one for one in (*self._open.values(), *self._above.values()) if one.path == nearest.path
                )
                self._above[path] = next(known, nearest)

    def above(self, path: str) -> _Named:
        """Return the nearest folder above a missing one, or the folder itself, open."""
        return self._above.get(path) or self._nearest(path)

    def _nearest(self, path: str) -> _Named:
        if self._here is None or not is_inside(path, self._here[0]):
            return _nearest(path)
        name, device, inode = self._here
        try:
            here = _Named(name, open_straight(name))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise exchanged_folder(name) from None
            raise
        if _identity(here.fd) != (device, inode):
            raise exchanged_folder(name)
        return _nearest(path, here)

    def get(self, path: str) -> _Named | None:
        """Return a folder that is open."""
        return self._open.get(path)

    def keep(self, folder: _Named) -> _Named:
        """Keep an open folder, unless another thread was faster; return the one that is kept."""
        if len(self._open) >= _MOST_NAMED:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), folder.path)
        return self._open.setdefault(folder.path, folder)

    def close(self) -> None:
        """Forget all folders."""
        self._open.clear()
        self._above.clear()


class _Named:
    """An open folder that the user named; closed when nothing uses it."""

    def __init__(self, path: str, fd: int) -> None:
        self.path, self.fd = path, fd
        self._identity = _identity(fd)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        _close(self.fd)

    def check(self, *, deleted: bool = True) -> None:
        """Raise TargetLost if the name leads to another folder by now, or with `deleted` to none."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            if not deleted:
                return
            raise TargetLost(
                "the folder was deleted while this job worked in it",
                path=self.path,
                remedy="Run the command again",
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
        else:
            # Some disks number a folder anew while it is open: then both statuses show it.
            if (status.st_dev, status.st_ino) == self._identity or os.path.samestat(
                status, os.fstat(self.fd)
            ):
                return
        raise exchanged_folder(self.path)


class GuardedFolders:
    """The folders below a place that the user named. All methods may be called from several threads.

    Methods raise TargetLost once the name of that place leads elsewhere.

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
    opened : NamedFolders, optional
        The folders that the job has opened. None: this object has its own.
    """

    def __init__(
        self,
        named: str,
        *,
        umask: int | None = None,
        mkdir: MakeFolder | None = None,
        made: Callable[[str], None] = lambda _: None,
        opened: NamedFolders | None = None,
    ) -> None:
        self._named = named.rstrip("/") or "/"
        self._opened = NamedFolders() if opened is None else opened
        self._umask, self._made = umask, made
        self._mkdir = mkdir or (lambda name, above, _: os.mkdir(name, dir_fd=above))

    def open_to_write(self, folder: str, *, make: bool = True) -> int:
        """Open a folder to write files in it; makes it and those above it if missing. The caller closes it.

        A link below the named folder is followed only to a folder that lies in there too, and is not nbdata's own.

        Raises
        ------
        UnsafeMember
            If a link leads out of the named folder, or to nbdata's own.
        """
        root = self._open_named(self._root(folder), make=make)
        try:
            return self._walk_inside(root, folder, make=make)
        except _LinkError as link:
            raise UnsafeMember(
                f"a symbolic link leads {link.where}",
                path=link.path,
                expected=f"a path below {root.path}",
                got=os.path.realpath(link.path),
            ) from link

    def open_to_delete(self, folder: str) -> int:
        """Open a folder to delete or change what is in it. The caller closes it.

        Raises
        ------
        UnsafeMember
            If there is a link on the way from the named folder: nothing below a link is deleted.
        """
        root = self._open_named(self._root(folder), make=False)
        try:
            return self._walk(root, folder[len(root.path) :], _ON_THE_WAY, make=False)
        except _LinkError as link:
            raise UnsafeMember(
                "nothing below a symbolic link is deleted",
                path=link.path,
                expected=f"a folder below {root.path}",
            ) from link

    def hold(self) -> None:
        """Open the place now: see `NamedFolders.hold`."""
        self._opened.hold(self._named)

    def check(self) -> None:
        """Raise TargetLost if the name of the place leads to another folder than when it was opened."""
        if (root := self._opened.get(self._named)) is not None:
            root.check(deleted=False)

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
                set_time(name, mtime_ns, dir_fd=above)
        finally:
            os.close(above)

    def _root(self, folder: str) -> str:
        """Return the part of a path that the user named: that folder, or the one with the file that was named."""
        if folder == self._named or folder.startswith(self._named.rstrip("/") + "/"):
            return self._named
        return os.path.commonpath((self._named, folder))

    def _open_named(self, path: str, *, make: bool) -> _Named:
        """Return the folder that the user named, open; with `make`, made with those above it if missing."""
        if (known := self._opened.get(path)) is not None:
            known.check()
            return known
        # What was missing is made through no link that has appeared meanwhile.
        above = self._opened.above(path)
        _wait_for(above.path)
        if above.path == path:
            return self._opened.keep(above)
        try:
            fd = self._walk(above, path[len(above.path) :], _ON_THE_WAY, make=make)
        except _LinkError as link:
            raise exchanged_folder(link.path) from link
        return self._opened.keep(_Named(path, fd))

    def _walk_inside(self, root: _Named, folder: str, *, make: bool) -> int:
        """Open a folder to write in. A link to another folder below the root is followed."""
        try:
            return self._walk(root, folder[len(root.path) :], _FOLDER, make=make)
        except _LinkError as link:
            below = _below_named(root, os.path.realpath(folder))
            if below is None:
                raise
            if is_ours(below):  # what is in there counts as no data, and cleanup removes it
                raise _LinkError(link.path, "to nbdata's own folder") from link
        return self._walk(root, below, _FOLDER, make=make)

    def _walk(self, root: _Named, below: str, flags: int, *, make: bool) -> int:
        """Open a folder by its path below the root, and with `make` create it, without following links."""
        names = [name for name in below.split("/") if name]
        if not names:
            return os.open(".", flags, dir_fd=root.fd)
        fd = root.fd
        for number, name in enumerate(names, 1):
            above, path = fd, f"{root.path.rstrip('/')}/{'/'.join(names[:number])}"
            try:
                last = number == len(names)
                fd = self._below(above, name, path, flags if last else _ON_THE_WAY, make=make)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP) and _is_link(above, name):
                    raise _LinkError(path) from error
                raise
            finally:
                if above != root.fd:
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

    def _make(self, name: str, above: int, path: str) -> None:
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
    It keeps the set-group-id and sticky bits that the disk gave it. It keeps its mode if that came from the default
    access control list of the folder above: there, no umask counts.
    """
    fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    try:
        status = os.fstat(fd)
        mode |= status.st_mode & 0o7000
        other = status.st_mode & 0o7777 != mode and default_of(fd) is None
        if other and status.st_uid == os.geteuid() and not os.listdir(fd):
            set_mode(fd, mode)
    finally:
        os.close(fd)


def exchanged_folder(path: str) -> TargetLost:
    """Return the error of a folder that has another one's name by now."""
    return TargetLost(
        "the folder was exchanged while this job worked in it",
        path=path,
        expected="what was there when the job began",
        got="something else",
        remedy="Look who may rename it, and run the command again",
    )


def open_straight(path: str) -> int:
    """Open a folder by an absolute path; a link on the way is an OSError.

    A number (inode) alone would not show that a link leads elsewhere: a deleted folder's number is soon another one's.
    """
    fd = os.open("/", _ON_THE_WAY)
    for name in filter(None, path.split("/")):
        above = fd
        try:
            fd = os.open(name, _ON_THE_WAY | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return fd


def _nearest(path: str, here: _Named | None = None) -> _Named:
    """Open a folder, or the nearest one above it that exists; with `here`, an open folder around it, from there."""
    while True:
        name, above = path, None
        if here is not None:
            name, above = path[len(here.path) :].strip("/") or ".", here.fd
        try:
            return _Named(path, os.open(name, _ON_THE_WAY, dir_fd=above))
        except FileNotFoundError:
            if _is_link(above, name):  # to nothing
                raise
            path = os.path.dirname(path)


def _below_named(root: _Named, real: str) -> str | None:
    """Return a real path relative to the named folder, which its device and inode tell; None if it is outside."""
    above = real
    while True:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(above or "/"), os.fstat(root.fd)):
                return real[len(above) :]
        if not above.strip("/"):
            return None
        above = above.rpartition("/")[0]


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _is_link(above: int | None, name: str) -> bool:
    try:
        os.readlink(name, dir_fd=above)
    except OSError:
        return False
    return True
