"""Finds the directory of a zip archive from its end record.

The record is at the end of the archive, and only a comment should follow. Zeros or other bytes behind it are counted:
some programs pad what they write, and downloads get appended to. Source of the format: PKWARE's APPNOTE.TXT 6.3.10,
sections 4.3.14 to 4.3.16.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nbdata.errors import BadArchive, MissingVolume

__all__ = ["END", "ENTRY", "LOCAL", "SPLIT", "DirectoryPlace", "RangeSource", "ends_zip", "find_directory"]

#: The first bytes of a member, and so of most archives; those of an entry of the directory.
LOCAL, ENTRY = b"PK\3\4", b"PK\1\2"
#: Those of the end record.
END = b"PK\5\6"
#: The first bytes of a set that was split into volumes, and of one that then needed only one volume (APPNOTE 8.5).
SPLIT = (b"PK\7\x08", b"PK00")
_LOCATOR, _END64 = b"PK\6\7", b"PK\6\6"
_END_SIZE, _LOCATOR_SIZE, _END64_SIZE = 22, 20, 56
# Bytes of the 64-bit end record that its field of the size does not count.
_UNCOUNTED = 12
_COMMENT = 0xFFFF
# Bytes at the end that are read first; they also contain the directory of up to a few thousand members.
_TAIL = 256 << 10
# Most zeros behind the end that are passed over to find it.
_ZEROS = 64 << 20
# Most end records that are tried before other bytes.
_TRIED = 64
# Most volumes of a split archive: numbers of 16 bits have room for them.
_MOST_DISKS = 65_536
# Number of missing volumes that a message names.
_NAMED = 10


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


@dataclass(frozen=True)
class DirectoryPlace:
    """Where the directory of an archive is.

    Attributes
    ----------
    start, size : int
        Offset, counted over all volumes, and length in bytes.
    offset : int
        The offset that the archive itself states, counted from the start of its volume.
    count : int
        Number of members; may be modulo 65,536.
    disks : int
        Number of volumes that the archive was split into; 1 if programs that know nothing of zip made the volumes.
    unread : int
        Bytes between the directory and the end record that are part of neither.
    trailing, zeros : int
        Bytes behind the end, and how many of these are zeros at the very end.
    tail : bytes
        The bytes from `tail_start` on, for the directory may be among them.
    """

    start: int
    size: int
    offset: int
    count: int
    disks: int
    unread: int
    trailing: int
    zeros: int
    tail: bytes
    tail_start: int


@dataclass(frozen=True)
class _End:
    """The end record, or what the 64-bit one says in its place."""

    start_disk: int  # where the directory begins
    count: int
    size: int
    offset: int
    disks: int
    begins: int  # offset of the first of the end records
    unread: int  # bytes between them


def ends_zip(tail: bytes, *, zeros: bool = False) -> bool:
    """True if a zip archive ends with these bytes: an end record, its comment, and nothing else.

    Parameters
    ----------
    tail : bytes
        The last bytes of a file, preferably 65,557.
    zeros : bool
        Whether zeros may follow.
    """
    return _record_at_end(tail, zeros=zeros) is not None


def find_directory(source: RangeSource, name: str) -> DirectoryPlace:
    """Find the directory.

    Parameters
    ----------
    source : RangeSource
    name : str
        Name of the archive in messages.

    Raises
    ------
    BadArchive
        If there is no end record, or it contradicts itself.
    MissingVolume
        If the archive was split into more volumes than are there.
    """
    return _Search(source, name).found()


class _Search:
    def __init__(self, source: RangeSource, name: str) -> None:
        self._source, self._name = source, name
        self._tail_start, self._tail = self._last_bytes()

    def _last_bytes(self) -> tuple[int, bytes]:
        """Read the last bytes that are not only zeros."""
        end = self._source.size
        least = max(0, end - _ZEROS)
        while True:
            start = max(0, end - _TAIL)
            tail = self._source.range(start, end)
            if any(tail) or start <= least:
                return start, tail
            end = start + _END_SIZE  # the last bytes of the end record may be zeros

    def _bytes(self, start: int, end: int) -> bytes:
        if start >= self._tail_start and end <= self._tail_start + len(self._tail):
            return self._tail[start - self._tail_start : end - self._tail_start]
        return self._source.range(start, end)

    def found(self) -> DirectoryPlace:
        size, tail = self._source.size, self._tail
        only_zeros_follow = size > self._tail_start + len(tail)
        place = _record_at_end(tail, zeros=True, more_zeros=only_zeros_follow)
        if place is None:
            place = self._record_before_other_bytes()
        if place is None:
            raise BadArchive(
                "the zip archive has no directory at its end",
                path=self._name,
                remedy="Its end is missing: check that the last volume is there, and fetch it again",
            )
        at, after = place
        record = self._end(self._tail_start + at)
        trailing = size - self._tail_start - after
        written = max(len(tail.rstrip(b"\0")), after)
        zeros = size - self._tail_start - written
        start, gap = record.begins - record.size, 0
        starts = self._source.starts
        if record.disks > 1 and len(starts) > 1:
            start = starts[record.start_disk] + record.offset
            gap = record.begins - start - record.size
        elif (
            record.size
            and 0 <= record.offset < start
            and not self._begins(start)
            and self._begins(record.offset)
        ):
            start, gap = record.offset, start - record.offset  # something is between it and the end
        if gap < 0 or not 0 <= start <= start + record.size <= size:
            raise self._bad("a directory of impossible size")
        return DirectoryPlace(
            start,
            record.size,
            record.offset,
            record.count,
            record.disks,
            record.unread + gap,
            trailing,
            zeros,
            tail,
            self._tail_start,
        )

    def _begins(self, at: int) -> bool:
        """Whether a directory may begin at an offset."""
        return self._bytes(at, at + len(ENTRY)) == ENTRY

    def _bad(self, what: str) -> BadArchive:
        return BadArchive(
            f"the zip archive has {what}",
            path=self._name,
            remedy="It is damaged, or not whole: compare digests, and fetch it again",
        )

    def _record_before_other_bytes(self) -> tuple[int, int] | None:
        """Find the last end record that a directory comes before, and its end with the comment, within the tail."""
        at = len(self._tail)
        for _ in range(_TRIED):
            at = self._tail.rfind(END, 0, at)
            if at < 0:
                break
            if len(self._tail) - at < _END_SIZE:
                continue
            size, _, comment = struct.unpack_from("<IIH", self._tail, at + 12)
            end = at + _END_SIZE + comment
            before = self._tail_start + at - size
            has64 = self._tail[max(0, at - _LOCATOR_SIZE) : at].startswith(_LOCATOR)
            if end <= len(self._tail) and (
                has64 or (size and before >= 0 and self._bytes(before, before + 4) == ENTRY)
            ):
                return at, end
        return None

    def _end(self, at: int) -> _End:
        """Parse the end record at an offset, and the 64-bit one before it."""
        _, disk, start_disk, _, count, size, offset, _ = struct.unpack(
            "<4sHHHHIIH", self._bytes(at, at + _END_SIZE)
        )
        disks, begins, unread = disk + 1, at, 0
        locator = self._bytes(at - _LOCATOR_SIZE, at) if at >= _LOCATOR_SIZE else b""
        needed = 0xFFFF in (disk, start_disk, count) or 0xFFFFFFFF in (size, offset)
        if locator[:4] == _LOCATOR:  # libarchive writes one on request also where the short record is enough
            _, where, place, disks64 = struct.unpack("<4sIQI", locator)
            starts = self._source.starts
            guesses = [
                at - _LOCATOR_SIZE - _END64_SIZE
            ]  # where it should be; the place that is said may be another's
            if where < len(starts):
                guesses.append(starts[where] + place)
            for guess in guesses:
                found = self._bytes(guess, guess + _END64_SIZE) if 0 <= guess <= at - _END64_SIZE else b""
                if found[:4] == _END64:
                    fields = struct.unpack("<4sQHHIIQQQQ", found)
                    start_disk, count, size, offset = fields[5], fields[7], fields[8], fields[9]
                    disks = max(1, disks64)
                    begins, unread = guess, max(0, at - _LOCATOR_SIZE - guess - _UNCOUNTED - fields[1])
                    break
            else:
                if needed:
                    raise self._bad("no directory of its 64-bit form where its end says")
        if start_disk >= disks or disks > _MOST_DISKS:
            raise self._bad("a directory that begins in no volume")
        self._refuse_other_volumes(disks)
        return _End(start_disk, count, size, offset, disks, begins, unread)

    def _refuse_other_volumes(self, disks: int) -> None:
        """Raise MissingVolume unless all volumes are there, or all were joined into one file."""
        here = len(self._source.starts)
        if disks in (1, here) or (here == 1 and self._source.range(0, 4) in SPLIT):
            return
        stem = self._name[:-4] if self._name.lower().endswith(".zip") else self._name
        first = 1 if here == 1 else here
        missing = (
            [f"{stem}.z{number:02}" for number in range(first, min(disks, first + _NAMED))]
            if here < disks
            else []
        )
        shown = ", ".join(missing) + (" and more" if disks > first + _NAMED else "")
        what = f"missing volume{'s' if len(missing) > 1 else ''} {shown}"
        raise MissingVolume(
            what if missing else "the zip archive has another number of volumes",
            path=self._name,
            expected=f"{disks:,} volumes",
            got=f"{here:,}",
            remedy="Put all of .z01 … and .zip into one folder, and nothing else of this name",
            details={"missing": missing},
        )


def _record_at_end(tail: bytes, *, zeros: bool, more_zeros: bool = False) -> tuple[int, int] | None:
    """Find an end record that, with its comment, ends the tail, and its end; zeros may follow it if `zeros`.

    With `more_zeros`, the tail is not the end of the file, but only zeros follow.
    """
    written = len(tail.rstrip(b"\0"))
    least = max(0, (written if zeros else len(tail)) - _END_SIZE - _COMMENT)
    at, padded = len(tail), None
    while (at := tail.rfind(END, least, at)) >= 0:
        if len(tail) - at >= _END_SIZE:
            (comment,) = struct.unpack_from("<H", tail, at + 20)
            end = at + _END_SIZE + comment
            if end == len(tail) and not more_zeros:
                return at, end
            if zeros and written <= end <= len(tail) and padded is None:
                padded = at, end
    return padded
