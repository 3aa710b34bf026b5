"""Frames of an archive: fetched and compressed several at a time, and given in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from nbdata.engine.pack.tar_stream import TarStream
from nbdata.engine.pack.windows import Fetching, LargePart, read_window
from nbdata.formats.frames import COMPRESSIONS, frame_size

__all__ = ["AHEAD", "Frame", "TarFrames", "in_turn"]

#: Frames that are under way at a time, or wait for one before them; each has 4 MiB at most, compressed as much again.
AHEAD = 6


class Frame(NamedTuple):
    """A range of the stream that becomes an archive, and what is written of it.

    Attributes
    ----------
    start, end : int
        Of the range.
    data : list of bytes or memoryview
        What is appended to the archive.
    large : list of LargePart
        What is still to be proven.
    """

    start: int
    end: int
    data: list[bytes | memoryview]
    large: list[LargePart]

    @property
    def size(self) -> int:
        """Bytes that are appended."""
        return sum(map(len, self.data))


class TarFrames:
    """The frames of a tar, compressed or not.

    Parameters
    ----------
    stream : TarStream
    form : str
        ``tar``, ``tar.gz`` or ``tar.zst``.
    volume : int or None
        Bytes of a volume at most. Plain volumes end there, and with them a frame.
    """

    def __init__(
        self, stream: TarStream, form: str, volume: int | None, fetching: Fetching, verify: str
    ) -> None:
        self._stream, self._fetching, self._verify = stream, fetching, verify
        self._compress = COMPRESSIONS.get(form)
        self._step = frame_size(volume if self._compress else None)
        self._cut = volume if self._compress is None else None

    def ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """The frames from an offset on; the first may be a part of one."""
        size = self._stream.size
        while start < size:
            end = min(size, (start // self._step + 1) * self._step)
            if self._cut is not None:
                end = min(end, (start // self._cut + 1) * self._cut)
            yield start, end
            start = end

    def make(self, start: int, end: int) -> Frame:
        """One frame; for any thread."""
        pieces = self._stream.pieces(start, end)
        found, large = read_window(pieces, start, end, self._fetching, self._verify)
        data: list[bytes | memoryview] = [*found] if self._compress is None else [self._compress(found)]
        return Frame(start, end, data, large)


_Made = TypeVar("_Made")


def in_turn(
    ranges: Iterator[tuple[int, ...]], make: Callable[..., _Made], pool: ThreadPoolExecutor
) -> Generator[_Made, None, None]:
    """Frames in order, `AHEAD` of them under way; closed early, it waits for none of them."""
    coming: deque[Future[_Made]] = deque()
    try:
        while True:
            while len(coming) < AHEAD and (next_ := next(ranges, None)) is not None:
                coming.append(pool.submit(make, *next_))
            if not coming:
                return
            yield coming.popleft().result()
    finally:
        for future in coming:
            future.cancel()
