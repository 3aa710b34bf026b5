"""Decoders for each compression: the first bytes, how to create a decoder, and its errors.

All decoders have the interface of `bz2.BZ2Decompressor`: bounded output for each call, ``eof``, ``needs_input`` and
``unused_data``. One decoder decodes one member, stream or frame; a bzip2 decoder decodes one block.

gzip is decoded by ISA-L, which is clearly faster than zlib and verifies the checksums. ISA-L's own header parser is
not used, because it fails on headers that are split over two inputs.

The memory of a decoder is bounded by the window that it is given (`nbdata.archives.windows`), and a few MiB: for each
call, its output is at most a few MiB more than asked for.

Sources of the formats: RFC 1952 (gzip), RFC 8878 (Zstandard), xz-file-format.txt 1.2, lz4_Frame_format.md 1.6.
"""

from __future__ import annotations

import bz2
import lzma
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import zstandard
from isal import igzip_lib

from nbdata.archives.bzip2 import Bzip2Block, Bzip2Splitter
from nbdata.archives.units import LARGEST, Split, split_gzip, split_zstd
from nbdata.archives.windows import WindowTooLarge, xz_dictionary, zstd_window
from nbdata.errors import BadOption

__all__ = ["CODECS", "Codec", "Decoder"]

# Memory of an xz decoder beyond its dictionary.
_XZ_MORE = 1 << 20
# Bytes of an xz stream that tell its dictionary: the stream header and the header of the first block.
_XZ_HEADERS = 12 + 1024
_MAX_GZIP_HEADER = 256 << 10


class Decoder(Protocol):
    """Decodes one member, stream or frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


@dataclass(frozen=True)
class Codec:
    """A compression and its name in messages."""

    title: str
    begins: Callable[[bytes | bytearray], bool]
    decoder: Callable[[int], Decoder]  # given the largest window; raises `WindowTooLarge` from `decompress`
    errors: tuple[type[Exception], ...]
    within: Callable[[str], Decoder] | None = None  # creates a decoder to resume at a restart point
    may_trail: bool = False  # whether its own program only warns about other data after the end
    splitter: Callable[[], Split] | None = None  # finds units that can be decoded in parallel …
    unit: Callable[[], Decoder] | None = (
        None  # … by this decoder instead of the usual one; it is given a whole unit at once
    )


class _GzipMember:
    """Decodes one gzip member: parses the header here; ISA-L decodes the rest and verifies CRC-32 and length."""

    def __init__(self) -> None:
        self._inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP_NO_HDR_VER)
        self._header: bytes | None = b""

    @property
    def eof(self) -> bool:
        return bool(self._inflate.eof)

    @property
    def needs_input(self) -> bool:
        return self._header is not None or bool(self._inflate.needs_input)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inflate.unused_data)

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        if self._header is not None:
            data = self._header + data
            length = _gzip_header_length(data)
            if length is None:
                self._header = data
                return b""
            self._header, data = None, data[length:]
            if not data:
                return b""
        return bytes(self._inflate.decompress(data, max_length))


def _gzip_header_length(data: bytes) -> int | None:
    """Length of the gzip header at the start of `data`; None if it is incomplete. Source: RFC 1952, 2.3."""
    if len(data) < 10:
        return None
    method, flags = data[2], data[3]
    if method != 8 or flags & 0xE0:
        raise ValueError("unknown gzip method or flags")
    position = 10
    if flags & 4:  # FEXTRA
        if len(data) < position + 2:
            return None
        position += 2 + struct.unpack_from("<H", data, position)[0]
    for flag in (8, 16):  # FNAME, FCOMMENT
        if flags & flag:
            position = data.find(b"\0", position) + 1
            if not position:
                if len(data) > _MAX_GZIP_HEADER:
                    raise ValueError("endless gzip header")
                return None
    if flags & 2:  # FHCRC
        position += 2
    return position if position <= len(data) else None


# Blocks of a Zstandard frame that are decompressed with one call: at most 1 MiB of content (RFC 8878, 3.1.1.2).
_BLOCKS, _RLE = 8, 1


class _ZstdBlocks:
    """Follows the headers of a frame's blocks, without decompressing them; see RFC 8878, 3.1.1.

    Nothing here is checked: the library refuses a frame that is not valid.

    Attributes
    ----------
    start : bytes
        The frame header, as far as it was seen.
    """

    def __init__(self) -> None:
        self.start = b""
        self._header, self._wanted = b"", 6  # of the frame or of a block, and its length as far as known
        self._in_frame_header = True
        self._left = 0  # bytes up to the next header
        self._last = False
        self._checksum = 0

    def reach(self, data: memoryview) -> int:
        """Return the length of the next input, which ends with at most `_BLOCKS` blocks or with the frame."""
        at = blocks = 0
        size = len(data)
        while at < size and blocks < _BLOCKS:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                blocks += not self._left
            elif self._last:
                break
            else:
                step = min(self._wanted - len(self._header), size - at)
                self._header += bytes(data[at : at + step])
                if len(self._header) == self._wanted:
                    self._parse()
            at += step
        return at or size  # what follows the frame is not decompressed

    def _parse(self) -> None:
        header = self._header
        if not self._in_frame_header:
            number = int.from_bytes(header, "little")
            self._last, kind, size = bool(number & 1), number >> 1 & 3, number >> 3
            self._left = (1 if kind == _RLE else size) + (self._checksum if self._last else 0)
            self._header = b""
            return
        if header[1:4] == b"\x2a\x4d\x18":  # a skippable frame: its size
            self._wanted = 8
            if len(header) == 8:
                self._left, self._last, self._in_frame_header = (
                    int.from_bytes(header[4:], "little"),
                    True,
                    False,
                )
            return
        descriptor = header[4]
        single, self._checksum = descriptor >> 5 & 1, descriptor & 4
        self._wanted = 6 - single + (0, 1, 2, 4)[descriptor & 3] + (single, 2, 4, 8)[descriptor >> 6]
        if len(header) == self._wanted:
            self.start, self._header, self._wanted, self._in_frame_header = header, b"", 3, False


class _ZstdFrame:
    """Decodes one Zstandard frame with bounded output for each call.

    The library does not bound its output, and four bytes of input may give a block of 128 KiB (RFC 8878, 3.1.1.2). So
    it is given a few blocks at a time.
    """

    def __init__(self, max_window: int) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=max_window).decompressobj()
        self._max_window = max_window
        self._blocks = _ZstdBlocks()
        self._input = memoryview(b"")

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return not self._input

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data + bytes(self._input)

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        if data:
            self._input = memoryview(data)
        made = []
        length = 0
        while self._input and length < max_length and not self.eof:
            end = self._blocks.reach(self._input)
            piece, self._input = self._input[:end], self._input[end:]
            try:
                block = self._frame.decompress(piece)
            except zstandard.ZstdError as error:
                window = zstd_window(self._blocks.start)
                if window is not None and window > self._max_window:
                    raise WindowTooLarge(window, self._max_window) from error
                raise
            made.append(block)
            length += len(block)
        return b"".join(made)


class _ZstdUnit:
    """Decodes one Zstandard frame that is given whole, as found by `nbdata.archives.units`.

    `_ZstdFrame` releases and reacquires the GIL for each 8 KiB of input. This class does so for each block of output.
    """

    unused_data = b""

    def __init__(self) -> None:
        self._reader: zstandard.ZstdDecompressionReader | None = None
        self.eof = False

    @property
    def needs_input(self) -> bool:
        return self._reader is None

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        if self._reader is None:
            frame = zstandard.ZstdDecompressor(max_window_size=LARGEST)
            self._reader = frame.stream_reader(data, read_across_frames=False)
        block = self._reader.read(max_length)
        self.eof = not block
        return block


class _XzStream:
    """Decodes one xz stream."""

    def __init__(self, max_window: int) -> None:
        self._max_window = max_window
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=max_window + _XZ_MORE)
        self._start = b""

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return self._stream.needs_input

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        if len(self._start) < _XZ_HEADERS:
            self._start += data[: _XZ_HEADERS - len(self._start)]
        try:
            return self._stream.decompress(data, max_length)
        except lzma.LZMAError as error:
            if "memory usage limit" not in str(error).lower():
                raise
            needed = xz_dictionary(self._start)
            larger = needed is not None and needed > self._max_window
            raise WindowTooLarge(needed if larger else None, self._max_window) from error


class _Lz4Frame:
    """Decodes one LZ4 frame; imports the library, an optional extra, on first use."""

    def __init__(self) -> None:
        try:
            from lz4.frame import LZ4FrameDecompressor
        except ImportError:
            raise BadOption("LZ4 data needs the package lz4", remedy="pip install lz4") from None
        self._frame = LZ4FrameDecompressor()

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return bool(self._frame.needs_input)

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data or b""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return bytes(self._frame.decompress(data, max_length))


def _is_bzip2(head: bytes | bytearray) -> bool:
    return head[:3] == b"BZh" and head[3:4] in b"123456789"


def _is_zstd(head: bytes | bytearray) -> bool:
    return head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5)


# isal's type stubs declare its error class as an instance
_GZIP_ERRORS: tuple[type[Exception], ...] = (igzip_lib.IsalError, ValueError)  # type: ignore[assignment]

CODECS = {
    "gz": Codec(
        "gzip",
        lambda head: head[:3] == b"\x1f\x8b\x08",
        lambda _: _GzipMember(),
        _GZIP_ERRORS,
        may_trail=True,
        splitter=lambda: split_gzip,
    ),
    "bz2": Codec(
        "bzip2",
        _is_bzip2,
        lambda _: Bzip2Block(),
        (OSError, ValueError),
        within=Bzip2Block,
        may_trail=True,
        splitter=Bzip2Splitter,
        unit=bz2.BZ2Decompressor,
    ),
    "xz": Codec(
        "xz",
        lambda head: head[:6] == b"\xfd7zXZ\0",
        _XzStream,
        (lzma.LZMAError,),
    ),
    "zst": Codec(
        "Zstandard",
        _is_zstd,
        _ZstdFrame,
        (zstandard.ZstdError,),
        splitter=lambda: split_zstd,
        unit=_ZstdUnit,
    ),
    "lz4": Codec("LZ4", lambda head: head[:4] == b"\x04\x22\x4d\x18", lambda _: _Lz4Frame(), (RuntimeError,)),
}
