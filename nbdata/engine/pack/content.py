"""Produce any byte range of a shard or FFRecord file that does not exist yet, for sending to a store."""

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


# Records that are fetched and placed at a time.
_RECORDS = 4096


class _Layout(Protocol):
    """The source of each byte; see `nbdata.engine.pack.layout.Layout`."""

    largest: int

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes | Field]]:
        """The pieces between two offsets."""


class ShardContent:
    """The bytes of one shard.

    Attributes
    ----------
    in_order : bool
        Whether one worker must read it from beginning to end: it holds objects that are too large to be fetched twice,
        and such an object is verified only by all of its bytes.
    step : int
        Bytes of a window. If it must be read in order, the last window is kept for a resend.
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
        """The number of its large objects that had no checksum in the store."""
        return self._proof.unverified

    def outgoing(self, start: int, size: int, hasher: Hasher) -> Outgoing:
        """A range of the shard for sending to a store."""
        return Outgoing(self, self._control, start, size, hasher)

    def window(self, start: int, end: int) -> list[memoryview]:
        """The bytes between two offsets."""
        if not self.in_order:
            return self._read(start, end)
        if self._wrong is not None:
            raise self._wrong
        if start != self._window[0]:  # else it is a resend
            try:
                self._window = (start, self._read(start, end))
            except ChecksumMismatch as error:
                # Verifying it again needs a new read from its beginning: the next run does that.
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
        """Receive the bytes of each field: a small one as a whole, a large one in order, from `part.low` on."""


class RecordContent(ShardContent):
    """The bytes of one FFRecord file. Its header needs the CRC-32 of all records, so its beginning is produced last.

    Attributes
    ----------
    held : int
        Bytes at the beginning that are requested after all others: the header, and the data in the same parts. The data
        is held in memory: at most one part, or the whole file if it is sent in one piece.
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
        """Read the held data early, so nothing waits for it at the end; errors are reported then."""
        with contextlib.suppress(NbdataError):
            self._read_first()

    def window(self, start: int, end: int) -> list[memoryview]:
        """The bytes between two offsets; either none or all of them are held."""
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
        """The held data behind the header; read once, window by window."""
        with self._reading:
            if self._first is None:
                first = []
                for start in range(self._records.begin, self.held, WINDOW):
                    first += super().window(start, min(start + WINDOW, self.held))
                self._first = first
            return self._first

    def _read(self, start: int, end: int) -> list[memoryview]:
        """Read as in `ShardContent`, but `_RECORDS` records at a time: a window may hold many small ones."""
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
    """The views between two offsets of some memory."""
    found, at = [], 0
    for view in views:
        found.append(view[max(0, start - at) : max(0, end - at)])
        at += len(view)
    return [view for view in found if view]


class Windows(Protocol):
    """The source that an `Outgoing` reads, `step` bytes at a time."""

    step: int

    def window(self, start: int, end: int) -> list[memoryview]:
        """The bytes between two offsets."""


class Outgoing:
    """A range of a shard that is being sent: fetched window by window, hashed and counted as it is read."""

    def __init__(self, content: Windows, control: Control, start: int, size: int, hasher: Hasher) -> None:
        self._content, self._control, self._hasher = content, control, hasher
        self._at, self._end = start, start + size
        self._chunks: list[memoryview] = []  # the next ones last
        self.sent = 0
        self.headers: Mapping[str, str] = {}
        self.md5 = ""
        self._fetch()  # before the request begins, so it need not wait

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
        """Release its memory."""
        self._chunks = []
