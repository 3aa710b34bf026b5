"""The bytes of a shard that does not exist yet, any range of them, as what is sent to a store."""

from __future__ import annotations

from collections.abc import Mapping

from nbdata.engine.pack.layout import Layout
from nbdata.engine.pack.windows import TWICE, Fetching, Proof, read_window
from nbdata.errors import ChecksumMismatch
from nbdata.transfer.control import Control
from nbdata.transfer.send import Hasher

__all__ = ["WINDOW", "Outgoing", "ShardContent"]

#: Bytes of a shard that one worker holds at a time.
WINDOW = 8 << 20


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

    def __init__(self, layout: Layout, fetching: Fetching, control: Control, verify: str) -> None:
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
        found, large = read_window(pieces, start, end, self._fetching, self._verify)
        self._proof.take(large)
        return found


class Outgoing:
    """A range of a shard on its way out: fetched window by window, hashed and counted as it is given."""

    def __init__(
        self, content: ShardContent, control: Control, start: int, size: int, hasher: Hasher
    ) -> None:
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
