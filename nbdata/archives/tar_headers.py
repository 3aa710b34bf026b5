"""Parses the headers of a tar stream: v7, ustar, pax, and GNU tar's with long names and sparse files.

It always tells damage from the end, which other parsers confuse:

* The end is two zero blocks, or one at the end of the stream. A stream without them ends too early, even if it ends
  between two members: a missing last volume looks like that.
* A block that is not a header is damage, not the end. Anything but zeros after the end is damage too; `tar` would
  drop it silently, and archives joined by ``cat`` look like that. One zero block before another header is skipped, as
  by `tar`.
* The size of header data (long names, pax records, maps of sparse files) is limited for each member. Pax records and
  numbers in maps are also limited for the whole archive, in proportion to its members and their content, because each
  takes time and a few bytes of compressed data hold a million of them.

Sources of the format: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header"; the GNU tar manual,
"Basic Tar Format" and "Storing Sparse Files".
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import adler32

from nbdata.archives.forward_reader import ForwardReader
from nbdata.archives.looks import looks_like
from nbdata.archives.pax_records import Records, harmless
from nbdata.archives.safety import shortened
from nbdata.archives.tar_fields import (
    MANY_RECORDS,
    MAX_SECONDS,
    SECOND,
    decimal,
    joined,
    number,
    text_of,
    time_ns,
)
from nbdata.archives.tar_scan import PlainFile, plain_files
from nbdata.errors import BadArchive

__all__ = ["Header", "Headers", "is_header"]

_MAX_HEADER = 4 << 20
# Limit on the characters of global pax records.
_MAX_GLOBAL = 64 << 10
# Pax records and numbers in maps of sparse files in an archive, beyond MANY_RECORDS for each member and one for each
# _CONTENT bytes of its content: a piece of a sparse file has two numbers, and 512 bytes or more.
_ENTRIES, _CONTENT = 1 << 20, 256
_BLOCK = 512
# Name, mode, size, time and checksum, each number with the byte after it, kind, magic, prefix of the name.
_FIELDS = struct.Struct("100s 7sc 16x 11sc 11sc 6s 2x c 100x 6s 82x 155s 12x")
_NUMBER_ENDS, _PLAIN_FILE, _PAX, _LONG_NAME = b" \0", b"0", b"x", b"L"
_POSIX, _GNU = b"ustar\0", b"ustar "
# Global records that change members. Others are dropped, since each takes time for each member.
_GLOBAL = {"path", "linkpath", "size", "mtime", "SUN.holesdata"}
_DIGITS = b"01234567 \0"

_KINDS = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"S": "file",
    b"1": "hardlink",
    b"2": "symlink",
    b"3": "device",
    b"4": "device",
    b"5": "folder",
    b"6": "fifo",
    b"D": "folder",
    b"V": "label",
    b"M": "continuation",
}
# Kinds whose size field does not count content in the archive.
_EMPTY = {"hardlink", "symlink", "device", "fifo", "label"}

# (offset, length) of the stored pieces of a sparse file
_Map = tuple[tuple[int, int], ...]


class Header(NamedTuple):
    """One member as its headers describe it.

    Attributes
    ----------
    name : str
        As written, without a slash at the end. Bytes that are not UTF-8 become surrogates.
    kind : str
        ``file``, ``folder``, ``hardlink``, ``symlink``, ``device``, ``fifo``, ``label`` (of the archive), or
        ``continuation`` (of a file that begins in another volume of GNU tar).
    mode : int
    size : int
        Bytes of content; for a sparse file, the expanded size.
    mtime_ns : int
        Nanoseconds since 1970.
    offset : int
        Offset of the first of its headers.
    linkname : str
    data : tuple of (offset, length), or None
        The stored pieces of a sparse file, which follow each other in the archive; None if all of it is stored.
    """

    name: str
    kind: str
    mode: int
    size: int
    mtime_ns: int
    offset: int
    linkname: str = ""
    data: _Map | None = None


class Headers:
    """Iterates over the headers of a tar stream, one member after the other.

    Parameters
    ----------
    reader : ForwardReader
        Positioned at a header.
    pax_headers : dict
        The global pax records that apply at that position.

    Attributes
    ----------
    offset : int
        Offset of the next header.
    pax_headers : dict
        The global pax records that apply there, and change members.
    lone_blocks : int
        Zero blocks that were skipped because a header follows them.
    unknown : set of str
        Kinds that the standard does not define; as it requires, their members are treated as files.
    """

    def __init__(self, reader: ForwardReader, pax_headers: dict[str, str]) -> None:
        self._reader = reader
        self._ended = False
        self._entries_left = _ENTRIES
        self.offset = reader.tell()
        self.pax_headers = dict(pax_headers)
        self.lone_blocks = 0
        self.unknown: set[str] = set()

    def following(self) -> Header | None:
        """Return the next member, or None at the end of the archive."""
        return None if self._ended else self._plain_file() or self._any()

    def plain_files(self) -> tuple[memoryview, int, list[PlainFile]]:
        """Return the next plain files whose whole data is in memory. This is the fastest way.

        Returns
        -------
        memory : memoryview
            The memory that holds them; valid until the next read.
        begins : int
            Offset of `memory` in the archive.
        found : list of (name, offset in `memory`, size)
            Empty if the next member is of another kind, or at the end.
        """
        if self._ended or self.pax_headers:
            return memoryview(b""), 0, []
        self._reader.skip_to(self.offset)
        begins, memory = self._reader.tell(), self._reader.rest()
        found, end = plain_files(memory)
        self._reader.wind(end)
        self.offset = begins + end
        return memory, begins, found

    def _plain_file(self) -> Header | None:
        """Return the next member if it is a plain file without special fields, as most are. This is a fast path."""
        if self.pax_headers:
            return None
        reader = self._reader
        reader.skip_to(self.offset)
        buf = reader.peek(_BLOCK)
        found = None if buf is None else _fields(buf)
        if found is None:
            return None
        kind, name, prefix, size, mode, mtime = found
        path, mtime_ns, length = None, None, _BLOCK
        if kind in (_PAX, _LONG_NAME) and size > 0:  # it describes the next header
            length = _BLOCK - size // -_BLOCK * _BLOCK
            whole = reader.peek(length + _BLOCK)
            if whole is None:
                return None
            told = bytes(whole[_BLOCK : _BLOCK + size])
            more = harmless(told) if kind == _PAX else (text_of(told), None)
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
                mtime_ns = int(mtime, 8) * SECOND
        except ValueError:
            return None
        if not path:
            path = joined(name, prefix)
        if path.endswith("/"):
            return None
        begins = reader.tell()
        reader.wind(length)
        self.offset = begins + length - size // -_BLOCK * _BLOCK
        return Header(path, "file", bits, size, mtime_ns, begins)

    def _any(self) -> Header | None:
        """Return the next member of any kind."""
        reader = self._reader
        reader.skip_to(self.offset)
        reader.header_budget = _MAX_HEADER
        try:
            return self._described()
        except (ValueError, OverflowError) as error:
            raise reader.bad(f"has a damaged header ({error})") from error
        finally:
            reader.header_budget = None

    def _described(self) -> Header | None:
        """Return the member that the next headers describe together."""
        begins = self._reader.tell()
        records, names = Records(), dict[bytes, str]()
        while True:
            block = self._reader.read(_BLOCK) if self._reader.tell() == 0 else self._read(_BLOCK)
            if len(block) == _BLOCK and not any(block):
                if records.values or names:
                    raise ValueError("a long name or pax records, and no member that they are of")
                following = self._after_zeros()
                if following is None:
                    self._ended = True
                    return None
                self.lone_blocks += 1
                begins, block = self._reader.tell() - _BLOCK, following
            fields = self._parsed(block)
            if fields.kind in (b"x", b"X"):
                records.add(self._content(fields.size))
            elif fields.kind == b"g":
                added = Records()
                added.add(self._content(fields.size))
                records.count += added.count
                if added.offsets or any(name.startswith("GNU.sparse.") for name in added.values):
                    raise ValueError("a sparse file's map that is to hold for all members")
                told = _without_empty({**self.pax_headers, **added.values})
                if sum(map(len, (*told, *told.values()))) > _MAX_GLOBAL:
                    raise ValueError("global records of more than 64 KiB")
                self.pax_headers = {name: told[name] for name in _GLOBAL & told.keys()}
            elif fields.kind in (b"L", b"K"):
                names[fields.kind] = text_of(self._content(fields.size))
            else:
                return self._member(begins, fields, records, names)

    def _parsed(self, block: bytes) -> _Fields:
        try:
            return _Fields(block)
        except ValueError:
            if self._reader.tell() > len(block):  # not the first one
                raise
            raise BadArchive(
                "the file holds no tar archive",
                path=self._reader.name,
                got=looks_like(block),
                remedy="untar_volumes unpacks tar, plain or compressed; check what was stored under this name",
                details={"offset": 0},
            ) from None

    def _read(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            raise self._reader.ends_too_early()
        return data

    def _content(self, size: int) -> bytes:
        """Return the content of a header that describes another header."""
        if size < 0:
            raise ValueError("a negative size")
        return self._read(_padded(size))[:size]

    def _after_zeros(self) -> bytes | None:
        """Return the block after a zero block if it is a header; None at the end."""
        block = self._reader.read(_BLOCK)
        if not any(block):
            return None
        try:
            _Fields(block)
        except ValueError:
            raise self._reader.goes_on() from None
        return block

    def _member(self, begins: int, fields: _Fields, records: Records, names: dict[bytes, str]) -> Header:
        told = _without_empty({**self.pax_headers, **records.values})
        name = told.get("GNU.sparse.name") or told.get("path") or names.get(b"L") or fields.name
        linkname = told.get("linkpath") or names.get(b"K") or fields.linkname
        kind = _KINDS.get(fields.kind)
        if kind is None:
            self.unknown.add(fields.kind.decode("latin-1"))
            kind = "file"
        if kind == "file" and name.endswith("/"):  # v7 marks folders this way
            kind = "folder"
        stored = decimal(told["size"]) if "size" in told else fields.size
        if kind in _EMPTY or fields.kind == b"5":
            stored = 0
        if stored < 0:
            raise self._reader.bad(f"has a header with an impossible size, of {shortened(name)}")
        size, data = stored if kind == "file" else 0, None
        at = self._reader.tell()
        if kind == "file":
            sparse = self._old_map(fields) if fields.kind == b"S" else self._pax_map(told, records)
            if sparse is not None:
                size, data = sparse
        left = stored if fields.kind == b"S" else stored - (self._reader.tell() - at)
        self.offset = self._reader.tell() + _padded(max(left, 0))
        self._entries_left -= max(
            max(records.count, 2 * len(data or ())) - MANY_RECORDS - stored // _CONTENT, 0
        )
        if self._entries_left < 0:
            raise self._reader.bad(
                "has more pax records, or smaller pieces of sparse files, than its content explains"
            )
        if left < 0 or (data is not None and not _is_possible(data, size, left)):
            raise self._reader.bad(f"has a sparse file with an impossible map, {shortened(name)}")
        mtime_ns = time_ns(told.get("mtime", ""))
        if mtime_ns is None:
            mtime_ns = fields.mtime * SECOND if abs(fields.mtime) <= MAX_SECONDS else 0
        name = name.rstrip("/") or name[:1]
        return Header(name, kind, fields.mode, size, mtime_ns, begins, linkname, data)

    def _old_map(self, fields: _Fields) -> tuple[int, _Map]:
        """Return size and map of a sparse file in GNU tar's old format, including map blocks after the header."""
        found: list[tuple[int, int]] = []
        entries, more, size = fields.block[386:482], fields.block[482], number(fields.block[483:495])
        while True:
            slots = (entries[at : at + 24] for at in range(0, len(entries) // 24 * 24, 24))
            # Unused slots are empty.
            found += [(number(slot[:12]), number(slot[12:])) for slot in slots if slot.strip(b"\0")]
            if not more:
                return size, tuple(found)
            block = self._read(_BLOCK)
            entries, more = block[:504], block[504]

    def _pax_map(self, told: dict[str, str], records: Records) -> tuple[int, _Map] | None:
        """Return size and map of a sparse file in one of the three pax formats; None if the file is not sparse."""
        if "SUN.holesdata" in told:
            raise ValueError("a sparse file as Solaris writes it")
        version = told.get("GNU.sparse.major"), told.get("GNU.sparse.minor")
        if version == ("1", "0"):  # the map precedes the content
            numbers = self._numbers()
            size = decimal(told.get("GNU.sparse.realsize", ""))
        elif "GNU.sparse.map" in told:
            numbers = [decimal(number) for number in told["GNU.sparse.map"].split(",")]
            size = decimal(told.get("GNU.sparse.size", told.get("GNU.sparse.realsize", "")))
        elif "GNU.sparse.size" in told:
            if len(records.offsets) != len(records.lengths):
                raise ValueError("offsets and lengths of a sparse file that are not as many")
            numbers = [n for pair in zip(records.offsets, records.lengths, strict=True) for n in pair]
            size = decimal(told["GNU.sparse.size"])
        else:
            return None
        if len(numbers) % 2:
            raise ValueError("an odd number of numbers in a sparse file's map")
        return size, tuple(zip(numbers[::2], numbers[1::2], strict=True))

    def _numbers(self) -> list[int]:
        """Read decimal numbers, one per line, padded to whole blocks; the first is the number of pairs."""
        text = self._read(_BLOCK)
        lines: list[bytes] = []
        wanted = 1
        while True:
            *whole, text = text.split(b"\n")
            lines += whole
            if lines and wanted == 1:
                wanted = 1 + 2 * decimal(lines[0].decode("latin-1"))
            if len(lines) >= wanted:
                return [decimal(line.decode("latin-1")) for line in lines[1:wanted]]
            if len(text) > _BLOCK:
                raise ValueError("a number without end in a sparse file's map")
            text += self._read(_BLOCK)


class _Fields:
    """The fields of one header block; ValueError if the block is not a header."""

    def __init__(self, block: bytes) -> None:
        if len(block) < _BLOCK:
            raise ValueError("less than a block")
        checksum = number(block[148:156])
        bare = block[:148] + b" " * 8 + block[156:]
        if checksum not in (sum(bare), sum(struct.unpack("512b", bare))):  # some programs add signed bytes
            raise ValueError("bad checksum")
        self.block = block
        self.kind = block[156:157]
        self.size = number(block[124:136])
        # GNU tar stores other data in the field that POSIX uses for the first part of the name.
        self.name = joined(block[:100], block[345:500] if block[257:263] == _POSIX else b"\0")
        self.linkname = text_of(block[157:257])

    @property
    def mode(self) -> int:
        """Permissions; may be invalid in headers that describe other headers."""
        return number(self.block[100:108])

    @property
    def mtime(self) -> int:
        """Seconds since 1970; may be invalid in headers that describe other headers."""
        return number(self.block[136:148])


def is_header(block: bytes) -> bool:
    """True if a block is a header, which its checksum shows."""
    try:
        _Fields(block)
    except ValueError:
        return False
    return True


def _without_empty(records: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in records.items() if value}


def _is_possible(data: _Map, size: int, stored: int) -> bool:
    """True if a map has its pieces in order, within the file, and covering all that is stored; maps may be forged."""
    end = total = 0
    for offset, length in data:
        if offset < end or offset + length > size:
            return False
        end = offset + length
        total += length
    return total == stored


def _padded(size: int) -> int:
    return size + -size % _BLOCK


# Kind, name and its prefix, size, and the unparsed mode and time.
_Quick = tuple[bytes, bytes, bytes, int, bytes, bytes]


def _fields(buf: memoryview) -> _Quick | None:
    """Parse a header that has plain octal numbers and a correct checksum; None for others."""
    if len(buf) != _BLOCK:
        return None
    name, mode, a, size, b, mtime, c, checksum, kind, magic, prefix = _FIELDS.unpack(buf)
    if a not in _NUMBER_ENDS or b not in _NUMBER_ENDS or c not in _NUMBER_ENDS:
        return None
    if magic != _POSIX:
        if magic != _GNU:
            return None
        prefix = b"\0"  # GNU tar stores other data there
    # The low half of Adler-32 is the sum of the bytes plus one. For so few bytes the sum never reaches the modulus. The
    # checksum is computed with spaces in its own field.
    total = (adler32(buf[:148]) & 0xFFFF) + (adler32(buf[156:384]) & 0xFFFF) + (adler32(buf[384:]) & 0xFFFF)
    if (size + mode + mtime + checksum).translate(None, _DIGITS):
        return None  # `int` would accept signs, underscores and more
    try:
        if int(checksum, 8) != total - 3 + 8 * ord(" "):
            return None
        return kind, name, prefix, int(size, 8), mode, mtime
    except ValueError:
        return None
