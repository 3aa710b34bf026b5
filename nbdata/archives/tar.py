"""The members of a tar stream, one after the other, as soon as they arrive: checked, and ready to be written.

Multi-volume archives of GNU tar cannot be joined: each volume repeats a header in the middle of a
file. A volume that begins with one is refused.
"""

from __future__ import annotations

import io
import math
import tarfile
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from nbdata.archives.decompress import ExpansionLimit
from nbdata.archives.place import Place
from nbdata.archives.safety import PathGuard, components
from nbdata.archives.selection import Selection
from nbdata.archives.tape import Tape
from nbdata.archives.tar_headers import Headers, PlainFile
from nbdata.errors import BadArchive, BadOption, UnsafeMember

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Member", "MemberReader", "read_members"]

_VOLUME_LABEL, _CONTINUATION, _DUMP_FOLDER = b"V", b"M", b"D"  # GNU tar
_MAX_SECONDS = 1 << 40


class MemberReader:
    """The bytes of one member, exactly, as a raw stream; usable until the next member is asked for.

    Sparse files come expanded. A member that the archive cuts short raises BadArchive.
    """

    __slots__ = ("_data", "_position", "_size", "_tape", "closed")

    def __init__(self, tape: Tape, size: int, data: Sequence[tuple[int, int]] | None = None) -> None:
        self.closed = False
        self._tape = tape
        self._size = size
        # (offset, length) of what is stored; between them are zeros. None: all is.
        self._data = None if data is None else deque([*data, (size, 0)])
        self._position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        """Let nobody read more of it."""
        self.closed = True

    def read(self, size: int = -1) -> bytes:
        """So many bytes, fewer only at the end; -1: all that are left."""
        left = self._size - self._position
        data = bytearray(left if size < 0 else min(size, left))
        view, done = memoryview(data), 0
        while done < len(data):
            done += self.readinto(view[done:])
        return bytes(data)

    def content(self) -> bytes | memoryview:
        """All of it at once, before anything else is read; it stays as it is when the next member is asked for."""
        if self._data is not None or self.closed:
            return self.read()
        self._position = self._size
        return self._tape.content(self._size)

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
            self._tape.fill(view[:count])
        self._position += count
        return count

    def _stretch(self, data: deque[tuple[int, int]]) -> tuple[int, int]:
        """What is stored at the position, or next."""
        while self._position >= sum(data[0]) and len(data) > 1:
            data.popleft()
        return data[0]


@dataclass(slots=True)
class Member:
    """One member, checked and ready to be written.

    Attributes
    ----------
    name : str
        Final path, relative and POSIX, with components stripped. Bytes that are not UTF-8 are
        surrogates, as `os.fsencode` wants them.
    kind : str
        ``file``, ``folder``, ``symlink`` or ``hardlink``.
    size : int
        Bytes of content (of a sparse file: expanded); 0 if it is not a file.
    mode : int or None
        Permission bits as the ``data`` filter leaves them: nothing above 0o755, at least 0o600, and
        executable only if it is for its owner. None for folders and links: the default of the target.
    mtime_ns : int
        Nanoseconds since 1970, with all digits that the archive has.
    linkname : str
        Of a symlink, its target, relative to the folder of the link; of a hardlink, the final path
        of an earlier member.
    reader : MemberReader
        The content.
    offset : int
        Of the member's header in the uncompressed archive; no two members have the same.
    """

    name: str
    kind: str
    size: int
    mode: int | None
    mtime_ns: int
    linkname: str
    reader: MemberReader = field(repr=False, compare=False)
    offset: int = field(default=0, compare=False)


def read_members(
    stream: io.RawIOBase,
    *,
    members: Sequence[str] = (),
    strip_components: int = 0,
    max_expansion: int | None = None,
    target_check: Callable[[str], None] | None = None,
    stripped: Callable[[str], None] | None = None,
    name: str | None = None,
    place: Place | None = None,
) -> Generator[Member, None, None]:
    """The members of a tar stream in its order; content that is not read is skipped.

    A name may come twice: the later member replaces the earlier one. After the last member the
    stream is read to its end, so that the checksums of a compressed stream are verified too.

    Parameters
    ----------
    stream : readable raw stream
        Uncompressed, read forwards only and not closed.
    members : sequence of str
        Globs on the names *in the archive* (see `nbdata.archives.selection`). None given: all.
        Members that are not taken are not checked either.
    strip_components : int
        Leading components to take off; members of which nothing is left are passed over.
    max_expansion : int, optional
        Bytes that may come out in all, holes of sparse files included. None: no limit.
    target_check : callable, optional
        Called with the final name of each member before it is handed over; raises if the target
        cannot have it.
    stripped : callable, optional
        Called with the name in the archive of each file or link that is passed over because
        `strip_components` leaves nothing of it.
    name : str, optional
        How messages call the archive.
    place : Place, optional
        Where `stream` stands. With each member that is handed over it becomes the place behind it.

    Raises
    ------
    UnsafeMember
        If a member would leave the target (see `nbdata.archives.safety`), or is a device or a fifo.
    BadArchive
        If the archive is damaged, ends too early, goes on after its end, or passes `max_expansion`.
    NotFound
        At the end: a pattern of `members` matched nothing.
    """
    if strip_components < 0:
        raise BadOption(f"strip_components: {strip_components} is negative", remedy="Give 0 or more")
    place = place or Place()
    selection = Selection(members, unmatched=place.unmatched)
    guard = PathGuard(strip_components=strip_components)
    guard.restore(place.earlier)
    limit = None if max_expansion is None else ExpansionLimit(stream, max_expansion)
    if limit is not None:
        limit.spend(place.offset + place.holes)
    tape = Tape(limit or stream, name, place.offset)
    return _read(tape, selection, guard, limit, target_check, stripped, place)


def _read(
    tape: Tape,
    selection: Selection,
    guard: PathGuard,
    limit: ExpansionLimit | None,
    target_check: Callable[[str], None] | None,
    stripped: Callable[[str], None] | None,
    place: Place,
) -> Generator[Member, None, None]:
    try:
        headers = Headers(tape, place.pax_headers)
        while (found := headers.plain_file() or headers.following()) is not None:
            if selection.chooses and not selection.takes("/".join(components(found.name))):
                continue
            holes = 0
            if isinstance(found, PlainFile):
                member = _plain(found, guard, tape)
            elif found.type == _VOLUME_LABEL:
                continue
            else:
                data = _stored(found, headers, tape)
                member = _checked(found, guard, MemberReader(tape, found.size if found.isreg() else 0, data))
                holes = 0 if member is None else member.size - sum(length for _, length in data)
            if member is None:
                folder = not isinstance(found, PlainFile) and found.isdir()
                if stripped is not None and not folder and guard.path(found.name) is None:
                    stripped(found.name)
                continue
            if target_check is not None:
                target_check(member.name)
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
        tape.drain()
        selection.check_all_matched()
    finally:
        tape.close()


def _plain(found: PlainFile, guard: PathGuard, tape: Tape) -> Member | None:
    """The member that a plain file is; None if nothing is left to write."""
    name, mode, size, mtime_ns, offset = found
    path = guard.path(name)
    if path is None:
        return None
    guard.add_file(path)
    return Member(path, "file", size, _file_mode(mode), mtime_ns, "", MemberReader(tape, size), offset)


def _checked(info: tarfile.TarInfo, guard: PathGuard, reader: MemberReader) -> Member | None:
    """The member that a header describes, with its final name; None if nothing is left to write."""
    path = guard.path(info.name)
    if not (info.isreg() or info.isdir() or info.issym() or info.islnk() or info.type == _DUMP_FOLDER):
        if info.type == _CONTINUATION:
            raise BadArchive(
                f"member {info.name} begins in another volume of GNU tar",
                path=info.name,
                remedy="Unpack such a set with tar --multi-volume",
            )
        kind = "a device" if info.isdev() and not info.isfifo() else "a fifo"
        raise UnsafeMember(
            f"member {info.name!r} is {kind if info.isdev() else f'of unknown type {info.type!r}'}",
            path=info.name,
            expected="files, folders and links",
            remedy="Name the members you want to leave this one out",
        )
    if path is None:
        return None
    kind, size, mode, linkname = "file", info.size, _file_mode(info.mode), ""
    if info.islnk():
        kind, linkname = guard.hard_link_target(path, info.linkname)
        if (kind, linkname) == ("hardlink", path):
            return None  # a file that is linked to itself is there already
    elif info.issym():
        kind, linkname = "symlink", info.linkname
    elif not info.isreg():
        kind = "folder"
    if kind == "symlink":
        linkname = guard.add_symlink(path, linkname)
    elif kind == "folder":
        guard.add_folder(path)
    else:
        guard.add_file(path)
    if kind != "file":
        size = 0
    return Member(
        name=path,
        kind=kind,
        size=size,
        mode=mode if kind in ("file", "hardlink") else None,
        mtime_ns=_mtime_ns(info),
        linkname=linkname,
        reader=reader,
        offset=info.offset,
    )


def _file_mode(mode: int) -> int:
    """Permission bits by the rules of PEP 706's ``data`` filter."""
    mode &= 0o755
    if not mode & 0o100:
        mode &= ~0o111
    return mode | 0o600


def _mtime_ns(info: tarfile.TarInfo) -> int:
    """Modification time; a float, as `tarfile` has it, would lose the last digits."""
    if not math.isfinite(info.mtime) or abs(info.mtime) > _MAX_SECONDS:
        return 0
    try:
        return int(Decimal(info.pax_headers.get("mtime", info.mtime)).scaleb(9))
    except InvalidOperation:
        return int(info.mtime) * 10**9


def _stored(info: tarfile.TarInfo, headers: Headers, tape: Tape) -> list[tuple[int, int]]:
    """(offset, length) of what the archive holds of a file; checked, because maps may be forged."""
    if not info.isreg():
        return []
    sparse: list[tuple[int, int]] | None = getattr(info, "sparse", None)
    if sparse is None:
        return [(0, info.size)]
    end = stored = 0
    for offset, length in sparse:
        if length < 0 or offset < end or offset + length > info.size:
            break
        end = offset + length
        stored += length
    else:
        if stored <= headers.offset - info.offset_data:
            return list(sparse)
    raise tape.bad(f"has a sparse file with an impossible map, {info.name}")
