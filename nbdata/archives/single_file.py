"""Reads a single compressed file such as ``x.csv.gz`` as an archive with one member, whose size is known at its end.

Applies only if the name allows it. A file called ``x.tar.gz`` that holds no tar archive is damaged, or an error page.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from nbdata.archives.decompress import ExpansionLimit
from nbdata.archives.member import Member
from nbdata.archives.remarks import Remarks
from nbdata.archives.safety import PathGuard
from nbdata.archives.stream import volume_at
from nbdata.archives.tar_headers import is_header
from nbdata.archives.volumes import folder_name, guess_format
from nbdata.archives.wanted import WantedMembers

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["HELD", "Begun", "read_file", "single_name"]

#: Bytes that are read ahead; the size of a shorter file is known in advance.
HELD = 1 << 20
_HEADER = 512
_BLOCK = 1 << 20
_MODE = 0o644


def single_name(title: str) -> str | None:
    """Return the name of the file inside an archive with this title; None if the title says that it has several."""
    return (
        folder_name(title).rpartition("/")[2]
        if guess_format(title) in ("gz", "bz2", "xz", "zst", "lz4")
        else None
    )


class Begun(io.RawIOBase):
    """A stream whose first bytes have been examined; closing it leaves the source open.

    Attributes
    ----------
    is_tar : bool
        Whether a tar archive begins here.
    """

    def __init__(self, source: io.RawIOBase) -> None:
        super().__init__()
        self._source = source
        self._next: Callable[[], memoryview] | None = getattr(source, "block", None)
        self._head = b""
        while len(self._head) < _HEADER and (more := source.read(_HEADER - len(self._head))):
            self._head += more
        self.is_tar = len(self._head) == _HEADER and is_header(self._head)

    def readable(self) -> bool:
        return True

    def volume_at(self, offset: int) -> tuple[str, int] | None:
        """`JoinedStream.volume_at` of the source."""
        return volume_at(self._source, offset)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if not self._head:
            return self._source.readinto(view) or 0
        count = min(len(view), len(self._head))
        view[:count], self._head = self._head[:count], self._head[count:]
        return count

    def block(self) -> memoryview:
        """Return the next bytes in place, valid until the next call; empty at the end."""
        head, self._head = memoryview(self._head), b""
        if head:
            return head
        if self._next is not None:
            return self._next()
        return memoryview(self._source.read(_BLOCK) or b"")


class _Content:
    """The bytes of the file, as a `MemberContent`."""

    def __init__(self, held: bytes, rest: io.RawIOBase) -> None:
        self._held, self._rest = memoryview(held), rest
        self.closed = False

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self.closed:
            raise ValueError("the member is read no more: the next one was asked for")
        view = memoryview(buffer).cast("B")
        if not self._held:
            return self._rest.readinto(view) or 0
        count = min(len(view), len(self._held))
        view[:count], self._held = self._held[:count], self._held[count:]
        return count

    def read(self, size: int = -1) -> bytes:
        pieces = list[bytes]()
        scratch = memoryview(bytearray(_BLOCK))
        while size and (count := self.readinto(scratch[: size if size > 0 else _BLOCK])):
            pieces.append(bytes(scratch[:count]))
            size -= count if size > 0 else 0
        return b"".join(pieces)

    def content(self) -> bytes | memoryview:
        held, self._held = self._held, memoryview(b"")
        return held

    def close(self) -> None:
        self.closed = True


def read_file(
    stream: io.RawIOBase,
    name: str,
    mtime_ns: int,
    *,
    members: Sequence[str] = (),
    exclude: Sequence[str] = (),
    strip_components: int = 0,
    max_expansion: int | None = None,
    remarks: Remarks | None = None,
    to_the_end: bool = True,
) -> Generator[Member, None, None]:
    """Yield the file as the only member; its size is -1 until it is read, if it has more than `HELD` bytes.

    Parameters
    ----------
    stream : readable raw stream
        Decompressed, read forwards only and not closed.
    name : str
        Name of the file.
    mtime_ns : int
        Modification time of the file.
    members, exclude, strip_components, max_expansion, remarks
        As in `nbdata.archives.tar.read_members`.
    to_the_end : bool
        Whether to read content that is not taken too, so that the checksums of the compressed stream are verified.

    Raises
    ------
    BadArchive
        If it is damaged, ends too early, or passes `max_expansion`.
    NotFound
        At the end: a pattern of `members` does not match the file.
    """
    selection = WantedMembers(members, exclude=exclude)
    source = stream if max_expansion is None else ExpansionLimit(stream, max_expansion)
    if selection.takes(name):
        path = PathGuard(strip_components=strip_components).path(name)
        if path is None:
            (remarks or Remarks()).leave_out(name)
        else:
            held = bytearray()
            while len(held) <= HELD and (more := source.read(HELD + 1 - len(held))):
                held += more
            content = _Content(bytes(held), source)
            try:
                yield Member(
                    path, "file", len(held) if len(held) <= HELD else -1, _MODE, mtime_ns, "", content
                )
            finally:
                content.close()
    while to_the_end and source.read(_BLOCK):
        pass
    selection.check_all_matched()
