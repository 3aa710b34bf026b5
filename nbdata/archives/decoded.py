"""Decompresses the members, frames or blocks of a stream one after the other.

Each one is either taken from a pool that decompresses several in parallel (`nbdata.archives.unit_pool`) or
decompressed here piece by piece. The latter happens if the pool does not know the unit or the unit turns out wrong.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nbdata.archives.bzip2 import Bzip2Block
from nbdata.archives.decoders import Codec, Decoder
from nbdata.archives.decompressed import Decompressed, Headed
from nbdata.archives.place import Restart, Restarts
from nbdata.archives.stream import DAMAGED, FOLLOWED, TRUNCATED, WRONG_CHECKSUM, bad_data
from nbdata.archives.unit_pool import UnitPool
from nbdata.archives.windows import MAX_WINDOW, WindowTooLarge, too_large
from nbdata.errors import BadArchive

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Decoded"]

_INPUT = 256 << 10
_OUTPUT = 1 << 20
# Bytes after the end that are ignored. More than that may be another archive with a damaged start.
_MOST_TRAILING = 64 << 10
# Number of first bytes needed to see whether a member begins there.
_BEGINNING = 6


class Decoded(Decompressed):
    """A decompressed stream.

    Parameters
    ----------
    source : Headed
        The compressed bytes.
    codec : Codec
    name : str or None
        Name of the archive in messages.
    start : Restart
        Position of `source`.
    threads : int
        Number of threads that decompress in parallel.
    max_window : int
        Largest window of a decoder, in bytes.
    """

    def __init__(
        self,
        source: Headed,
        codec: Codec,
        name: str | None,
        start: Restart,
        threads: int = 1,
        max_window: int = MAX_WINDOW,
    ) -> None:
        super().__init__()
        self._source = source
        self._codec = codec
        self._name, self._max_window = name, max_window
        self._input = _Input(source, start.compressed)
        self._pool: UnitPool | None = None
        if threads > 1 and codec.splitter is not None:
            self._pool = UnitPool(codec, self._input, threads)
        self._ready: deque[bytes] = deque()  # output of a unit from the pool
        self._decoder: Decoder | None = None  # of the unit being decompressed here
        self._block = memoryview(b"")
        self._begun = False
        self._expanded = start.expanded
        self._state = start.state  # state for the decoder of the next unit
        self._restarts = Restarts(start)

    @property
    def verified(self) -> int:
        return self._restarts.verified

    def restart(self, offset: int) -> Restart:
        return self._restarts.before(offset)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if not self._block and len(view):
            self._block = memoryview(self._decode())
        count = min(len(view), len(self._block))
        view[:count] = self._block[:count]
        self._block = self._block[count:]
        return count

    def produce(self) -> memoryview:
        """Return the next bytes in the decoder's own memory, which avoids a copy; empty at the end."""
        block, self._block = self._block or memoryview(self._decode()), memoryview(b"")
        return block

    block = produce

    def close(self) -> None:
        self._decoder, self._block = None, memoryview(b"")
        self._ready.clear()
        try:
            self._source.close()
        finally:
            if self._pool is not None:
                self._pool.close()
            self._input.close()
            super().close()

    def _decode(self) -> bytes:
        """Return the next bytes, slightly more than `_OUTPUT` at most; empty at the end."""
        while True:
            if self._ready:
                return self._ready.popleft()
            if self._decoder is not None:
                if block := self._go_on(self._decoder):
                    return block
            elif not self._begin_unit():
                return b""

    # -- units --------------------------------------------------------------------------------

    def _begin_unit(self) -> bool:
        """Take the next unit from the pool or start to decompress it; False at the end."""
        known = self._state or (self._pool is not None and not self._pool.is_empty)
        if not known and not self._finds_member():
            return False
        taken = None if self._pool is None else self._pool.take(self._state)
        if self._begun:
            position = self._input.position if taken is None else taken.position
            self._restarts.begins(Restart(position, self._expanded, self._state))
        self._begun = True
        if taken is not None:
            self._expanded += sum(map(len, taken.blocks))
            self._ended(taken.unit.state)
            self._ready.extend(taken.blocks)
        elif self._state and self._codec.within is not None:
            self._decoder = self._codec.within(self._state)
        else:
            self._decoder = self._codec.decoder(self._max_window)
        return True

    def _ended(self, state: str) -> None:
        """Note that a unit has ended and that its checksum is right."""
        self._state = state
        self._restarts.ended(self._expanded)

    def _go_on(self, decoder: Decoder) -> bytes:
        """Return some bytes of the unit being decompressed here; may be empty."""
        data = self._input.take() if decoder.needs_input else b""
        ended = decoder.needs_input and not data
        try:
            if ended and isinstance(decoder, Bzip2Block):
                decoder.at_end()
            block = b"" if ended else decoder.decompress(data, _OUTPUT)
        except WindowTooLarge as error:
            at = max(self._input.position - len(data), 0)
            raise too_large(f"the {self._codec.title} data", error, name=self._name, offset=at) from error
        except self._codec.errors as error:
            offset = max(self._input.position - getattr(error, "behind", len(data)), 0)
            fault = WRONG_CHECKSUM if "checksum" in str(error).lower() else DAMAGED
            raise self._bad(fault, f"is damaged ({error})", offset) from error
        if ended:
            raise self._bad(TRUNCATED, "ends too early", self._input.position)
        self._expanded += len(block)
        if decoder.eof:
            self._ended(decoder.state if isinstance(decoder, Bzip2Block) else "")
            self._input.give_back(decoder.unused_data)
            self._decoder = None
        return block

    def _finds_member(self) -> bool:
        """True if another member, stream or frame begins here; skips zeros and permitted trailing bytes."""
        source = self._input
        padding = source.pass_over_zeros() if self._begun else 0
        while len(source.ahead) < _BEGINNING and source.more():
            pass
        if self._begun and not source.ahead:
            self.padding = padding
            return False
        if self._codec.begins(source.ahead):
            return True
        offset = source.position
        if not self._begun:
            raise self._bad(FOLLOWED, "does not begin as such", offset)
        if self._codec.may_trail:
            while self.trailing <= _MOST_TRAILING and (data := source.take()):
                self.trailing += len(data)
            if self.trailing <= _MOST_TRAILING:
                return False
        raise self._bad(FOLLOWED, "is followed by something else", offset)

    def _bad(self, fault: str, what: str, offset: int) -> BadArchive:
        what = f"the {self._codec.title} data {what}"
        return bad_data(fault, what, self._source, offset, name=self._name, unit="compressed byte")


class _Input:
    """The compressed bytes that are still to be decompressed.

    Attributes
    ----------
    position : int
        Offset of the next byte in the archive.
    ahead : bytearray
        Bytes that were already read; the pool limits their number.
    """

    def __init__(self, source: Headed, position: int) -> None:
        self._source = source
        self.position = position
        self.ahead = bytearray()
        self._error: Exception | None = None

    def more(self) -> bool:
        """Read some more bytes; False at the end. After an error of the source, each call raises it again."""
        data = self._read()
        self.ahead += data
        return bool(data)

    def take(self) -> bytes:
        """Take some of the next bytes; empty at the end."""
        if self.ahead:
            data = bytes(self.ahead[:_INPUT])
            del self.ahead[:_INPUT]
        else:
            data = self._read()
        self.position += len(data)
        return data

    def give_back(self, data: bytes) -> None:
        """Put back the last bytes that were taken or skipped."""
        self.ahead[:0] = data
        self.position -= len(data)

    def pass_over(self, count: int) -> None:
        """Skip bytes that were already read."""
        del self.ahead[:count]
        self.position += count

    def pass_over_zeros(self) -> int:
        """Skip zeros and return their number."""
        count = 0
        while (self.ahead or self.more()) and not self.ahead[0]:
            zeros = len(self.ahead) - len(self.ahead.lstrip(b"\0"))
            self.pass_over(zeros)
            count += zeros
        return count

    def close(self) -> None:
        """Release all bytes and the traceback frames of a stored error."""
        self.ahead, self._error = bytearray(), None

    def _read(self) -> bytes:
        if self._error is not None:
            raise self._error
        try:
            return self._source.next_input()
        except Exception as error:
            self._error = error
            raise
