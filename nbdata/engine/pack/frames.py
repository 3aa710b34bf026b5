"""Fetch and compress frames of an archive in parallel, and yield them in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from nbdata.engine.pack.tar_stream import TarStream
from nbdata.engine.pack.windows import Fetching, LargePart, read_window
from nbdata.formats.frames import COMPRESSIONS, frame_size

__all__ = ["AHEAD", "Frame", "TarFrames", "in_turn"]

#: Frames that are being made or wait for an earlier one; each has at most 4 MiB, and as much again compressed.
AHEAD = 6


class Frame(NamedTuple):
    """A range of the archive's stream, and the data to write for it.

    Attributes
    ----------
    start, end : int
        Offsets of the range in the stream.
    data : list of bytes or memoryview
        The data appended to the archive.
    large : list of LargePart
        Parts that are not verified yet.
    """

    start: int
    end: int
    data: list[bytes | memoryview]
    large: list[LargePart]

    @property
    def size(self) -> int:
        """The number of bytes appended."""
        return sum(map(len, self.data))


class TarFrames:
    """The frames of a tar, compressed or not.

    Parameters
    ----------
    stream : TarStream
    form : str
        ``tar``, ``tar.gz`` or ``tar.zst``.
    volume : int or None
        Most bytes of a volume. Plain volumes end there, and a frame ends with them.
    """

    def __init__(
        self, stream: TarStream, form: str, volume: int | None, fetching: Fetching, verify: str
    ) -> None:
        self._stream, self._fetching, self._verify = stream, fetching, verify
        self._compress = COMPRESSIONS.get(form)
        self._step = frame_size(volume if self._compress else None)
        self._cut = volume if self._compress is None else None

    def ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """The ranges of the frames from an offset on; the first may be a partial frame."""
        size = self._stream.size
        while start < size:
            end = min(size, (start // self._step + 1) * self._step)
            if self._cut is not None:
                end = min(end, (start // self._cut + 1) * self._cut)
            yield start, end
            start = end

    def make(self, start: int, end: int) -> Frame:
        """Make one frame; safe to call from any thread."""
        pieces = self._stream.pieces(start, end)
        found, large = read_window(pieces, start, end, self._fetching, self._verify)
        data: list[bytes | memoryview] = [*found] if self._compress is None else [self._compress(found)]
        return Frame(start, end, data, large)


_Made = TypeVar("_Made")


def in_turn(
    ranges: Iterator[tuple[int, ...]], make: Callable[..., _Made], pool: ThreadPoolExecutor
) -> Generator[_Made, None, None]:
    """Yield frames in order, with `AHEAD` of them in progress; closing early waits for none of them."""
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
