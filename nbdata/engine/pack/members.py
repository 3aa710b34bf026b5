"""List the members of an archive, in order, from a folder on the disk or a prefix of a store.

As there may be millions, they are written to a private file, one JSON array per line; memory holds 8 bytes for each.
"""

from __future__ import annotations

import json
import os
import posixpath
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from nbdata.disk import PARTIAL, disk_error, special_kind
from nbdata.engine.job.run import Run
from nbdata.engine.pack.source import Field
from nbdata.errors import BadOption, NotFound
from nbdata.formats.tar_writing import FILE, FOLDER, LINK, Member
from nbdata.paths import has_glob, is_own_name
from nbdata.reading.pieces import Piece
from nbdata.sizes import counted
from nbdata.stores.base import Location, ObjectInfo, Store
from nbdata.stores.local import LocalStore, stat_tag
from nbdata.transfer.names import LocalNames
from nbdata.transfer.selection import Filters
from nbdata.transfer.sources import find, folder_part
from nbdata.verbs.archive_names import ArchiveNames
from nbdata.verbs.pack import Pack

__all__ = ["Members", "find_members"]

# Bytes per write of the listing.
_BLOCK = 1 << 16
# Number of left-out names that are shown.
_NAMED = 3


class Members:
    """Members by number; safe to use from many threads.

    Attributes
    ----------
    store : Store
        Holds the bytes of all members.
    left_out : list of str
        Notes about entries that are no members, and about links that lead outside.
    largest : int
        Bytes of the largest member.
    """

    def __init__(self, store: Store, prefix: str, path: str) -> None:
        self.store, self._prefix = store, prefix
        self.left_out: list[str] = []
        self.largest = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._offsets, self._size = array("Q"), 0
        self._buffer = bytearray()
        self._order: Sequence[int] = range(0)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        _close(self._fd)

    def __len__(self) -> int:
        return len(self._order)

    def add(self, member: Member, info: ObjectInfo) -> None:
        """Append a member; `info` gives the version of its bytes."""
        line = json.dumps([*member, info.etag, info.modified, info.version]).encode("ascii")
        self._offsets.append(self._size)
        self._size += len(line)
        self.largest = max(self.largest, member.size)
        self._buffer += line
        if len(self._buffer) > _BLOCK:
            self._flush()

    def _flush(self) -> None:
        while self._buffer:
            del self._buffer[: os.write(self._fd, self._buffer)]

    def arrange(self, *, by_name: bool) -> None:
        """End adding; order by the bytes of names, or as listed. Sorting holds all names in memory."""
        self._flush()
        count = len(self._offsets)
        self._offsets.append(self._size)
        self._order = range(count)
        if by_name:
            names = [os.fsencode(str(self._said(number)[0])) for number in range(count)]
            self._order = array("Q", sorted(range(count), key=names.__getitem__))

    def _said(self, place: int) -> list[object]:
        start, end = self._offsets[place], self._offsets[place + 1]
        return list(json.loads(os.pread(self._fd, end - start, start)))

    def __getitem__(self, number: int) -> tuple[Member, Field]:
        """A member, and the place of its bytes; a folder or link has none."""
        *member, etag, modified, version = self._said(self._order[number])
        of_member = Member(*member)  # type: ignore[arg-type]
        key = self._prefix + of_member.name if self._prefix or of_member.name else ""
        info = ObjectInfo(key, of_member.size, etag, modified, version)  # type: ignore[arg-type]
        return of_member, Field(of_member.name, self.store, Piece(info))

    def __iter__(self) -> Iterator[tuple[Member, Field]]:
        return (self[number] for number in range(len(self)))


def find_members(run: Run, op: Pack, target: Location, path: str) -> Members:
    """List the members to pack into a file at `path`.

    Parameters
    ----------
    run : Run
        The run with the source's storage options.
    target : Location
        The folder of the archive: its own volumes and their checksums are no members.

    Raises
    ------
    BadOption
        If a name could not be unpacked again, or the store does not report a size.
    NotFound
        If there is nothing to pack.
    """
    assert isinstance(op.source, str)
    location, filters = run.open(folder_part(op.source)), Filters(op)
    if (
        isinstance(location.store, LocalStore)
        and not has_glob(op.source)
        and os.path.isdir("/" + location.key)
    ):
        prefix = location.key.rstrip("/") + "/" if location.key.strip("/") else ""
        members, looked = Members(location.store, prefix, path), _in_time(filters, _walk(run, prefix))
    else:
        source = find(run, op.source)
        prefix = source.location.key
        if not source.location.is_folder:
            prefix = "".join(prefix.rpartition("/")[:2])
        members = Members(source.location.store, prefix, path)
        if isinstance(members.store, LocalStore):
            looked = _in_time(filters, (_file(prefix, entry.path) for entry in source.entries))
        else:
            looked = (_of_store(entry.path, entry.info) for entry in filters.entries_in_time(source.entries))
    _collect(run, op, members, filters.passes, looked, _own(members.store, prefix, target))
    members.arrange(by_name=bool(op.sort))
    if not len(members):
        raise NotFound(
            "there is nothing to pack",
            path=location.place,
            remedy="Check the spelling and the filters" if op.filtered else "Check the spelling",
        )
    return members


_Found = Iterator[tuple[Member, ObjectInfo] | str]


def _own(store: Store, prefix: str, target: Location) -> str | None:
    """The path of the archive's folder relative to the source; None if it is not inside."""
    if not store.same_objects(target.store):
        return None
    key = target.key
    if isinstance(store, LocalStore):  # links give a folder several paths
        prefix, key = (os.path.realpath(f"/{path}").rstrip("/") + "/" for path in (prefix, key))
    return key[len(prefix) :] if key.startswith(prefix) else None


def _in_time(filters: Filters, found: Iterable[tuple[Member, ObjectInfo] | str | None]) -> _Found:
    """Yield what was found on the disk and passes the filters of time; whole seconds count."""
    for one in found:
        if one is not None and (isinstance(one, str) or filters.in_time(one[0].name, one[0].mtime)):
            yield one


def _collect(
    run: Run, op: Pack, members: Members, passes: Callable[[str], bool], found: _Found, own: str | None
) -> None:
    names, time, local = op.archive_names, op.fixed_time, LocalNames(encode=False)
    odd, outside, volumes = _Named(), _Named(), 0
    for one in found:
        run.control.checkpoint()
        if isinstance(one, str):
            odd.add(one)
            continue
        member, info = one
        if own is not None and member.name.startswith(own) and _is_volume(names, member.name[len(own) :]):
            volumes += 1
            continue
        if not passes(member.name):
            continue
        _refuse(op, member, local.name(member.name)[1])
        if member.kind == LINK and _leads_out(member):
            outside.add(f"{member.name} -> {member.link}")
        members.add(member if time is None else member._replace(mtime=time), info)
    if volumes:
        members.left_out.append(
            f"left out, because their names are those of volumes of the archive: {volumes:,}"
        )
    if odd.count:
        members.left_out.append(f"{odd.count:,} are left out, because an archive cannot hold them: {odd}")
    if outside.count:
        members.left_out.append(
            f"{counted(outside.count, 'symbolic links', 'lead')} out of the folder, and untar_volumes refuses "
            f"an archive with such; --exclude leaves them out: {outside}"
        )


def _is_volume(names: ArchiveNames, name: str) -> bool:
    """True if a name is that of the new archive, or of one that the command made with another option."""
    return names.is_one(name) or names.other_form.is_one(name)


class _Named:
    """Counts names, and shows the first ones."""

    def __init__(self) -> None:
        self.count, self._first = 0, list[str]()

    def add(self, name: str) -> None:
        """Count one more name."""
        self.count += 1
        if self.count <= _NAMED:
            self._first.append(name)

    def __str__(self) -> str:
        return ", ".join(self._first) + (" …" if self.count > _NAMED else "")


def _leads_out(link: Member) -> bool:
    """True if the target of a link, by its name, is outside the folder."""
    folder = posixpath.dirname(link.name)
    return (
        link.link.startswith("/")
        or posixpath.normpath(posixpath.join(folder, link.link)).split("/")[0] == ".."
    )


def _refuse(op: Pack, member: Member, why: str | None) -> None:
    """Raise BadOption, with the reason, for a member that could not be unpacked to a disk again."""
    if why is None and op.archive == "zip" and any("\udc80" <= char <= "\udcff" for char in member.name):
        why = "is no UTF-8, which a zip needs"
    if why is None and member.size < 0:
        raise BadOption(
            "the store does not report the size of this object",
            path=member.name,
            remedy="Pull the source, and pack it from the disk",
        )
    if why is not None:
        raise BadOption(
            f"the name {member.name!r} {why}: it could not be unpacked again",
            remedy="Leave it out with --exclude, or give it another name",
        )


def _of_store(path: str, info: ObjectInfo) -> tuple[Member, ObjectInfo]:
    # The time serves as the version only if nothing better exists.
    version = info if not (info.etag or info.version) else info._replace(modified=None)
    return Member(path, info.size, int(info.modified or 0)), version


def _walk(run: Run, prefix: str) -> _Found:
    """Walk a folder on the disk in the order of an object store; nbdata's own files are left out."""
    levels = [("", iter(_entries(prefix, "")))]
    while levels:
        folder, names = levels[-1]
        for name in names:
            run.control.checkpoint()
            path = folder + name
            if name.endswith("/"):
                below = _entries(prefix, path)
                if not below:
                    yield _folder(prefix, path.rstrip("/"))
                levels.append((path, iter(below)))
                break
            if (member := _file(prefix, path)) is not None:
                yield member
        else:
            levels.pop()


def _entries(prefix: str, folder: str) -> list[str]:
    path = "/" + prefix + folder
    try:
        with os.scandir(path) as entries:
            names = [
                f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in entries
                if not is_own_name(entry.name) and not entry.name.endswith(PARTIAL)
            ]
    except OSError as error:
        raise disk_error(error, path) from error
    return sorted(names)


def _folder(prefix: str, path: str) -> tuple[Member, ObjectInfo] | str:
    try:
        status = os.stat("/" + prefix + path, follow_symlinks=False)
    except OSError as error:
        raise disk_error(error, "/" + prefix + path) from error
    return Member(path, 0, int(status.st_mtime // 1), FOLDER), ObjectInfo(prefix + path, 0)


def _file(prefix: str, path: str) -> tuple[Member, ObjectInfo] | str | None:
    """A file or link; for anything else, its path and kind; None if it is gone."""
    whole = "/" + prefix + path
    try:
        status = os.stat(whole, follow_symlinks=False)
        mtime = int(status.st_mtime // 1)
        if stat.S_ISLNK(status.st_mode):
            link = os.readlink(whole)
            return Member(path, 0, mtime, LINK, link), ObjectInfo(prefix + path, 0)
        if not stat.S_ISREG(status.st_mode):
            return f"{path} (a {special_kind(status.st_mode)})"
        # Report missing read permission now.
        if not os.access(whole, os.R_OK):
            raise PermissionError(13, "unreadable", whole)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(error, whole) from error
    info = ObjectInfo(prefix + path, status.st_size, stat_tag(status))
    return Member(path, status.st_size, mtime, FILE, "", bool(status.st_mode & 0o100)), info
