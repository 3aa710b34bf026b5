"""The open files of a mount: which version each is, and its bytes."""

from __future__ import annotations

import errno
import itertools
import threading
import time
from typing import Any

from nbdata.errors import ChecksumMismatch, NbdataError, SourceChanged, without_calls
from nbdata.files.connections import Place
from nbdata.files.mounted.ahead import Ahead
from nbdata.files.mounted.folders import Folders
from nbdata.files.reading import ReadFile
from nbdata.reading.pieces import Content
from nbdata.stores.base import ObjectInfo

__all__ = ["MOST", "Failures", "OpenFile", "OpenFiles"]

#: The most files that are open at a time.
MOST = 10_000
# The most stretches that are noted beyond the first gap in what was read.
_GAPS = 64
# A read this far ahead of the last one waits so many seconds for those between: the kernel's come on many threads.
_NEAR, _PATIENCE = 2 << 20, 0.02


class OpenFile:
    """One open file; many threads may read it.

    Parameters
    ----------
    source : bytes-like or ReadFile
        The content of a small file, or what reads it.
    same : bool
        Whether it is the version that the kernel was told of.
    """

    def __init__(self, source: Content | ReadFile, same: bool) -> None:
        self._source, self._same = source, same
        self._turn = threading.Condition()
        self._next = 0
        # What was read beyond the first gap, as (start, end); few, as the kernel's reads are nearly in order.
        self._beyond: list[tuple[int, int]] = []
        self._whole_to = 0
        self._wrong: NbdataError | None = None

    def read(self, size: int, offset: int) -> list[memoryview]:
        """Return the bytes from an offset on, fewer at the end of the file, in parts that are not copied."""
        source = self._source
        if not isinstance(source, ReadFile):
            return [memoryview(source)[offset : offset + size]]
        try:
            with self._turn:
                if (
                    0 < offset - self._next <= _NEAR
                ):  # in order, they are read ahead and compared with the checksum
                    self._turn.wait_for(lambda: offset <= self._next, _PATIENCE)
                if self._wrong is not None:  # the kernel asks again for what failed
                    raise self._wrong
                if source.goes_on(offset):
                    return self._read(source, size, offset)
            return self._read_apart(source, size, offset)
        except (ChecksumMismatch, SourceChanged) as error:
            self._wrong = without_calls(error)  # type: ignore[assignment]
            raise

    def _read_apart(self, source: ReadFile, size: int, offset: int) -> list[memoryview]:
        """Read at a place far from the others, while other threads do so, too."""
        parts, end = list[memoryview](), min(offset + size, source.size)
        while offset < end:
            parts.append(source.read_apart(offset, end - offset))
            with self._turn:
                self._note(offset, offset + len(parts[-1]))
                source.compare_to(self._whole_to)
            offset += len(parts[-1])
        return parts

    def _read(self, source: ReadFile, size: int, offset: int) -> list[memoryview]:
        source.seek(offset)
        parts = source.read_parts(size)
        self._next = source.tell()
        self._turn.notify_all()
        self._note(offset, self._next)
        source.compare_to(self._whole_to)
        return parts

    def _note(self, start: int, end: int) -> None:
        """Note what was read, so that all of it is compared although it did not come in order."""
        self._beyond.append((start, end))
        self._beyond.sort()
        while self._beyond and self._beyond[0][0] <= self._whole_to:
            self._whole_to = max(self._whole_to, self._beyond.pop(0)[1])
        del self._beyond[_GAPS:]

    @property
    def is_proven(self) -> bool:
        """Whether nothing is left to compare of the version that the kernel was told of."""
        source = self._source
        return self._same and not (isinstance(source, ReadFile) and source.is_unproven)

    def close(self) -> None:
        """Let its memory go."""
        if isinstance(self._source, ReadFile):
            with self._turn:
                self._source.close()


class OpenFiles:
    """The open files of one mount, by number.

    Parameters
    ----------
    place : Place
        The folder that is mounted.
    folders : Folders
    verify : str
        See `nbdata.verbs.options.Verifying`.
    cache : FileCache, optional
        The cache on the disk that they are read through.
    """

    def __init__(self, place: Place, folders: Folders, verify: str, cache: Any = None) -> None:
        self._place, self._folders, self._verify, self._cache = place, folders, verify, cache
        self.ahead = Ahead(place, verify)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._open: dict[int, OpenFile] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, path: str, info: ObjectInfo) -> tuple[int, bool]:
        """Open a file that was listed so; return its number, and whether it is the version that was listed.

        Without an ETag in the listing, one of the same size is taken for the same.

        Raises
        ------
        OSError
            EMFILE if too many are open.
        NbdataError
            If it cannot be opened.
        """
        if len(self._open) >= MOST:
            raise OSError(errno.EMFILE, f"more than {MOST:,} files are open in this mount")
        source: Content | ReadFile | None = None
        if self._cache is None:
            source = self.ahead.take(path, info, self._folders.known(path))
        same = True
        if source is None:
            place = self._place._replace(key=self._folders.key_of(path))
            source = ReadFile(place, path, self._verify, self._cache)
            now = source.version
            same = now.size == info.size and now.etag == (info.etag or now.etag)
            if now.etag != info.etag or not same:
                self._folders.note(path, now)
        with self._lock:
            number = next(self._numbers)
            self._open[number] = OpenFile(source, same)
        return number, same

    def read(self, number: int, size: int, offset: int) -> list[memoryview]:
        """Read an open file; see `OpenFile.read`."""
        return self._open[number].read(size, offset)

    def is_proven(self, number: int) -> bool:
        """Return whether nothing is left to compare of an open file; see `OpenFile.is_proven`."""
        found = self._open.get(number)
        return found is not None and found.is_proven

    def close(self, number: int) -> None:
        """Close a file."""
        with self._lock:
            found = self._open.pop(number, None)
        if found is not None:
            found.close()


class Failures:
    """Counts the errors of a mount, and keeps the latest, for people who wonder."""

    def __init__(self) -> None:
        self.count = 0
        self.latest = ""

    def add(self, path: str, error: NbdataError | OSError) -> None:
        """Note one."""
        self.count += 1
        self.latest = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {path}: {type(error).__name__}: {error}"
