"""A file of unknown final size, which gets its name only when it is whole and on the disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator

from nbdata.disk import PARTIAL, begin_writing, disk_error, give_name, new_file
from nbdata.errors import BadOption, NbdataError
from nbdata.optional_calls import fsync
from nbdata.stores.base import ObjectInfo
from nbdata.stores.local import LocalStore, info_of
from nbdata.writing.manifest import Digests

__all__ = ["GrowingFile", "remove_left"]


class GrowingFile:
    """One growing file; for one thread.

    Its folder is opened through the store each time, so that no link that takes the folder's place leads elsewhere.

    Parameters
    ----------
    store : LocalStore
    folder : str
        The folder's key, with a slash at its end. Made if missing.
    name : str
    claim : callable
        Reserves room for that many bytes before they are written.
    apart : bool
        Whether another process may make the same file meanwhile. Then the unfinished file has a name of its own; if the
        process is killed, only `cleanup` finds it.

    Attributes
    ----------
    size : int
    made : ObjectInfo or None
        The finished file, once it is whole.
    verified : bool
        Always False: only the disk has the bytes.
    """

    verified = False

    def __init__(
        self, store: LocalStore, folder: str, name: str, claim: Callable[[int], None], *, apart: bool = False
    ) -> None:
        self.name, self.size = name, 0
        self.made: ObjectInfo | None = None
        self._store, self._key, self._path, self._claim = store, folder + name, f"/{folder}{name}", claim
        if kind := store.special(self._key):
            raise BadOption(
                f"the target is a {kind}, which is never replaced",
                path=self._path,
                remedy="Name a file or a folder",
            )
        # Named after the file: a later run replaces what a killed process left, or `remove_left` finds it.
        self._partial = f".{secrets.token_hex(8)}{PARTIAL}" if apart else _partial_of(name)
        with self._opened(make=True) as above:
            # Not written into: it may be a pipe, or another name of somebody's file.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._partial, dir_fd=above)
            self._fd = new_file(self._partial, self._path, store.umask, dir_fd=above)

    @contextlib.contextmanager
    def _opened(self, *, make: bool) -> Iterator[int]:
        """Open the folder, and turn errors of the disk into errors of nbdata."""
        above = self._store.open_folder(self._key, make=make)
        try:
            yield above
        except OSError as error:
            if isinstance(error, NbdataError):
                raise
            raise disk_error(error, self._path) from error
        finally:
            os.close(above)

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
        """Sync the file to the disk, still without its name; it is open no longer, since many may wait for theirs."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            try:
                fsync(fd)
                self._written = os.fstat(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise disk_error(error, self._path) from error

    def finish(self) -> Digests:
        """Give the file its name; returns no digests, because nothing hashed its bytes."""
        self.end()
        with self._opened(make=False) as above:
            found = give_name(self._partial, self._path, self._written, dir_fd=above)
            fsync(above)
        self.made = info_of(self._key, found)
        return {}

    def give_up(self) -> None:
        """Remove the file, unless it has its name already."""
        with contextlib.suppress(OSError, NbdataError):
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
            if self.made is None:
                self._store.delete([self._key[: -len(self.name)] + self._partial])


def remove_left(store: LocalStore, folder: str, names: Callable[[int], str], count: int) -> None:
    """Make a folder, given its key, and remove unfinished files of these numbers that killed processes left in it."""
    mine = {_partial_of(names(number)) for number in range(count)}
    above = store.open_folder(folder)
    try:
        with contextlib.suppress(OSError):
            for name in set(os.listdir(above)) & mine:
                os.unlink(name, dir_fd=above)
    finally:
        os.close(above)


def _partial_of(name: str) -> str:
    return f".{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}{PARTIAL}"
