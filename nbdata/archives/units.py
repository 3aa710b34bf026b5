"""Finds the end of the next unit of compressed data: a piece that can be decompressed independently.

A unit is a gzip member, a Zstandard frame or a bzip2 block. Its end is found without decompressing it, so that several
units can be decompressed in parallel (`nbdata.archives.unit_pool`). Data whose end is not stated, or that may be large,
is decompressed as a stream. Nothing here is trusted. A unit that does not decode as announced is decoded again as a
stream, which then reports errors.

Sources of the formats: RFC 1952 (gzip), RFC 8878 (Zstandard), the header that pzstd puts before each frame
(zstd, contrib/pzstd), SAM/BAM specification 4.1 (BGZF); mgzip and pgzip use the subfield ``IG``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

__all__ = ["LARGEST", "Split", "Unit", "Unsplit", "split_gzip", "split_zstd"]

#: Largest unit in bytes, compressed and decompressed; larger ones are decompressed as a stream.
LARGEST = 16 << 20


class Unit(NamedTuple):
    """A piece that can be decompressed independently.

    Attributes
    ----------
    raw : bytes
        Its compressed bytes, up to the start of the next unit.
    data : bytes or memoryview
        Input for a separate decoder; empty if the unit has no output.
    most : int
        Largest possible output, in bytes.
    state : str
        State for the decoder of the next unit.
    """

    raw: bytes
    data: bytes | memoryview
    most: int
    state: str = ""


class Unsplit(Enum):
    """Why there is no unit: more bytes are needed, or the data must be decompressed as a stream."""

    MORE = "more"
    STREAM = "stream"


#: Finds the unit at the start of the bytes; the state comes from the previous unit. Called again with more bytes.
Split = Callable[[bytearray, str], Unit | Unsplit]


def _unit(data: bytearray, size: int, most: int, *, skip: int = 0) -> Unit | Unsplit:
    """Return the unit of this size if all of it has arrived; the first `skip` bytes need no decoding."""
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
    """Find a gzip member that states its own size, as bgzip, mgzip and `pack` write them."""
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
    """Return the size of the member as stated in a subfield; 0 if there is none."""
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
_BLOCK = 128 << 10  # largest content in bytes
_MOST_BLOCKS = 1 << 12


def split_zstd(data: bytearray, _: str) -> Unit | Unsplit:
    """Find a Zstandard frame that states its content size or was written by pzstd, or a skippable frame."""
    if len(data) < _PZSTD_HEADER:
        return Unsplit.MORE
    magic, length, size = struct.unpack_from("<III", data)
    if magic == _ZSTD:
        return _frame(data, 0)
    if magic >> 4 != _SKIPPABLE:
        return Unsplit.STREAM
    if magic != _PZSTD or length != 4:  # it has no output
        return _unit(data, 8 + length, 0, skip=8 + length)
    if size > LARGEST:
        return Unsplit.STREAM
    if len(data) < _PZSTD_HEADER + size:
        return Unsplit.MORE
    found = _frame(data, _PZSTD_HEADER)
    return found if isinstance(found, Unit) and len(found.raw) == _PZSTD_HEADER + size else Unsplit.STREAM


def _frame(data: bytearray, at: int) -> Unit | Unsplit:
    """Find the frame at `at`, including the bytes before it; without any before, it must state its content size."""
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
