"""The frames of a zip: fetch and deflate members in parallel, then add their headers in order."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from isal.isal_zlib import crc32

from nbdata.engine.pack.members import Members
from nbdata.engine.pack.source import Field
from nbdata.engine.pack.windows import TWICE, Fetching, LargePart, read_window
from nbdata.formats.frames import FRAME
from nbdata.formats.tar_writing import FILE, LINK, Member
from nbdata.formats.zip_writing import (
    DEFLATED,
    STORED,
    ZipEntry,
    central_header,
    deflated,
    descriptor,
    end_of_zip,
    local_header,
)

__all__ = ["ZipFrame", "ZipFrames", "ZipStream", "ZipWriter"]

# Most members of a frame; together they have at most 4 MiB, unless there is only one.
_MOST_MEMBERS = 1000
# Bytes per read of the directory.
_BLOCK = 1 << 20
# Most bytes of all headers of a member, without its name and the growth of its content.
_HEADERS = 256


class ZipStream:
    """The content of a zip.

    Attributes
    ----------
    size : int
        Total bytes of all contents.
    most : int
        Most bytes of the archive.
    """

    def __init__(self, members: Members) -> None:
        self.members = members
        self.size = self.most = 0
        self._digest = hashlib.blake2b(digest_size=16)
        for member, field in members:
            self.size += member.size
            names = 2 * len(os.fsencode(member.name)) + len(os.fsencode(member.link))
            self.most += member.size + member.size // 500 + names + _HEADERS
            facts = (
                f"{member.name}\0{member.size}\0{member.mtime}\0{member.kind}{member.mode}\0{member.link}\0"
                f"{field.version}\0"
            )
            self._digest.update(facts.encode("utf-8", "surrogatepass"))
        self.most += _HEADERS

    def digest(self) -> str:
        """A digest of the archive; unique each time if the source reports no versions."""
        return self._digest.hexdigest()


class ZipFrame(NamedTuple):
    """Several whole members, or a piece of a large one.

    Attributes
    ----------
    entries : list of (ZipEntry, bytes)
        Members with their content as stored; without offsets.
    piece : tuple of (Member, bool, bool, memoryview, bytes) or None
        A large member; whether this is its first, and its last piece; the bytes, and the deflated bytes.
    large : list of LargePart
        Parts that are not verified yet.
    """

    entries: list[tuple[ZipEntry, bytes | memoryview]]
    piece: tuple[Member, bool, bool, memoryview, bytes] | None
    large: list[LargePart]

    @property
    def size(self) -> int:
        """Total bytes of its contents."""
        return sum(entry.size for entry, _ in self.entries) + (len(self.piece[3]) if self.piece else 0)


class ZipFrames:
    """The frames of a zip."""

    def __init__(self, stream: ZipStream, fetching: Fetching, verify: str) -> None:
        self._members, self._fetching, self._verify = stream.members, fetching, verify

    def ranges(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield for each frame the first member, the one behind the last, and the range of a large member's piece."""
        first = size = 0
        for number, (member, _) in enumerate(self._members):
            large = member.size > TWICE
            if number > first and (large or size + member.size > FRAME or number - first >= _MOST_MEMBERS):
                yield first, number, 0, 0
                first, size = number, 0
            if large:
                for low in range(0, member.size, FRAME):
                    yield number, number + 1, low, min(member.size, low + FRAME)
                first, size = number + 1, 0
            else:
                size += member.size
        if first < len(self._members):
            yield first, len(self._members), 0, 0

    def make(self, first: int, behind: int, low: int, high: int) -> ZipFrame:
        """Make one frame; safe to call from any thread."""
        if high:
            member, field = self._members[first]
            (data,), large = read_window([(0, field)], low, high, self._fetching, self._verify)
            last = high == member.size
            return ZipFrame([], (member, low == 0, last, data, deflated(data, last=last)), large)
        members = [self._members[number] for number in range(first, behind)]
        pieces: list[tuple[int, bytes | Field]] = []
        at = 0
        for member, field in members:
            if member.size:
                pieces.append((at, field))
                at += member.size
        contents, large = read_window(pieces, 0, at, self._fetching, self._verify)
        coming = iter(contents)
        entries = [_entry(member, next(coming) if member.size else b"") for member, _ in members]
        return ZipFrame(entries, None, large)


def _entry(member: Member, data: bytes | memoryview) -> tuple[ZipEntry, bytes | memoryview]:
    if member.kind == LINK:
        data = member.link.encode("utf-8", "surrogateescape")
    packed = deflated(data) if member.kind == FILE and len(data) else data
    if len(packed) >= len(data):
        return ZipEntry(member, STORED, crc32(data), len(data), len(data)), data
    return ZipEntry(member, DEFLATED, crc32(data), len(packed), len(data)), packed


class ZipWriter:
    """Joins frames in order and adds their headers; for a single thread.

    Parameters
    ----------
    path : str
        Path of a private file for the directory, which may be long.
    """

    def __init__(self, path: str) -> None:
        self._directory = open(path, "w+b")  # noqa: SIM115  closed by `close`
        self._at = self._count = 0
        self._streamed: ZipEntry | None = None

    def close(self) -> None:
        """Close the private file."""
        self._directory.close()

    def added(self, frame: ZipFrame) -> list[bytes | memoryview]:
        """The bytes to append for a frame."""
        out: list[bytes | memoryview] = []
        for entry, data in frame.entries:
            placed = entry._replace(offset=self._at)
            out += [local_header(placed), data]
            self._at += len(out[-2]) + len(data)
            self._list(placed)
        if frame.piece is not None:
            out += self._piece(*frame.piece)
        return out

    def _piece(
        self, member: Member, first: bool, last: bool, data: memoryview, packed: bytes
    ) -> list[bytes | memoryview]:
        out: list[bytes | memoryview] = []
        if first:
            self._streamed = ZipEntry(member, DEFLATED, 0, 0, member.size, self._at, True)
            out.append(local_header(self._streamed))
        entry = self._streamed
        assert entry is not None
        entry = entry._replace(crc=crc32(data, entry.crc), packed=entry.packed + len(packed))
        self._streamed = entry
        out.append(packed)
        if last:
            out.append(descriptor(entry))
            self._list(entry)
        self._at += sum(map(len, out))
        return out

    def _list(self, entry: ZipEntry) -> None:
        self._directory.write(central_header(entry))
        self._count += 1

    def tail(self) -> Iterator[bytes]:
        """Yield the directory and the end record."""
        size = self._directory.tell()
        self._directory.seek(0)
        while block := self._directory.read(_BLOCK):
            yield block
        yield end_of_zip(self._count, self._at, size)
