"""Reads the directory of a zip archive: the members and the offsets of their data.

The directory is at the end of the archive, so a member can be read without the others. Source of the format: PKWARE's
APPNOTE.TXT 6.3.10, sections 4.3 to 4.5; extra fields 0x5455 (times) and 0x7075 (names) as Info-ZIP writes them.

Memory holds the directory as it is stored, about 80 bytes and the name for each member, plus 16 bytes for each.
"""

from __future__ import annotations

import calendar
import stat
import struct
import time
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nbdata.archives.zip_names import SAMPLE, guessed_encoding
from nbdata.errors import BadArchive, BadOption

__all__ = ["LOCAL", "Entry", "RangeSource", "ZipDirectory"]

#: The first bytes of a member, and so of most archives.
LOCAL = b"PK\3\4"
_END, _LOCATOR, _END64, _ENTRY = (b"PK\5\6", b"PK\6\7", b"PK\6\6", b"PK\1\2")
# Extra fields that are read: ZIP64, NTFS times, times, and the path in Unicode (APPNOTE 4.5, Info-ZIP's extrafld.txt).
_KNOWN_EXTRA = (0x0001, 0x000A, 0x5455, 0x7075)
_END_SIZE, _LOCATOR_SIZE, _END64_SIZE, _ENTRY_SIZE = 22, 20, 56, 46
_COMMENT = 0xFFFF
# Bytes at the end that are read first; they also contain the directory of up to a few thousand members.
_TAIL = 256 << 10
# Largest directory in bytes: about five million members.
_MOST = 512 << 20
_ENCRYPTED, _UTF8 = 1, 1 << 11
_UNIX = 3
# Seconds from 1601, the epoch of NTFS times, to 1970.
_NTFS = 11_644_473_600


class RangeSource(Protocol):
    """The volumes of an archive, with known sizes and random access."""

    @property
    def starts(self) -> Sequence[int]:
        """Offset of each volume."""

    @property
    def size(self) -> int:
        """Total size in bytes."""

    def range(self, start: int, end: int) -> bytes:
        """Read the bytes between two offsets."""


@dataclass(slots=True)
class Entry:
    """A directory entry: one member.

    Attributes
    ----------
    name : str
        With slashes. If a Unix program wrote it, bytes that are not UTF-8 become surrogates.
    kind : str
        ``file``, ``folder``, ``symlink``, or another Unix type: ``device`` or ``fifo``.
    method : int
        Compression method.
    packed, size : int
        Size in the archive and size of the content, in bytes.
    crc : int
    mode : int
    mtime_ns : int
    offset : int
        Offset of its local header, counted over all volumes.
    encrypted : bool
    """

    name: str
    kind: str
    method: int
    packed: int
    size: int
    crc: int
    mode: int
    mtime_ns: int
    offset: int
    encrypted: bool


class ZipDirectory:
    """Reads the directory.

    Parameters
    ----------
    source : RangeSource
    name : str
        Name of the archive in messages.
    names_encoding : str, optional
        Encoding of the names that are not marked as UTF-8. None guesses it.

    Attributes
    ----------
    start : int
        Offset of the directory; all members come before it.
    guessed : str
        The encoding that was guessed; empty if no name needed one.
    guesses, unreadable : int
        The number of names that were decoded so, and of those by a Unix program that are not UTF-8.

    Raises
    ------
    BadArchive
        If there is no directory, or its parts contradict each other.
    """

    def __init__(self, source: RangeSource, name: str, names_encoding: str | None = None) -> None:
        self._source, self._name, self._names_encoding = source, name, names_encoding
        self.guessed, self.guesses, self.unreadable = "", 0, 0
        tail_start = max(0, source.size - _TAIL)
        self._tail, self._tail_start = source.range(tail_start, source.size), tail_start
        at = self._find_end()
        count, size, offset, disk, disks = self._end(at)
        self._starts = source.starts if disks > 1 else [0]
        self._shift = 0
        if disks > 1:
            self.start = self._starts[disk] + offset
        else:
            # Data before the archive, such as a self-extractor, is missing in the offsets that some programs write.
            self.start = at - self._behind(at) - size
            self._shift = self.start - offset
            if self._shift > 0 and source.range(0, len(LOCAL)) == LOCAL:
                raise BadArchive(
                    "another zip archive comes before this one, and only the last one's members would be read",
                    path=name, expected="the parts of one archive",
                    remedy="They are whole archives: name each of them NAME.zip, and unpack one after the other",
                )  # fmt: skip
        if size > _MOST or not 0 <= self.start <= self.start + size <= source.size:
            raise self.bad("a directory of impossible size")
        self._data = self._bytes(self.start, self.start + size)
        self._index(count)

    def bad(self, what: str) -> BadArchive:
        """Return the error for a damaged archive."""
        return BadArchive(
            f"the zip archive has {what}", path=self._name,
            remedy="It is damaged, or not whole: compare digests, and fetch it again",
        )  # fmt: skip

    def _bytes(self, start: int, end: int) -> bytes:
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : end - self._tail_start]
        return self._source.range(start, end)

    def _find_end(self) -> int:
        """Find the offset of the end record; zeros may follow it, as libarchive pads what it writes into a pipe."""
        tail = self._tail
        written = len(tail.rstrip(b"\0"))
        least = max(0, written - _END_SIZE - _COMMENT)
        at, padded = len(tail), -1
        while (at := tail.rfind(_END, least, at)) >= 0:
            if len(tail) - at >= _END_SIZE:
                (comment,) = struct.unpack_from("<H", tail, at + 20)
                end = at + _END_SIZE + comment
                if end == len(tail):
                    return self._tail_start + at
                if written <= end < len(tail) and padded < 0:
                    padded = at
        if padded >= 0:
            return self._tail_start + padded
        raise BadArchive(
            "the zip archive has no directory at its end", path=self._name,
            remedy="Its end is missing: check that the last volume is there, and fetch it again",
        )  # fmt: skip

    def _end(self, at: int) -> tuple[int, int, int, int, int]:
        """Return the number of members, the directory's size, offset and volume, and the number of volumes."""
        record = self._bytes(at, at + _END_SIZE)
        _, disk, start_disk, _, count, size, offset, _ = struct.unpack("<4sHHHHIIH", record)
        disks = disk + 1
        self._end64_at: int | None = None
        locator = self._bytes(at - _LOCATOR_SIZE, at) if at >= _LOCATOR_SIZE else b""
        needed = 0xFFFF in (disk, start_disk, count) or 0xFFFFFFFF in (size, offset)
        if locator[:4] == _LOCATOR:  # libarchive writes one on request also where the short record is enough
            _, where, place, disks64 = struct.unpack("<4sIQI", locator)
            starts = self._source.starts
            guesses = [at - _LOCATOR_SIZE - _END64_SIZE]
            if where < len(starts):
                guesses.insert(0, starts[where] + place)
            for guess in guesses:
                found = self._bytes(guess, guess + _END64_SIZE) if 0 <= guess <= at - _END64_SIZE else b""
                if found[:4] == _END64:
                    fields = struct.unpack("<4sQHHIIQQQQ", found)
                    start_disk, count, size, offset = fields[5], fields[7], fields[8], fields[9]
                    self._end64_at, disks = guess, max(1, disks64)
                    break
            else:
                if needed:
                    raise self.bad("no directory of its 64-bit form where its end says")
        if disks > 1 and disks != len(self._source.starts):
            raise BadArchive(
                "the zip archive has another number of volumes", path=self._name,
                expected=f"{disks:,}", got=f"{len(self._source.starts):,}",
                remedy="Put all of .z01 … and .zip into one folder",
            )  # fmt: skip
        if start_disk >= disks:
            raise self.bad("a directory that begins in no volume")
        return count, size, offset, start_disk, disks

    def _behind(self, at: int) -> int:
        """Count the bytes between the directory and the end record."""
        return 0 if self._end64_at is None else at - self._end64_at

    def _index(self, count: int) -> None:
        """Find the position of each entry and sort the entries by offset."""
        data, at = self._data, 0
        positions, offsets = array("Q"), array("Q")
        doubtful, sampled = list[bytes](), 0
        while at + _ENTRY_SIZE <= len(data) and data[at : at + 4] == _ENTRY:
            name, extra, comment = struct.unpack_from("<HHH", data, at + 28)
            positions.append(at)
            offsets.append(self._offset(at))
            stored = data[at + _ENTRY_SIZE : at + _ENTRY_SIZE + name]
            if not stored.isascii() and self._names_encoding is None and self._is_doubtful(at, stored):
                self.guesses += 1
                if sampled < SAMPLE:
                    doubtful.append(stored)
                    sampled += len(stored)
            at += _ENTRY_SIZE + name + extra + comment
        if at != len(data) or len(positions) & 0xFFFF != count & 0xFFFF:
            raise self.bad("a damaged directory")
        if doubtful:
            self.guessed = guessed_encoding(doubtful)
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        self._positions = array("Q", (positions[number] for number in order))
        self._offsets = array("Q", (offsets[number] for number in order))
        if len(self._offsets) and self._offsets[-1] >= self.start:
            raise self.bad("a member behind its directory")

    def _offset(self, at: int) -> int:
        disk, offset = self._place(at, self._extra(at))
        if len(self._starts) > 1:
            if disk >= len(self._starts):
                raise self.bad("a member in no volume")
            return self._starts[disk] + offset
        found = offset + self._shift
        if found < 0:
            raise self.bad("a member before its beginning")
        return found

    def _place(self, at: int, extra: dict[int, bytes]) -> tuple[int, int]:
        """Return the volume of a member and the offset within it."""
        packed, size = struct.unpack_from("<II", self._data, at + 20)
        (disk,) = struct.unpack_from("<H", self._data, at + 34)
        (offset,) = struct.unpack_from("<I", self._data, at + 42)
        if offset == 0xFFFFFFFF or disk == 0xFFFF:
            wide = extra.get(1, b"")
            skipped = 8 * ((size == 0xFFFFFFFF) + (packed == 0xFFFFFFFF))
            if offset == 0xFFFFFFFF:
                offset = self._wide(wide, skipped)
                skipped += 8
            if disk == 0xFFFF and len(wide) >= skipped + 4:
                (disk,) = struct.unpack_from("<I", wide, skipped)
        return disk, offset

    def _wide(self, wide: bytes, at: int) -> int:
        if len(wide) < at + 8:
            raise self.bad("a member without its 64-bit size")
        return int(struct.unpack_from("<Q", wide, at)[0])

    def _extra(self, at: int) -> dict[int, bytes]:
        """Parse the extra fields of an entry, by kind; truncated ones are ignored, as in other programs."""
        name, length = struct.unpack_from("<HH", self._data, at + 28)
        begin = at + _ENTRY_SIZE + name
        end = min(begin + length, len(self._data))
        found: dict[int, bytes] = {}
        while begin + 4 <= end:
            kind, size = struct.unpack_from("<HH", self._data, begin)
            if kind in _KNOWN_EXTRA:
                found.setdefault(kind, bytes(self._data[begin + 4 : min(begin + 4 + size, end)]))
            begin += 4 + size
        return found

    def __len__(self) -> int:
        return len(self._positions)

    def offset(self, number: int) -> int:
        """Return the offset of a member, given its number in the order of offsets."""
        return self._offsets[number]

    def end(self, number: int) -> int:
        """Return the offset of the next member or the directory; the member ends there or earlier."""
        return self._offsets[number + 1] if number + 1 < len(self._offsets) else self.start

    def volume_at(self, offset: int) -> int:
        """Return the number of the volume that contains a byte."""
        return bisect_right(self._source.starts, offset) - 1

    def name(self, number: int) -> str:
        """Return the name of a member."""
        return self._named(self._positions[number])

    def __iter__(self) -> Iterator[Entry]:
        return map(self.entry, range(len(self)))

    def entry(self, number: int) -> Entry:
        """Return the full entry of a member."""
        at, data = self._positions[number], self._data
        made_by, flags, method, clock, date, crc, packed, size = struct.unpack_from(
            "<HxxHHHHIII", data, at + 4
        )
        (attributes,) = struct.unpack_from("<I", data, at + 38)
        extra = self._extra(at)
        if size == 0xFFFFFFFF or packed == 0xFFFFFFFF:
            wide, skipped = extra.get(1, b""), 0
            if size == 0xFFFFFFFF:
                size, skipped = self._wide(wide, 0), 8
            if packed == 0xFFFFFFFF:
                packed = self._wide(wide, skipped)
        name = self._named(at)
        mode = attributes >> 16 if made_by >> 8 == _UNIX else 0
        return Entry(
            name, _kind(name, mode, attributes), method, packed, size, crc, stat.S_IMODE(mode) or 0o644,
            _time(clock, date, extra), self._offsets[number], bool(flags & _ENCRYPTED),
        )  # fmt: skip

    def _is_doubtful(self, at: int, stored: bytes) -> bool:
        """Whether the encoding of a name must be guessed. Names by Unix programs that are not UTF-8 are counted."""
        made_by, flags = struct.unpack_from("<HxxH", self._data, at + 4)
        if flags & _UTF8 or self._unicode_path(at, stored) is not None:
            return False
        if made_by >> 8 != _UNIX:
            return True
        self.unreadable += "\udc80" <= max(stored.decode("utf-8", "surrogateescape")) <= "\udcff"
        return False

    def _unicode_path(self, at: int, stored: bytes) -> str | None:
        """Return the name that Info-ZIP's field of the Unicode path has, if it is that of this name (APPNOTE 4.6.9)."""
        told = self._extra(at).get(0x7075, b"")
        if len(told) <= 5 or told[0] != 1 or struct.unpack_from("<I", told, 1)[0] != zlib.crc32(stored):
            return None
        return told[5:].decode("utf-8", "surrogateescape")

    def _named(self, at: int) -> str:
        made_by, flags = struct.unpack_from("<HxxH", self._data, at + 4)
        (length,) = struct.unpack_from("<H", self._data, at + 28)
        stored = self._data[at + _ENTRY_SIZE : at + _ENTRY_SIZE + length]
        if flags & _UTF8:
            return stored.decode("utf-8", "surrogateescape")
        if (told := self._unicode_path(at, stored)) is not None:
            return told
        of_unix = made_by >> 8 == _UNIX
        if stored.isascii():
            name = stored.decode("ascii")
        elif self._names_encoding is not None:
            name = self._in_given_encoding(stored)
        elif of_unix:
            name = stored.decode("utf-8", "surrogateescape")
        else:
            try:
                name = stored.decode(self.guessed)
            except UnicodeDecodeError:  # not among those of which it was guessed
                name = stored.decode("cp437")
        # After it is decoded: in Shift-JIS, half of a character may look like a backslash.
        return (
            name if of_unix or "/" in name else name.replace("\\", "/")
        )  # as some Windows programs write it

    def _in_given_encoding(self, stored: bytes) -> str:
        assert self._names_encoding is not None
        try:
            return stored.decode(self._names_encoding)
        except UnicodeDecodeError:
            raise BadOption(
                f"--names-encoding: a name in the zip archive is not in {self._names_encoding}",
                path=self._name, got=repr(stored[:80]),
                remedy="Give the encoding of the computer that made it, or leave it out: it is guessed then",
            ) from None  # fmt: skip


def _kind(name: str, mode: int, attributes: int) -> str:
    format_ = stat.S_IFMT(mode)
    if format_ == stat.S_IFLNK:
        return "symlink"
    if name.endswith("/") or format_ == stat.S_IFDIR or (not mode and attributes & 0x10):
        return "folder"
    if format_ in (stat.S_IFCHR, stat.S_IFBLK):
        return "device"
    return "fifo" if format_ in (stat.S_IFIFO, stat.S_IFSOCK) else "file"


def _time(clock: int, date: int, extra: dict[int, bytes]) -> int:
    """Return nanoseconds since 1970 from the extra fields; without them from the local time, as unzip does."""
    told = extra.get(0x5455, b"")
    if len(told) >= 5 and told[0] & 1:
        return int(struct.unpack_from("<i", told, 1)[0]) * 10**9
    told = extra.get(0x000A, b"")
    if len(told) >= 16 and told[4:8] == b"\1\0\x18\0":
        return int(struct.unpack_from("<Q", told, 8)[0]) * 100 - _NTFS * 10**9
    parts = (
        1980 + (date >> 9),
        max(1, date >> 5 & 15),
        max(1, date & 31),
        clock >> 11,
        clock >> 5 & 63,
        2 * (clock & 31),
    )
    try:
        return int(time.mktime((*parts, 0, 0, -1))) * 10**9
    except (OverflowError, ValueError):
        return calendar.timegm((1980, 1, 1, 0, 0, 0)) * 10**9
