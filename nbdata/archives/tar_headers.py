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

import io
import tarfile
from tarfile import (  # type: ignore[attr-defined]
    EmptyHeaderError,
    EOFHeaderError,
    TruncatedHeaderError,
)
from typing import Any

from nbdata.archives.stream import volume_at
from nbdata.errors import BadArchive, NbdataError

__all__ = ["Header", "Headers", "Tape"]

_BUFFER = 1 << 20
_MAX_HEADER = 4 << 20
# Of mode, size, time and checksum, in octal digits.
_NUMBERS = ((100, 107), (124, 135), (136, 147), (148, 154))
_END = b" \0"
_PLAIN_FILE = ord("0")
_MAGIC = (b"ustar\0", b"ustar ")


class Header(tarfile.TarInfo):
    """A header; those of plain files are read faster than `tarfile` does, and all others by it.

    Owners and groups are left out: nobody here needs them. Source of the format: POSIX.1-2017, pax,
    "ustar Interchange Format".
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Header:
        plain = (
            len(buf) == tarfile.BLOCKSIZE
            and buf[156] == _PLAIN_FILE
            and buf[257:263] in _MAGIC
            and buf[107] in _END
            and buf[135] in _END
            and buf[147] in _END
        )
        try:
            numbers = [int(buf[a:b], 8) for a, b in _NUMBERS] if plain else []
        except ValueError:
            numbers = []
        if not numbers or sum(buf) - sum(buf[148:156]) + 8 * ord(" ") != numbers[3]:
            return super().frombuf(buf, encoding, errors)
        info = cls(_text(bytes(buf[:100]), encoding, errors))
        if prefix := _text(bytes(buf[345:500]), encoding, errors):
            info.name = f"{prefix}/{info.name}"
        info.mode, info.size, info.mtime, info.chksum = numbers
        return info


def _text(field: bytes, encoding: str, errors: str) -> str:
    return field.partition(b"\0")[0].decode(encoding, errors)


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


class Tape:
    """A stream that only winds forwards, with the position and the errors that go with it."""

    def __init__(self, source: io.RawIOBase, name: str | None, position: int) -> None:
        self._source = source
        self._buffered = io.BufferedReader(source, _BUFFER)
        self._position = position
        self.name = name
        self.ended = False
        self.header_budget: int | None = None

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        """At most size bytes, fewer only at the end; for `tarfile`, which reads headers with it."""
        if self.header_budget is not None:
            self.header_budget -= size
            if self.header_budget < 0 or size < 0:
                raise self.bad("has a header of impossible length")
        data = self._buffered.read(size)
        self._position += len(data)
        self.ended = self.ended or len(data) < size
        return data

    def fill(self, view: memoryview) -> None:
        """Fill the view, or raise that the archive ends too early."""
        count = self._buffered.readinto(view)
        self._position += count
        if count < len(view):
            raise self.ends_too_early()

    def skip_to(self, position: int) -> None:
        """Wind forwards."""
        while self._position < position:
            size = min(position - self._position, _BUFFER)
            if len(self.read(size)) < size:
                raise self.ends_too_early()

    def drain(self) -> None:
        """Read what is left, which must be zeros."""
        while data := self.read(_BUFFER):
            if data.count(0) < len(data):
                self._position -= len(data.lstrip(b"\0"))
                raise self.bad("has more data after its end", "If several archives were joined, unpack each")

    def ends_too_early(self) -> BadArchive:
        return self.bad("ends too early", "Check that the last volume is there, and whole")

    def bad(self, what: str, remedy: str = "Fetch it again and compare digests") -> BadArchive:
        details: dict[str, Any] = {"offset": self._position}
        place = f"byte {self._position:,}"
        where = volume_at(self._source, max(self._position - 1, 0))
        if where is not None:
            details["volume"] = where[0]
            place += f", in volume {where[0]}"
        return BadArchive(
            f"the tar archive {what} at {place}", path=self.name, remedy=remedy, details=details
        )

    def close(self) -> None:
        if not self._source.closed:
            self._buffered.detach()  # the source is not ours to close
