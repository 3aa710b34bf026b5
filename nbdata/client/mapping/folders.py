"""Temporary folders for a command's samples: in memory if there is room, and removed even if their process dies."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from nbdata.errors import NbdataError
from nbdata.guarded_trees import remove_folder
from nbdata.made_folders import MadeFolders
from nbdata.runtime import state_folder
from nbdata.seals import Seals

__all__ = ["Folders"]

_IN_MEMORY = "/dev/shm"  # noqa: S108  folders in it are made by mkdtemp
_NAME = "nbdata-map-"
# The file that the owner process holds locked.
_ALIVE = "alive"
# Bytes that must stay free in memory, and how many copies of a sample may exist: old, new, and in transit.
_LEAST_FREE, _TIMES = 256 << 20, 4
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _Base(NamedTuple):
    """A folder for those of samples: its path and its descriptor."""

    path: str
    fd: int

    def is_it(self, folder: int) -> bool:
        """True if an open folder is this one."""
        return os.path.samestat(os.fstat(folder), os.fstat(self.fd))


class Folders:
    """Makes a folder per sample that is being changed; a context manager that removes them all.

    Parameters
    ----------
    at_once : int
        Most folders at a time.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._made = MadeFolders(Seals(state_folder()))
        self._bases: dict[str, _Base] = {}  # by the folder that contains them
        self._held: list[int] = []

    def __enter__(self) -> Folders:
        try:
            for place in (_IN_MEMORY, tempfile.gettempdir()):
                self._begin(place)
        except BaseException:
            self.__exit__()
            raise
        if not self._bases:
            raise NbdataError(
                "there is no place for temporary files",
                remedy="Set TMPDIR to a folder that can be written",
            )
        return self

    def __exit__(self, *_: object) -> None:
        for place, base in self._bases.items():
            with contextlib.suppress(OSError), _opened(place) as above:
                remove_folder(os.path.basename(base.path), above, base.is_it)
        for fd in (*self._held, *(base.fd for base in self._bases.values())):
            os.close(fd)
        self._bases.clear()
        self._held.clear()

    def _begin(self, place: str) -> None:
        """Make a base folder there, if it is writable; remove folders that a killed process left."""
        if place in self._bases or not os.access(place, os.W_OK | os.X_OK):
            return
        with contextlib.suppress(OSError):
            self._remove_left(place)
            path = tempfile.mkdtemp(prefix=_NAME, dir=place)
            base = self._bases[place] = _Base(path, os.open(path, _FOLDER))
            fd = os.open(_ALIVE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=base.fd)
            self._held.append(fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._made.seal(os.path.basename(path), base.fd)

    def _remove_left(self, place: str) -> None:
        """Remove the folders of this user whose process is dead."""
        with _opened(place) as above:
            for name in os.listdir(above):
                if name.startswith(_NAME):
                    with contextlib.suppress(OSError):  # another process removes it
                        remove_folder(name, above, functools.partial(self._is_left, name))

    def _is_left(self, name: str, folder: int) -> bool:
        """True if an open folder was made here, and its process is dead."""
        if not self._made.is_sealed(name, folder):
            return False
        fd = os.open(_ALIVE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    @contextlib.contextmanager
    def one(self, size: int) -> Iterator[str]:
        """Make a folder for a sample of that many bytes, and remove it afterwards."""
        folder = tempfile.mkdtemp(dir=self._base(size))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _base(self, size: int) -> str:
        for place, (base, _) in self._bases.items():
            if place != _IN_MEMORY or len(self._bases) == 1:
                return base
            room = os.statvfs(place)
            if room.f_bavail * room.f_frsize - _TIMES * self._at_once * size >= _LEAST_FREE:
                return base
        return next(iter(self._bases.values())).path


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[int]:
    fd = os.open(folder, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)
