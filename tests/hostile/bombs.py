"""Makes data that asks its reader for far more memory than it has bytes."""

from __future__ import annotations

import struct
import tarfile
import zlib
from collections.abc import Iterable

__all__ = [
    "npy",
    "npz",
    "png",
    "tar_with",
    "tar_with_hole",
    "tar_with_name",
    "webp",
    "xz_with_dictionary",
    "zip_of_lzma",
    "zip_of_zstd",
    "zstd_frame",
    "zstd_of_zeros",
]

_BLOCK = 128 << 10


def zstd_frame(window_log: int, blocks: Iterable[bytes]) -> bytes:
    """Return a Zstandard frame with a window and these blocks; see RFC 8878, 3.1.1."""
    return b"\x28\xb5\x2f\xfd" + bytes([0, (window_log - 10) << 3]) + b"".join(blocks)


def zstd_of_zeros(window_log: int, size: int, before: bytes = b"") -> bytes:
    """Return a frame of `before` and then that many zeros, four bytes for 128 KiB."""
    blocks = []
    for at in range(0, len(before), _BLOCK):
        piece = before[at : at + _BLOCK]
        blocks.append((len(piece) << 3).to_bytes(3, "little") + piece)
    full, rest = divmod(size, _BLOCK)
    blocks += [(_BLOCK << 3 | 2).to_bytes(3, "little") + b"\0"] * full
    blocks.append((rest << 3 | 3).to_bytes(3, "little") + b"\0")
    return zstd_frame(window_log, blocks)


def xz_with_dictionary(size: int) -> bytes:
    """Return an xz stream whose first block asks for a dictionary of 2^n or 3 · 2^n bytes, and has no content."""
    bits = next(n for n in range(41) if (2 | (n & 1)) << (n // 2 + 11) == size)
    flags = b"\0\4"
    header = bytes([2, 0, 0x21, 1, bits, 0, 0, 0])
    return (
        b"\xfd7zXZ\0" + flags + struct.pack("<I", zlib.crc32(flags))
        + header + struct.pack("<I", zlib.crc32(header)) + b"\0" * 64
    )  # fmt: skip


def tar_with(name: str, size: int) -> bytes:
    """Return the header of a tar member; its content follows."""
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf()


def tar_with_name(name: str) -> bytes:
    """Return an empty tar member with a long name, as GNU tar writes it."""
    return tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT)


def tar_with_hole(name: str, size: int) -> bytes:
    """Return a tar member that is a sparse file of zeros, of which nothing is stored."""
    info = tarfile.TarInfo(name)
    info.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(size)}
    return info.tobuf(tarfile.PAX_FORMAT)


def _zip(method: int, content: bytes, size: int, crc: int = 0, names: str = "a") -> bytes:
    """Return a zip archive with a member for each letter of `names`, all with this content."""
    body, directory = b"", b""
    for name in names.encode():
        fields = struct.pack("<HHHHIIIHH", 0, method, 0, 0, crc, len(content), size, 1, 0)
        directory += struct.pack("<4sHH", b"PK\1\2", 63, 63) + fields
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + bytes([name])
        body += struct.pack("<4sH", b"PK\3\4", 63) + fields + bytes([name]) + content
    count = len(names)
    return (
        body
        + directory
        + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), 0)
    )


def zip_of_zstd(window_log: int, size: int) -> bytes:
    """Return a zip archive with a member compressed by Zstandard with this window."""
    return _zip(93, zstd_of_zeros(window_log, size), size)


def zip_of_lzma(dictionary: int) -> bytes:
    """Return a zip archive with a member of LZMA that asks for this dictionary."""
    return _zip(14, b"\x09\x14\5\0" + struct.pack("<BI", 0x5D, dictionary) + bytes(32), 1000)


def npy(shape: str, kind: str = "<f8") -> bytes:
    """Return the header of an npy file."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header


def npz(size: int, names: str = "a") -> bytes:
    """Return an npz file of arrays of so many zeros, a multiple of 16 MiB."""
    head, zeros = npy(f"({size},)", "|u1"), bytes(16 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    times = size // len(zeros)
    # After a full flush nothing refers to what was before, so the same bytes can be repeated.
    packed += (packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)) * times + packer.flush()
    crc = zlib.crc32(head)
    for _ in range(times):
        crc = zlib.crc32(zeros, crc)
    return _zip(8, packed, len(head) + size, crc, names)


def webp(width: int, height: int) -> bytes:
    """Return a transparent WebP of one color, in 28 bytes: the codes of its pixels have no bits (RFC 9649, 3.7)."""
    codes = sum(1 << 4 * number for number in range(5))  # each with one symbol, which is 0
    bits = 0x2F | (width - 1) << 8 | (height - 1) << 22 | 1 << 36 | codes << 43
    return b"RIFF" + struct.pack("<I", 20) + b"WEBPVP8L" + struct.pack("<IQ", 8, bits)


def png(width: int, height: int) -> bytes:
    """Return a PNG of one color, row by row of zeros."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer, rows = zlib.compressobj(1), b""
    for _ in range(height):
        rows += packer.compress(bytes(1 + 3 * width))
    rows += packer.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
