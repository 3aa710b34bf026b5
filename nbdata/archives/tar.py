"""Reads the members of a tar stream as they arrive, checked and ready to be written.

Multi-volume archives of GNU tar cannot be joined, because each volume repeats a header in the middle of a file. A
volume that begins with such a header is refused.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from nbdata.archives.decompress import ExpansionLimit
from nbdata.archives.forward_reader import ForwardReader
from nbdata.archives.looks import looks_like
from nbdata.archives.member import Member, file_mode
from nbdata.archives.member_budget import MemberBudget
from nbdata.archives.place import Place
from nbdata.archives.remarks import Remarks
from nbdata.archives.safety import PATH_MAX, PathGuard, components, shortened
from nbdata.archives.tar_headers import Header, Headers
from nbdata.archives.wanted import WantedMembers
from nbdata.errors import BadArchive, BadOption, UnsafeMember

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["EMPTY_ARCHIVE", "MemberReader", "read_members"]

#: Zero bytes that tar writes for an archive without members: one of its records.
EMPTY_ARCHIVE = 10_240
# Zero bytes that end an archive.
_END = 1024
# Bytes of a sparse file that are expanded at once.
_READ = 1 << 20


class MemberReader:
    """The bytes of one member as a raw stream; usable until the next member is requested.

    Sparse files are expanded. A member that the archive cuts short raises BadArchive.
    """

    __slots__ = ("_data", "_position", "_reader", "_size", "closed")

    def __init__(
        self, reader: ForwardReader, size: int, data: Sequence[tuple[int, int]] | None = None
    ) -> None:
        self.closed = False
        self._reader = reader
        self._size = size
        # (offset, length) of the stored pieces, with zeros between them. None if everything is stored.
        self._data = None if data is None else deque([*data, (size, 0)])
        self._position = 0

    @property
    def start(self) -> int | None:
        """Where the content begins in the tar stream, until a byte of it is read; None if it is sparse."""
        return None if self._data is not None else self._reader.tell()

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        """Refuse further reads."""
        self.closed = True

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, fewer only at the end; -1 reads the rest."""
        left = self._size - self._position if size < 0 else min(size, self._size - self._position)
        data, block = io.BytesIO(), memoryview(bytearray(min(left, _READ)))
        while count := self.readinto(block[:left]):
            left -= data.write(block[:count])
        return data.getvalue()  # which is no copy

    def content(self) -> bytes | memoryview:
        """Return the whole content, before any other read; it stays valid after the next member is requested."""
        if self._data is not None or self.closed:
            return self.read()
        self._position = self._size
        return self._reader.content(self._size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self.closed:
            raise ValueError("the member is read no more: the next one was asked for")
        view = memoryview(buffer).cast("B")[: self._size - self._position]
        if not view:
            return 0
        offset, length = (0, self._size) if self._data is None else self._stretch(self._data)
        if self._position < offset:
            count = min(len(view), offset - self._position)
            view[:count] = bytes(count)
        else:
            count = min(len(view), offset + length - self._position)
            self._reader.fill(view[:count])
        self._position += count
        return count

    def _stretch(self, data: deque[tuple[int, int]]) -> tuple[int, int]:
        """Return the stored piece at the position, or the next one."""
        while self._position >= sum(data[0]) and len(data) > 1:
            data.popleft()
        return data[0]


def read_members(
    stream: io.RawIOBase,
    *,
    members: Sequence[str] = (),
    exclude: Sequence[str] = (),
    strip_components: int = 0,
    max_expansion: int | None = None,
    target_check: Callable[[str], None] | None = None,
    remarks: Remarks | None = None,
    name: str | None = None,
    place: Place | None = None,
    listing: bool = False,
    budget: MemberBudget | None = None,
) -> Generator[Member, None, None]:
    """Iterate over the members of a tar stream in order; content that is not read is skipped.

    A name may occur twice: the later member replaces the earlier one. After the last member the stream is read to its
    end, so that the checksums of a compressed stream are verified too.

    Parameters
    ----------
    stream : readable raw stream
        Uncompressed, read forwards only and not closed.
    members : sequence of str
        Globs on the names *in the archive* (see `nbdata.archives.wanted`); empty means all. Members that are not
        taken are not checked either.
    exclude : sequence of str
        Globs of members to leave out, whatever `members` says.
    strip_components : int
        Leading components to remove; members with nothing left of their names are skipped.
    max_expansion : int, optional
        Limit on the expanded bytes in total, including holes of sparse files. None: no limit.
    target_check : callable, optional
        Called with the final name of each member before it is handed over; raises if the target cannot store that name.
    remarks : Remarks, optional
        Records what is left out or corrected.
    name : str, optional
        Name of the archive in messages.
    listing : bool
        Whether the members are only listed. Unsafe ones are then handed over under the names in the archive, shortened
        if no system takes them, and noted in `remarks`.
    budget : MemberBudget, optional
        What the members may take in memory and in records. None: what those of any archive may.
    place : Place, optional
        Position of `stream`. With each member handed over, it is updated to the place after that member.

    Raises
    ------
    UnsafeMember
        If a member would leave the target (see `nbdata.archives.safety`), or is a device or a fifo.
    BadArchive
        If the archive is damaged, ends too early, continues after its end, passes `max_expansion`, or consists only of
        more zeros than tar writes for an archive without members; or if its members take more than `budget`.
    NotFound
        At the end: a pattern of `members` matched nothing.
    """
    if strip_components < 0:
        raise BadOption(f"strip_components: {strip_components} is negative", remedy="Give 0 or more")
    place = place or Place()
    selection = WantedMembers(members, exclude=exclude, unmatched=place.unmatched)
    guard = PathGuard(strip_components=strip_components, forgotten=place.forgotten, budget=budget)
    guard.restore(place.earlier)
    limit = None if max_expansion is None else ExpansionLimit(stream, max_expansion)
    if limit is not None:
        limit.spend(place.offset + place.holes)
    reader = ForwardReader(limit or stream, name, place.offset)
    return _read(reader, selection, guard, limit, target_check, remarks or Remarks(), place, listing=listing)


def _read(
    reader: ForwardReader,
    selection: WantedMembers,
    guard: PathGuard,
    limit: ExpansionLimit | None,
    target_check: Callable[[str], None] | None,
    remarks: Remarks,
    place: Place,
    *,
    listing: bool,
) -> Generator[Member, None, None]:
    try:
        headers = Headers(reader, place.pax_headers)
        while (found := headers.following()) is not None:
            if found.kind == "label":
                continue
            if selection.chooses and not selection.takes("/".join(components(found.name))):
                continue
            try:
                member = _checked(found, guard, reader, remarks)
            except UnsafeMember as error:
                if not listing:
                    raise
                remarks.refuse(error)
                name, linkname = (
                    text if len(text) <= PATH_MAX else shortened(text)
                    for text in (found.name, found.linkname)
                )
                content = MemberReader(reader, found.size, found.data)
                member = Member(
                    name, found.kind, found.size, None, found.mtime_ns, linkname, content, found.offset
                )
            if member is None:
                continue
            if target_check is not None:
                target_check(member.name)
            holes = 0
            if found.data is not None:
                holes = member.size - sum(length for _, length in found.data)
                if limit is not None:
                    limit.spend(holes)
            place.offset, place.pax_headers = headers.offset, dict(headers.pax_headers)
            place.holes += holes
            if selection.chooses:
                place.unmatched = selection.unmatched
            try:
                yield member
            finally:
                member.reader.close()
        end = reader.tell()
        remarks.zeros += reader.drain()
        if end <= _END and reader.tell() > EMPTY_ARCHIVE:
            raise BadArchive(
                "the file holds no tar archive",
                path=reader.name,
                got=looks_like(bytes(1)),
                remedy="Fetch it again and compare digests",
                details={"offset": 0},
            )
        remarks.lone_blocks += headers.lone_blocks
        remarks.unknown |= headers.unknown
        selection.check_all_matched()
    finally:
        reader.close()


def _checked(found: Header, guard: PathGuard, reader: ForwardReader, remarks: Remarks) -> Member | None:
    """Return the member that a header describes, with its final name; None if there is nothing to write."""
    name, kind, mode, size, mtime_ns, offset, linkname, data = found
    path = guard.path(name)
    if name.startswith("/"):
        remarks.absolute += 1
    if kind == "file":
        if path is None:
            remarks.leave_out(name)
            return None
        guard.add_file(path)
        return Member(
            path, "file", size, file_mode(mode), mtime_ns, "", MemberReader(reader, size, data), offset
        )
    if kind == "continuation":
        raise BadArchive(
            f"member {shortened(name)} begins in another volume of GNU tar",
            path=shortened(name),
            remedy="Name the first volume, or all of them",
        )
    if kind in ("device", "fifo"):
        raise UnsafeMember(
            f"member {shortened(name)!r} is a {kind}",
            path=shortened(name),
            expected="files, folders and links",
            remedy="Name the members you want to leave this one out",
        )
    if path is None:
        if kind != "folder":
            remarks.leave_out(name)
        return None
    if kind == "hardlink":
        if linkname.startswith("/"):
            remarks.absolute += not name.startswith("/")
        kind, linkname = guard.hard_link_target(path, linkname)
        if (kind, linkname) == ("hardlink", path):
            return None  # a file linked to itself already exists
    if kind == "symlink":
        linkname = guard.add_symlink(path, linkname)
    elif kind == "folder":
        linkname = ""
        guard.add_folder(path)
    else:
        guard.add_file(path)
    bits = file_mode(mode) if kind == "hardlink" else None
    return Member(path, kind, 0, bits, mtime_ns, linkname, MemberReader(reader, 0), offset)
