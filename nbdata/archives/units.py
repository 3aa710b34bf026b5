"""Where the next unit of compressed data ends: a piece that can be decompressed without the ones before it.

A unit is a gzip member, a Zstandard frame or a bzip2 block. Its end is found without decompressing it, so that several
can be decompressed at the same time (`nbdata.archives.unit_pool`). What does not tell its end, or may be large, is
decompressed as a stream. Nothing here is trusted: a unit that does not decode as announced is decoded again as a
stream, and that is what reports errors.

Sources of the formats: RFC 1952 (gzip), RFC 8878 (Zstandard), the header that pzstd puts before each frame
(zstd, contrib/pzstd), SAM/BAM specification 4.1 (BGZF); the subfield ``IG`` is that of mgzip and pgzip.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

__all__ = ["LARGEST", "Split", "Unit", "Unsplit", "split_gzip", "split_zstd"]

#: Bytes of a unit, compressed and decompressed; what has more is a stream.
LARGEST = 16 << 20


class Unit(NamedTuple):
    """A piece that can be decompressed by itself.

    Attributes
    ----------
    raw : bytes
        Its compressed bytes, up to those of the next unit.
    data : bytes or memoryview
        What a decoder of its own decodes; nothing if nothing comes out.
    most : int
        Bytes that come out at most.
    state : str
        What the decoder of the next unit has to know.
    """

    raw: bytes
    data: bytes | memoryview
    most: int
    state: str = ""


class Unsplit(Enum):
    """Why there is no unit: more bytes have to come, or what begins there is to be decompressed as a stream."""

    MORE = "more"
    STREAM = "stream"


#: Finds the unit that the bytes begin with; the state is that of the unit before. Called again when more bytes came.
Split = Callable[[bytearray, str], Unit | Unsplit]


def _unit(data: bytearray, size: int, most: int, *, skip: int = 0) -> Unit | Unsplit:
    """The unit of this size, if all of it is there; the first bytes need not be decoded."""
    if size > LARGEST or most > LARGEST:
        return Unsplit.STREAM
    if len(data) < size:
        return Unsplit.MORE
    raw = bytes(data[:size]) if size < len(data) else bytes(data)
    return Unit(raw, memoryview(raw)[skip:] if skip else raw, most)


# -- gzip -------------------------------------------------------------------------------------

_FEXTRA = 4
_SMALLEST_MEMBER = 18


def split_gzip(data: bytearray, _: str) -> Unit | Unsplit:
    """A gzip member that carries its own size, as bgzip, mgzip and `pack` write them."""
    if len(data) < 12:
        return Unsplit.MORE
    if data[:3] != b"\x1f\x8b\x08" or not data[3] & _FEXTRA:
        return Unsplit.STREAM
    end = 12 + struct.unpack_from("<H", data, 10)[0]
    if len(data) < end:
        return Unsplit.MORE
    size = _size_in_extra(data, 12, end)
    if size < _SMALLEST_MEMBER or size > LARGEST:
        return Unsplit.STREAM
    if len(data) < size:
        return Unsplit.MORE
    return _unit(data, size, struct.unpack_from("<I", data, size - 4)[0])


def _size_in_extra(data: bytearray, at: int, end: int) -> int:
    """The size of the member as a subfield has it; 0 if none has."""
    while at + 4 <= end:
        name, length = struct.unpack_from("<2sH", data, at)
        at += 4
        if at + length > end:
            break
        if (name, length) == (b"IG", 4):
            return int(struct.unpack_from("<I", data, at)[0])
        if (name, length) == (b"BC", 2):
            return int(struct.unpack_from("<H", data, at)[0]) + 1
        at += length
    return 0


# -- Zstandard --------------------------------------------------------------------------------

_ZSTD, _SKIPPABLE, _PZSTD = 0xFD2FB528, 0x184D2A5, 0x184D2A50
_PZSTD_HEADER = 12
_LONGEST_HEADER = 18
_RLE, _RESERVED = 1, 3
_BLOCK = 128 << 10  # of content, at most
_MOST_BLOCKS = 1 << 12


def split_zstd(data: bytearray, _: str) -> Unit | Unsplit:
    """A Zstandard frame that tells the size of its content, one that pzstd wrote, or a skippable one."""
    if len(data) < _PZSTD_HEADER:
        return Unsplit.MORE
    magic, length, size = struct.unpack_from("<III", data)
    if magic == _ZSTD:
        return _frame(data, 0)
    if magic >> 4 != _SKIPPABLE:
        return Unsplit.STREAM
    if magic != _PZSTD or length != 4:  # nothing comes out
        return _unit(data, 8 + length, 0, skip=8 + length)
    if size > LARGEST:
        return Unsplit.STREAM
    if len(data) < _PZSTD_HEADER + size:
        return Unsplit.MORE
    found = _frame(data, _PZSTD_HEADER)
    return found if isinstance(found, Unit) and len(found.raw) == _PZSTD_HEADER + size else Unsplit.STREAM


def _frame(data: bytearray, at: int) -> Unit | Unsplit:
    """The frame that begins here, and what is before it; if that is nothing, the frame must tell its content's size."""
    if len(data) < at + _LONGEST_HEADER:
        return Unsplit.MORE
    descriptor = data[at + 4]
    single, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    place = at + 5
    window = 0
    if not single:
        window = 1 << 10 + (data[place] >> 3)
        window += (window >> 3) * (data[place] & 7)
        place += 1
    place += (0, 1, 2, 4)[descriptor & 3]
    width = (single, 2, 4, 8)[descriptor >> 6]
    content = int.from_bytes(data[place : place + width], "little") + (256 if width == 2 else 0)
    place += width
    if not (width or at) or max(content, window) > LARGEST:
        return Unsplit.STREAM
    blocks, last = 0, False
    while not last:
        if blocks > _MOST_BLOCKS:
            return Unsplit.STREAM
        if len(data) < place + 3:
            return Unsplit.MORE if place - at < LARGEST else Unsplit.STREAM
        header = int.from_bytes(data[place : place + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == _RESERVED:
            return Unsplit.STREAM
        place += 3 + (1 if kind == _RLE else size)
        blocks += 1
    return _unit(data, place + 4 * checksum, content if width else blocks * _BLOCK, skip=at)
