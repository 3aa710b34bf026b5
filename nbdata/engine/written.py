"""What an archive has written into a target, as the index remembers it.

Each file is recorded with the tag ``FINGERPRINT:OFFSET:CRC:OPTIONS``: of the volumes that were read so far,
of the member in the archive, of its content, and of what decided where it went. So it holds as long as those
volumes are the same, although a later one was damaged and is replaced. Links have no CRC, and a folder is
recorded under its name and a slash.

When an archive was read to its end and all is there, that is recorded too, with a digest of all its records:
if they are the same later and all files look as recorded, the archive need not be read again. Before volumes
are deleted, they are recorded, so that a line that finds only some of them or none knows why.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator

from nbdata.archives.tar import Member
from nbdata.engine.volumes import VolumeList
from nbdata.transfer.index import Index, Record
from nbdata.transfer.part_records import validator

__all__ = ["Written"]

# No member can have such a name.
_OWN = ".nbdata/"
_VOLUME = _OWN + "volume/"


class Written:
    """The records of one archive in one target.

    Parameters
    ----------
    index : Index
        Of the source and the target.
    fingerprints : list of str
        As of `VolumeList.fingerprints`.
    options : list
        What decides which members go where: a complete run is one with the same.
    """

    def __init__(self, index: Index, fingerprints: list[str], options: list[object]) -> None:
        self.index = index
        self._fingerprints, self._known = fingerprints, set(fingerprints)
        self._line = hashlib.sha256(json.dumps(options).encode()).hexdigest()[:8]
        self._complete, self._deleting = f"{_OWN}complete/{self._line}", f"{_OWN}deleting/{self._line}"

    @classmethod
    def before_deletion(cls, index: Index, options: list[object]) -> Written | None:
        """The archive whose volumes this line has begun to delete, or None."""
        record = index.get(cls(index, [], options)._deleting)
        return None if record is None else cls(index, record.tag.split(":"), options)

    # -- members ------------------------------------------------------------------------------

    def tag(self, member: Member, volume: int, crc: int = 0) -> str:
        """What a record of a member remembers; its content ends in this volume or before."""
        return f"{self._fingerprints[volume]}:{member.offset}:{crc:08x}:{self._line}"

    def is_ours(self, record: Record) -> bool:
        """Whether a record is of this archive, as far as its volumes are still the same."""
        return record.tag.partition(":")[0] in self._known

    def is_of(self, record: Record, member: Member) -> bool:
        """Whether a record is of this very member."""
        return self.is_ours(record) and record.tag.split(":")[1] == str(member.offset)

    def is_same(self, record: Record, crc: int) -> bool:
        """Whether the content that was recorded has this CRC."""
        return record.tag.split(":")[2] == f"{crc:08x}"

    def is_older(self, record: Record, member: Member) -> bool:
        """Whether `member` comes before the one that a run with the same options has recorded last."""
        fields = record.tag.split(":")
        return self.is_ours(record) and fields[3] == self._line and member.offset < int(fields[1])

    def records(self) -> Iterator[tuple[str, Record]]:
        """Paths and records of all that this archive wrote; those of folders end in a slash."""
        for path in self.index.paths():
            record = self.index.get(path)
            if record is not None and self.is_ours(record) and not path.startswith(_OWN):
                yield path, record

    def sound(self, root: str) -> tuple[dict[str, Record], bool]:
        """The files and links that are as this archive wrote them, and whether all that it wrote is so."""
        sound, all_sound = {}, True
        for path, record in self.records():
            try:
                found = os.lstat(os.path.join(root, path))
            except OSError:
                all_sound = False
                continue
            if path.endswith("/"):
                all_sound = all_sound and stat.S_ISDIR(found.st_mode)
            elif record.local_same(found):
                sound[path] = record
            else:
                all_sound = False
        return sound, all_sound

    # -- the whole ----------------------------------------------------------------------------

    def complete(self) -> None:
        """Record that all members of the archive are there."""
        self.index.put({self._complete: Record(self._fingerprints[-1], *self._digest(), 0, 0)})

    def is_complete(self) -> bool:
        """Whether `complete` was said, and the records are the same as then."""
        record = self.index.get(self._complete)
        return record is not None and (*record[:3],) == (self._fingerprints[-1], *self._digest())

    def _digest(self) -> tuple[int, int]:
        count = total = 0
        for path, record in self.records():
            text = f"{path}\0{record.tag}".encode("utf-8", "surrogatepass")
            total += int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
            count += 1
        return count, total % (1 << 56)

    # -- deletion -----------------------------------------------------------------------------

    def deleting(self, volumes: VolumeList) -> None:
        """Record that these volumes are about to be deleted."""
        records: dict[str, Record | None] = {
            _VOLUME + v.name: Record(validator(v.info), v.info.size, 0, 0, 0) for v in volumes.volumes
        }
        self.index.put({**records, self._deleting: Record(":".join(self._fingerprints), 0, 0, 0, 0)})

    def has_deleted(self, volumes: VolumeList) -> bool:
        """Whether all of these are what a deletion has left over."""
        records = [(self.index.get(_VOLUME + v.name), v.info) for v in volumes.volumes]
        return all(r is not None and r[:2] == (validator(info), info.size) for r, info in records)
