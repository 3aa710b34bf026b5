"""Compresses a stream in frames, each of which can be decompressed by itself; together they are one ordinary file.

A frame holds a fixed range of the stream, as a gzip member or a Zstandard frame. Concatenated, they are valid input for
``gzip -d`` and ``zstd -d`` (RFC 1952 section 2.2, RFC 8878 section 3). A reader may decompress several at a time. A
Zstandard frame states the size of its content. A gzip member states its own size, in a subfield ``IG`` of its extra
field, as in mgzip and pgzip.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import zstandard
from isal import isal_zlib

__all__ = ["COMPRESSIONS", "FRAME", "LEAST_FRAME", "Compress", "frame_size", "gzip_member", "zstd_frame"]

#: Most and least bytes of the stream in a frame.
FRAME, LEAST_FRAME = 4 << 20, 64 << 10
# A volume holds at least this many frames, so that little of it stays empty.
_FRAMES = 16
# A gzip member: deflate, an extra field, no time, no operating system; the extra field is one subfield of 4 bytes.
_GZIP = b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff"
_SUBFIELD = b"IG"
_HEAD = len(_GZIP) + 2 + 8
_TAIL = 8
# isal has levels 0 to 3; 2 is nearly as fast as 1, and compresses better.
_GZIP_LEVEL = 2
_ZSTD_LEVEL = 3

#: Compresses the bytes of one range into a frame.
Compress = Callable[[Sequence["bytes | memoryview"]], bytes]


def frame_size(volume: int | None) -> int:
    """Return the bytes of the stream in a frame, given the most bytes of a volume; None for no volumes.

    Examples
    --------
    >>> frame_size(None) == FRAME, frame_size(10 << 20) == 640 << 10, frame_size(1) == LEAST_FRAME
    (True, True, True)
    """
    if volume is None:
        return FRAME
    return max(LEAST_FRAME, min(FRAME, volume // _FRAMES // LEAST_FRAME * LEAST_FRAME))


def gzip_member(pieces: Sequence[bytes | memoryview]) -> bytes:
    """Make a gzip member of these bytes that states its own size."""
    deflate = isal_zlib.compressobj(_GZIP_LEVEL, isal_zlib.DEFLATED, -15)
    crc = size = 0
    out = []
    for piece in pieces:
        crc = isal_zlib.crc32(piece, crc)
        size += len(piece)
        out.append(deflate.compress(piece))
    out.append(deflate.flush())
    body = b"".join(out)
    head = _GZIP + struct.pack("<H2sHI", 8, _SUBFIELD, 4, _HEAD + len(body) + _TAIL)
    return head + body + struct.pack("<II", crc, size & 0xFFFFFFFF)


def zstd_frame(pieces: Sequence[bytes | memoryview]) -> bytes:
    """Make a Zstandard frame of these bytes, with the size of its content and a checksum."""
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True, write_content_size=True)
    return compressor.compress(b"".join(pieces))


#: Frame compressors by archive format; uncompressed formats have none.
COMPRESSIONS: dict[str, Compress] = {"tar.gz": gzip_member, "tar.zst": zstd_frame}
