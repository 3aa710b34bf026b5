"""One bzip2 stream, block by block: each is verified by itself, and reading can begin at any.

A stream is ``BZh`` and a digit, blocks, and a CRC over all of them. A block holds up to 900 kB of content and needs
nothing of the others. It begins at any bit, with 48 bits that tell it and the 32 of its CRC; the end of the stream has
48 bits of its own. Here each block is cut out, given a head and an end, and decoded as a stream.

48 bits may come up by chance: what does not decode up to there is tried up to the next ones.

Source of the format: Joe Tsai, "BZip2: Format Specification" (2016).
"""

from __future__ import annotations

import bz2
from typing import NamedTuple

__all__ = ["Bzip2Point", "Bzip2Stream", "DamagedBlock"]

_BLOCK, _END = 0x314159265359, 0x177245385090
_MAGIC_BITS, _CRC_BITS = 48, 32
# Bytes that a block can have: a little more than its content, where that cannot be compressed.
_LONGEST = 1_200_000
_BITS = (1 << _MAGIC_BITS) - 1


class Bzip2Point(NamedTuple):
    """Where a block begins.

    Attributes
    ----------
    offset : int
        Of its first byte, in what the decoder was given.
    expanded : int
        Bytes that came out until there.
    state : str
        What a new decoder has to know.
    """

    offset: int
    expanded: int
    state: str


class DamagedBlock(OSError):
    """A block does not decode; `behind` is how many bytes before the last one that was given it begins."""

    def __init__(self, what: str, behind: int) -> None:
        super().__init__(what)
        self.behind = behind


class Bzip2Stream:
    """A decoder with the interface of `bz2.BZ2Decompressor`.

    Parameters
    ----------
    state : str, optional
        Of a point: what is given begins at its offset.

    Attributes
    ----------
    points : list of Bzip2Point
        Blocks that have begun, and before which all is verified; for the caller to take.
    """

    def __init__(self, state: str = "") -> None:
        self._bit = 0  # of the buffer's first byte, where the next block or the end begins
        self._level, self._crc = "", 0
        if state:
            bit, self._level, crc = state.split(":")
            self._bit, self._crc = int(bit), int(crc, 16)
        self._buffer = bytearray()
        self._dropped = 0  # bytes that were given before those in the buffer
        self._searched = 0
        self._expanded = 0
        self._block: bz2.BZ2Decompressor | None = None
        self._next = 0  # bit at which the block that is being decoded ends
        self.eof = False
        self.needs_input = True
        self._tried = False  # to decode the next block up to where it does not end, or it is damaged
        self.points: list[Bzip2Point] = []

    @property
    def unused_data(self) -> bytes:
        return bytes(self._buffer) if self.eof else b""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        self._buffer += data
        found: bytes | None = b""
        while found == b"" and not self.eof:
            found = self._decode(self._block, b"", max_length) if self._block else self._go_on(max_length)
        self.needs_input = found is None
        return found or b""

    def _go_on(self, max_length: int) -> bytes | None:
        """Take what comes next; None if more has to be given for that."""
        if not self._level:
            if len(self._buffer) < 4:
                return None
            self._level = chr(self._buffer[3])
            self._drop(32)
        magic = self._bits(self._bit, _MAGIC_BITS)
        if magic == _BLOCK:
            return self._begin(max_length)
        if magic == _END:
            return self._ended()
        if magic is not None:
            raise DamagedBlock("there is no block where one should begin", len(self._buffer))
        return None

    def at_end(self) -> None:
        """Nothing more will be given: raises DamagedBlock if that is not what is missing."""
        if self._tried:
            raise DamagedBlock("a block does not decode", len(self._buffer))

    # -- blocks -------------------------------------------------------------------------------

    def _begin(self, max_length: int) -> bytes | None:
        """The first bytes of the next block, once its end has come; None until then."""
        while (end := self._find_end()) is not None:
            crc = self._bits(self._bit + _MAGIC_BITS, _CRC_BITS)
            assert crc is not None
            size = end - self._bit
            stream = self._bits(self._bit, size)
            assert stream is not None
            # The block's CRC is that of a stream that has no other.
            stream = ((stream << _MAGIC_BITS | _END) << _CRC_BITS | crc) << -size % 8
            text = b"BZh" + self._level.encode() + stream.to_bytes((size + 87) // 8, "big")
            block = bz2.BZ2Decompressor()
            try:
                found = self._decode(block, text, max_length)
            except DamagedBlock:
                self._tried = True
                continue  # perhaps this was not its end
            if found or self._block is None:
                return found
        if len(self._buffer) > _LONGEST:
            raise DamagedBlock("a block does not decode", len(self._buffer))
        return None

    def _find_end(self) -> int | None:
        """The next bit after those searched at which a block or the end of the stream begins."""
        begin = max(self._searched, self._bit + _MAGIC_BITS + _CRC_BITS)
        found = min(
            (at for at in (_find(self._buffer, m, begin) for m in (_BLOCK, _END)) if at >= 0), default=-1
        )
        if found < 0:
            self._searched = max(begin, 8 * (len(self._buffer) - 7))
            return None
        self._searched, self._next = found + 1, found
        return found

    def _decode(self, block: bz2.BZ2Decompressor, text: bytes, max_length: int) -> bytes:
        try:
            found = block.decompress(text, max_length)
        except (OSError, ValueError) as error:
            raise DamagedBlock(str(error), len(self._buffer)) from error
        self._block = block
        self._expanded += len(found)
        if block.eof:
            crc = self._bits(self._bit + _MAGIC_BITS, _CRC_BITS) or 0
            self._crc = (self._crc << 1 & 0xFFFFFFFF | self._crc >> 31) ^ crc
            self._block = None
            self._drop(self._next)
            state = f"{self._bit}:{self._level}:{self._crc:08x}"
            self.points.append(Bzip2Point(self._dropped, self._expanded, state))
        elif block.needs_input:
            self._block = None
            raise DamagedBlock("a block ends too early", len(self._buffer))
        return found

    def _ended(self) -> bytes | None:
        """Compare the CRC over all blocks, once it has come."""
        crc = self._bits(self._bit + _MAGIC_BITS, _CRC_BITS)
        if crc is None:
            return None
        if crc != self._crc:
            raise DamagedBlock("the CRC over all blocks is another", len(self._buffer))
        self._drop(-(-(self._bit + _MAGIC_BITS + _CRC_BITS) // 8) * 8)
        self.eof = True
        return b""

    # -- bits ---------------------------------------------------------------------------------

    def _bits(self, begin: int, count: int) -> int | None:
        """That many bits of the buffer as a number; None if they are not all there."""
        first, last = begin // 8, -(-(begin + count) // 8)
        if last > len(self._buffer):
            return None
        number = int.from_bytes(self._buffer[first:last], "big")
        return number >> (8 * last - begin - count) & (1 << count) - 1

    def _drop(self, bit: int) -> None:
        """Forget what is before this bit."""
        del self._buffer[: bit // 8]
        self._dropped += bit // 8
        self._bit, self._searched, self._tried = bit % 8, 0, False


def _find(data: bytearray, magic: int, begin: int) -> int:
    """The first bit, from `begin` on, at which 48 bits are the magic; -1 if there is none."""
    found = -1
    for shift in range(8):
        wanted = magic << (8 - shift)
        # Of the seven bytes that it touches, five are its own whatever is around it.
        inner = wanted.to_bytes(7, "big")[1:6]
        at = data.find(inner, begin // 8 + 1)
        while at > 0 and (found < 0 or 8 * (at - 1) < found):
            place = 8 * (at - 1) + shift
            seven = int.from_bytes(data[at - 1 : at + 6].ljust(7, b"\0"), "big")
            if place >= begin and seven & _BITS << (8 - shift) == wanted and len(data) >= at + 5:
                if found < 0 or place < found:
                    found = place
                break
            at = data.find(inner, at + 1)
    return found
