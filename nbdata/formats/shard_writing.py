"""The bytes of tar shards: the same for the same names and contents, at any time and on any machine.

Members are regular files with mode 644, no owner and time 0. Headers are ustar (POSIX.1-1988). A name or size that does
not fit goes into a pax header before them (POSIX.1-2001, "pax Interchange Format").
"""

from __future__ import annotations

__all__ = ["BLOCK", "END", "header_size", "member_header", "padding"]

#: Bytes of a tar block; headers and contents are padded to it.
BLOCK = 512
#: The end of a shard.
END = bytes(2 * BLOCK)

_NAME = 100
# Eleven octal digits.
_SIZE = 8**11
_ZERO = b"0000000\0"
_BEFORE_SIZE = b"0000644\0" + _ZERO + _ZERO
_AFTER_SIZE = b"00000000000\0"
# No link, magic and version, no owner, no device.
_AFTER_TYPE = bytes(_NAME) + b"ustar\x0000" + bytes(64 + 16 + 155 + 12)
_FILE, _PAX = b"0", b"x"
# During summing, the checksum field counts as eight blanks.
_SUM = sum(_BEFORE_SIZE) + sum(_AFTER_SIZE) + 8 * ord(" ") + sum(_AFTER_TYPE)
_PAX_NAME = b"././@PaxHeader"


def padding(size: int) -> int:
    """Return the bytes between content of that size and the next block."""
    return -size % BLOCK


def _fits(name: str, size: int) -> bool:
    return name.isascii() and len(name) <= _NAME and size < _SIZE


def header_size(name: str, size: int) -> int:
    """Return the bytes of `member_header`."""
    return BLOCK if _fits(name, size) else len(member_header(name, size))


def member_header(name: str, size: int) -> bytes:
    """Make the header of a member.

    Examples
    --------
    >>> len(member_header("a.jpg", 3)), len(member_header("ä.jpg", 3))
    (512, 1536)
    """
    if _fits(name, size):
        return _ustar(name.encode("ascii"), size, _FILE)
    records = _record("path", name.encode("utf-8", "surrogateescape"))
    if size >= _SIZE:
        records += _record("size", b"%d" % size)
    short = name.encode("ascii", "replace")[:_NAME]
    return (
        _ustar(_PAX_NAME, len(records), _PAX)
        + records
        + bytes(padding(len(records)))
        + _ustar(short, size if size < _SIZE else 0, _FILE)
    )


def _ustar(name: bytes, size: int, kind: bytes) -> bytes:
    digits = b"%011o\0" % size
    checksum = b"%06o\0 " % (_SUM + sum(name) + sum(digits) + kind[0])
    return name.ljust(_NAME, b"\0") + _BEFORE_SIZE + digits + _AFTER_SIZE + checksum + kind + _AFTER_TYPE


def _record(name: str, value: bytes) -> bytes:
    """Make ``LENGTH NAME=VALUE`` and a line end; the length counts itself."""
    rest = b" %s=%s\n" % (name.encode("ascii"), value)
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return b"%d" % length + rest
