"""A file of unknown final size, which gets its name only when it is whole and on the disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable

from nbdata.disk import PARTIAL, begin_writing, disk_error, mode_of, sync_folder
from nbdata.errors import BadOption
from nbdata.stores.base import ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.writing.manifest import Digests

__all__ = ["GrowingFile", "remove_left"]


class GrowingFile:
    """One growing file; for one thread.

    Parameters
    ----------
    folder : str
        Absolute, ends in a slash, and exists.
    name : str
    claim : callable
        Reserves room for that many bytes before they are written.
    umask : int or None
        The umask of the file's user; None: the process's.

    Attributes
    ----------
    size : int
    made : ObjectInfo or None
        The finished file, once it is whole.
    verified : bool
        Always False: only the disk has the bytes.
    """

    verified = False

    def __init__(self, folder: str, name: str, claim: Callable[[int], None], umask: int | None) -> None:
        self.name, self.size = name, 0
        self.made: ObjectInfo | None = None
        self._folder, self._path, self._claim = folder, folder + name, claim
        if kind := LocalStore().special(self._path[1:]):
            raise BadOption(
                f"the target is a {kind}, which is never replaced",
                path=self._path,
                remedy="Name a file or a folder",
            )
        # Named after the file: a later run replaces what a killed process left, or `remove_left` finds it.
        self._partial = f"{folder}.{_hash(name)}{PARTIAL}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(
                    self._partial
                )  # not written into: it may be another name of somebody's file, or a pipe
            self._fd = os.open(self._partial, flags, 0o666)
            mode = mode_of(self._path)  # an existing file passes its permissions on
            if mode is None and umask is not None:
                mode = 0o666 & ~umask
            if mode is not None:
                os.fchmod(self._fd, mode)
        except OSError as error:
            raise disk_error(error, self._path) from error

    def write(self, data: bytes | memoryview) -> None:
        """Append some bytes."""
        view = memoryview(data)
        self._claim(len(view))
        begin = self.size
        try:
            while view:
                count = os.write(self._fd, view)
                self.size += count
                view = view[count:]
        except OSError as error:
            raise disk_error(error, self._path) from error
        begin_writing(self._fd, begin, self.size - begin)

    def leave_room(self, size: int) -> None:
        """Skip that many bytes at the start, which `put_first` writes later."""
        self._claim(size)
        try:
            self.size = os.lseek(self._fd, size, os.SEEK_SET)
        except OSError as error:
            raise disk_error(error, self._path) from error

    def put_first(self, data: bytes) -> None:
        """Write the start of the file, for which `leave_room` left room."""
        view, at = memoryview(data), 0
        try:
            while at < len(view):
                at += os.pwrite(self._fd, view[at:], at)
        except OSError as error:
            raise disk_error(error, self._path) from error
        begin_writing(self._fd, 0, len(data))

    def end(self) -> None:
        """Sync the file to the disk, still without its name."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise disk_error(error, self._path) from error

    def finish(self) -> Digests:
        """Give the file its name; returns no digests, because nothing hashed its bytes."""
        self.end()
        try:
            os.replace(self._partial, self._path)
            sync_folder(self._folder)
        except OSError as error:
            raise disk_error(error, self._path) from error
        self.made = LocalStore().head(self._path[1:])
        return {}

    def give_up(self) -> None:
        """Remove the file, unless it has its name already."""
        with contextlib.suppress(OSError):
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
            if self.made is None:
                os.unlink(self._partial)


def remove_left(folder: str, names: Callable[[int], str], count: int) -> None:
    """Remove unfinished files of these numbers that killed processes left."""
    mine = {f".{_hash(names(number))}{PARTIAL}" for number in range(count)}
    with contextlib.suppress(OSError):
        for name in set(os.listdir(folder)) & mine:
            os.unlink(folder + name)


def _hash(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
