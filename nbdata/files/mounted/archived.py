"""An archive in a store as a store of its members, so that they can be mounted.

A zip is read by its directory. A tar has none, so it is read once from its beginning to its end, and compared with its
checksum on the way. From then on, only the bytes of the members that are asked for are fetched, of that version of the
archive.
"""

from __future__ import annotations

import hashlib
import io
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from isal.isal_zlib import crc32

from nbdata.archives.decompress import open_decompressed
from nbdata.archives.safety import shortened
from nbdata.archives.tar import MemberReader, read_members
from nbdata.archives.zip import read_entry, unreadable
from nbdata.archives.zip_directory import LOCAL_SIZE, ZipDirectory, read_directories
from nbdata.archives.zip_end import LOCAL
from nbdata.errors import BadArchive, BadOption, NotFound, SourceChanged
from nbdata.files.connections import Place
from nbdata.files.mounted.members import Member, Members
from nbdata.files.mounted.unpacked import LARGEST, Unpacked
from nbdata.files.reading import ReadFile
from nbdata.redaction import redacted
from nbdata.sizes import counted, format_size
from nbdata.stores.base import Body, Location, ObjectInfo, Source, Store
from nbdata.transfer.reader import Reader

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ArchiveStore", "archived"]

# The longest names and extra fields of a local header that are read with a member's first bytes.
_EXTRA = 1 << 10
# Seconds between two reports of how far an archive is read.
_TELL = 1.0
_BLOCK = 1 << 20


def archived(place: Place, url: str, verify: str, tell: Callable[[int, int], None]) -> Place:
    """Return the place of an archive's members.

    Parameters
    ----------
    place : Place
        The archive.
    url : str
        Its URL, for messages.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    tell : callable
        Called with the bytes that were read so far, and those of the archive, about once a second.

    Raises
    ------
    NotFound
        If there is no such object.
    BadOption
        If it is a compressed tar, or the store reads no ranges.
    BadArchive
        If it is no archive, or is damaged.
    ChecksumMismatch
        If the bytes of a tar are wrong.
    """
    shown = redacted(url)
    if not place.store.ranges:
        raise BadOption(
            "this store reads no ranges of objects, so no member by itself",
            path=shown,
            remedy="Pull it, or unpack it",
        )
    try:
        file = ReadFile(place, shown, verify)
    except NotFound as error:
        error.remedy = error.remedy or "Name the object itself; a folder is mounted without --archive"
        raise
    with closing(file):
        info, head = file.version, file.peek(4)[:4]
        if not info.etag:
            raise BadOption(
                "the server does not tell versions of this apart (no ETag), so members may come from several",
                path=shown,
                remedy="Pull it, or unpack it",
            )
        source = _Archive(place, info)
        if head[:2] == b"PK":
            directories = read_directories(source, shown)
            found = _in_zip(directories)
        else:
            directories = []
            found = _in_tar(file, shown, tell)
    found.end()
    store = ArchiveStore(source, shown, found, directories)
    return Place(place.opened, Location(store, "", place.folder.place), "")


def _in_zip(directories: list[ZipDirectory]) -> Members:
    found = Members()
    for at, directory in enumerate(directories):
        for number in range(len(directory)):
            entry = directory.entry(number)
            name = entry.name.strip("/")
            if entry.kind == "folder":
                continue
            packed = bool(entry.method)
            if entry.kind != "file":
                found.leave_out(name, f"is a {entry.kind}")
            elif how := unreadable(entry):
                found.leave_out(name, f"is {how}")
            elif packed and entry.size > LARGEST:
                found.leave_out(name, f"is compressed, and larger than {format_size(LARGEST)}")
            elif not packed and entry.packed != entry.size:
                raise directory.bad(f"a member of two sizes: {shortened(name)}")
            else:
                place = (at, number)
                found.add(
                    name,
                    Member(entry.offset, entry.size, entry.mtime_ns / 1e9, entry.crc, place, packed),
                )
    return found


def _in_tar(file: ReadFile, shown: str, tell: Callable[[int, int], None]) -> Members:
    found = Members()
    buffer = memoryview(bytearray(_BLOCK))
    stream, kind = open_decompressed(_Raw(file, tell), name=shown)
    with closing(stream):
        if kind != "tar":
            raise BadOption(
                f"this is compressed ({kind}), so its members cannot be read one by one",
                path=shown,
                remedy="Unpack it with untar_volumes; or stream it by nbdata.samples",
            )
        for member in read_members(stream, name=shown, listing=True):
            reader = member.reader
            if member.kind == "folder":
                continue
            if member.kind == "hardlink":
                if member.linkname in found:
                    found.add(member.name, found[member.linkname])
                else:
                    found.leave_out(member.name, "is a link to what is not there")
                continue
            start = reader.start if isinstance(reader, MemberReader) else None
            if member.kind != "file" or start is None:
                found.leave_out(member.name, "is sparse" if member.kind == "file" else f"is a {member.kind}")
                continue
            crc = 0
            while count := reader.readinto(buffer):
                crc = crc32(buffer[:count], crc)
            found.add(member.name, Member(start, member.size, member.mtime_ns / 1e9, crc))
    return found


class _Raw(io.RawIOBase):
    """A file as a raw stream, which leaves it open, and tells how far it is read."""

    def __init__(self, file: ReadFile, tell: Callable[[int, int], None]) -> None:
        self._file, self._tell, self._told = file, tell, time.monotonic()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if time.monotonic() - self._told > _TELL:
            self._told = time.monotonic()
            self._tell(self._file.tell(), self._file.size)
        return self._file.readinto(memoryview(buffer).cast("B"))


class _Archive:
    """One version of an archive; implements `ZipSource`."""

    def __init__(self, place: Place, info: ObjectInfo) -> None:
        self.place, self.info = place, info
        self.starts, self.size = (0,), info.size

    def range(self, start: int, end: int) -> bytes:
        """Read the bytes between two offsets."""
        data = bytearray(max(0, end - start))
        view = memoryview(data)
        with self._reader(start, end) as reader:
            while view and (count := reader.readinto(view)):
                view = view[count:]
        return bytes(data)

    def stream(self, start: int, end: int) -> io.RawIOBase:
        """Open a stream of the bytes between two offsets."""
        return _Stream(self._reader(start, end))

    def _reader(self, start: int, end: int) -> Reader:
        return Reader(self.place.control, self.place.store, self.info, start, end)


class _Stream(io.RawIOBase):
    """A reader as a raw stream."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        return self._reader.readinto(memoryview(buffer).cast("B"))

    def close(self) -> None:
        self._reader.close()
        super().close()


class _Part:
    """The bytes of a member, or a range of them, out of the bytes of the archive; a `Body`."""

    def __init__(self, body: Body, info: ObjectInfo, start: int, length: int) -> None:
        self._body, self.info, self.start, self.length = body, info, start, length

    def readinto(self, buffer: memoryview, /) -> int:
        count = self._body.readinto(buffer[: self.length]) if self.length else 0
        self.length -= count
        return count

    def close(self) -> None:
        self._body.close()


class _Held:
    """Bytes of a member that are in memory; a `Body`."""

    def __init__(self, data: memoryview, info: ObjectInfo, start: int) -> None:
        self._data, self.info, self.start, self.length = data, info, start, len(data)

    def readinto(self, buffer: memoryview, /) -> int:
        count = min(len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def close(self) -> None:
        self._data = memoryview(b"")


class ArchiveStore(Store):
    """The members of one version of an archive; see `archived`, which makes it."""

    name = "archive"
    read_only = True
    below_objects = False

    def __init__(
        self, source: _Archive, shown: str, members: Members, directories: list[ZipDirectory]
    ) -> None:
        self._source, self._shown, self._directories = source, shown, directories
        self._members, self._unpacked = members, Unpacked()
        # By folder: what is in it, in the order of the archive; folders end in a slash.
        self._children: dict[str, dict[str, None]] = {"": {}}
        for path in self._members:
            above = path
            while above:
                folder, slash, _ = above.rstrip("/").rpartition("/")
                folder += slash
                known = self._children.setdefault(folder, {})
                if above in known:
                    break
                known[above] = None
                above = folder

    @property
    def server(self) -> str:
        """An identifier of this version of this archive: a member has the name of an object, and its place."""
        place, info = self._source.place, self._source.info
        facts = (place.store.server, place.folder.place, info.key, info.etag, str(info.size), info.version)
        told = "\0".join(facts).encode("utf-8", "surrogatepass")
        return f"archive {hashlib.blake2b(told, digest_size=16).hexdigest()}"

    def notes(self) -> list[str]:
        if not self._members.left_out:
            return []
        what = f"{counted(self._members.left_out, 'members')} of the archive do not show"
        return [what, *(f"  {one}" for one in self._members.some)]

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        begun = not after
        for path in self._members:
            if begun and path.startswith(prefix):
                yield self._info(path)
            begun = begun or path == after

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = prefix[: prefix.rfind("/") + 1]
        for path in self._children.get(folder, ()):
            if path.startswith(prefix):
                yield ObjectInfo(path, -1) if path.endswith("/") else self._info(path)

    def head(self, key: str) -> ObjectInfo:
        if key not in self._members:
            raise NotFound("no such member", path=f"{self._shown}: {shortened(key)}")
        return self._info(key)

    def _info(self, key: str) -> ObjectInfo:
        member = self._members[key]
        archive, strong = self._source.info.etag, self._source.info.etag.removeprefix("W/")
        weak = archive[: len(archive) - len(strong)]
        etag = f'{weak}"{strong.strip(chr(34))}@{member.start}-{member.crc:08x}"'
        checksums = {"crc32": f"{member.crc:08x}"}
        return ObjectInfo(key, member.size, etag, member.modified, checksums=checksums)

    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> Body:
        info = self.head(key)
        if match is not None and match.etag != info.etag:
            raise SourceChanged("this is another version of the member", path=key)
        member = self._members[key]
        end = member.size if end is None else min(end, member.size)
        start = min(start, end)
        if start == end:
            return _Held(memoryview(b""), info, start)
        if member.packed:
            data = self._unpacked.get(key, lambda: self._unpack(member))
            return _Held(memoryview(data)[start:end], info, start)
        if member.entry is None:
            return self._part(info, member.start, start, end)
        if not member.begins and not start:
            return self._first(key, member, info, end)
        if not member.begins:
            self._first(key, member, info, 0).close()
            member = self._members[key]
        return self._part(info, member.begins, start, end)

    def _part(self, info: ObjectInfo, begins: int, start: int, end: int) -> Body:
        return _Part(self._asked(begins + start, begins + end), info, start, end - start)

    def _asked(self, start: int, end: int) -> Body:
        source = self._source
        body = source.place.store.read(source.info.key, start, end, match=source.info)
        if body.start != start:
            body.close()
            raise BadOption("this server ignores ranges", path=self._shown, remedy="Pull it, or unpack it")
        return body

    def _first(self, key: str, member: Member, info: ObjectInfo, end: int) -> Body:
        """Read the first bytes of a member of a zip, and its header, which says where they begin."""
        number, entry = member.entry or (0, 0)
        directory = self._directories[number]
        last = directory.end(entry)
        body = self._asked(member.start, min(last, member.start + LOCAL_SIZE + _EXTRA + end))
        try:
            header = _exactly(body, LOCAL_SIZE)
            if header[:4] != LOCAL:
                raise directory.bad(
                    f"a member that does not begin where its directory says: {shortened(key)}"
                )
            named = sum(struct.unpack_from("<HH", header, 26))
            begins = member.start + LOCAL_SIZE + named
            if begins + member.size > last:
                raise directory.bad(f"a member that reaches into the next one: {shortened(key)}")
            self._members[key] = member._replace(begins=begins)
            if named <= _EXTRA:
                _exactly(body, named)
                return _Part(body, info, 0, end)
        except BaseException:
            body.close()
            raise
        body.close()
        return self._part(info, begins, 0, end)

    def _unpack(self, member: Member) -> bytes:
        number, entry = member.entry or (0, 0)
        return read_entry(self._source, self._directories[number], entry, name=self._shown)

    def write(
        self,
        key: str,
        source: Source,
        size: int,
        *,
        headers: Mapping[str, str] | None = None,
        md5: str = "",
    ) -> ObjectInfo:
        raise BadOption("an archive that is mounted is only read", path=self._shown)

    def delete(self, keys: Iterable[str]) -> None:
        raise BadOption("an archive that is mounted is only read", path=self._shown)


def _exactly(body: Body, size: int) -> bytes:
    """Read exactly so many bytes; an early end is the body's error."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        if not (count := body.readinto(view)):
            raise BadArchive("the archive ends within a member")
        view = view[count:]
    return bytes(data)
