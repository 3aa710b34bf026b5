"""Reads the members of a zip archive by byte ranges; members that are not requested are not fetched."""

from __future__ import annotations

import bz2
import io
import lzma
import stat
import struct
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import zstandard
from isal import igzip_lib
from isal.isal_zlib import crc32

from nbdata.archives.decoders import CODECS, Decoder
from nbdata.archives.member import Member, file_mode
from nbdata.archives.member_budget import MemberBudget
from nbdata.archives.remarks import PADDING, Remarks
from nbdata.archives.safety import PathGuard, components, shortened
from nbdata.archives.wanted import WantedMembers
from nbdata.archives.windows import MAX_WINDOW, WindowTooLarge, too_large
from nbdata.archives.zip_directory import LOCAL_SIZE, Entry, ZipDirectory, read_directories
from nbdata.archives.zip_end import LOCAL, RangeSource
from nbdata.errors import BadArchive, UnsafeMember
from nbdata.sizes import format_size

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ZipSource", "read_entry", "read_zip", "unreadable"]

# A gap between two members up to this size is read instead of sending a new request. Largest stretch per request.
_GAP, _STRETCH = 1 << 20, 64 << 20
_BLOCK = 256 << 10
# Largest target of a link, in bytes.
_LINK = 4096
_METHODS = {
    1: "Shrink", 2: "Reduce", 3: "Reduce", 4: "Reduce", 5: "Reduce", 6: "Implode", 9: "Deflate64", 10: "Implode",
    95: "xz", 96: "JPEG", 97: "WavPack", 98: "PPMd", 99: "AES encryption",
}  # fmt: skip


class ZipSource(RangeSource, Protocol):
    """Volumes that can also be read as a stream."""

    def stream(self, start: int, end: int) -> io.RawIOBase:
        """Open a stream of the bytes between two offsets; the reader closes it."""


class _Reading:
    """Reads the volumes at one position, across members if they are close together."""

    def __init__(self, source: ZipSource) -> None:
        self._source = source
        self._stream: io.RawIOBase | None = None
        self._at = self._end = 0

    def at(self, offset: int, end: Callable[[], int]) -> None:
        """Move to an offset; `end` returns the offset to read ahead to, if a new request is needed."""
        if self._stream is not None and 0 <= offset - self._at <= _GAP and offset < self._end:
            left, scratch = offset - self._at, memoryview(bytearray(min(offset - self._at, _BLOCK)))
            while left:
                left -= self.into(scratch[:left])
            return
        self.close()
        self._at, self._end = offset, end()
        self._stream = self._source.stream(offset, self._end)

    def into(self, buffer: memoryview) -> int:
        """Read some of the next bytes; raises EOFError at an early end."""
        count = 0
        if self._stream is not None:
            count = self._stream.readinto(buffer) or 0
        if not count and len(buffer):
            raise EOFError
        self._at += count
        return count

    def exactly(self, count: int) -> bytes:
        """Read exactly `count` bytes."""
        data, filled = bytearray(count), 0
        while filled < count:
            filled += self.into(memoryview(data)[filled:])
        return bytes(data)

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class _Content:
    """The bytes of one member; opened at the first read."""

    def __init__(
        self, entry: Entry, most: int, reading: _Reading, end: Callable[[], int],
        bad: Callable[[str], BadArchive], spend: Callable[[int], None], max_window: int, archive: str,
    ) -> None:  # fmt: skip
        self._entry, self._most, self._reading, self._end = entry, most, reading, end
        self._bad, self._spend, self._max_window, self._archive = bad, spend, max_window, archive
        self._decoder: Decoder | None = None
        self._packed = entry.packed  # not read so far
        self._left = entry.size  # not handed out so far
        self._crc = 0
        self._begun = False
        self.closed = False
        self.end: int | None = None  # where its data ends, once its header was read

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def content(self) -> bytes | memoryview:
        return self.read()

    def read(self, size: int = -1) -> bytes:
        data = bytearray(self._left if size < 0 else min(size, self._left))
        view, done = memoryview(data), 0
        while done < len(data):
            done += self.readinto(view[done:])
        if not data:
            self._check()
        return bytes(data)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self.closed:
            raise ValueError("the member is read no more: the next one was asked for")
        view = memoryview(buffer).cast("B")[: self._left]
        if not view:
            self._check()
            return 0
        try:
            count = self._fill(view)
        except EOFError:
            raise self._wrong("ends too early") from None
        except WindowTooLarge as error:
            what = f"the member {shortened(self._entry.name)}"
            raise too_large(what, error, name=self._archive, offset=self._entry.offset) from error
        except (ValueError, OSError, lzma.LZMAError, zstandard.ZstdError, igzip_lib.IsalError) as error:  # type: ignore[misc]
            if isinstance(error, BadArchive):
                raise
            raise self._wrong("is damaged") from error
        self._crc = crc32(view[:count], self._crc)
        self._left -= count
        if not self._left:
            self._check()
        return count

    def _check(self) -> None:
        if self._crc != self._entry.crc:
            raise self._wrong("has another CRC-32 than its directory says")

    def _wrong(self, what: str) -> BadArchive:
        return self._bad(f"a member that {what}: {shortened(self._entry.name)}")

    def _fill(self, view: memoryview) -> int:
        if not self._begun:
            self._begin()
        if self._decoder is None:
            count = self._reading.into(view[: min(len(view), self._packed)])
            self._packed -= count
            return count
        while True:
            data = b""
            if self._decoder.needs_input and not self._decoder.eof:
                if not self._packed:
                    raise EOFError
                data = self._reading.exactly(min(self._packed, _BLOCK))
                self._packed -= len(data)
            made = self._decoder.decompress(data, len(view))
            if len(made) > len(view):  # only with Zstandard, whose output is unbounded
                raise ValueError("more than announced")
            if made:
                view[: len(made)] = made
                return len(made)
            if self._decoder.eof:
                raise EOFError

    def _begin(self) -> None:
        self._begun = True
        entry, reading = self._entry, self._reading
        self._spend(entry.size)
        reading.at(entry.offset, self._end)
        header = reading.exactly(LOCAL_SIZE)
        if header[:4] != LOCAL:
            raise self._wrong("does not begin where its directory says")
        name, extra = struct.unpack_from("<HH", header, 26)
        if entry.offset + LOCAL_SIZE + name + extra + entry.packed > self._most:
            raise self._wrong("reaches into the next one")
        reading.exactly(name + extra)
        self.end = entry.offset + LOCAL_SIZE + name + extra + entry.packed
        if entry.method == 14:
            self._decoder = _lzma(reading, self._max_window)
            self._packed -= 9
        elif entry.method:
            self._decoder = _DECODERS[entry.method](self._max_window)


def _lzma(reading: _Reading, max_window: int) -> Decoder:
    """Create a decoder for LZMA in zip: version, size of the properties, properties. Source: APPNOTE 5.8."""
    version = reading.exactly(4)
    if version[2:] != b"\5\0":
        raise ValueError("unknown properties of LZMA")
    properties = reading.exactly(5)
    lclppb, dictionary = struct.unpack("<BI", properties)
    if lclppb >= 225:
        raise ValueError("unknown properties of LZMA")
    if dictionary > max_window:  # a raw decoder has no limit of its own
        raise WindowTooLarge(dictionary, max_window)
    filters = [{
        "id": lzma.FILTER_LZMA1, "lc": lclppb % 9, "lp": lclppb // 9 % 5, "pb": lclppb // 45,
        "dict_size": max(4096, dictionary),
    }]  # fmt: skip
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)


_DECODERS: dict[int, Callable[[int], Decoder]] = {
    8: lambda _: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE),
    12: lambda _: bz2.BZ2Decompressor(),
    93: CODECS["zst"].decoder,
}


def read_zip(
    source: ZipSource,
    *,
    members: Sequence[str] = (),
    exclude: Sequence[str] = (),
    strip_components: int = 0,
    max_expansion: int | None = None,
    remarks: Remarks | None = None,
    name: str = "",
    listing: bool = False,
    max_window: int | None = None,
    names_encoding: str | None = None,
    budget: MemberBudget | None = None,
) -> Generator[Member, None, None]:
    """Iterate over the members of a zip archive in the order of their data; content that is not read is not fetched.

    If several archives follow one another, all of them are read.

    Parameters
    ----------
    source : ZipSource
    members, exclude, strip_components, max_expansion, remarks, name, budget
        As in `nbdata.archives.tar.read_members`.
    listing : bool
        Whether the members are only listed. Unsafe ones are then handed over under the names in the archive, and noted
        in `remarks`. The targets of symbolic links, which are stored as their content, are not read.
    max_window : int, optional
        As in `nbdata.archives.decompress.open_decompressed`.
    names_encoding : str, optional
        Encoding of the names that are not marked as UTF-8. None guesses it, and notes that in `remarks`.

    Raises
    ------
    UnsafeMember
        If a member would leave the target, or is a device or a pipe.
    BadArchive
        If the archive is damaged, encrypted, compressed in an unknown way, passes `max_expansion`, or needs a
        larger window.
    NotFound
        If a pattern of `members` matches nothing; raised before the first member is handed over.
    """
    remarks = remarks or Remarks()
    directories = read_directories(source, name, names_encoding)
    for directory in directories:
        remarks.guessed = directory.guessed or remarks.guessed
        remarks.guesses += directory.guesses
        remarks.not_utf8 += directory.unreadable
        remarks.joined = remarks.joined or directory.joined
        remarks.trailing += directory.trailing - directory.zeros
        remarks.unread += directory.unread
        remarks.zeros += directory.zeros
        # Between two archives no program pads.
        if directory.zeros > PADDING or directory is not directories[-1]:
            low = directory.stop - directory.zeros
            ends = [*source.starts[1:], source.size]
            remarks.only_zeros |= len(ends) > 1 and any(
                low <= start and end <= directory.stop for start, end in zip(source.starts, ends, strict=True)
            )
    remarks.in_succession = len(directories)
    remarks.repeated = _repeated(directories)
    selection = WantedMembers(members, exclude=exclude)
    guard = PathGuard(strip_components=strip_components, budget=budget)
    wanted = [
        bytearray(selection.takes("/".join(components(directory.name(n)))) for n in range(len(directory)))
        for directory in directories
    ]
    selection.check_all_matched()
    reading, spent = _Reading(source), [0]

    def spend(size: int) -> None:
        spent[0] += size
        if max_expansion is not None and spent[0] > max_expansion:
            raise BadArchive(
                f"the archive expands to more than {format_size(max_expansion)}",
                remedy="If that is right, raise --max-expansion",
            )

    def content_of(
        directory: ZipDirectory, number: int, entry: Entry, end_of: Callable[[int], int]
    ) -> _Content:
        return _Content(
            entry, directory.end(number), reading, partial(end_of, number), directory.bad, spend,
            max_window or MAX_WINDOW, name,
        )  # fmt: skip

    try:
        for directory, taken in zip(directories, wanted, strict=True):
            end_of = partial(_end_of, directory, taken)
            for number in range(len(directory)):
                if not taken[number]:
                    continue
                entry = directory.entry(number)
                content = content_of(directory, number, entry, end_of)
                member = _member(entry, content, guard, remarks, directory, listing=listing)
                if member is not None:
                    try:
                        yield member
                    finally:
                        content.close()
                if not listing:
                    remarks.unread += directory.uncovered(number, content.end)
    finally:
        reading.close()


def read_entry(source: ZipSource, directory: ZipDirectory, number: int, *, name: str = "") -> bytes:
    """Return the whole content of one member, compared with its CRC-32.

    Parameters
    ----------
    source, name
        As for `read_zip`.
    directory : ZipDirectory
    number : int
        Of the member in the directory.

    Raises
    ------
    BadArchive
        If it is damaged, or `unreadable`.
    """
    entry, reading = directory.entry(number), _Reading(source)
    if how := unreadable(entry):
        raise directory.bad(f"a member that is {how}: {shortened(entry.name)}")
    content = _Content(
        entry, directory.end(number), reading, partial(directory.end, number), directory.bad, lambda _: None,
        MAX_WINDOW, name,
    )  # fmt: skip
    try:
        return content.read()
    finally:
        content.close()
        reading.close()


def unreadable(entry: Entry) -> str:
    """Return why a member cannot be read, as "encrypted"; empty if it can be."""
    if entry.encrypted:
        return "encrypted"
    if entry.method in (0, 14) or entry.method in _DECODERS:
        return ""
    return f"compressed by {_METHODS.get(entry.method, f'method {entry.method}')}"


def _repeated(directories: Sequence[ZipDirectory]) -> int:
    """Count the names that come again in a later one of several archives; the last one's content counts."""
    if len(directories) == 1:
        return 0
    names = Counter(
        name
        for directory in directories
        for name in {directory.name(number) for number in range(len(directory))}
        if not name.endswith("/")
    )
    return sum(count > 1 for count in names.values())


def _end_of(directory: ZipDirectory, wanted: bytearray, number: int) -> int:
    """Return the offset up to which it is worthwhile to read ahead from a member."""
    start, end = directory.offset(number), directory.end(number)
    for following in range(number + 1, len(directory)):
        if directory.offset(following) - end > _GAP or end - start > _STRETCH:
            break
        if wanted[following]:
            end = directory.end(following)
    return end


def _member(
    entry: Entry,
    content: _Content,
    guard: PathGuard,
    remarks: Remarks,
    directory: ZipDirectory,
    *,
    listing: bool,
) -> Member | None:
    """The member as it is handed over; None if it is left out."""
    try:
        return _checked(entry, content, guard, remarks, directory, links=not listing)
    except UnsafeMember as error:
        if not listing:
            raise
        remarks.refuse(error)
        return Member(entry.name, entry.kind, entry.size, None, entry.mtime_ns, "", content, entry.offset)


def _checked(
    entry: Entry,
    content: _Content,
    guard: PathGuard,
    remarks: Remarks,
    directory: ZipDirectory,
    *,
    links: bool,
) -> Member | None:
    path = guard.path(entry.name.rstrip("/"))
    if entry.name.startswith("/"):
        remarks.absolute += 1
    if path is None:
        if entry.kind != "folder":
            remarks.leave_out(entry.name)
        return None
    if entry.kind in ("device", "fifo"):
        raise UnsafeMember(
            f"member {shortened(entry.name)!r} is a {entry.kind}", path=shortened(entry.name),
            expected="files, folders and links", remedy="Name the members you want to leave this one out",
        )  # fmt: skip
    if entry.kind == "folder":
        guard.add_folder(path)
        return Member(path, "folder", 0, None, entry.mtime_ns, "", content, entry.offset)
    if how := unreadable(entry):
        raise BadArchive(
            f"a member is {how}: {shortened(entry.name)}",
            remedy="Unpack it with 7-Zip or unzip, or leave it out: name the others with --members",
        )  # fmt: skip
    if not entry.method and entry.packed != entry.size:
        raise directory.bad(f"a member of two sizes: {shortened(entry.name)}")
    if entry.kind == "symlink":
        if entry.size > _LINK:
            raise directory.bad(f"a link to a name of {entry.size:,} bytes: {shortened(entry.name)}")
        linkname = content.read().decode("utf-8", "surrogateescape") if links else ""
        if links:
            linkname = guard.add_symlink(path, linkname)
        return Member(path, "symlink", 0, None, entry.mtime_ns, linkname, content, entry.offset)
    guard.add_file(path)
    mode = file_mode(stat.S_IMODE(entry.mode))
    return Member(path, "file", entry.size, mode, entry.mtime_ns, "", content, entry.offset, entry.crc)
