"""A tar of members as a virtual stream: map each byte to its source."""

from __future__ import annotations

import bisect
import hashlib
from array import array
from collections.abc import Iterator

from nbdata.engine.pack.members import Members
from nbdata.engine.pack.source import Field
from nbdata.engine.pack.windows import TWICE
from nbdata.formats.tar_writing import END, padding, tar_header, tar_header_size

__all__ = ["TarStream"]


class TarStream:
    """One tar; safe to use from many threads. Memory holds 8 bytes per member.

    Attributes
    ----------
    size : int
        Bytes of the whole tar.
    store : Store
        The store of the members.
    """

    def __init__(self, members: Members) -> None:
        self._members, self.store = members, members.store
        self._begins = array("Q")
        at = 0
        for member, _ in members:
            self._begins.append(at)
            at += tar_header_size(member) + member.size + padding(member.size)
        self._end = at
        self.size = at + len(END)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes | Field]]:
        """Yield the pieces between two offsets, in order: bytes or fields, each with its start offset.

        The first and the last may extend beyond the offsets.
        """
        for number in range(self._number(start), len(self._begins)):
            at = self._begins[number]
            if at >= end:
                return
            member, field = self._members[number]
            header = tar_header(member)
            yield at, header
            at += len(header)
            if member.size:
                yield at, field
                at += member.size
            if count := padding(member.size):
                yield at, bytes(count)
        yield self._end, END

    def _number(self, offset: int) -> int:
        """The number of the member at an offset."""
        return max(0, bisect.bisect_right(self._begins, offset) - 1)

    def members_within(self, start: int, end: int) -> int:
        """The number of members that lie wholly between two offsets."""
        first = bisect.bisect_left(self._begins, start)
        behind = len(self._begins) if end >= self._end else bisect.bisect_right(self._begins, end) - 1
        return max(0, behind - first)

    def digest(self, start: int, end: int) -> str:
        """A digest of the bytes between two offsets; unique each time if the source reports no versions."""
        digest = hashlib.blake2b(digest_size=16)
        for at, piece in self.pieces(start, end):
            size = piece.piece.size if isinstance(piece, Field) else len(piece)
            if at + size <= start or at >= end:
                continue
            digest.update(b"%d " % (at - start))
            if isinstance(piece, Field):
                digest.update(f"{piece.name}\0{size}\0{piece.version}\0".encode("utf-8", "surrogatepass"))
            else:
                digest.update(piece)
        return digest.hexdigest()

    def large_around(self, offset: int) -> tuple[int, int] | None:
        """The start and end of the large member that spans an offset; None if there is none."""
        if not self._begins or offset >= self._end:
            return None
        number = self._number(offset)
        member, _ = self._members[number]
        begin = self._begins[number]
        end = begin + tar_header_size(member) + member.size
        return (begin, end) if member.size > TWICE and begin < offset < end else None
