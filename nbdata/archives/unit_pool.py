"""Decompresses units of compressed data in parallel on a few threads and returns the results in order.

The decoders of all formats release the GIL. The pool looks ahead in the compressed bytes and submits whole units. If a
unit is not as announced, the pool puts it back with the units after it, and they are decompressed as a stream. So
errors, and the places where they are noticed, are the same with and without the pool.

Memory is bounded whatever the archive says. A unit has at most `LARGEST` bytes of window and of content, so each thread
needs at most twice that beside `IN_FLIGHT`. Data with a larger window is decompressed as a stream by one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

from nbdata.archives.decoders import Codec
from nbdata.archives.units import LARGEST, Unit, Unsplit
from nbdata.archives.windows import WindowTooLarge

__all__ = ["IN_FLIGHT", "Ahead", "Taken", "UnitPool"]

#: Limit on the bytes of units in the pool: the compressed bytes, which may be held twice, plus the largest possible
#: output. A single unit always fits. One more unit may already be split off, and the output of another may be on its
#: way to the reader: at most `LARGEST` each.
IN_FLIGHT = 64 << 20
# Extra memory for each unit.
_OVERHEAD = 1 << 10
# Small units go to a thread together as one task, up to this many bytes of content.
_TOGETHER = 1 << 20
# Tasks beyond one for each thread. Few, so that output is still in the processor's cache when it is read.
_MORE_TASKS = 1
# Bytes of input at a time for a decoder that is not made for units, and bytes of its output.
_INPUT, _OUTPUT = 256 << 10, 1 << 20


class Ahead(Protocol):
    """The compressed bytes that are neither in the pool nor decompressed.

    Attributes
    ----------
    position : int
        Offset of the first of these bytes in the archive.
    ahead : bytearray
        Bytes that were already read.
    """

    position: int
    ahead: bytearray

    def more(self) -> bool:
        """Read some more bytes; False at the end."""

    def pass_over(self, count: int) -> None:
        """Skip bytes that were already read."""

    def give_back(self, data: bytes) -> None:
        """Put back the last bytes that were skipped."""


class Taken(NamedTuple):
    """A unit, its offset and its decompressed content."""

    position: int
    unit: Unit
    blocks: Sequence[bytes]


class _Submitted(NamedTuple):
    """A unit in the pool, its offset, and its index within its task."""

    position: int
    unit: Unit
    task: Future[list[list[bytes] | None]]
    number: int
    is_last: bool


class UnitPool:
    """The units ahead of the position at which a stream is read. For one thread, except `close`.

    Parameters
    ----------
    codec : Codec
        A codec that has a splitter.
    source : Ahead
    threads : int
    """

    def __init__(self, codec: Codec, source: Ahead, threads: int) -> None:
        assert codec.splitter is not None
        self._codec, self._source, self._threads = codec, source, threads
        self._split = codec.splitter()
        self._state = ""  # after the units in the pool
        self._next: Unit | None = None  # waits for room
        self._units: deque[_Submitted] = deque()
        self._bytes = self._tasks = 0  # in the pool
        self._executor: ThreadPoolExecutor | None = None  # None until there is a unit
        self._broken = False  # closed, or the system has no more threads

    @property
    def is_empty(self) -> bool:
        """True if the pool holds no unit."""
        return not self._units

    def take(self, state: str) -> Taken | None:
        """Take the next unit; None if the data at the source's position must be decompressed as a stream.

        Never raises an error about the data.

        Parameters
        ----------
        state : str
            State for the decoder of that unit.
        """
        if not self._units:
            self._state, self._next = state, None
        self._fill()
        if not self._units:
            return None
        first = self._units[0]
        blocks = first.task.result()[first.number]
        if blocks is None:
            self._put_back()
            return None
        self._drop_first()
        return Taken(first.position, first.unit, blocks)

    def close(self) -> None:
        """Let running decoders finish and release everything; callable from any thread."""
        self._broken, self._next = True, None
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        self._units.clear()

    def _drop_first(self) -> None:
        first = self._units.popleft()
        self._bytes -= _weight(first.unit)
        self._tasks -= first.is_last

    def _put_back(self) -> None:
        """Return all units to the source."""
        assert self._codec.splitter is not None
        self._source.give_back(b"".join(submitted.unit.raw for submitted in self._units))
        while self._units:
            self._drop_first()
        self._split = self._codec.splitter()

    # -- ahead --------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Submit units until the pool is full enough or the next unit is ready."""
        while not self._broken and self._tasks < self._threads + _MORE_TASKS:
            batch, together = list[tuple[int, Unit]](), 0
            found = self._following()
            while isinstance(found, Unit) and self._fits(found) and together < _TOGETHER:
                batch.append((self._source.position, found))
                self._source.pass_over(len(found.raw))
                self._state, self._next = found.state, None
                self._bytes += _weight(found)
                together += found.most
                found = self._following()
            if batch:
                self._submit(batch)
            elif isinstance(found, Unit) or found is Unsplit.STREAM or self._is_ready() or not self._read():
                return

    def _following(self) -> Unit | Unsplit:
        """Return the unit after those in the pool."""
        if self._next is None:
            found = self._split(self._source.ahead, self._state)
            if not isinstance(found, Unit):
                return found
            self._next = found
        return self._next

    def _fits(self, unit: Unit) -> bool:
        return not self._bytes or self._bytes + _weight(unit) <= IN_FLIGHT

    def _is_ready(self) -> bool:
        """True if the next unit is decoded; then nothing should wait for the source."""
        return bool(self._units) and self._units[0].task.done()

    def _read(self) -> bool:
        try:
            return self._source.more()
        except Exception:  # raised again once the bytes before it are decompressed
            return False

    def _submit(self, batch: list[tuple[int, Unit]]) -> None:
        units = [unit for _, unit in batch]
        try:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, "nbdata-decoder")
            task = self._executor.submit(_decode_all, self._codec, units)
        except RuntimeError:  # no thread can be started, or the pool is closed
            self._broken = True
            self._bytes -= sum(map(_weight, units))
            self._source.give_back(b"".join(unit.raw for unit in units))
            return
        self._tasks += 1
        for number, (position, unit) in enumerate(batch, 1):
            self._units.append(_Submitted(position, unit, task, number - 1, number == len(batch)))


def _weight(unit: Unit) -> int:
    return 2 * len(unit.raw) + unit.most + _OVERHEAD


# -- in a thread of the pool ------------------------------------------------------------------


def _decode_all(codec: Codec, units: list[Unit]) -> list[list[bytes] | None]:
    """Decompress each unit; None for a unit that is not as announced."""
    return [_decode(codec, unit) for unit in units]


def _decode(codec: Codec, unit: Unit) -> list[bytes] | None:
    decoder = codec.decoder(LARGEST) if codec.unit is None else codec.unit()
    at_a_time = _INPUT if codec.unit is None else len(unit.data)
    blocks, length, left = list[bytes](), 0, memoryview(unit.data)
    if not left:
        return blocks
    try:
        while not decoder.eof:
            piece = b""
            if decoder.needs_input:
                piece, left = bytes(left[:at_a_time]), left[at_a_time:]
                if not piece:
                    return None
            block = decoder.decompress(piece, _OUTPUT)
            length += len(block)
            if length > unit.most:
                return None
            if block:
                blocks.append(block)
    except WindowTooLarge:
        return None
    except codec.errors:
        return None
    return None if left or decoder.unused_data else blocks
