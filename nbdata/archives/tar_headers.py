"""The headers of a tar stream, one after the other, and every kind of damage told from the end.

They are parsed by `tarfile` (ustar, pax, GNU long names and sparse files); what is done about them differs, because
`tarfile` takes several kinds of damage for the end of the archive:

* The end is a zero block. A stream that ends without one, even between two members, ends too early:
  that is what a missing last volume looks like.
* A header that is no header is damage, not the end, and so is anything but zeros after the end
  (`tar` would drop it without a word; it is how two archives joined by ``cat`` look).
* Header data (long names, pax records, maps of sparse files) is bounded for each member.
"""

from __future__ import annotations

import contextlib
import re
import struct
import tarfile
from tarfile import (  # type: ignore[attr-defined]
    EmptyHeaderError,
    EOFHeaderError,
    TruncatedHeaderError,
)
from typing import Any, NamedTuple
from zlib import adler32

from nbdata.archives.tape import Tape
from nbdata.errors import NbdataError

__all__ = ["Header", "Headers", "PlainFile"]

_MAX_HEADER = 4 << 20
_BLOCK = tarfile.BLOCKSIZE
# Name, mode, size, time and checksum, each number with the byte behind it, kind, magic, prefix of the name.
_FIELDS = struct.Struct("100s 7sc 16x 11sc 11sc 6s 2x c 100x 6s 82x 155s 12x")
_END, _PLAIN_FILE, _PAX, _LONG_NAME = b" \0", b"0", b"x", b"L"
_MAGIC = (b"ustar\0", b"ustar ")
# Records of a pax header that say nothing about where the content is, or that nobody here needs; as long as they are
# short, the header lies in one piece of memory.
_RECORD = re.compile(rb"(\d{1,4}) (path|mtime|atime|ctime|uid|gid|uname|gname)=")
_TIME = re.compile(rb"(\d{1,11})(?:\.(\d{1,20}))?")
# Global records that change no member; git archive writes one.
_IDLE = {"comment"}
_SECOND = 10**9


class PlainFile(NamedTuple):
    """A file of which its header says nothing unusual, as most are."""

    name: str
    mode: int
    size: int
    mtime_ns: int
    offset: int


class Header(tarfile.TarInfo):
    """A header; those of plain files are read faster than `tarfile` does, and all others by it.

    Owners and groups are left out: nobody here needs them. Source of the format: POSIX.1-2017, pax,
    "ustar Interchange Format".
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Header:
        found = _fields(memoryview(buf))
        if found is not None and found[0] == _PLAIN_FILE:
            _, name, prefix, size, mode, mtime = found
            info = cls(_joined(name, prefix))
            with contextlib.suppress(ValueError):
                info.size, info.mode, info.mtime = size, int(mode, 8), int(mtime, 8)
                info.chksum = int(buf[148:154], 8)
                return info
        return super().frombuf(buf, encoding, errors)


# Kind, name and its prefix, size, and mode and time as they are written.
_Fields = tuple[bytes, bytes, bytes, int, bytes, bytes]


def _fields(buf: memoryview) -> _Fields | None:
    """What a header says, if it writes numbers in plain octal digits, and its checksum is right."""
    if len(buf) != _BLOCK:
        return None
    name, mode, a, size, b, mtime, c, checksum, kind, magic, prefix = _FIELDS.unpack(buf)
    if magic not in _MAGIC or a not in _END or b not in _END or c not in _END:
        return None
    # The low half of Adler-32 is a sum and one more, and that of so few bytes never passes its modulus; the checksum
    # is made with spaces in its own place.
    total = (adler32(buf[:148]) & 0xFFFF) + (adler32(buf[156:384]) & 0xFFFF) + (adler32(buf[384:]) & 0xFFFF)
    try:
        if int(checksum, 8) != total - 3 + 8 * ord(" "):
            return None
        return kind, name, prefix, int(size, 8), mode, mtime
    except ValueError:
        return None


def _joined(name: bytes, prefix: bytes) -> str:
    return f"{_text(prefix)}/{_text(name)}" if prefix[0] else _text(name)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _records(data: bytes) -> tuple[str | None, int | None] | None:
    """Path and time of a pax header, if all its records are of the harmless kind. Source: POSIX.1-2017, pax."""
    path: str | None = None
    mtime_ns: int | None = None
    at = 0
    while at < len(data):
        record = _RECORD.match(data, at)
        end = at + int(record[1]) if record is not None else 0
        if record is None or not record.end() < end <= len(data) or data[end - 1] != ord("\n"):
            return None
        key, value = record[2], data[record.end() : end - 1]
        if key == b"mtime":
            time = _TIME.fullmatch(value)
            if time is None:
                return None
            seconds, fraction = time.groups(b"")
            mtime_ns = int(seconds) * _SECOND + int(fraction[:9].ljust(9, b"0"))
        elif key == b"path":
            path = value.decode("utf-8", "surrogateescape").rstrip("/")
        at = end
    return path, mtime_ns


class Headers(tarfile.TarFile):
    """`tarfile`'s parser over a tape: every kind of damage is told from the end."""

    firstmember: tarfile.TarInfo | None

    def __init__(self, tape: Tape, pax_headers: dict[str, str]) -> None:
        self._tape = tape
        options: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape"}
        super().__init__(fileobj=tape, mode="r", pax_headers=dict(pax_headers), **options)  # type: ignore[arg-type]

    def plain_file(self) -> PlainFile | None:
        """The next member, if it is a plain file with nothing unusual about it; else `following` is to tell."""
        if self.firstmember is not None or self._loaded or not self.pax_headers.keys() <= _IDLE:
            return None
        tape = self._tape
        tape.skip_to(self.offset)
        buf = tape.peek(_BLOCK)
        found = None if buf is None else _fields(buf)
        if found is None:
            return None
        kind, name, prefix, size, mode, mtime = found
        path, mtime_ns, length = None, None, _BLOCK
        if kind in (_PAX, _LONG_NAME) and size > 0:  # it speaks of the header that comes next
            length = _BLOCK - size // -_BLOCK * _BLOCK
            whole = tape.peek(length + _BLOCK)
            if whole is None:
                return None
            told = bytes(whole[_BLOCK : _BLOCK + size])
            more = _records(told) if kind == _PAX else (_text(told), None)
            found = _fields(whole[length:])
            if more is None or found is None:
                return None
            kind, name, prefix, size, mode, mtime = found
            path, mtime_ns = more
            length += _BLOCK
        if kind != _PLAIN_FILE or size < 0:
            return None
        try:
            bits = int(mode, 8)
            if mtime_ns is None:
                mtime_ns = int(mtime, 8) * _SECOND
        except ValueError:
            return None
        begins = tape.tell()
        tape.wind(length)
        self.offset = begins + length - size // -_BLOCK * _BLOCK
        return PlainFile(_joined(name, prefix) if path is None else path, bits, size, mtime_ns, begins)

    def following(self) -> tarfile.TarInfo | None:
        """The next header, or None at the zero block that ends the archive."""
        if self.firstmember is not None:  # the constructor has read it
            info, self.firstmember = self.firstmember, None
            return info
        return None if self._loaded else self.next()

    def next(self) -> tarfile.TarInfo | None:
        tape = self._tape
        try:
            tape.skip_to(self.offset)
            tape.header_budget = _MAX_HEADER
            info = Header.fromtarfile(self)
        except EOFHeaderError:
            self._loaded = True
            return None
        except (EmptyHeaderError, TruncatedHeaderError):
            raise tape.ends_too_early() from None
        except NbdataError:
            raise
        except (tarfile.TarError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            if tape.ended:
                raise tape.ends_too_early() from error
            raise tape.bad(f"has a damaged header ({error})") from error
        finally:
            tape.header_budget = None
        if info.size < 0 or self.offset < tape.tell():
            raise tape.bad(f"has a header with an impossible size, of {info.name}")
        return info
