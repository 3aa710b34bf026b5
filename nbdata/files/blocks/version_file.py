"""One version of an object in the cache: a sparse file with its blocks at their places.

========================  ===========================================================================================
bytes                     content
========================  ===========================================================================================
0 to 3,839                magic, length and CRC-32C of the record, and the record: which version of which object it is
3,840 to 3,967            the table, if it has at most 16 entries
3,968 to 3,999            the mark: a digest of the table, and the option ``verify``, once the whole object was compared
from 4,096 on             the table, if it is longer; then the blocks
========================  ===========================================================================================

An entry of the table is the CRC-32C of a block and its state. A block counts only if its bytes have that CRC when they
are read. So nothing has to reach the disk in an order, and a kill or a power cut at any moment costs blocks at most.
The mark counts only beside the table that was there when the object was compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import sys
import time
from array import array
from collections.abc import Sequence
from typing import Any

import google_crc32c

from nbdata.optional_calls import set_time
from nbdata.space.limits import round_up
from nbdata.stores.base import ObjectInfo

__all__ = [
    "BLOCK",
    "MOST_SIZE",
    "PAGE",
    "Entry",
    "VersionFile",
    "blocks_of",
    "crc_of",
    "name_of",
    "overhead_of",
    "record_of",
    "size_of_block",
]

#: Bytes of a block; the last one of an object is shorter.
BLOCK = 1 << 20
#: Bytes of a page: what comes before the blocks takes whole pages.
PAGE = 4096
#: The most bytes of an object that is kept: a size is what the store claims.
MOST_SIZE = 16 << 40
_MAGIC = b"nbdata1\n"
_HEAD = struct.Struct("<8sII")
_ENTRY = struct.Struct("<II")
_MARK = struct.Struct("<16s16s")
_TABLE_AT, _FEW, _MARK_AT = 3840, 16, 3968
# The most bytes of a record; a key that is too long for it is not kept.
_MOST_RECORD = _TABLE_AT - _HEAD.size
# The states of a block: nothing is known, its CRC is known, it is there.
_KNOWN, _THERE = 1, 2

#: The CRC-32C and the state of a block.
Entry = tuple[int, int]


def crc_of(data: bytes) -> int:
    """Return the CRC-32C of bytes."""
    return int(google_crc32c.value(data))


def blocks_of(size: int) -> int:
    """Return how many blocks an object has."""
    return -(-size // BLOCK)


def size_of_block(size: int, number: int) -> int:
    """Return the bytes of a block of an object of a size."""
    return min(BLOCK, size - number * BLOCK)


def name_of(place: str, info: ObjectInfo) -> str:
    """Return the name of the file of a version of an object; '' if it is too large, or nothing tells versions apart.

    Parameters
    ----------
    place : str
        Tells the bucket and its server, without secrets.
    """
    if not info.etag or info.etag.startswith("W/") or not 0 < info.size <= MOST_SIZE:
        return ""
    facts = "\0".join((place, info.key, info.etag, str(info.size)))
    return hashlib.blake2b(facts.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def record_of(place: str, info: ObjectInfo) -> bytes:
    """Return the record of a version.

    Raises
    ------
    ValueError
        If it is too long.
    """
    facts = {
        **info._asdict(),
        "place": place,
        "checksums": dict(info.checksums),
        "composite": dict(info.composite),
    }
    del facts["headers"], facts["storage_class"]
    record = json.dumps(facts).encode("ascii")
    if len(record) > _MOST_RECORD:
        raise ValueError("the record is too long")
    return record


def _info(record: bytes) -> tuple[str, ObjectInfo]:
    """Return the place and the version that a record says; ValueError if it says anything else."""
    facts: Any = json.loads(record)
    kinds = {
        "place": (str,),
        "key": (str,),
        "size": (int,),
        "etag": (str,),
        "modified": (int, float, type(None)),
        "version": (str,),
        "checksums": (dict,),
        "composite": (dict,),
        "encrypted": (bool,),
    }
    if not isinstance(facts, dict) or facts.keys() != kinds.keys():
        raise ValueError("no record")
    if not all(type(facts[name]) in kind for name, kind in kinds.items()):
        raise ValueError("no record")
    sums = {**facts["checksums"], **facts["composite"]}
    if not all(isinstance(digest, str) for digest in sums.values()):
        raise ValueError("no record")
    place = str(facts.pop("place"))
    return place, ObjectInfo(**facts)


class VersionFile:
    """An open file of the cache; safe to use from many threads.

    Parameters
    ----------
    fd : int
        Its descriptor, which is closed with this object.
    info : ObjectInfo
        The version, as its record says.

    Attributes
    ----------
    info : ObjectInfo
    count : int
        How many blocks it has.
    """

    def __init__(self, fd: int, info: ObjectInfo) -> None:
        self._fd, self.info = fd, info
        self.count = blocks_of(info.size)
        self._table = _TABLE_AT if self.count <= _FEW else PAGE
        self._blocks = overhead_of(info.size)

    @classmethod
    def opened(cls, fd: int, name: str, owner: int) -> VersionFile:
        """Return an open file that has this name in the cache.

        Raises
        ------
        ValueError
            If it is not what its name says.
        OSError
            If the disk cannot read it.
        """
        status = os.fstat(fd)
        head = os.pread(fd, _TABLE_AT, 0)
        if len(head) < _HEAD.size or not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            raise ValueError("no file of the cache")
        magic, length, crc = _HEAD.unpack_from(head)
        record = head[_HEAD.size : _HEAD.size + length]
        if magic != _MAGIC or length > _MOST_RECORD or len(record) != length or crc_of(record) != crc:
            raise ValueError("the record is damaged")
        place, info = _info(record)
        if name_of(place, info) != name or status.st_size != overhead_of(info.size) + info.size:
            raise ValueError("the record is of another file")
        return cls(fd, info)

    @classmethod
    def made(cls, fd: int, record: bytes, info: ObjectInfo) -> VersionFile:
        """Return a new, empty file of a version, whose record is written.

        Raises
        ------
        OSError
            If the disk refuses.
        """
        _write(fd, _HEAD.pack(_MAGIC, len(record), crc_of(record)) + record, 0)
        os.ftruncate(fd, overhead_of(info.size) + info.size)
        return cls(fd, info)

    @property
    def is_linked(self) -> bool:
        """Whether it still has a name: a file that was taken out of the cache takes no more room there."""
        return os.fstat(self._fd).st_nlink == 1

    def entry(self, number: int) -> Entry:
        """Return the CRC and the state of a block."""
        data = os.pread(self._fd, _ENTRY.size, self._table + number * _ENTRY.size)
        return _ENTRY.unpack(data) if len(data) == _ENTRY.size else (0, 0)

    def has(self, number: int) -> bool:
        """Whether a block is there, perhaps damaged."""
        return self.entry(number)[1] == _THERE

    def known(self, number: int) -> int | None:
        """Return the CRC that a block has, or had before it was damaged; None if that is not known."""
        crc, state = self.entry(number)
        return crc if state in (_KNOWN, _THERE) else None

    def read(self, number: int) -> tuple[bytes, int] | None:
        """Return a block and its CRC; None if it is not there.

        Raises
        ------
        ValueError
            If it is damaged: its bytes are not those that were written.
        """
        crc, state = self.entry(number)
        if state != _THERE:
            return None
        size, at = size_of_block(self.info.size, number), self._blocks + number * BLOCK
        try:
            data = os.pread(self._fd, size, at)
        except OSError as error:
            raise ValueError(f"the disk cannot read it: {error.strerror}") from error
        if len(data) != size or crc_of(data) != crc:
            raise ValueError("its bytes have another CRC")
        return data, crc

    def expect(self, number: int, count: int) -> None:
        """Have the system read blocks ahead."""
        os.posix_fadvise(self._fd, self._blocks + number * BLOCK, count * BLOCK, os.POSIX_FADV_WILLNEED)

    def write(self, number: int, data: bytes, crc: int) -> None:
        """Write a block, and then its entry."""
        _write(self._fd, data, self._blocks + number * BLOCK)
        self._note(number, crc, _THERE)

    def damaged(self, number: int) -> None:
        """Note that a block is damaged; its CRC is still known."""
        crc, state = self.entry(number)
        if state == _THERE:
            self._note(number, crc, _KNOWN)

    def forget(self, number: int) -> None:
        """Note that nothing is known of a block."""
        self._note(number, 0, 0)

    def _note(self, number: int, crc: int, state: int) -> None:
        _write(self._fd, _ENTRY.pack(crc, state), self._table + number * _ENTRY.size)

    def touch(self) -> None:
        """Note that it is used now."""
        set_time(self._fd, time.time_ns())

    def mark(self, verify: str, crcs: Sequence[int]) -> bool:
        """Mark the whole object as compared with its checksum, if these are the CRCs of its blocks in the table."""
        found, states = self._entries()
        if states.count(_THERE) != len(states) or found != array("I", crcs):
            return False
        _write(self._fd, _MARK.pack(_digest(crcs), verify.encode("ascii")), _MARK_AT)
        return True

    def is_marked(self, verify: str | None = None) -> bool:
        """Whether the whole object was compared, as this option says, and its table is still the same."""
        data = os.pread(self._fd, _MARK.size, _MARK_AT)
        if len(data) != _MARK.size or data == bytes(_MARK.size):
            return False
        digest, how = _MARK.unpack(data)
        if verify is not None and how.rstrip(b"\0") != verify.encode("ascii"):
            return False
        crcs, states = self._entries()
        known = states.count(_KNOWN) + states.count(_THERE)
        return known == self.count and digest == _digest(crcs)

    def _entries(self) -> tuple[array[int], array[int]]:
        """Return the CRCs and the states of all blocks, none if the table is cut short."""
        data = os.pread(self._fd, self.count * _ENTRY.size, self._table)
        table = array("I", data if len(data) == self.count * _ENTRY.size else b"")
        if sys.byteorder == "big":
            table.byteswap()
        return table[0::2], table[1::2]

    def close(self) -> None:
        """Close it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def overhead_of(size: int) -> int:
    """Return the bytes before the first block of an object of a size."""
    count = blocks_of(size)
    return PAGE if count <= _FEW else PAGE + round_up(count * _ENTRY.size, PAGE)


def _digest(crcs: Sequence[int]) -> bytes:
    data = array("I", crcs)
    if sys.byteorder == "big":
        data.byteswap()
    return hashlib.blake2b(data, digest_size=16).digest()


def _write(fd: int, data: bytes, at: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:] if done else data, at + done)
