"""Checkpoints: record how far an archive was unpacked, and compare what is there with such a record.

A checkpoint states that all members before a place in the tar stream are on the disk under their final names and are
recorded. It also holds the offset of the volumes at which reading restarts. It is written to the index once this is
true, and replaces the previous checkpoint.

The place lies behind a member, and everything before it is verified. Plain tar has no checksums, so any member will
do, and reading restarts right there. Decompressed data is verified at the end of its gzip member, bzip2 block, xz
stream or Zstandard frame. So the place lies before such an end, and reading restarts at the last beginning of a block
before the place. The data in between is decompressed again and skipped. An archive that is compressed in one piece is
verified only at its end: it never has a checkpoint, and its members are compared by CRC while they stream past.

A checkpoint is valid if every member before it is still recorded, and every file looks as recorded. Its digest shows
whether the records are complete (`cleanup --all` forgets them). A hard link changes the ctime of the file under its
other names, so if only the ctime differs, the content decides. A member that was replaced by a later one of the same
name is remembered, and need not be there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nbdata.archives.place import Place, Restart
from nbdata.engine.unpack.targets.links_and_folders import SymbolicLinks
from nbdata.engine.unpack.written import Written, crc32_of, is_gone, offset_of, own_data, own_record, sum_of
from nbdata.transfer.index import Record

__all__ = ["SHARD", "Checkpoint", "Earlier", "before"]

#: The kind of a shard in `Earlier`: it holds members but has no member's name.
SHARD = "shard"


@dataclass(frozen=True)
class Checkpoint:
    """A place to resume at, with the restart point of the volumes from which it can be reached.

    Attributes
    ----------
    place : Place
    restart : Restart
    format : str
        Compression of the volumes.
    fingerprint : str
        Fingerprint of the volumes that were read up to the place.
    overwrite : str
        The command's option; it decides what counts as unpacked before the place.
    left_out : list of str
        Some of the names that were left out up to the place.
    digest : tuple
        `sum_of` the members before the place.
    """

    place: Place
    restart: Restart
    format: str
    fingerprint: str
    overwrite: str
    left_out: list[str]
    digest: tuple[int, int]

    @classmethod
    def of(cls, written: Written) -> Checkpoint | None:
        """The recorded checkpoint, if it belongs to these volumes."""
        data: Any = own_data(written.index.get(written.own("checkpoint")))
        try:
            place, restart, digest = Place(**data["place"]), Restart(*data["restart"]), tuple(data["digest"])
            checkpoint = cls(**{**data, "place": place, "restart": restart, "digest": digest})
        except (KeyError, TypeError):  # there is none, or it is of another version
            return None
        return checkpoint if checkpoint.fingerprint in written.fingerprints else None

    def fits(self, overwrite: str, format: str) -> bool:  # noqa: A002
        """True if it was recorded by a command with these options."""
        return overwrite == self.overwrite and format in ("auto", self.format)

    def record(self, written: Written) -> None:
        """Write it durably to the index."""
        place = {name: getattr(self.place, name) for name in ("offset", "pax_headers", "holes", "unmatched")}
        data = {**vars(self), "place": place}
        written.index.put({written.own("checkpoint"): own_record(data)})
        written.index.sync()


@dataclass
class Earlier:
    """The state of the members before a place, compared with their records.

    Attributes
    ----------
    members : list of (offset, path, kind, linkname, size)
        Unchanged members, in the archive's order; size is -1 if the bytes are counted elsewhere.
    gone : list of (path, size)
        The files and links among them that no longer exist, but count as written.
    lost : list of str
        Paths of members that have changed or are missing.
    whole : bool
        Whether all of them are still recorded.
    names : dict
        For files with several names: device and inode, and the names.
    refreshed : dict
        New records of files of which only the ctime has changed.
    """

    members: list[tuple[int, str, str, str, int]] = field(default_factory=list)
    gone: list[tuple[str, int]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    whole: bool = True
    names: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    refreshed: dict[str, Record | None] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """True if all records are complete and no member is lost."""
        return self.whole and not self.lost

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """Path, kind and linkname of each member, in the archive's order, for `Place.earlier`."""
        for _, path, kind, linkname, _ in self.members:
            if kind != SHARD:
                yield path, kind, linkname

    @classmethod
    def in_store(
        cls,
        written: Written,
        checkpoint: Checkpoint,
        is_there: Callable[[str, Record], bool],
        kind: str = "file",
    ) -> Earlier:
        """Check each object; `is_there` tells for a path and its record whether the object is the recorded one."""
        earlier, tags = cls(), []
        for path, record, replaced in before(written, checkpoint.place.offset):
            tags.append((path, record.tag))
            if replaced or is_there(path, record):
                earlier.members.append((offset_of(record), path, kind, "", -1 if replaced else record.size))
            else:
                earlier.lost.append(path)
        for link in SymbolicLinks(written).all():
            if link.offset < checkpoint.place.offset:
                earlier.members.append((link.offset, link.name, "symlink", link.linkname, -1))
        return earlier._closed(tags, checkpoint)

    @classmethod
    def look(cls, written: Written, checkpoint: Checkpoint, root: str, *, thorough: bool) -> Earlier:
        """Check each file; if only the ctime differs, `thorough` reads the file, else it counts as unchanged."""
        earlier, end = cls(), checkpoint.place.offset
        doubtful: list[tuple[str, Record, os.stat_result]] = []
        tags = []
        for path, record, replaced in before(written, end):
            tags.append((path, record.tag))
            if replaced:
                earlier.members.append((offset_of(record), path, "file", "", -1))
            else:
                earlier._check_files(root, path, record, doubtful, may_be_gone=written.may_be_gone(record))
        earlier._settle(written, root, doubtful, thorough=thorough)
        return earlier._closed(tags, checkpoint)

    def _closed(self, tags: list[tuple[str, str]], checkpoint: Checkpoint) -> Earlier:
        """Finish the check of all members; `tags` are the paths and tags of the recorded ones."""
        self.whole = sum_of(tags) == checkpoint.digest
        self.members.sort()
        return self

    def _check_files(
        self,
        root: str,
        path: str,
        record: Record,
        doubtful: list[tuple[str, Record, os.stat_result]],
        *,
        may_be_gone: bool,
    ) -> None:
        name = path.rstrip("/")
        try:
            status = os.lstat(os.path.join(root, name))
        except OSError as error:
            if not (may_be_gone and is_gone(error)):
                self.lost.append(name)
                return
            # The target of a missing link is not known any more, so it is listed as a file, which leads nowhere.
            self.members.append((offset_of(record), name, "file" if name == path else "folder", "", -1))
            if name == path:
                self.gone.append((path, record.size))
            return
        if name != path:
            if stat.S_ISDIR(status.st_mode):
                self.members.append((offset_of(record), name, "folder", "", -1))
            else:
                self.lost.append(name)
            return
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            self.names.setdefault((status.st_dev, status.st_ino), []).append(path)
        if record.local_same(status):
            self._is_there(root, path, record, status)
        elif stat.S_ISREG(status.st_mode) and record[2:4] == (status.st_size, status.st_mtime_ns):
            doubtful.append((path, record, status))
        else:
            self.lost.append(path)

    def _is_there(self, root: str, path: str, record: Record, status: os.stat_result) -> None:
        link = stat.S_ISLNK(status.st_mode)
        linkname = os.readlink(os.path.join(root, path)) if link else ""
        self.members.append((offset_of(record), path, "symlink" if link else "file", linkname, record.size))

    def _settle(
        self,
        written: Written,
        root: str,
        doubtful: list[tuple[str, Record, os.stat_result]],
        *,
        thorough: bool,
    ) -> None:
        """Count files whose ctime has changed as present if they have the recorded content."""
        inodes: dict[tuple[int, int], list[tuple[str, Record, os.stat_result]]] = {}
        for path, record, status in doubtful:
            inodes.setdefault((status.st_dev, status.st_ino), []).append((path, record, status))
        for group in inodes.values():
            same = True
            if thorough:
                crc = crc32_of(os.path.join(root, group[0][0]))
                known = [written.is_same(record, crc) for _, record, _ in group]
                # A hard link has no CRC of its own, so the CRC of the file it is linked to counts.
                same = any(known) and all(
                    one or written.is_same(record, 0)
                    for one, (_, record, _) in zip(known, group, strict=True)
                )
            for path, record, status in group:
                if same:
                    self.refreshed[path] = Record.of(record.tag, record.size, status)
                    self._is_there(root, path, record, status)
                else:
                    self.lost.append(path)


def before(written: Written, end: int) -> Iterator[tuple[str, Record, bool]]:
    """Path and record of each member before a place, and whether a member behind it replaced, or may have, this one."""
    replaced = {path: record for path, record in written.replaced() if record.size >= end > offset_of(record)}
    for path, record in replaced.items():
        yield path, record, True
    for path, record in written.records():
        if written.is_of_line(record) and offset_of(record) < end and path not in replaced:
            yield path, record, False
