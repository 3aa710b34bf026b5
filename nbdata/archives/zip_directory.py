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
from collections.abc import Iterator
from dataclasses import dataclass

from nbdata.archives.zip_end import END, ENTRY, LOCAL, SPLIT, RangeSource, ends_zip, find_directory
from nbdata.archives.zip_names import SAMPLE, guessed_encoding
from nbdata.errors import BadArchive, BadOption, MissingVolume

__all__ = ["LOCAL_SIZE", "Entry", "ZipDirectory", "read_directories"]

#: Length of the header before a member, without its name and extra fields.
LOCAL_SIZE = 30
# Extra fields that are read: ZIP64, NTFS times, times, and the path in Unicode (APPNOTE 4.5, Info-ZIP's extrafld.txt).
_KNOWN_EXTRA = (0x0001, 0x000A, 0x5455, 0x7075)
_ENTRY_SIZE = 46
# Lengths of what may follow a member whose header does not state its size: CRC and sizes in 32 or 64 bits, with or
# without a signature (APPNOTE 4.3.9).
_DESCRIPTORS = (0, 12, 16, 20, 24)
_DESCRIBED = 1 << 3
# The first bytes of programs and scripts: an archive may follow one, which unpacks it.
_PROGRAMS = (b"MZ", b"\x7fELF", b"#!", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
# Most archives that follow one another in a file.
_IN_SUCCESSION = 100
# The longest program before an archive, in bytes.
_PROGRAM = 64 << 20
# Bytes before the first member that may be the end of another archive.
_BEFORE = 22 + 0xFFFF
# The header of a member has extra fields of its own. Up to this length, in which no member with a name and content
# fits, the header is not read for it.
_SLACK = LOCAL_SIZE + 1
# Most bytes of the directories of archives that follow one another: about five million members.
_MOST = 512 << 20
_ENCRYPTED, _UTF8 = 1, 1 << 11
_UNIX = 3
# Seconds from 1601, the epoch of NTFS times, to 1970.
_NTFS = 11_644_473_600


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
    most : int
        The most bytes of the directory.

    Attributes
    ----------
    start : int
        Offset of the directory; all members come before it.
    guessed : str
        The encoding that was guessed; empty if no name needed one.
    guesses, unreadable : int
        The number of names that were decoded so, and of those by a Unix program that are not UTF-8.
    trailing, zeros : int
        Bytes behind the end of the archive, and how many of these are zeros at the very end.
    stop : int
        The end of the bytes behind it.
    unread : int
        Bytes outside the members that belong to no part of an archive; a program at the start is known.
    joined : bool
        Whether the volumes of a split archive were joined into one file.
    before : int
        Where this archive begins, if another zip archive comes before it; else 0.

    Raises
    ------
    BadArchive
        If there is no directory, or its parts contradict each other.
    MissingVolume
        If the archive was split into more volumes than are there.
    """

    def __init__(
        self, source: RangeSource, name: str, names_encoding: str | None = None, *, most: int = _MOST
    ) -> None:
        self._source, self._name, self._names_encoding = source, name, names_encoding
        self.guessed, self.guesses, self.unreadable = "", 0, 0
        self.before = 0
        place = find_directory(source, name)
        self.start, self.trailing, self.zeros, self.unread = (
            place.start,
            place.trailing,
            place.zeros,
            place.unread,
        )
        self._place = place
        if place.size > most:
            raise self.bad("a directory of impossible size")
        self._data = self._bytes(place.start, place.start + place.size)
        self.joined = place.disks > 1 and len(source.starts) == 1
        self.stop = source.size
        self._starts = {0: 0}  # where each volume begins in which a member begins
        self._shift = 0
        if self.joined:
            self._starts = self._joined_starts(place.disks)
        elif place.disks > 1:
            self._starts = dict(enumerate(source.starts))
        else:
            # Data before the archive, such as a self-extractor, is missing in the offsets that some programs write.
            self._shift = place.start - place.offset
        self._index()
        first = self._offsets[0] if len(self._offsets) else self.start
        if place.disks == 1:
            self._look_before(first)
        else:
            self.unread += max(0, first - len(SPLIT[0]))

    def bad(self, what: str) -> BadArchive:
        """Return the error for a damaged archive."""
        return BadArchive(
            f"the zip archive has {what}", path=self._name,
            remedy="It is damaged, or not whole: compare digests, and fetch it again",
        )  # fmt: skip

    def _bytes(self, start: int, end: int) -> bytes:
        known = self._place
        if start >= known.tail_start and end <= known.tail_start + len(known.tail):
            return known.tail[start - known.tail_start : end - known.tail_start]
        return self._source.range(start, end)

    def _look_before(self, first: int) -> None:
        """Tell what the bytes before the first member are: another archive, a program that unpacks it, or unknown."""
        if not first:
            return
        head = self._source.range(0, min(first, 4))
        before = self._source.range(max(0, first - _BEFORE), first).rstrip(b"\0") + bytes(22)
        if (self._shift > 0 and head == LOCAL) or ends_zip(before, zeros=True):
            self.before = first
        elif head.startswith(_PROGRAMS):
            self.unread += first - self._end_of_program(first)
        elif not (head in SPLIT and first == len(head)):
            self.unread += first

    def _end_of_program(self, first: int) -> int:
        """Return where the bytes before the first member stop to be a program: another archive may be among them."""
        if first > _PROGRAM:
            return 0
        found = (self._bytes(0, first).find(magic) for magic in (LOCAL, END))
        return min((at for at in found if at >= 0), default=first)

    def _joined_starts(self, disks: int) -> dict[int, int]:
        """Find where each volume of a split archive began in the file that they were joined into.

        Members follow one another without gaps, so the first one that begins in a volume follows the one before it.
        """
        firsts, lasts = dict[int, int](), dict[int, tuple[int, int]]()
        for at in self._entries():
            disk, offset = self._position(at, self._extra(at))
            firsts[disk] = min(offset, firsts.get(disk, offset))
            lasts[disk] = max((offset, at), lasts.get(disk, (offset, at)))
        starts, end = dict[int, int](), len(SPLIT[0])
        for disk in sorted(firsts):
            if disk >= disks:
                raise self.bad("a member in no volume")
            begins = next(
                (b for b in (end + more for more in _DESCRIPTORS) if self._bytes(b, b + 4) == LOCAL), None
            )
            if begins is None or begins < firsts[disk]:
                raise self.bad(f"no member where volume {disk + 1} begins")
            starts[disk] = begins - firsts[disk]
            offset, at = lasts[disk]
            end = self._data_end(starts[disk] + offset, self._sizes(at, self._extra(at))[0])
        return starts

    def _data_end(self, offset: int, packed: int) -> int:
        """Return where the data of a member ends; reads its header."""
        header = self._bytes(offset, min(offset + LOCAL_SIZE, self.start))
        if len(header) < LOCAL_SIZE or header[:4] != LOCAL:
            raise self.bad("a member that does not begin where its directory says")
        name, extra = struct.unpack_from("<HH", header, 26)
        return int(offset + LOCAL_SIZE + name + extra + packed)

    def uncovered(self, number: int, end: int | None = None) -> int:
        """Count the bytes between the data of a member and what follows it, which belong to no member.

        Parameters
        ----------
        number : int
            In the order of offsets.
        end : int, optional
            Where its data ends. None: its header is read if the directory leaves room for more than extra fields.
        """
        at, limit = self._positions[number], self.end(number)
        if end is None:
            (name,) = struct.unpack_from("<H", self._data, at + 28)
            packed = self._sizes(at, self._extra(at))[0]
            if limit - self._offsets[number] - LOCAL_SIZE - name - packed <= _SLACK:
                return 0
            end = self._data_end(self._offsets[number], packed)
        (flags,) = struct.unpack_from("<H", self._data, at + 8)
        gap = max(0, limit - end)
        return 0 if flags & _DESCRIBED and gap in _DESCRIPTORS else gap

    def _entries(self) -> Iterator[int]:
        """Yield the position of each entry in the directory; BadArchive if it is damaged."""
        data, at, count = self._data, 0, 0
        while at + _ENTRY_SIZE <= len(data) and data[at : at + 4] == ENTRY:
            yield at
            at, count = at + _ENTRY_SIZE + sum(struct.unpack_from("<HHH", data, at + 28)), count + 1
        if at != len(data) or count & 0xFFFF != self._place.count & 0xFFFF:
            raise self.bad("a damaged directory")

    def _index(self) -> None:
        """Find the position of each entry and sort the entries by offset."""
        data = self._data
        positions, offsets = array("Q"), array("Q")
        doubtful, sampled = list[bytes](), 0
        for at in self._entries():
            (name,) = struct.unpack_from("<H", data, at + 28)
            positions.append(at)
            offsets.append(self._offset(at))
            stored = data[at + _ENTRY_SIZE : at + _ENTRY_SIZE + name]
            if not stored.isascii() and self._names_encoding is None and self._is_doubtful(at, stored):
                self.guesses += 1
                if sampled < SAMPLE:
                    doubtful.append(stored)
                    sampled += len(stored)
        if doubtful:
            self.guessed = guessed_encoding(doubtful)
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        self._positions = array("Q", (positions[number] for number in order))
        self._offsets = array("Q", (offsets[number] for number in order))
        if len(self._offsets) and self._offsets[-1] >= self.start:
            raise self.bad("a member behind its directory")

    def _offset(self, at: int) -> int:
        disk, offset = self._position(at, self._extra(at))
        if self._place.disks > 1:
            if disk not in self._starts:
                raise self.bad("a member in no volume")
            return self._starts[disk] + offset
        found = offset + self._shift
        if found < 0:
            raise self.bad("a member before its beginning")
        return found

    def _position(self, at: int, extra: dict[int, bytes]) -> tuple[int, int]:
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

    def _sizes(self, at: int, extra: dict[int, bytes]) -> tuple[int, int]:
        """Return the size of a member in the archive and that of its content."""
        packed, size = struct.unpack_from("<II", self._data, at + 20)
        if size == 0xFFFFFFFF or packed == 0xFFFFFFFF:
            wide, skipped = extra.get(1, b""), 0
            if size == 0xFFFFFFFF:
                size, skipped = self._wide(wide, 0), 8
            if packed == 0xFFFFFFFF:
                packed = self._wide(wide, skipped)
        return packed, size

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

    @property
    def held(self) -> int:
        """The bytes of the directory, which memory holds."""
        return len(self._data)

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
        made_by, flags, method, clock, date, crc = struct.unpack_from("<HxxHHHHI", data, at + 4)
        (attributes,) = struct.unpack_from("<I", data, at + 38)
        extra = self._extra(at)
        packed, size = self._sizes(at, extra)
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


class _Before:
    """The part of a source before an offset; implements `RangeSource`."""

    def __init__(self, source: RangeSource, size: int) -> None:
        self.size, self.range = size, source.range
        self.starts = [start for start in source.starts if start < size]


def read_directories(source: RangeSource, name: str, names_encoding: str | None = None) -> list[ZipDirectory]:
    """Read the directory of an archive, and of those that come before it in the same file, in their order.

    The parameters are those of `ZipDirectory`.

    Raises
    ------
    BadArchive
        As for `ZipDirectory`; also if bytes before an archive begin as one, and are none.
    """
    found = [ZipDirectory(source, name, names_encoding, most=_MOST)]
    while found[0].before:
        if len(found) == _IN_SUCCESSION:
            raise found[0].bad(f"{_IN_SUCCESSION} others before it; at most that many are read")
        most = _MOST - sum(one.held for one in found)
        try:
            found.insert(0, ZipDirectory(_Before(source, found[0].before), name, names_encoding, most=most))
        except (BadArchive, MissingVolume) as error:
            raise BadArchive(
                "another zip archive comes before this one, and is damaged or not whole",
                path=name, expected="whole archives, one after the other", got=error.message,
                remedy="Get the file that it was joined from again, and unpack that",
            ) from error  # fmt: skip
    return found


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
