"""Temporary folders for a command's samples: in memory if there is room, and removed even if their process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator

from nbdata.errors import NbdataError

__all__ = ["Folders"]

_IN_MEMORY = "/dev/shm"  # noqa: S108  folders in it are made by mkdtemp
_NAME = "nbdata-map-"
# The file that the owner process holds locked.
_ALIVE = "alive"
# Bytes that must stay free in memory, and how many copies of a sample may exist: old, new, and in transit.
_LEAST_FREE, _TIMES = 256 << 20, 4


class Folders:
    """Makes a folder per sample that is being changed; a context manager that removes them all.

    Parameters
    ----------
    at_once : int
        Most folders at a time.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._bases: dict[str, str] = {}  # by the folder that contains them
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
        for base in self._bases.values():
            shutil.rmtree(base, ignore_errors=True)
        for fd in self._held:
            os.close(fd)
        self._bases.clear()
        self._held.clear()

    def _begin(self, place: str) -> None:
        """Make a base folder there, if it is writable; remove folders that a killed process left."""
        if place in self._bases or not os.access(place, os.W_OK | os.X_OK):
            return
        with contextlib.suppress(OSError):
            _remove_left(place)
            base = self._bases[place] = tempfile.mkdtemp(prefix=_NAME, dir=place)
            fd = os.open(os.path.join(base, _ALIVE), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            self._held.append(fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @contextlib.contextmanager
    def one(self, size: int) -> Iterator[str]:
        """Make a folder for a sample of that many bytes, and remove it afterwards."""
        folder = tempfile.mkdtemp(dir=self._base(size))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _base(self, size: int) -> str:
        for place, base in self._bases.items():
            if place != _IN_MEMORY or len(self._bases) == 1:
                return base
            room = os.statvfs(place)
            if room.f_bavail * room.f_frsize - _TIMES * self._at_once * size >= _LEAST_FREE:
                return base
        return next(iter(self._bases.values()))


def _remove_left(place: str) -> None:
    """Remove the folders of this user whose process is dead."""
    for entry in os.scandir(place):
        if not entry.name.startswith(_NAME) or entry.stat(follow_symlinks=False).st_uid != os.getuid():
            continue
        with contextlib.suppress(OSError):  # its process is alive, or another one removes it
            fd = os.open(os.path.join(entry.path, _ALIVE), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(fd)
