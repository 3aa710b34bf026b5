"""Decoders for each compression: the first bytes, how to create a decoder, and its errors.

All decoders have the interface of `bz2.BZ2Decompressor`: bounded output for each call, ``eof``, ``needs_input`` and
``unused_data``. One decoder decodes one member, stream or frame; a bzip2 decoder decodes one block.

gzip is decoded by ISA-L, which is clearly faster than zlib and verifies the checksums. ISA-L's own header parser is
not used, because it fails on headers that are split over two inputs.

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
from nbdata.archives.units import Split, split_gzip, split_zstd
from nbdata.errors import BadOption

__all__ = ["CODECS", "Codec", "Decoder"]

_MAX_WINDOW = 1 << 31  # needed for zstd --long=31 and the largest xz presets
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
    decoder: Callable[[], Decoder]
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


class _ZstdFrame:
    """Decodes one Zstandard frame with bounded output for each call.

    The library does not bound its output. Four bytes of input may give a block of 128 KiB (RFC 8878, 3.1.1.2), so small
    slices of input limit the worst case to 256 MiB.
    """

    _SLICE = 8 << 10

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
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
        blocks = []
        length = 0
        while self._input and length < max_length and not self.eof:
            piece, self._input = self._input[: self._SLICE], self._input[self._SLICE :]
            block = self._frame.decompress(piece)
            blocks.append(block)
            length += len(block)
        return b"".join(blocks)


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
            frame = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
            self._reader = frame.stream_reader(data, read_across_frames=False)
        block = self._reader.read(max_length)
        self.eof = not block
        return block


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
        "gzip", lambda head: head[:3] == b"\x1f\x8b\x08", _GzipMember, _GZIP_ERRORS,
        may_trail=True, splitter=lambda: split_gzip,
    ),
    "bz2": Codec(
        "bzip2", _is_bzip2, Bzip2Block, (OSError, ValueError),
        within=Bzip2Block, may_trail=True, splitter=Bzip2Splitter, unit=bz2.BZ2Decompressor,
    ),
    "xz": Codec(
        "xz",
        lambda head: head[:6] == b"\xfd7zXZ\0",
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_WINDOW),
        (lzma.LZMAError,),
    ),
    "zst": Codec(
        "Zstandard", _is_zstd, _ZstdFrame, (zstandard.ZstdError,),
        splitter=lambda: split_zstd, unit=_ZstdUnit,
    ),
    "lz4": Codec("LZ4", lambda head: head[:4] == b"\x04\x22\x4d\x18", _Lz4Frame, (RuntimeError,)),
}  # fmt: skip
