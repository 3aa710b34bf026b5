"""Reads files through a bounded cache on the disk, which an agent keeps for all processes that use it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from nbdata.client.opened import resolved
from nbdata.client.reading.cached import CachedFetcher
from nbdata.errors import BadOption
from nbdata.files.connections import Place
from nbdata.paths import canonical
from nbdata.reading.pieces import Content, Piece
from nbdata.sizes import parse_size
from nbdata.stores.base import ObjectInfo
from nbdata.threads import ForkLock
from nbdata.verbs.sample_cache import SampleCache

__all__ = ["CachedWindow", "FileCache"]

# Bytes of a block that is read from the disk at a time.
_BLOCK = 1 << 20
# An object that would take more than this part of the cache is read from the store: it would push out too many others.
_PART = 2


class FileCache:
    """The caches of one file system, one for each bucket; safe to use from many threads, and after a fork.

    Parameters
    ----------
    size : int or str
        The most bytes that they take on the disk together with what other users of the same folder keep there.
    folder : str
        The local folder that they lie in.
    options : dict
        Storage options by their fsspec names.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    """

    def __init__(self, size: int | str, folder: str, options: Mapping[str, Any], verify: str) -> None:
        self._size = parse_size(size, option="cache")
        self._folder, self._options, self._verify = canonical(folder), dict(options), verify
        if self._size < 1:
            raise BadOption("cache: 0 bytes hold nothing", expected='a size, such as "5GB"')
        self._pid, self._lock = os.getpid(), ForkLock()
        self._used: dict[str, _Ranges] = {}
        self._left: deque[str] = deque()  # the buckets of files that were closed, and are still counted

    def takes(self, info: ObjectInfo) -> bool:
        """Whether an object is read through the cache."""
        return 0 < info.size <= self._size // _PART

    def enter(self, place: Place) -> None:
        """Count a file that is opened: the cache of its bucket is used until the last one is closed."""
        with self._lock:
            self._of(place).open += 1
            self._end_unused()

    def leave(self, place: Place) -> None:
        """Count a file that is closed. Does not wait: the garbage collector may close it while this thread counts."""
        self._left.append(place.folder.place)
        if self._lock.acquire(blocking=False):
            try:
                self._end_unused()
            finally:
                self._lock.release()

    def _end_unused(self) -> None:
        while self._left:
            used = self._used.get(bucket := self._left.popleft())
            if used is not None:
                used.open -= 1
                if used.open <= 0:
                    del self._used[bucket]
                    used.close()

    def read(self, place: Place, info: ObjectInfo, start: int, end: int) -> Content:
        """Return some bytes of an object, which comes to the cache as a whole if it is not there."""
        with self._lock:
            used = self._of(place)
        return used.read(Piece(info, start, end))

    def _of(self, place: Place) -> _Ranges:
        if self._pid != os.getpid():  # the connections belong to the process before
            self._pid, self._used, self._left = os.getpid(), {}, deque()
        used = self._used.get(place.folder.place)
        if used is None:
            used = self._used[place.folder.place] = _Ranges(self._operation(place))
        return used

    def _operation(self, place: Place) -> SampleCache:
        return SampleCache(
            source=place.folder.place,
            cache_dir=self._folder,
            max_size=self._size,
            verify=self._verify,
            led=not place.opened.context.knows(place.folder.place),
            storage_options=resolved(self._options or None),
        )


class _Ranges:
    """Ranges of the objects in one cache, which have a number only while they are read."""

    def __init__(self, operation: SampleCache) -> None:
        self._lock = ForkLock()
        self._pieces: dict[int, Piece] = {}
        self._next = self.open = 0
        self._fetcher = CachedFetcher(operation, self._of)

    def _of(self, number: int) -> Sequence[Piece]:
        return [self._pieces[number]]

    def close(self) -> None:
        self._fetcher.close()

    def read(self, piece: Piece) -> Content:
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._pieces[number] = piece
        try:
            ((data,),) = self._fetcher.fetch([number])
            return data
        finally:
            del self._pieces[number]


class CachedWindow:
    """The block of one open file that was read last; see `nbdata.files.window.Window`."""

    def __init__(self, cache: FileCache, place: Place, info: ObjectInfo) -> None:
        self._cache, self._place, self._info = cache, place, info
        self._start, self._block = 0, memoryview(b"")
        self._pid = os.getpid()
        cache.enter(place)

    def view(self, start: int, end: int) -> memoryview:
        """Return some bytes from `start` on, at least one and none from `end` on; both lie within the object."""
        if not self._start <= start < self._start + len(self._block):
            behind = min(max(end, start + _BLOCK), start + 8 * _BLOCK, self._info.size)
            data = self._cache.read(self._place, self._info, start, behind)
            self._start, self._block = start, memoryview(data)
        return self._block[start - self._start : end - self._start]

    def goes_on(self, start: int) -> bool:
        """Return True: reads from the disk follow each other."""
        return True

    apart = view

    def close(self) -> None:
        """Drop the block."""
        self._block = memoryview(b"")
        if self._pid == os.getpid():  # another process has counted it
            self._cache.leave(self._place)
