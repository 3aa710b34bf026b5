"""Finds plain files in tar data in memory: a fast path for the contents of most archives.

It understands headers with octal numbers, long names of GNU tar, and pax records with only a name and a time. It stops
at anything else, which `tar_headers` then parses. Checksums are compared modulo 65521, the modulus of Adler-32. The
low half of Adler-32 is the sum of all bytes plus one, and the checksums are at most twice the modulus.
"""

from __future__ import annotations

import itertools
import re
import struct
from zlib import adler32

from nbdata.archives.tar_fields import MANY_RECORDS, decoded, joined

__all__ = ["PlainFile", "plain_files"]

#: Name, start of the content and its size.
PlainFile = tuple[str, int, int]

_BLOCK = 512
# Name, mode, size and time, checksum, magic, the first byte of the name's prefix.
_FIELDS = struct.Struct("100s 8s 16x 24s 6s 103x 6s 82x c")
_DIGITS = b"01234567"
# The bytes after mode, size and time.
_ENDS = frozenset(bytes(ends) for ends in itertools.product(b" \0", repeat=3))
_KIND = 156
_PLAIN, _PAX, _LONG_NAME = b"0xL"
_LINE_END = ord("\n")
_POSIX, _GNU = b"ustar\0", b"ustar "
# Number of pax headers to remember as already checked; programs repeat the same ones often.
_KNOWN = 16
_MODULUS = 65521
# A checksum is computed with eight spaces in its own field.
_BLANKS = 8 * ord(" ")
# One record: its length includes the length field itself.
_TIME = re.compile(rb"(\d{2,3}) [amc]time=[\d.]{1,40}\n")
_PATH = re.compile(rb"(\d{2,4}) path=([^\n\0]+)\n")


def plain_files(block: memoryview, at: int = 0) -> tuple[list[PlainFile], int]:
    """Find the next plain files whose whole content is in the block; also returns where to continue.

    Parameters
    ----------
    block : memoryview
        A view of bytes.
    at : int
        Position of a header.
    """
    found: list[PlainFile] = []
    end, begins, path = len(block), at, ""
    known: dict[bytes, int] = {}
    while at + _BLOCK <= end:
        content = at + _BLOCK
        kind = block[at + _KIND]
        size = known.get(bytes(block[at:content]), -1) if kind == _PAX else -1
        if size < 0:
            name, mode, numbers, checksum, magic, prefixed = _FIELDS.unpack_from(block, at)
            posix = magic == _POSIX
            if not (posix or magic == _GNU):
                break
            if (mode + numbers + checksum).translate(None, _DIGITS) not in _ENDS:
                break
            total = (adler32(block[at:content]) & 0xFFFF) - (adler32(block[at + 148 : at + 156]) & 0xFFFF)
            try:
                size = int(numbers[:11], 8)
                if (total - int(checksum, 8) + _BLANKS) % _MODULUS:
                    break
            except ValueError:
                break
            if kind == _PAX and len(known) < _KNOWN:
                known[bytes(block[at:content])] = size
        after = content - size // -_BLOCK * _BLOCK
        if after > end:
            break
        if kind == _PLAIN:
            if not path:
                if posix and prefixed != b"\0":
                    path = joined(name, bytes(block[at + 345 : at + 500]))
                else:
                    path = decoded(name.partition(b"\0")[0])
            if path[-1:] == "/":
                break
            found.append((path, content, size))
            path, begins = "", after
        elif kind == _PAX:
            told = _path_in(bytes(block[content : content + size]))
            if told is None:
                break
            path = told or path
        elif kind == _LONG_NAME and not path:
            path = decoded(bytes(block[content : content + size]).partition(b"\0")[0])
        else:
            break
        at = after
    return found, begins


def _path_in(data: bytes) -> str | None:
    """Return the path in a pax header, or ''; None if it may contain more than a path and a time."""
    # Most contain only one time.
    if (
        data[2:9] == b" mtime="
        and data[-1] == _LINE_END
        and data.count(b"\n") == 1
        and data[:2] == b"%d" % len(data)
    ):
        return ""
    if data.count(b"\n") > MANY_RECORDS:
        return None
    at, path = 0, ""
    while at < len(data):
        record = _TIME.match(data, at) or _PATH.match(data, at)
        if record is None or int(record[1]) != record.end() - at:
            return None
        if record.re is _PATH:
            path = decoded(record[2])
        at = record.end()
    return path
