"""One member of an archive, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Member", "MemberContent", "file_mode"]


class MemberContent(Protocol):
    """The bytes of one member as a raw stream; usable until the next member is requested."""

    @property
    def closed(self) -> bool: ...

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, fewer only at the end; -1 reads the rest."""

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill part of the buffer and return the number of bytes; 0 at the end."""

    def content(self) -> bytes | memoryview:
        """Return the whole content, before any other read; it stays valid after the next member is requested."""

    def close(self) -> None:
        """Refuse further reads."""


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
        Bytes of content (expanded for a sparse file); 0 if it is not a file; -1 if unknown until its end.
    mode : int or None
        Permission bits after the rules of the ``data`` filter: at most 0o755, at least 0o600, and executable only if
        the owner may execute it. None for folders and links, which get the target's default.
    mtime_ns : int
        Nanoseconds since 1970, with the full precision of the archive.
    linkname : str
        For a symlink, its target relative to the link's folder. For a hardlink, the final path of an earlier member.
    reader : MemberContent
        The content.
    offset : int
        Offset of the member's header in the uncompressed archive; unique among the members.
    crc : int or None
        CRC-32 of its content, if the archive states it in advance.
    """

    name: str
    kind: str
    size: int
    mode: int | None
    mtime_ns: int
    linkname: str
    reader: MemberContent = field(repr=False, compare=False)
    offset: int = field(default=0, compare=False)
    crc: int | None = field(default=None, compare=False)


def file_mode(mode: int) -> int:
    """Limit permission bits by the rules of PEP 706's ``data`` filter."""
    mode &= 0o755
    if not mode & 0o100:
        mode &= ~0o111
    return mode | 0o600
