"""Headers of tar archives: files, folders and symbolic links, with their times and the executable bit.

Headers are ustar (POSIX.1-1988); values that do not fit go into a pax header before them (POSIX.1-2001, "pax
Interchange Format"). There are no owners, and times are whole seconds: the same members make the same bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from nbdata.formats.shard_writing import BLOCK, END, padding

__all__ = ["BLOCK", "END", "FILE", "FOLDER", "LINK", "Member", "padding", "tar_header", "tar_header_size"]

#: Type flags of members in tar.
FILE, LINK, FOLDER = "0", "2", "5"

_NAME = 100
# Eleven octal digits.
_MOST = 8**11
_ID = b"0000000\0"
_AFTER_LINK = b"ustar\x0000" + bytes(64 + 16 + 155 + 12)
_BLANKS = b" " * 8
_PAX_NAME = "././@PaxHeader"
# Surrogates in text that stand for bytes of names that are not UTF-8.
_ODD, _LAST_ODD = "\udc80", "\udcff"


class Member(NamedTuple):
    """One member of an archive, without its bytes.

    Attributes
    ----------
    name : str
        Relative, with ``/`` between its parts; no slash at the end.
    size : int
        Bytes; 0 for folders and links.
    mtime : int
        Seconds since the epoch.
    kind : str
        `FILE`, `FOLDER` or `LINK`.
    link : str
        Target of a link; empty for others.
    executable : bool
        Whether a file is executable.
    """

    name: str
    size: int
    mtime: int = 0
    kind: str = FILE
    link: str = ""
    executable: bool = False

    @property
    def mode(self) -> int:
        """Permissions: 644 for files; 755 for folders and executable files; 777 for links."""
        if self.kind == LINK:
            return 0o777
        return 0o755 if self.kind == FOLDER or self.executable else 0o644


def _plain(member: Member) -> bool:
    """True if its name, link, size and time fit into one block."""
    name, link = member.name, member.link
    return (
        name.isascii()
        and len(name) + (member.kind == FOLDER) <= _NAME
        and member.size < _MOST
        and 0 <= member.mtime < _MOST
        and (not link or (link.isascii() and len(link) <= _NAME))
    )


def tar_header_size(member: Member) -> int:
    """Return the bytes of `tar_header`."""
    return BLOCK if _plain(member) else len(tar_header(member))


def tar_header(member: Member) -> bytes:
    """Make the header of a member.

    Examples
    --------
    >>> len(tar_header(Member("a.jpg", 3))), len(tar_header(Member("ä.jpg", 3)))
    (512, 1536)
    """
    name = member.name + "/" if member.kind == FOLDER else member.name
    if _plain(member):
        return _ustar(name.encode("ascii"), member.mode, member.size, member.mtime, member.kind, member.link)
    records = b""
    if any(_ODD <= char <= _LAST_ODD for char in name + member.link):
        records += _record("hdrcharset", b"BINARY")
    raw = name.encode("utf-8", "surrogateescape")
    if not name.isascii() or len(raw) > _NAME:
        records += _record("path", raw)
    link = member.link.encode("utf-8", "surrogateescape")
    if not member.link.isascii() or len(link) > _NAME:
        records += _record("linkpath", link)
    size, mtime = member.size, member.mtime
    if size >= _MOST:
        records += _record("size", b"%d" % size)
        size = 0
    if not 0 <= mtime < _MOST:
        records += _record("mtime", b"%d" % mtime)
        mtime = 0
    return (
        _ustar(_PAX_NAME.encode(), 0o644, len(records), 0, "x", "")
        + records
        + bytes(padding(len(records)))
        + _ustar(
            name.encode("ascii", "replace")[:_NAME],
            member.mode,
            size,
            mtime,
            member.kind,
            member.link[:_NAME],
        )
    )


def _ustar(name: bytes, mode: int, size: int, mtime: int, kind: str, link: str) -> bytes:
    before = name.ljust(_NAME, b"\0") + b"%07o\0%s%s%011o\0%011o\0" % (mode, _ID, _ID, size, mtime)
    after = kind.encode() + link.encode("ascii", "replace")[:_NAME].ljust(_NAME, b"\0") + _AFTER_LINK
    return before + b"%06o\0 " % (sum(before) + sum(_BLANKS) + sum(after)) + after


def _record(name: str, value: bytes) -> bytes:
    """Make ``LENGTH NAME=VALUE`` and a line end; the length counts itself."""
    rest = b" %s=%s\n" % (name.encode("ascii"), value)
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return b"%d" % length + rest
