"""The bytes that one open file holds: what was read last, and what probably comes next.

The first request of a file brings its start. A file that goes on to be read forward is read ahead: more blocks with
each read, which double up to 8 MiB, as far as the memory of all open files allows (`nbdata.files.read_memory`). Other
reads fetch what they ask for, and a little more; large ones with several requests at a time.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Protocol

from nbdata.ending import at_end
from nbdata.errors import NbdataError
from nbdata.files.connections import Place
from nbdata.files.fetching import First
from nbdata.files.read_memory import MEMORY
from nbdata.reading.fetcher import Fetcher
from nbdata.reading.pieces import Content, Piece
from nbdata.threads import ForkLock
from nbdata.transfer.reader import Reader

__all__ = ["Bytes", "Window"]

# Bytes that a read fetches at least, and the first and largest block of a file that is read forward.
_LEAST, _SMALL, _LARGE = 64 << 10, 512 << 10, 8 << 20
# Blocks that are fetched ahead of the one that is read.
_AHEAD = 4
# A read of more bytes is fetched with several requests at a time, because one connection may be slow.
_LONG = 4 << 20
# A read that skips at most this many bytes still goes forward.
_SKIP = 1 << 20
# Blocks that are held beside those ahead: programs go back to an index at the start or the end of a file.
_KEPT = 4


class Bytes(Protocol):
    """The bytes of an open file: `Window`, or what has its place where they are read through a cache."""

    def view(self, start: int, end: int) -> memoryview:
        """Return some bytes from `start` on, at least one and none from `end` on; both lie within the object."""

    def goes_on(self, start: int) -> bool:
        """Whether a read finds its first byte here, or goes on near the end of one before; else see `apart`."""

    def apart(self, start: int, end: int) -> memoryview:
        """Return bytes from `start` on, as `view` does, for a read that jumps; many threads may do so at a time."""

    def close(self) -> None:
        """Drop all bytes, and fetch no more."""


class _Block:
    """Some bytes of the file."""

    __slots__ = ("data", "end", "start")

    def __init__(self, start: int, data: Content) -> None:
        self.start, self.end = start, start + len(data)
        self.data = memoryview(data)


class Window:
    """The bytes of one version of one object; for one thread at a time.

    Parameters
    ----------
    place : Place
    first : First
        The start of the object, and its metadata. The size is known.
    """

    def __init__(self, place: Place, first: First) -> None:
        self._place, self._info = place, first.info
        self._blocks = deque([_Block(0, first.data)], _KEPT)
        self._behind = len(first.data)  # where a read that goes forward goes on
        self._end = self._apart = 0  # of the last read, and of the last one that was apart
        self._flying = 0  # bytes that are fetched apart just now
        self._most = _LARGE  # of a block, as far as the memory allows
        # Reads in succession that went forward, up to the number that gets the most read ahead.
        self._forward = 0
        # The blocks that are fetched ahead: number, first byte, and the byte after the last one.
        self._ahead: deque[tuple[int, int, int]] = deque()
        self._numbers = iter(range(1 << 62))
        self._ranges: dict[int, tuple[int, int]] = {}
        self._fetcher: Fetcher | None = None
        self._pid = os.getpid()
        self._lock = ForkLock()
        self.held = 0  # see `nbdata.files.read_memory.Holder`
        MEMORY.holds(self, len(first.data))
        at_end(self, Window.close)

    def view(self, start: int, end: int) -> memoryview:
        """Return some bytes from `start` on, at least one and none from `end` on; both lie within the object.

        Raises
        ------
        SourceChanged
            If the object is no longer the version that was opened.
        """
        with self._lock:
            block = self._held(start) or self._fetched(start, end)
            return block.data[start - block.start : end - block.start]

    def goes_on(self, start: int) -> bool:
        """Whether a read finds its first byte here, or goes on near the end of one before; else see `apart`."""
        with self._lock:
            near = (self._behind, self._apart)
            return self._held(start) is not None or any(end <= start <= end + _SKIP for end in near)

    def apart(self, start: int, end: int) -> memoryview:
        """Return bytes from `start` on, as `view` does, for a read that jumps; many threads may do so at a time."""
        end = min(max(end, start + _LEAST), start + _LARGE, self._info.size)
        with self._lock:
            self._share(end - start, 0)
            self._flying += end - start
        try:
            block = _Block(start, self._range(start, end))
        finally:
            with self._lock:
                self._flying -= end - start
        with self._lock:
            self._blocks.append(block)
            self._apart = block.end
            self._note()
        return block.data

    def _held(self, at: int) -> _Block | None:
        return next((block for block in reversed(self._blocks) if block.start <= at < block.end), None)

    def _fetched(self, start: int, end: int) -> _Block:
        if self._pid != os.getpid():  # a forked process has no thread that fetches
            self._pid, self._fetcher = os.getpid(), None
            self._forget_ahead()
        if not self._behind <= start <= self._behind + _SKIP:
            self._forget_ahead()
            self._forward = 0
        elif end != self._end:
            self._forward = min(self._forward + 1, _AHEAD + 1)
        self._end = end
        if self._most < _SMALL:  # many files are read at the same time: no thread and connections of its own
            self._end_fetcher()
        several = self._most >= _SMALL and (self._ahead or self._forward > 1 or end - start > _LONG)
        try:
            if several and self._place.store.ranges:
                block = self._next(start, end)
            else:  # perhaps nothing more is read here
                block = self._alone(start, max(end, start + (_SMALL if self._forward else _LEAST)))
            self._behind = block.end
            self._blocks.append(block)
        finally:
            self._note()
        return block

    def _alone(self, start: int, end: int) -> _Block:
        """Fetch a block by itself."""
        end = min(end, start + _LARGE, self._info.size)
        self._share(end - start, 0)
        return _Block(start, self._range(start, end))

    def _range(self, start: int, end: int) -> Content:
        data = bytearray(end - start)
        view = memoryview(data)
        with Reader(self._place.control, self._place.store, self._info, start, end) as reader:
            while view and (count := reader.readinto(view)):
                view = view[count:]
        return data

    def _next(self, start: int, end: int) -> _Block:
        """Fetch the block at `start`, or take it from those that are on their way, and have more fetched.

        More is fetched as far as this read goes, and then what the next reads will probably ask for.
        """
        while self._ahead and self._ahead[0][2] <= start:
            self._drop(self._ahead.popleft())
        if self._ahead and self._ahead[0][1] > start:
            self._forget_ahead()
        guessed = max(0, self._forward - 1)
        wanted = end - start if end - start <= _LONG else -(-(end - start) // _AHEAD)
        step = max(min(_SMALL << guessed, self._most, _LARGE), min(wanted, _LARGE))
        if self._forward > 1:
            step = 1 << (step - 1).bit_length()
        if not self._ahead:
            self._plan(start, step)
        first = self._ahead[0]
        share = self._share(first[2] - first[1], _AHEAD * step)
        planned = sum(behind - begin for _, begin, behind in self._ahead)
        while len(self._ahead) <= _AHEAD and (behind := self._ahead[-1][2]) < self._info.size:
            if (behind >= end and len(self._ahead) > guessed) or planned + step > share:
                break
            planned += self._plan(behind, step)
        self._ahead.popleft()
        (pieces,) = self._reader().fetch([first[0]], [number for number, _, _ in self._ahead])
        self._drop(first)
        return _Block(first[1], pieces[0])

    def _plan(self, start: int, size: int) -> int:
        end = start + size
        if self._forward > 1:  # servers often cut an object at such places, too
            end -= end % size
        end = min(end, self._info.size)
        number = next(self._numbers)
        self._ranges[number] = (start, end)
        self._ahead.append((number, start, end))
        return end - start

    def _reader(self) -> Fetcher:
        if self._fetcher is None:
            place = self._place
            self._fetcher = Fetcher(
                place.store, place.control, self._pieces, verify="none", width=_AHEAD + 1, ahead_bytes=1 << 62
            )
        return self._fetcher

    def _pieces(self, number: int) -> list[Piece]:
        found = self._ranges.get(number)
        if found is None:
            raise NbdataError("this block is no longer wanted")
        return [Piece(self._info, *found)]

    # -- memory ----------------------------------------------------------------------------------

    def _share(self, needed: int, ahead: int) -> int:
        """Return how many bytes may be fetched, at least those needed; where memory is short, drop blocks for them."""
        held = self._flying + sum(len(block.data) for block in self._blocks)
        share, part = MEMORY.share(self, needed, held + needed + ahead)
        while len(self._blocks) > 1 and held + needed + ahead > share:
            held -= len(self._blocks.popleft().data)
        self._most = 1 << max(_LEAST, part // (_AHEAD + 2)).bit_length() - 1
        return max(needed, share - held)

    def _note(self) -> None:
        ahead = sum(end - start for _, start, end in self._ahead)
        MEMORY.holds(self, self._flying + ahead + sum(len(block.data) for block in self._blocks))

    def _drop(self, block: tuple[int, int, int]) -> None:
        self._ranges.pop(block[0], None)

    def _forget_ahead(self) -> None:
        self._ahead.clear()
        self._ranges.clear()
        # The lock of another process's fetcher may be held for ever.
        if self._fetcher is not None and self._pid == os.getpid():
            self._fetcher.drop_ahead()

    def _end_fetcher(self) -> None:
        self._forget_ahead()
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None and self._pid == os.getpid():
            fetcher.close()

    def let_go(self) -> None:
        """Drop all bytes, unless they are being read just now."""
        if self._lock.acquire(blocking=False):
            try:
                self._blocks.clear()
                self._end_fetcher()
                self._note()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Drop all bytes, and fetch no more."""
        self._end_fetcher()
        self._blocks.clear()
        self.held = 0
