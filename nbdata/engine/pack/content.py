"""The bytes of a shard or FFRecord file that does not exist yet, any range of them, as what is sent to a store."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Protocol

from nbdata.engine.pack.records import RecordLayout
from nbdata.engine.pack.source import Field
from nbdata.engine.pack.windows import TWICE, Fetching, Part, Proof, read_window
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.transfer.control import Control
from nbdata.transfer.send import Hasher

__all__ = ["WINDOW", "Outgoing", "RecordContent", "ShardContent", "Windows"]

#: Bytes of a shard that one worker holds at a time.
WINDOW = 8 << 20


# Records that are fetched and put in their places at a time.
_RECORDS = 4096


class _Layout(Protocol):
    """Where each byte comes from; see `nbdata.engine.pack.layout.Layout`."""

    largest: int

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes | Field]]:
        """What lies between two offsets."""


class ShardContent:
    """The bytes of one shard.

    Attributes
    ----------
    in_order : bool
        Whether it must be read from its beginning to its end, by one worker: it holds objects that are larger than what
        is fetched twice, and only all of their bytes prove them.
    step : int
        Bytes of a window. Of what must be read in order the last one is kept, to be sent again.
    """

    def __init__(self, layout: _Layout, fetching: Fetching, control: Control, verify: str) -> None:
        self._layout, self._fetching, self._control, self._verify = layout, fetching, control, verify
        self.in_order = layout.largest > TWICE
        self.step = WINDOW
        self._proof = Proof(control, verify)
        self._window: tuple[int, list[memoryview]] = (-1, [])
        self._wrong: ChecksumMismatch | None = None

    @property
    def unverified(self) -> int:
        """Of its large objects, how many had no checksum in the store to compare with."""
        return self._proof.unverified

    def outgoing(self, start: int, size: int, hasher: Hasher) -> Outgoing:
        """A range of it, as what is sent to a store."""
        return Outgoing(self, self._control, start, size, hasher)

    def window(self, start: int, end: int) -> list[memoryview]:
        """The bytes between two offsets."""
        if not self.in_order:
            return self._read(start, end)
        if self._wrong is not None:
            raise self._wrong
        if start != self._window[0]:  # else they are sent again
            try:
                self._window = (start, self._read(start, end))
            except ChecksumMismatch as error:
                # To be proven again it would have to be read again from its beginning: the next run does that.
                error.details["retry"] = False
                self._wrong = error
                raise
        return self._window[1]

    def _read(self, start: int, end: int) -> list[memoryview]:
        pieces = self._layout.pieces(start, end)
        found, large = read_window(pieces, start, end, self._fetching, self._verify, self._seen)
        self._proof.take(large)
        for part, data in large:
            self._seen(part, data)
        return found

    def _seen(self, part: Part, data: memoryview) -> None:
        """Told of the bytes of each field: all of a small one, and of a large one what follows `part.low`, in order."""


class RecordContent(ShardContent):
    """The bytes of one FFRecord file. Its header needs the CRC-32 of all records, so its beginning is given last.

    Attributes
    ----------
    held : int
        Bytes at the beginning that are asked for when all others were given: the header, and what shares its parts. Of
        what is no header they are in memory, a part at most, or a whole file where that goes in one piece.
    """

    def __init__(
        self, layout: RecordLayout, fetching: Fetching, control: Control, verify: str, *, held: int = 0
    ) -> None:
        super().__init__(layout, fetching, control, verify)
        self.held = held
        self._records = layout
        self._first: list[memoryview] | None = None
        self._reading = threading.Lock()

    def prepare(self) -> None:
        """Read what is held, so that nothing waits for it at the end; what goes wrong is told there."""
        with contextlib.suppress(NbdataError):
            self._read_first()

    def window(self, start: int, end: int) -> list[memoryview]:
        """The bytes between two offsets, of which none or all may be held."""
        if self.held and (start < self.held or self.in_order):
            held = self._read_first()
            if start < self.held:
                header = self._records.header()
                return _between([memoryview(header), *held], start, end)
        if start < self._records.begin:
            header = self._records.header()
            behind = super().window(len(header), end) if end > len(header) else []
            return _between([memoryview(header), *behind], start, end)
        return super().window(start, end)

    def _read_first(self) -> list[memoryview]:
        """What is held behind the header, read once, window by window."""
        with self._reading:
            if self._first is None:
                first = []
                for start in range(self._records.begin, self.held, WINDOW):
                    first += super().window(start, min(start + WINDOW, self.held))
                self._first = first
            return self._first

    def _read(self, start: int, end: int) -> list[memoryview]:
        """As of `ShardContent`, so many records at a time: of small ones a window has many."""
        found: list[memoryview] = []
        while start < end:
            behind = min(end, self._records.behind(start, _RECORDS))
            found.append(memoryview(b"".join(super()._read(start, behind))))
            start = behind
        return found

    def _seen(self, part: Part, data: memoryview) -> None:
        if part.field.crc is None:
            self._records.found(part.at, data, part.low if part.alone else 0)


def _between(views: list[memoryview], start: int, end: int) -> list[memoryview]:
    """What lies between two offsets of some memory."""
    found, at = [], 0
    for view in views:
        found.append(view[max(0, start - at) : max(0, end - at)])
        at += len(view)
    return [view for view in found if view]


class Windows(Protocol):
    """What an `Outgoing` reads, `step` bytes at a time."""

    step: int

    def window(self, start: int, end: int) -> list[memoryview]:
        """The bytes between two offsets."""


class Outgoing:
    """A range of a shard on its way out: fetched window by window, hashed and counted as it is given."""

    def __init__(self, content: Windows, control: Control, start: int, size: int, hasher: Hasher) -> None:
        self._content, self._control, self._hasher = content, control, hasher
        self._at, self._end = start, start + size
        self._chunks: list[memoryview] = []  # the next ones last
        self.sent = 0
        self.headers: Mapping[str, str] = {}
        self.md5 = ""
        self._fetch()  # before a request is begun, which should not wait for it

    def _fetch(self) -> None:
        behind = min(self._at + self._content.step, self._end)
        self._chunks = self._content.window(self._at, behind)[::-1]
        self._at = behind

    def readinto(self, buffer: memoryview, /) -> int:
        self._control.checkpoint()
        if not self._chunks and self._at < self._end:
            self._fetch()
        room = buffer[: min(len(buffer), self._control.block)]
        filled = 0
        while self._chunks and filled < len(room):
            chunk = self._chunks[-1]
            count = min(len(chunk), len(room) - filled)
            room[filled : filled + count] = chunk[:count]
            filled += count
            if count == len(chunk):
                self._chunks.pop()
            else:
                self._chunks[-1] = chunk[count:]
        if filled:
            self._hasher.update(room[:filled])
            self.sent += filled
            self._control.advance(bytes=filled)
        return filled

    def close(self) -> None:
        """Hold no more of it."""
        self._chunks = []
