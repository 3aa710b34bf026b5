"""The index records of what an archive has written into a target.

Each file or object is recorded with a `Tag`. It is valid as long as the volumes that were read until then are the same,
even if a later volume was damaged and is replaced. Links on the disk have no CRC. A folder on the disk is recorded
under its name and a slash, with the time that it gets at the end.

When an archive was read to its end and everything is there, a completion record holds a digest of all records. If the
records are the same later and all files look as recorded, the archive need not be read again. Until then there may be a
checkpoint (`nbdata.engine.unpack.targets.checkpoints`). Before volumes are deleted, the whole set is recorded, so a
later command that finds only some or none of them knows why.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from isal.isal_zlib import crc32

from nbdata.archives.member import Member
from nbdata.disk import open_regular
from nbdata.errors import UnsafeMember
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.index import Index, Record
from nbdata.transfer.part_records import validator

__all__ = [
    "ShardNote",
    "Sound",
    "Tag",
    "Written",
    "crc32_of",
    "is_gone",
    "is_version",
    "offset_of",
    "own_data",
    "own_record",
    "sum_of",
]

# No member can have such a name.
_OWN = ".nbdata/"
# Prefix of the name of a shard.
_SHARDS = f"{_OWN}shard/"
# In place of the CRC of content that may be damaged.
_DOUBTFUL = "?"


class Tag(NamedTuple):
    """The tag of a member's record, as the text ``FINGERPRINT:OFFSET:CRC:LINE`` or ``…:LINE:VERSION``.

    Attributes
    ----------
    fingerprint : str
        Fingerprint of the volumes up to the end of its content.
    offset : int
        Offset of its header in the archive.
    crc : str
        CRC-32 of its content in hex; for a shard, a digest of its content; ``?`` if the content is doubtful.
    line : str
        Identifies the options that decide where members go.
    version : str
        The version of an object; else ''.
    """

    fingerprint: str
    offset: int
    crc: str
    line: str
    version: str = ""

    @classmethod
    def of(cls, record: Record) -> Tag:
        """The tag of a record."""
        fingerprint, offset, crc, line, *version = record.tag.split(":", 4)
        return cls(fingerprint, int(offset), crc, line, *version)

    def __str__(self) -> str:
        text = f"{self.fingerprint}:{self.offset}:{self.crc}:{self.line}"
        return f"{text}:{self.version}" if self.version else text


class ShardNote(NamedTuple):
    """Data about a shard that is stored beside its record.

    Attributes
    ----------
    end : int
        Offset in the archive up to which it holds the members; 0 if it is incomplete.
    samples : int
    digests : dict
        The digests of its bytes, for its entry in the index beside the shards.
    again : int
        Samples in it whose key is known to have come before.
    """

    end: int
    samples: int
    digests: dict[str, str | int]
    again: int = 0


class Written:
    """The records of one archive in one target.

    Parameters
    ----------
    index : Index
        The index of the source and the target.
    fingerprints : list of str
        See `VolumeList.fingerprints`.
    options : list
        The options that decide which members go where: a run counts as complete only for the same options.
    skip_written : bool
        Whether written members may be gone by now.
    """

    def __init__(
        self, index: Index, fingerprints: list[str], options: list[object], *, skip_written: bool = False
    ) -> None:
        self.index, self._skip_written = index, skip_written
        self.fingerprints, self._known = fingerprints, set(fingerprints)
        self._line = hashlib.sha256(json.dumps(options).encode()).hexdigest()[:8]
        self._complete = self.own("complete")

    def own(self, name: str) -> str:
        """The index name of a record that concerns the whole command."""
        return f"{_OWN}{name}/{self._line}"

    # -- members ------------------------------------------------------------------------------

    def tag(self, member: Member, volume: int, crc: int = 0) -> str:
        """The tag of a member whose content ends in this volume or before."""
        return str(Tag(self.fingerprints[volume], member.offset, f"{crc:08x}", self._line))

    def is_ours(self, record: Record) -> bool:
        """True if a record belongs to this archive, and its volumes are still the same."""
        return record.tag.partition(":")[0] in self._known

    def is_of_line(self, record: Record) -> bool:
        """True if a record belongs to this archive and to a run with the same options."""
        return self.is_ours(record) and Tag.of(record).line == self._line

    def adopt(self, path: str, record: Record) -> None:
        """Take over a record of a run with other options for this command."""
        if not self.is_of_line(record):
            tag = Tag.of(record)._replace(line=self._line)
            self.index.put({path: record._replace(tag=str(tag))})

    def is_of(self, record: Record, offset: int) -> bool:
        """True if a record belongs to the member at an offset."""
        return self.is_ours(record) and offset_of(record) == offset

    def is_same(self, record: Record, crc: int) -> bool:
        """True if the recorded content has this CRC."""
        return Tag.of(record).crc == f"{crc:08x}"

    def doubt(self, offset: int) -> int:
        """Mark members that end behind an offset for rewriting: their content was read, but may be damaged.

        Returns their number.
        """
        doubtful: dict[str, Record | None] = {}
        for path, record in self.records():
            tag = Tag.of(record)
            if tag.crc != _DOUBTFUL and self._end_of(path, record) >= offset and not path.endswith("/"):
                doubtful[path] = record._replace(tag=str(tag._replace(crc=_DOUBTFUL)))
        self.index.put(doubtful)
        return len(doubtful)

    def _end_of(self, path: str, record: Record) -> int:
        """The offset in the archive at which the content of a record ends."""
        shard = self.shard(path)
        return offset_of(record) + record.size if shard is None else shard.end

    def is_doubtful(self, record: Record) -> bool:
        """True if `doubt` has marked the record."""
        return Tag.of(record).crc == _DOUBTFUL

    def may_be_gone(self, record: Record) -> bool:
        """True if a member counts as written though it no longer exists.

        A record that was only announced, or is doubtful, does not prove that the file was written.
        """
        whole = record.local_size >= 0 and self.is_ours(record)
        return self._skip_written and whole and not self.is_doubtful(record)

    def is_older(self, record: Record, member: Member) -> bool:
        """True if `member` comes before the member that a run with the same options recorded under this name."""
        return self.is_of_line(record) and member.offset < offset_of(record)

    def records(self) -> Iterator[tuple[str, Record]]:
        """Paths and records of everything this archive wrote; paths of folders end in a slash."""
        for path, record in self.index.records():
            if self.is_ours(record) and not path.startswith(_OWN):
                yield path, record

    def replacing(self, record: Record, path: str, offset: int) -> None:
        """Keep the current record of a path, before the later member at an offset is written there."""
        self.index.put({f"{self.own('replaced')}/{path}": record._replace(size=offset)})

    def replaced(self) -> Iterator[tuple[str, Record]]:
        """The records that `replacing` kept, by path; their size is the offset of the later member."""
        prefix = self.own("replaced") + "/"
        for name, record in self.index.records():
            if name.startswith(prefix) and self.is_of_line(record):
                yield name[len(prefix) :], record

    def look(self, root: str) -> Sound:
        """Compare the files and links that this archive wrote with their records."""
        sound = Sound({}, {}, whole=True)
        for path, record in self.records():
            folder = path.endswith("/")
            try:
                status = os.lstat(os.path.join(root, path))
            except OSError as error:
                if not (is_gone(error) and self.may_be_gone(record)):
                    sound.whole = False
                elif not folder:
                    sound.gone[path] = record
                continue
            if folder:
                sound.whole = sound.whole and stat.S_ISDIR(status.st_mode)
            elif record.local_same(status):
                sound.there[path] = record
            else:
                sound.whole = False
        return sound

    def start_again(self) -> None:
        """Forget the records from which an interrupted command would resume."""
        self.index.put(self._left_of_a_line())

    def _left_of_a_line(self) -> dict[str, Record | None]:
        """The records to delete that only serve an interrupted command."""
        needless = tuple(map(self.own, ("checkpoint", "replaced", "links", "left")))
        return {name: None for name, _ in self.index.records() if name.startswith(needless)}

    # -- shards -------------------------------------------------------------------------------

    def shard(self, name: str) -> ShardNote | None:
        """The note of a shard; None if there is none."""
        data: Any = own_data(self.index.get(_SHARDS + name))
        return None if data is None else ShardNote(*data)

    def shards(self) -> list[str]:
        """The names of all shards that commands with this source and target have made or begun to make."""
        names = [path for path, _ in self.index.records() if path.startswith(_SHARDS)]
        return [name.removeprefix(_SHARDS) for name in names]

    def shard_tag(self, fingerprint: str, offset: int, digest: str, version: str) -> str:
        """The tag of a shard that begins with the member at an offset."""
        return str(Tag(fingerprint, offset, digest, self._line, version))

    def begin_shard(self, name: str) -> None:
        """Record durably that a file under this name may from now on be a shard of this command."""
        self.index.put({name: None, _SHARDS + name: own_record(ShardNote(0, 0, {}))})
        self.index.sync()

    def put_shard(self, name: str, record: Record, note: ShardNote) -> None:
        """Record a complete shard."""
        self.index.put({_SHARDS + name: own_record(note), name: record})

    def forget_shard(self, name: str) -> None:
        """Delete the records of a shard that no longer exists."""
        self.index.put({_SHARDS + name: None, name: None})

    # -- the whole ----------------------------------------------------------------------------

    def complete(self, *, left_out: bool, compared: int = 0) -> None:
        """Record that the archive was read to its end, and all members to be unpacked are there.

        The records for resuming are deleted. `left_out` is True if some content of the archive is not unpacked.
        `compared` is the mark of the published digests that all its volumes match, see `Published`.
        """
        complete = Record(self.fingerprints[-1], *self._digest(), int(left_out), compared)
        self.index.put({self._complete: complete, **self._left_of_a_line()})

    def is_complete(self) -> bool:
        """True if `complete` was called, and the records are unchanged since."""
        record = self.index.get(self._complete)
        return record is not None and (*record[:3],) == (self.fingerprints[-1], *self._digest())

    def has_left_out(self) -> bool:
        """True if `complete` was called with something left out."""
        record = self.index.get(self._complete)
        return record is not None and record.mtime_ns != 0

    def was_compared(self, mark: int) -> bool:
        """True if the volumes matched the published digests with this mark when `complete` was called."""
        record = self.index.get(self._complete)
        return record is not None and record.ctime_ns == mark

    def _digest(self) -> tuple[int, int]:
        return sum_of((path, record.tag) for path, record in self.records())


@dataclass
class Sound:
    """The result of `Written.look`.

    Attributes
    ----------
    there, gone : dict of str to Record
        Files and links that are unchanged; and those that no longer exist, but count as written.
    whole : bool
        Whether these are all, including the folders.
    """

    there: dict[str, Record]
    gone: dict[str, Record]
    whole: bool


def is_gone(error: OSError) -> bool:
    """True if the error means that the path does not exist."""
    return isinstance(error, (FileNotFoundError, NotADirectoryError))


def offset_of(record: Record) -> int:
    """The offset of the recorded member in the archive."""
    return Tag.of(record).offset


def is_version(record: Record, there: ObjectInfo | None) -> bool:
    """True if an object is the recorded version."""
    version = Tag.of(record).version
    return there is not None and record.local_size >= 0 and bool(version) and version == validator(there)


def sum_of(members: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """The number and the digest of members, given as (path, tag) in any order."""
    count = total = 0
    for path, tag in members:
        text = f"{path}\0{tag}".encode("utf-8", "surrogatepass")
        total += int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
        count += 1
    return count, total % (1 << 56)


def own_record(data: object) -> Record:
    """A record that holds nbdata's own data."""
    return Record(json.dumps(data), 0, 0, 0, 0)


def own_data(record: Record | None) -> object:
    """The data of an `own_record`; None if there is none, or it has another version."""
    try:
        return None if record is None else json.loads(record.tag)
    except ValueError:
        return None


def crc32_of(path: str) -> int:
    """The CRC-32 of a file; -1 if it cannot be read, or anything else, such as a pipe, has its place by now."""
    crc = 0
    try:
        with open(open_regular(path, os.O_NOFOLLOW), "rb") as file:
            while block := file.read(1 << 20):
                crc = crc32(block, crc)
    except (OSError, UnsafeMember):
        return -1
    return crc
