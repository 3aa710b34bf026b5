"""One member of an archive, of whatever format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Member", "MemberContent", "file_mode"]


class MemberContent(Protocol):
    """The bytes of one member, exactly, as a raw stream; usable until the next member is asked for."""

    @property
    def closed(self) -> bool: ...

    def read(self, size: int = -1) -> bytes:
        """So many bytes, fewer only at the end; -1: all that are left."""

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill a part of the buffer; 0 at the end."""

    def content(self) -> bytes | memoryview:
        """All of it at once, before anything else is read; it stays as it is when the next member is asked for."""

    def close(self) -> None:
        """Let nobody read more of it."""


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
        Bytes of content (of a sparse file: expanded); 0 if it is not a file; -1 if it shows only at its end.
    mode : int or None
        Permission bits as the ``data`` filter leaves them: nothing above 0o755, at least 0o600, and
        executable only if it is for its owner. None for folders and links: the default of the target.
    mtime_ns : int
        Nanoseconds since 1970, with all digits that the archive has.
    linkname : str
        Of a symlink, its target, relative to the folder of the link; of a hardlink, the final path
        of an earlier member.
    reader : MemberContent
        The content.
    offset : int
        Of the member's header in the uncompressed archive; no two members have the same.
    crc : int or None
        CRC-32 of its content, where the archive says it beforehand.
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
    """Permission bits by the rules of PEP 706's ``data`` filter."""
    mode &= 0o755
    if not mode & 0o100:
        mode &= ~0o111
    return mode | 0o600
