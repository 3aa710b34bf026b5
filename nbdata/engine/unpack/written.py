"""What an archive has written into a target, as the index remembers it.

Each file or object is recorded with a `Tag`, which holds as long as the volumes are the same that were read until then,
although a later one was damaged and is replaced. Links on the disk have no CRC, and a folder there is recorded under
its name and a slash, with the time that it gets at the end.

When an archive was read to its end and all is there, that is recorded too, with a digest of all its records:
if they are the same later and all files look as recorded, the archive need not be read again. Until then there
may be a checkpoint (`nbdata.engine.unpack.checkpoints`). Before volumes are deleted, the whole set is recorded, so that
a line that finds only some of them or none knows why.
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
# Before the name of a shard.
_SHARDS = f"{_OWN}shard/"
# In place of a CRC.
_DOUBTFUL = "?"


class Tag(NamedTuple):
    """What a record remembers of a member, as the text ``FINGERPRINT:OFFSET:CRC:LINE`` or ``…:LINE:VERSION``.

    Attributes
    ----------
    fingerprint : str
        Of the volumes that were read when its content ended.
    offset : int
        Of its header in the archive.
    crc : str
        CRC-32 of its content in hex, of a shard a digest of what it holds; ``?`` if that may be wrong.
    line : str
        Stands for the options that decided where it went.
    version : str
        Of an object, what tells it from other versions of it; else ''.
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
    """What is remembered of a shard beside its record.

    Attributes
    ----------
    end : int
        Offset in the archive up to which it holds the members; 0 if it is not whole yet.
    samples : int
    said : dict
        What the index beside the shards says of its bytes.
    again : int
        Samples in it whose key came before, as far as that was known.
    """

    end: int
    samples: int
    said: dict[str, str | int]
    again: int = 0


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
    skip_written : bool
        Whether members that were written may be gone by now.
    """

    def __init__(
        self, index: Index, fingerprints: list[str], options: list[object], *, skip_written: bool = False
    ) -> None:
        self.index, self._skip_written = index, skip_written
        self.fingerprints, self._known = fingerprints, set(fingerprints)
        self._line = hashlib.sha256(json.dumps(options).encode()).hexdigest()[:8]
        self._complete = self.own("complete")

    def own(self, name: str) -> str:
        """The name in the index of something that is recorded of the line as a whole."""
        return f"{_OWN}{name}/{self._line}"

    # -- members ------------------------------------------------------------------------------

    def tag(self, member: Member, volume: int, crc: int = 0) -> str:
        """What a record of a member remembers; its content ends in this volume or before."""
        return str(Tag(self.fingerprints[volume], member.offset, f"{crc:08x}", self._line))

    def is_ours(self, record: Record) -> bool:
        """Whether a record is of this archive, as far as its volumes are still the same."""
        return record.tag.partition(":")[0] in self._known

    def is_of_line(self, record: Record) -> bool:
        """Whether a record is of this archive, and of a run with the same options."""
        return self.is_ours(record) and Tag.of(record).line == self._line

    def adopt(self, path: str, record: Record) -> None:
        """Count what a run with other options has written to this line."""
        if not self.is_of_line(record):
            tag = Tag.of(record)._replace(line=self._line)
            self.index.put({path: record._replace(tag=str(tag))})

    def is_of(self, record: Record, offset: int) -> bool:
        """Whether a record is of the very member at an offset."""
        return self.is_ours(record) and offset_of(record) == offset

    def is_same(self, record: Record, crc: int) -> bool:
        """Whether the content that was recorded has this CRC."""
        return Tag.of(record).crc == f"{crc:08x}"

    def doubt(self, offset: int) -> None:
        """Have members written anew whose content ends behind an offset: it was read, but may not be the archive's."""
        doubtful: dict[str, Record | None] = {}
        for path, record in self.records():
            tag = Tag.of(record)
            if tag.crc != _DOUBTFUL and self._end_of(path, record) >= offset and not path.endswith("/"):
                doubtful[path] = record._replace(tag=str(tag._replace(crc=_DOUBTFUL)))
        self.index.put(doubtful)

    def _end_of(self, path: str, record: Record) -> int:
        """Where in the archive ends what a record is of."""
        shard = self.shard(path)
        return offset_of(record) + record.size if shard is None else shard.end

    def is_doubtful(self, record: Record) -> bool:
        """Whether `doubt` was said of it."""
        return Tag.of(record).crc == _DOUBTFUL

    def may_be_gone(self, record: Record) -> bool:
        """Whether a member counts as written though it is not there any more.

        A record that was only announced says nothing of the file, nor does a doubtful one.
        """
        whole = record.local_size >= 0 and self.is_ours(record)
        return self._skip_written and whole and not self.is_doubtful(record)

    def is_older(self, record: Record, member: Member) -> bool:
        """Whether `member` comes before the one that a run with the same options has recorded last."""
        return self.is_of_line(record) and member.offset < offset_of(record)

    def records(self) -> Iterator[tuple[str, Record]]:
        """Paths and records of all that this archive wrote; those of folders end in a slash."""
        for path, record in self.index.records():
            if self.is_ours(record) and not path.startswith(_OWN):
                yield path, record

    def replacing(self, record: Record, path: str, offset: int) -> None:
        """Remember what was recorded of a path until now, before the later member at an offset is written there."""
        self.index.put({f"{self.own('replaced')}/{path}": record._replace(size=offset)})

    def replaced(self) -> Iterator[tuple[str, Record]]:
        """What `replacing` was told: paths, and records whose size is the offset of the later member."""
        prefix = self.own("replaced") + "/"
        for name, record in self.index.records():
            if name.startswith(prefix) and self.is_of_line(record):
                yield name[len(prefix) :], record

    def look(self, root: str) -> Sound:
        """What has become of the files and links that this archive wrote."""
        sound = Sound({}, {}, whole=True)
        for path, record in self.records():
            folder = path.endswith("/")
            try:
                found = os.lstat(os.path.join(root, path))
            except OSError as error:
                if not (is_gone(error) and self.may_be_gone(record)):
                    sound.whole = False
                elif not folder:
                    sound.gone[path] = record
                continue
            if folder:
                sound.whole = sound.whole and stat.S_ISDIR(found.st_mode)
            elif record.local_same(found):
                sound.there[path] = record
            else:
                sound.whole = False
        return sound

    def start_again(self) -> None:
        """Forget what a line that is interrupted would go on from."""
        self.index.put(self._left_of_a_line())

    def _left_of_a_line(self) -> dict[str, Record | None]:
        """What is recorded only for a line that is interrupted, to be forgotten."""
        needless = tuple(map(self.own, ("checkpoint", "replaced", "links", "left")))
        return {name: None for name, _ in self.index.records() if name.startswith(needless)}

    # -- shards -------------------------------------------------------------------------------

    def shard(self, name: str) -> ShardNote | None:
        """What is recorded of a shard beside its record; None if there is no such."""
        found: Any = own_data(self.index.get(_SHARDS + name))
        return None if found is None else ShardNote(*found)

    def shards(self) -> list[str]:
        """The names of all shards that lines of this source and target have made, or begun to make."""
        names = [path for path, _ in self.index.records() if path.startswith(_SHARDS)]
        return [name.removeprefix(_SHARDS) for name in names]

    def shard_tag(self, fingerprint: str, offset: int, digest: str, version: str) -> str:
        """What the record of a shard remembers, which begins with the member at an offset."""
        return str(Tag(fingerprint, offset, digest, self._line, version))

    def begin_shard(self, name: str) -> None:
        """Say on the disk that what stands under a name from now on may be a shard of this line."""
        self.index.put({name: None, _SHARDS + name: own_record(ShardNote(0, 0, {}))})
        self.index.sync()

    def put_shard(self, name: str, record: Record, note: ShardNote) -> None:
        """Record a shard that is whole."""
        self.index.put({_SHARDS + name: own_record(note), name: record})

    def forget_shard(self, name: str) -> None:
        """It is there no longer."""
        self.index.put({_SHARDS + name: None, name: None})

    # -- the whole ----------------------------------------------------------------------------

    def complete(self, *, left_out: bool) -> None:
        """Record that the archive was read to its end, and all that it hands over is there.

        What is needed to go on is forgotten. `left_out`: it holds something that is not handed over.
        """
        complete = Record(self.fingerprints[-1], *self._digest(), int(left_out), 0)
        self.index.put({self._complete: complete, **self._left_of_a_line()})

    def is_complete(self) -> bool:
        """Whether `complete` was said, and the records are the same as then."""
        record = self.index.get(self._complete)
        return record is not None and (*record[:3],) == (self.fingerprints[-1], *self._digest())

    def has_left_out(self) -> bool:
        """Whether `complete` was said of an archive of which something was left out."""
        record = self.index.get(self._complete)
        return record is not None and record.mtime_ns != 0

    def _digest(self) -> tuple[int, int]:
        return sum_of((path, record.tag) for path, record in self.records())


@dataclass
class Sound:
    """What `Written.look` found.

    Attributes
    ----------
    there, gone : dict of str to Record
        Files and links that are as they were written; and those that are not there any more, but count as written.
    whole : bool
        Whether that is all, with the folders.
    """

    there: dict[str, Record]
    gone: dict[str, Record]
    whole: bool


def is_gone(error: OSError) -> bool:
    """Whether nothing stands where somebody looked."""
    return isinstance(error, (FileNotFoundError, NotADirectoryError))


def offset_of(record: Record) -> int:
    """Of the member in the archive."""
    return Tag.of(record).offset


def is_version(record: Record, there: ObjectInfo | None) -> bool:
    """Whether an object is the one that was recorded."""
    version = Tag.of(record).version
    return there is not None and record.local_size >= 0 and bool(version) and version == validator(there)


def sum_of(members: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """Number and digest of members, as (path, tag), in any order."""
    count = total = 0
    for path, tag in members:
        text = f"{path}\0{tag}".encode("utf-8", "surrogatepass")
        total += int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
        count += 1
    return count, total % (1 << 56)


def own_record(data: object) -> Record:
    """A record that holds data of our own."""
    return Record(json.dumps(data), 0, 0, 0, 0)


def own_data(record: Record | None) -> object:
    """The data of an `own_record`; None if there is none, or it is of another version."""
    try:
        return None if record is None else json.loads(record.tag)
    except ValueError:
        return None


def crc32_of(path: str) -> int:
    """The CRC-32 of a file; -1 if it cannot be read."""
    crc = 0
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                crc = crc32(block, crc)
    except OSError:
        return -1
    return crc
