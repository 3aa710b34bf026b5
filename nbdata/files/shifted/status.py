"""What `os.stat` and `os.scandir` give for files in a store."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Any

__all__ = ["FolderEntries", "StoreEntry", "status"]

_STARTED = float(int(time.time()))
_FILE, _FOLDER = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755


def status(
    url: str, *, folder: bool, size: int = 0, modified: float | datetime | None = None
) -> os.stat_result:
    """Return the status of a file or folder in a store.

    Device and inode are made of the URL, so `os.path.samefile` works. Owner and group are those of this process.
    A store knows one time, that of the last upload. All times of a folder are that of the start of this process: it has
    none, and what writes zip archives takes none before 1980.
    """
    if isinstance(modified, datetime):
        modified = modified.timestamp()
    moment = _STARTED if folder else modified or 0.0
    scheme, _, path = url.partition("://")
    device = _number(f"{scheme}://{path.partition('/')[0]}")
    head = (_FOLDER if folder else _FILE, _number(url), device, 1, os.getuid(), os.getgid(), max(size, 0))
    seconds, nanoseconds = int(moment), int(moment * 1e9)
    times = (seconds,) * 3 + (moment,) * 3 + (nanoseconds,) * 3
    return os.stat_result((*head, *times))


def _number(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # positive, as programs expect


class StoreEntry(os.PathLike[str]):
    """A file or folder in a listing of a store; has the methods of `os.DirEntry`, and asks the store nothing.

    Attributes
    ----------
    name : str
    path : str
        The URL of the folder as it was given, and the name.
    """

    __slots__ = ("_folder", "_modified", "_size", "name", "path")

    def __init__(
        self, path: str, name: str, *, folder: bool, size: int = 0, modified: float | None = None
    ) -> None:
        self.path, self.name, self._folder, self._size, self._modified = path, name, folder, size, modified

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a folder."""
        return self._folder

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return not self._folder

    def is_symlink(self) -> bool:
        """Return False: stores have no links."""
        return False

    def is_junction(self) -> bool:
        """Return False."""
        return False

    def inode(self) -> int:
        """Return the inode of its status."""
        return self.stat().st_ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return its status as it was listed."""
        return status(self.path, folder=self._folder, size=self._size, modified=self._modified)


class FolderEntries(Iterator[StoreEntry]):
    """What `os.scandir` returns: an iterator that is a context manager, too."""

    def __init__(self, entries: Iterator[StoreEntry]) -> None:
        self._entries: Any = entries

    def __next__(self) -> StoreEntry:
        found: StoreEntry = next(self._entries)
        return found

    def close(self) -> None:
        """End the listing."""
        self._entries.close()

    def __enter__(self) -> FolderEntries:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
