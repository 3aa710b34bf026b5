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

import re
import tarfile
from tarfile import (  # type: ignore[attr-defined]
    EmptyHeaderError,
    EOFHeaderError,
    TruncatedHeaderError,
)
from typing import Any
from zlib import adler32

from nbdata.archives.tape import Tape
from nbdata.errors import NbdataError

__all__ = ["Header", "Headers"]

_MAX_HEADER = 4 << 20
_BLOCK = tarfile.BLOCKSIZE
_END = b" \0"
_PLAIN_FILE, _PAX, _LONG_NAME = ord("0"), ord("x"), ord("L")
_MAGIC = (b"ustar\0", b"ustar ")
# Records of a pax header that say nothing about where the content is, or that nobody here needs; as long as they are
# short, the header lies in one piece of memory.
_RECORD = re.compile(rb"(\d{1,4}) (path|mtime|atime|ctime|uid|gid|uname|gname)=")
_TIME = re.compile(rb"\d{1,11}(\.\d{1,20})?")
# Global records that change no member; git archive writes one.
_IDLE = {"comment"}


class Header(tarfile.TarInfo):
    """A header; those of plain files are read faster than `tarfile` does, and all others by it.

    Owners and groups are left out: nobody here needs them. Source of the format: POSIX.1-2017, pax,
    "ustar Interchange Format".
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Header:
        buf = bytes(buf)
        plain = _numbers(buf) if buf[156:157] == b"0" else None
        if plain is None:
            return super().frombuf(buf, encoding, errors)
        info = cls(_name(buf, encoding, errors))
        info.mode, info.size, info.mtime, info.chksum = plain
        return info


def _numbers(buf: bytes) -> tuple[int, int, int, int] | None:
    """Mode, size, time and checksum of a header that writes them in plain octal digits, and whose checksum is right."""
    if (
        len(buf) != _BLOCK
        or buf[257:263] not in _MAGIC
        or buf[107] not in _END
        or buf[135] not in _END
        or buf[147] not in _END
    ):
        return None
    try:
        found = int(buf[100:107], 8), int(buf[124:135], 8), int(buf[136:147], 8), int(buf[148:154], 8)
    except ValueError:
        return None
    return found if _sum(buf) == found[3] else None


def _sum(buf: bytes) -> int:
    """The checksum of a header. The low half of Adler-32 is a sum, and that of 256 bytes passes its modulus never."""
    low = (adler32(buf[:256]) & 0xFFFF) + (adler32(buf[256:]) & 0xFFFF) - 2
    return low - sum(buf[148:156]) + 8 * ord(" ")


def _name(buf: bytes, encoding: str, errors: str) -> str:
    name, prefix = _text(buf[:100], encoding, errors), _text(buf[345:500], encoding, errors)
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
    return field.partition(b"\0")[0].decode(encoding, errors)


def _records(data: bytes) -> dict[str, str] | None:
    """The records of a pax header, if all of them are of the harmless kind. Source: POSIX.1-2017, pax."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        record = _RECORD.match(data, at)
        end = at + int(record[1]) if record is not None else 0
        if record is None or not record.end() < end <= len(data) or data[end - 1] != ord("\n"):
            return None
        value = data[record.end() : end - 1]
        key = record[2].decode()
        if key.endswith("time") and not _TIME.fullmatch(value):
            return None
        found[key] = value.decode("utf-8", "surrogateescape")
        at = end
    if "path" in found:
        found["path"] = found["path"].rstrip("/")
    return found


class Headers(tarfile.TarFile):
    """`tarfile`'s parser over a tape: every kind of damage is told from the end."""

    firstmember: tarfile.TarInfo | None

    def __init__(self, tape: Tape, pax_headers: dict[str, str]) -> None:
        self._tape = tape
        options: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape"}
        super().__init__(fileobj=tape, mode="r", pax_headers=dict(pax_headers), **options)  # type: ignore[arg-type]

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
            info: tarfile.TarInfo | None = self._plain_file()
            if info is None:
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

    def _plain_file(self) -> Header | None:
        """The header of a plain file with nothing unusual about it, as most are; None: `tarfile` is to read it."""
        tape, begins, length = self._tape, self._tape.tell(), _BLOCK
        found = tape.peek(_BLOCK)
        if found is None or not self.pax_headers.keys() <= _IDLE:
            return None
        records: dict[str, str] = {}
        if found[156] in (_PAX, _LONG_NAME):  # about the header that comes next
            numbers = _numbers(bytes(found))
            if numbers is None or numbers[1] <= 0:
                return None
            before, length = length, length - numbers[1] // -_BLOCK * _BLOCK
            whole = tape.peek(length + _BLOCK)
            if whole is None:
                return None
            told = bytes(whole[before : before + numbers[1]])
            more = _records(told) if found[156] == _PAX else {"path": _text(told)}
            if more is None:
                return None
            records, found, length = more, whole[length:], length + _BLOCK
        head = bytes(found)
        numbers = _numbers(head) if head[156] == _PLAIN_FILE else None
        if numbers is None or numbers[1] < 0:
            return None
        path = records.get("path")
        info = Header(_name(head, "utf-8", "surrogateescape") if path is None else path)
        info.mode, info.size, info.mtime, info.chksum = numbers
        if records:
            info.pax_headers = records
        tape.wind(length)
        info.offset, info.offset_data = begins, begins + length
        self.offset = info.offset_data - info.size // -_BLOCK * _BLOCK
        return info
