"""The bytes of zip archives, the same for the same members; with UTF-8 names, Unix modes, links, and zip64 if needed.

Source: PKWARE's APPNOTE 6.3.10. The time of a member is stored in UTC in DOS format and, where it fits, in Info-ZIP's
field ``UT``, in seconds.
"""

from __future__ import annotations

import stat
import struct
import time
from typing import NamedTuple

from isal import isal_zlib

from nbdata.formats.tar_writing import FOLDER, LINK, Member

__all__ = [
    "DEFLATED",
    "STORED",
    "ZipEntry",
    "central_header",
    "deflated",
    "descriptor",
    "end_of_zip",
    "local_header",
]

STORED, DEFLATED = 0, 8
# isal has levels 0 to 3.
_LEVEL = 2
_FULL = 0xFFFFFFFF
# The range of DOS times.
_EARLIEST, _LATEST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)
_DESCRIBED, _UTF8 = 1 << 3, 1 << 11
_UNIX = 3 << 8
_KINDS = {FOLDER: stat.S_IFDIR, LINK: stat.S_IFLNK}
_DOS_FOLDER = 0x10


class ZipEntry(NamedTuple):
    """One member with the values of its headers.

    Attributes
    ----------
    member : Member
    method : int
        `STORED` or `DEFLATED`.
    crc : int
    packed, size : int
        Bytes in the archive, and bytes of the content; the content of a link is its target.
    offset : int
        Offset of its local header.
    streamed : bool
        Whether CRC and sizes follow the content, because they are not known before.
    """

    member: Member
    method: int
    crc: int = 0
    packed: int = 0
    size: int = 0
    offset: int = 0
    streamed: bool = False

    @property
    def name(self) -> bytes:
        """The name as stored in the headers."""
        return (self.member.name + ("/" if self.member.kind == FOLDER else "")).encode(
            "utf-8", "surrogateescape"
        )

    @property
    def large(self) -> bool:
        """True if its sizes may need 8 bytes; decided before compression, which may lengthen it a little."""
        return self.size + self.size // 500 + 1024 >= _FULL

    @property
    def _flags(self) -> int:
        return (0 if self.member.name.isascii() else _UTF8) | (_DESCRIBED if self.streamed else 0)

    @property
    def _needs(self) -> int:
        return 45 if self.large or self.offset >= _FULL else 20

    def common(self, *, local: bool) -> bytes:
        """Return the fields that both headers share, up to the sizes."""
        crc, packed, size = (0, 0, 0) if local and self.streamed else (self.crc, self.packed, self.size)
        if self.large:
            packed = size = _FULL
        day, hour = _dos_time(self.member.mtime)
        return struct.pack("<HHHHHIII", self._needs, self._flags, self.method, hour, day, crc, packed, size)

    @property
    def time_field(self) -> bytes:
        """The extra field with the time in seconds, if it fits."""
        mtime = self.member.mtime
        return struct.pack("<2sHBi", b"UT", 5, 1, mtime) if -(2**31) <= mtime < 2**31 else b""


def _dos_time(mtime: int) -> tuple[int, int]:
    try:
        parts = tuple(time.gmtime(mtime)[:6])
    except (OverflowError, ValueError, OSError):
        parts = _EARLIEST if mtime < 0 else _LATEST
    year, month, day, hour, minute, second = min(max(parts, _EARLIEST), _LATEST)
    return (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2


def local_header(entry: ZipEntry) -> bytes:
    """Make the header before the content of a member."""
    sizes = (0, 0) if entry.streamed else (entry.size, entry.packed)
    extra = (struct.pack("<HHQQ", 1, 16, *sizes) if entry.large else b"") + entry.time_field
    head = entry.common(local=True) + struct.pack("<HH", len(entry.name), len(extra))
    return b"PK\3\4" + head + entry.name + extra


def descriptor(entry: ZipEntry) -> bytes:
    """Make the descriptor after the content of a streamed member."""
    return b"PK\7\10" + struct.pack("<IQQ" if entry.large else "<III", entry.crc, entry.packed, entry.size)


def central_header(entry: ZipEntry) -> bytes:
    """Make a member's entry in the central directory."""
    far = entry.offset >= _FULL
    wide = (struct.pack("<QQ", entry.size, entry.packed) if entry.large else b"") + (
        struct.pack("<Q", entry.offset) if far else b""
    )
    extra = (struct.pack("<HH", 1, len(wide)) + wide if wide else b"") + entry.time_field
    member = entry.member
    mode = _KINDS.get(member.kind, stat.S_IFREG) | member.mode
    attributes = mode << 16 | (_DOS_FOLDER if member.kind == FOLDER else 0)
    behind = struct.pack(
        "<HHHHHII", len(entry.name), len(extra), 0, 0, 0, attributes, _FULL if far else entry.offset
    )
    made_by = struct.pack("<H", _UNIX | 45)
    return b"PK\1\2" + made_by + entry.common(local=False) + behind + entry.name + extra


def end_of_zip(count: int, start: int, size: int) -> bytes:
    """Make the end of an archive with that many members, whose directory starts at `start` and has `size` bytes."""
    wide = b""
    if count >= 0xFFFF or start >= _FULL or size >= _FULL:
        wide = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, _UNIX | 45, 45, 0, 0, count, count, size, start)
        wide += struct.pack("<4sIQI", b"PK\6\7", 0, start + size, 1)
    few = min(count, 0xFFFF)
    return wide + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, few, few, min(size, _FULL), min(start, _FULL), 0)


def deflated(piece: bytes | memoryview, *, last: bool = True) -> bytes:
    """Deflate a piece by itself; concatenated pieces form one deflated content."""
    deflate = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, -15)
    head = deflate.compress(piece)
    return head + deflate.flush(isal_zlib.Z_FINISH if last else isal_zlib.Z_FULL_FLUSH)
