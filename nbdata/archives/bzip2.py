"""Decodes bzip2 block by block, so that several blocks can be decoded in parallel and each is verified separately.

A stream is ``BZh`` and a digit, then blocks, then a CRC over all blocks. A block holds up to 900 kB of content and
does not depend on other blocks. It starts at any bit, with a 48-bit marker and a 32-bit CRC. The end of the stream
has a 48-bit marker of its own. This module cuts out each block, adds a header and an end, and decodes it as a stream.

The 48 bits of a marker may also occur by chance in a block. If a block does not decode up to a marker, the decoder
tries the next marker.

Source of the format: Joe Tsai, "BZip2: Format Specification" (2016).
"""

from __future__ import annotations

import bz2
from typing import NamedTuple

from nbdata.archives.units import Unit, Unsplit

__all__ = ["Bzip2Block", "Bzip2Splitter", "DamagedBlock"]

_BLOCK, _END = 0x314159265359, 0x177245385090
_MAGIC_BITS, _CRC_BITS = 48, 32
# Largest size of a compressed block, in bytes: a little more than its content, if that cannot be compressed.
_LONGEST = 1_200_000
_BITS = (1 << _MAGIC_BITS) - 1
_SHIFTED = [(magic, shift) for magic in (_BLOCK, _END) for shift in range(8)]
# Largest output of a block, in bytes, that is decoded in parallel: twice the block's size before its runs of equal
# bytes are expanded. A block of zeros may expand to 45 MB.
_MOST = 1_800_000
# Wrong ends at which a block is tried. In a block of 900 kB there is one by chance once in ten million.
_MOST_WRONG = 16


class DamagedBlock(OSError):
    """Raised if a block does not decode; `behind` counts the bytes from the block's start to the end of the input."""

    def __init__(self, what: str, behind: int) -> None:
        super().__init__(what)
        self.behind = behind


class _Place(NamedTuple):
    """The start of a block or end: the bit within a byte, the level, and the CRC of the earlier blocks."""

    bit: int = 0
    level: str = ""
    crc: int = 0

    @classmethod
    def of(cls, state: str) -> _Place:
        if not state:
            return cls()
        bit, level, crc = state.split(":")
        return cls(int(bit), level, int(crc, 16))

    def after(self, end: int, crc: int) -> _Place:
        """The place after a block that ends at bit `end` and has this CRC."""
        return _Place(end % 8, self.level, (self.crc << 1 & 0xFFFFFFFF | self.crc >> 31) ^ crc)

    def __str__(self) -> str:
        return f"{self.bit}:{self.level}:{self.crc:08x}"


class Bzip2Block:
    """Decodes one block or the end of a stream; has the interface of `bz2.BZ2Decompressor`.

    Parameters
    ----------
    state : str
        State of the previous decoder, whose `unused_data` is the first input; empty at the start of a stream.

    Attributes
    ----------
    state : str
        The state for the decoder of the next block; set when this block has ended.
    """

    def __init__(self, state: str = "") -> None:
        self._place = _Place.of(state)
        self._bit = self._place.bit  # bit of the buffer at which the block begins
        self._buffer = bytearray()
        self._searched = 0
        self._block: bz2.BZ2Decompressor | None = None
        self._end = 0  # bit at which the current block ends
        self.eof = False
        self.needs_input = True
        self.state = state
        self._wrong = (
            0  # wrong ends of the block, up to which decoding was tried; more than 0 if it is damaged
        )

    @property
    def unused_data(self) -> bytes:
        return bytes(self._buffer) if self.eof else b""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        self._buffer += data
        found = self._decode(self._block, b"", max_length) if self._block else self._begin(max_length)
        self.needs_input = found is None
        return found or b""

    def at_end(self) -> None:
        """Note that the input is complete; raises DamagedBlock if the block is damaged rather than cut short."""
        if self._wrong:
            raise DamagedBlock("a block does not decode", len(self._buffer))

    def _begin(self, max_length: int) -> bytes | None:
        """Return the first bytes of the block or end that begins here; None if more input is needed."""
        if not self._place.level:
            if len(self._buffer) < 4:
                return None
            self._place = self._place._replace(level=chr(self._buffer[3]))
            self._bit += 32
        magic = _bits(self._buffer, self._bit, _MAGIC_BITS)
        if magic == _BLOCK:
            return self._begin_block(max_length)
        if magic == _END:
            return self._end_stream()
        if magic is not None:
            raise DamagedBlock("there is no block where one should begin", len(self._buffer))
        return None

    def _begin_block(self, max_length: int) -> bytes | None:
        """Return the first bytes of the block; None until its end has arrived."""
        while (end := self._find_end()) >= 0 and self._wrong < _MOST_WRONG:
            block = bz2.BZ2Decompressor()
            text = _as_stream(self._buffer, self._bit, end, self._place.level)
            try:
                return self._decode(block, text, max_length)
            except DamagedBlock:
                self._wrong += 1  # this marker may have been a coincidence
        if len(self._buffer) > _LONGEST or self._wrong == _MOST_WRONG:
            raise DamagedBlock("a block does not decode", len(self._buffer))
        return None

    def _find_end(self) -> int:
        found = _find_end(self._buffer, max(self._searched, self._bit + _MAGIC_BITS + _CRC_BITS))
        self._searched = 8 * (len(self._buffer) - 7) if found < 0 else found + 1
        self._end = found
        return found

    def _decode(self, block: bz2.BZ2Decompressor, text: bytes, max_length: int) -> bytes:
        try:
            found = block.decompress(text, max_length)
        except (OSError, ValueError) as error:
            raise DamagedBlock(str(error), len(self._buffer)) from error
        self._block = block
        if block.eof:
            crc = _bits(self._buffer, self._bit + _MAGIC_BITS, _CRC_BITS) or 0
            self.state = str(self._place.after(self._end, crc))
            self._finish(self._end // 8)
        elif block.needs_input:
            self._block = None
            raise DamagedBlock("a block ends too early", len(self._buffer))
        return found

    def _end_stream(self) -> bytes | None:
        """Compare the CRC over all blocks; None until it has arrived."""
        crc = _bits(self._buffer, self._bit + _MAGIC_BITS, _CRC_BITS)
        if crc is None:
            return None
        if crc != self._place.crc:
            raise DamagedBlock("the CRC over all blocks is another", len(self._buffer))
        self.state = ""
        self._finish(_behind_end(self._bit))
        return b""

    def _finish(self, size: int) -> None:
        del self._buffer[:size]
        self._block, self.eof = None, True


class Bzip2Splitter:
    """Finds the blocks for decoders that run in parallel; see `nbdata.archives.units.Split`."""

    def __init__(self) -> None:
        self._searched = 0  # bits

    def __call__(self, data: bytearray, state: str) -> Unit | Unsplit:
        place = _Place.of(state)
        bit = place.bit
        if not place.level:
            if len(data) < 4:
                return Unsplit.MORE
            if data[:3] != b"BZh":
                return Unsplit.STREAM
            place = place._replace(level=chr(data[3]))
            bit += 32
        magic, crc = _bits(data, bit, _MAGIC_BITS), _bits(data, bit + _MAGIC_BITS, _CRC_BITS)
        if magic is None or crc is None:
            return Unsplit.MORE
        if magic == _END and crc == place.crc:
            return Unit(bytes(data[: _behind_end(bit)]), b"", 0)
        if magic != _BLOCK:
            return Unsplit.STREAM
        end = _find_end(data, max(self._searched, bit + _MAGIC_BITS + _CRC_BITS))
        if end < 0:
            self._searched = 8 * (len(data) - 7)
            return Unsplit.MORE if len(data) <= _LONGEST else Unsplit.STREAM
        self._searched = 0
        text = _as_stream(data, bit, end, place.level)
        return Unit(bytes(data[: end // 8]), text, _MOST, str(place.after(end, crc)))


# -- bits -------------------------------------------------------------------------------------


def _bits(data: bytearray, begin: int, count: int) -> int | None:
    """Return `count` bits as a number; None if the data has fewer."""
    first, last = begin // 8, -(-(begin + count) // 8)
    if last > len(data):
        return None
    number = int.from_bytes(data[first:last], "big")
    return number >> (8 * last - begin - count) & (1 << count) - 1


def _as_stream(data: bytearray, begin: int, end: int, level: str) -> bytes:
    """Return the block between two bits as a stream of its own."""
    crc = _bits(data, begin + _MAGIC_BITS, _CRC_BITS)
    size = end - begin
    stream = _bits(data, begin, size)
    assert crc is not None
    assert stream is not None
    # A stream of a single block has that block's CRC.
    stream = ((stream << _MAGIC_BITS | _END) << _CRC_BITS | crc) << -size % 8
    return b"BZh" + level.encode() + stream.to_bytes((size + 87) // 8, "big")


def _behind_end(bit: int) -> int:
    """Return the index of the byte after the end of a stream whose end marker begins at this bit."""
    return -(-(bit + _MAGIC_BITS + _CRC_BITS) // 8)


def _find_end(data: bytearray, begin: int) -> int:
    """Find the first bit from `begin` on at which a block or the stream's end may begin; -1 if there is none."""
    found = -1
    for magic, shift in _SHIFTED:
        wanted = magic << (8 - shift)
        # The marker touches seven bytes; five of them do not depend on the bits around it.
        inner = wanted.to_bytes(7, "big")[1:6]
        end = len(data) if found < 0 else found // 8 + 7
        at = data.find(inner, begin // 8 + 1, end)
        while at > 0:
            place = 8 * (at - 1) + shift
            seven = int.from_bytes(data[at - 1 : at + 6].ljust(7, b"\0"), "big")
            if place >= begin and seven & _BITS << (8 - shift) == wanted:
                found = place if found < 0 else min(found, place)
                break
            at = data.find(inner, at + 1, end)
    return found
