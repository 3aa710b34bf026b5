"""The index of a data set: its samples and their objects, as columns that processes map into memory.

It is one file, so it is complete or absent::

    magic (8 bytes), length of the header (8), header (JSON), padding to 8, then the columns

``begins``
    uint64 per sample, and one more: the number of its first object.
``key_ends``
    uint64 per sample: the end of its key in ``keys``, UTF-8 bytes one after the other (surrogates as in Python).
``sizes``
    int64 per object: bytes.
``fields``
    uint16 per object: the number of its field name in the header's ``fields``.
``tags``
    16 bytes per object that identify its version; ``kinds``, uint8 per object, gives their format. They are the MD5 of
    a quoted ETag, or offset and length of JSON ``[etag, modified, version]`` in ``others``. For a member of a shard
    they are the number of the shard (4 bytes), the offset of the content there (8; of an FFRecord file the number of
    the record) and its CRC-32 (4).
``paths``
    Paths of objects other than ``KEY.FIELD``: JSON in ``others``, found through ``odd`` (uint64 pairs of object number
    and offset), in order.

All numbers are little-endian. Reading costs a few microseconds per sample, and no memory except the mapped pages, which
all processes share.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import json
import mmap
import operator
import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nbdata.bounded import parse_json
from nbdata.errors import BadOption, NbdataError, UnsafeMember
from nbdata.formats.sample_objects import SampleObject, ShardMember
from nbdata.origins import leads_up
from nbdata.own_files import through_no_link

__all__ = ["IndexWriter", "SampleIndex"]

_MAGIC = b"nbidx\x00\x00\x02"
_COLUMNS = {
    "begins": "Q",
    "key_ends": "Q",
    "sizes": "q",
    "fields": "H",
    "kinds": "B",
    "tags": "B",
    "odd": "Q",
    "keys": "B",
    "others": "B",
}
_PLAIN, _OTHER, _MEMBER = 0, 1, 2
# Number of a shard, offset (-1: not contiguous), CRC-32.
_PLACE = struct.Struct("<IqI")
_FIELDS = 1 << 16
_LENGTH = 8
# Most bytes of a key: no store has longer ones (see `nbdata.transfer.bad_entries`).
_LONGEST_KEY = 4 * 8192
# Most bytes of JSON in ``others``: a key of which each character is escaped has fewer. The high bytes of their number
# are zero then, and JSON has no zero bytes, so what begins at different offsets does not overlap.
_LONGEST_OTHER = 1 << 18


def _plain_etag(one: SampleObject) -> bytes | None:
    """Return the 16 bytes of an ETag that is a quoted MD5 and alone identifies the version; else None."""
    etag = one.etag
    if one.version or len(etag) != 34 or etag[0] != '"' or etag[-1] != '"':
        return None
    try:
        tag = bytes.fromhex(etag[1:-1])
    except ValueError:
        return None
    return tag if tag.hex() == etag[1:-1] else None


@dataclass
class _Columns:
    begins: array[int]
    key_ends: array[int]
    sizes: array[int]
    fields: array[int]
    kinds: array[int]
    odd: array[int]
    tags: bytearray
    keys: bytearray
    others: bytearray


class IndexWriter:
    """Collects samples, and writes them to one file.

    Memory holds the columns: about 50 bytes per object, and 16 plus its key per sample.
    """

    def __init__(self) -> None:
        made = {
            name: array(code) for name, code in _COLUMNS.items() if name not in ("tags", "keys", "others")
        }
        self._columns = _Columns(**made, tags=bytearray(), keys=bytearray(), others=bytearray())
        self._columns.begins.append(0)
        self._fields: dict[str, int] = {}
        self._counts = array("Q"), array("Q")  # objects and bytes of each field
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._columns.key_ends)

    def add(self, key: str, objects: Iterable[SampleObject]) -> None:
        """Add the next sample."""
        columns = self._columns
        columns.keys += key.encode("utf-8", "surrogatepass")
        columns.key_ends.append(len(columns.keys))
        for one in objects:
            self._add(key, one)
        columns.begins.append(len(columns.sizes))

    def _add(self, key: str, one: SampleObject) -> None:
        columns = self._columns
        if one.path != (f"{key}.{one.field}" if one.field else key):
            columns.odd.extend((len(columns.sizes), len(columns.others)))
            self._write_other(one.path)
        columns.sizes.append(one.size)
        columns.fields.append(self._field(one.field, one.size))
        tag = _plain_etag(one)
        if tag is not None:
            columns.kinds.append(_PLAIN)
            columns.tags += tag
            return
        columns.kinds.append(_OTHER)
        columns.tags += len(columns.others).to_bytes(16, "little")
        self._write_other([one.etag, one.modified, one.version])

    def add_members(self, key: str, members: Iterable[ShardMember], paths: Sequence[str] = ()) -> None:
        """Add the next sample of a shard; give `paths` if the members have others than ``KEY.FIELD``."""
        columns = self._columns
        columns.keys += key.encode("utf-8", "surrogatepass")
        columns.key_ends.append(len(columns.keys))
        for place, (field, shard, offset, size, crc) in enumerate(members):
            if paths and paths[place] != f"{key}.{field}":
                columns.odd.extend((len(columns.sizes), len(columns.others)))
                self._write_other(paths[place])
            columns.sizes.append(size)
            columns.fields.append(self._field(field, size))
            columns.kinds.append(_MEMBER)
            columns.tags += _PLACE.pack(shard, offset, crc)
        columns.begins.append(len(columns.sizes))

    def add_all(self, other: SampleIndex) -> None:
        """Add all samples of another index of shards."""
        columns, objects, others = self._columns, len(self._columns.sizes), len(self._columns.others)
        keys, theirs = len(columns.keys), other.columns
        columns.begins.extend(objects + at for at in theirs["begins"][1:])
        columns.key_ends.extend(keys + at for at in theirs["key_ends"])
        numbers = [self._field(name, size, count) for name, (count, size) in other.counts.items()]
        columns.fields.extend(map(numbers.__getitem__, theirs["fields"]))
        columns.odd.extend(map(operator.add, theirs["odd"], itertools.cycle((objects, others))))
        for name in ("sizes", "kinds", "tags", "keys", "others"):
            getattr(columns, name).extend(theirs[name])

    def _field(self, name: str, size: int, count: int = 1) -> int:
        """Return the number of a field, and count more objects of `size` bytes for it."""
        number = self._fields.setdefault(name, len(self._fields))
        if number >= _FIELDS:
            raise BadOption(
                f"more than {_FIELDS:,} different names of fields, such as {name!r}",
                remedy='A sample is what shares a name up to its first dot: with by="file" each file is one',
            )
        counts, sizes = self._counts
        if number == len(counts):
            counts.append(0)
            sizes.append(0)
        counts[number] += count
        sizes[number] += max(0, size)
        self.bytes += max(0, size)
        return number

    def _write_other(self, value: object) -> None:
        text = json.dumps(value, separators=(",", ":")).encode("ascii")
        self._columns.others += len(text).to_bytes(_LENGTH, "little") + text

    def key(self, number: int) -> str:
        """Return the key of a sample that was added."""
        columns = self._columns
        begin = columns.key_ends[number - 1] if number else 0
        return columns.keys[begin : columns.key_ends[number]].decode("utf-8", "surrogatepass")

    def field_twice(self, number: int) -> str | None:
        """Return a field that two objects of a sample share; None if all differ."""
        columns = self._columns
        numbers = columns.fields[columns.begins[number] : columns.begins[number + 1]]
        if len(numbers) < 2 or len(set(numbers)) == len(numbers):
            return None
        twice = next(one for one in numbers if numbers.count(one) > 1)
        return next(name for name, one in self._fields.items() if one == twice)

    def pieces(self, about: dict[str, Any]) -> list[bytes | memoryview]:
        """Return the bytes of the file; `about` is the part of its header beside the columns."""
        data: dict[str, memoryview] = {}
        for name in _COLUMNS:
            column = getattr(self._columns, name)
            if sys.byteorder == "big" and isinstance(column, array):
                column = array(column.typecode, column)
                column.byteswap()
            data[name] = memoryview(column).cast("B")
        sizes = {name: len(column) for name, column in data.items()}
        header = {
            **about,
            "columns": sizes,
            "fields": list(self._fields),
            "counts": list(zip(*self._counts, strict=True)),
            "samples": len(self),
            "bytes": self.bytes,
        }
        out = _head(header)
        for column in data.values():
            out += [column, _padding(len(column))]
        return out


def _head(header: dict[str, Any]) -> list[bytes | memoryview]:
    text = json.dumps(header).encode("ascii")
    return [_MAGIC, len(text).to_bytes(_LENGTH, "little"), text, _padding(len(text))]


def _padding(size: int) -> bytes:
    return bytes(-size % 8)


class SampleIndex:
    """An index mapped into memory; many threads may use it.

    Parameters
    ----------
    path : str

    Attributes
    ----------
    about : dict
        The part of its header beside the columns.
    bytes : int
        Total of all objects whose size is known.
    fields : list of str
    counts : dict
        Per field, the number of objects and their bytes.
    columns : dict of str to memoryview
        See the module.

    Raises
    ------
    NbdataError
        If the file is not an index, or is truncated.
    FileNotFoundError
        If there is no such file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "rb", opener=through_no_link) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                self._map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
            except ValueError:
                raise _damaged(path) from None
        view = memoryview(self._map)
        length = int.from_bytes(view[8:16], "little")
        if view[:8] != _MAGIC or 16 + length > size or sys.byteorder != "little":
            raise _damaged(path)
        try:
            self._read_header(view, length, size)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise _damaged(path) from None

    def _read_header(self, view: memoryview, length: int, size: int) -> None:
        """Find the columns; raises ValueError, KeyError, TypeError or AttributeError if the header is not valid."""
        about: dict[str, Any] = parse_json(bytes(view[16 : 16 + length]))
        self._start = at = 16 + length + len(_padding(length))
        columns: dict[str, memoryview[int]] = {}
        for name, code in _COLUMNS.items():
            count = about["columns"][name]
            if not 0 <= count <= size - at:
                raise ValueError(name)
            columns[name] = view[at : at + count].cast(code)  # type: ignore[call-overload]
            at += count + len(_padding(count))
        self.columns = columns
        self._begins, self._key_ends, self._sizes = columns["begins"], columns["key_ends"], columns["sizes"]
        self._fields, self._kinds, self._tags = columns["fields"], columns["kinds"], columns["tags"]
        self._keys, self._others = columns["keys"], columns["others"]
        self._odd = columns["odd"]
        samples, objects = len(self._key_ends), len(self._sizes)
        if (len(self._begins), self._begins[-1], len(self._fields), len(self._kinds), len(self._tags)) != (
            samples + 1,
            objects,
            objects,
            objects,
            16 * objects,
        ):
            raise ValueError("columns of other lengths")
        self.about = about
        self.fields: list[str] = list(map(str, about["fields"]))
        counts = [[int(count), int(size)] for count, size in about["counts"]]
        self.counts: dict[str, list[int]] = dict(zip(self.fields, counts, strict=True))
        self.bytes = int(about["bytes"])

    def __len__(self) -> int:
        return len(self._key_ends)

    def is_in_order(self) -> bool:
        """True if no two samples share objects or keys, nor two objects a path or a version.

        This is a check for an index from another user. Else a short index could stand for objects without end.
        """
        offsets = self._tags.cast("B").cast("Q")[::2]
        others = array("Q", itertools.compress(offsets, map(_OTHER.__eq__, self._kinds)))
        return all(_compared(operator.le, column) for column in (self._begins, self._key_ends)) and all(
            _compared(operator.lt, column) for column in (self._odd[::2], self._odd[1::2], others)
        )

    def is_of_shards(self, count: int) -> bool:
        """True if all samples lie in shards numbered below `count`; a check for an index from another user."""
        numbers = self._tags.cast("B").cast("I")[::4]
        members = bytes(self._kinds).count(_MEMBER)
        is_known = isinstance(self.about.get("left_out"), int) and isinstance(
            self.about.get("left_out_names"), list
        )
        return (
            is_known
            and self.is_in_order()
            and members == len(self._kinds)
            and max(numbers, default=0) < count
        )

    def pieces(self, about: dict[str, Any]) -> list[bytes | memoryview]:
        """Return the bytes of a file with the same samples, and another `about` in its header."""
        return [*_head({**self.about, **about}), memoryview(self._map)[self._start :]]

    def key(self, number: int) -> str:
        """Return the key of a sample."""
        begin, end = self._key_ends[number - 1] if number else 0, self._key_ends[number]
        if not 0 <= end - begin <= _LONGEST_KEY:
            raise _damaged(self.path)
        return str(self._keys[begin:end], "utf-8", "surrogatepass")

    def objects(self, number: int) -> list[SampleObject]:
        """Return the objects of a sample, in the order of the listing.

        Another user may have made the index, and stored it beside the data.

        Raises
        ------
        UnsafeMember
            If the path of one leads out of the folder of the data, however it is spelled.
        NbdataError
            If the index is damaged.
        """
        try:
            key = self.key(number)
            found = [self._object(key, at) for at in range(self._begins[number], self._begins[number + 1])]
            if not found:
                raise ValueError("a sample of no objects")
            for one in found:
                one.path.encode("utf-8", "surrogateescape")  # what no file's name has, no store is asked for
        except (ValueError, TypeError, IndexError, RecursionError):
            raise _damaged(self.path) from None
        for one in found:
            if _leads_out(one.path):
                raise UnsafeMember(
                    "the index names an object outside of its folder",
                    path=self.path,
                    expected="paths without ..",
                    got=one.path,
                    remedy='Look where the index came from, and build it anew: refresh="always"',
                )
        return found

    def members(self, number: int) -> list[ShardMember]:
        """Return the fields of a sample in a shard, in the shard's order."""
        return [
            self._member(self._fields[at], at) for at in range(self._begins[number], self._begins[number + 1])
        ]

    def _member(self, field: int, at: int) -> ShardMember:
        shard, offset, crc = _PLACE.unpack(self._tags[16 * at : 16 * at + 16])
        return ShardMember(self.fields[field], shard, offset, self._sizes[at], crc)

    # Of consecutive samples together, which takes a fraction of the time of one by one.

    def keys(self, first: int, end: int) -> list[str]:
        """Return the keys of consecutive samples."""
        begin = self._key_ends[first - 1] if first else 0
        ends = [at - begin for at in self._key_ends[first:end].tolist()]
        data = bytes(self._keys[begin : begin + ends[-1]]) if ends else b""
        text = data.decode("utf-8", "surrogatepass")
        if len(text) == len(data):
            return [text[at:behind] for at, behind in zip([0, *ends], ends, strict=False)]
        return [
            data[at:behind].decode("utf-8", "surrogatepass")
            for at, behind in zip([0, *ends], ends, strict=False)
        ]

    def names(self, first: int, end: int) -> tuple[list[int], list[str]]:
        """Return the field names of consecutive samples, and the place of each sample's first one, and of their end."""
        begins = self._begins[first : end + 1].tolist()
        fields = self.fields
        return [at - begins[0] for at in begins], [
            fields[field] for field in self._fields[begins[0] : begins[-1]]
        ]

    def places(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Return shard, offset and CRC-32 of the members of consecutive samples."""
        return list(_PLACE.iter_unpack(self._tags[16 * self._begins[first] : 16 * self._begins[end]]))

    def count(self, first: int, end: int) -> int:
        """Return the number of members of consecutive samples."""
        return self._begins[end] - self._begins[first]

    def size_of(self, first: int, end: int) -> int:
        """Return the bytes of consecutive samples whose members all have known sizes."""
        return sum(self._sizes[self._begins[first] : self._begins[end]])

    @functools.cached_property
    def digest(self) -> str:
        """A digest that is equal only for the same samples in the same order with the same versions."""
        digest = hashlib.blake2b(json.dumps(self.fields).encode(), digest_size=16)
        for column in (self._begins, self._key_ends, self._sizes, self._fields, self._tags, self._keys):
            digest.update(column)
        return digest.hexdigest()

    def paths(self, number: int) -> list[str]:
        """Return the paths of the members of a sample."""
        key, begin = self.key(number), self._begins[number]
        return [
            (self._odd_path(at) if self._odd else None) or f"{key}.{self.fields[self._fields[at]]}"
            for at in range(begin, self._begins[number + 1])
        ]

    def size(self, number: int) -> int:
        """Return the bytes of a sample, as far as its store gave sizes."""
        return sum(max(0, self._sizes[at]) for at in range(self._begins[number], self._begins[number + 1]))

    def _object(self, key: str, at: int) -> SampleObject:
        field = self.fields[self._fields[at]]
        tag = self._tags[16 * at : 16 * at + 16]
        path = self._odd_path(at) if self._odd else None
        if path is None:
            path = f"{key}.{field}" if field else key
        if self._kinds[at] == _PLAIN:
            return SampleObject(field, path, self._sizes[at], f'"{tag.hex()}"')
        etag, modified, version = self._other(int.from_bytes(tag, "little"))
        modified = None if modified is None else float(modified)
        if not isinstance(etag, str) or not isinstance(version, str):
            raise TypeError(etag)
        return SampleObject(field, path, self._sizes[at], etag, modified, version)

    def _odd_path(self, at: int) -> str | None:
        """Return the path of an object if its sample's key and field do not give it; else None."""
        place = bisect.bisect_left(range(len(self._odd) // 2), at, key=lambda pair: self._odd[2 * pair])
        if 2 * place < len(self._odd) and self._odd[2 * place] == at:
            path = self._other(self._odd[2 * place + 1])
            if not isinstance(path, str):
                raise TypeError(path)
            return path
        return None

    def _other(self, at: int) -> Any:
        begin = at + _LENGTH
        length = int.from_bytes(self._others[at:begin], "little")
        if length > _LONGEST_OTHER:
            raise ValueError(length)
        return parse_json(bytes(self._others[begin : begin + length]))


def _compared(rule: Callable[[int, int], bool], column: Sequence[int]) -> bool:
    """True if a rule holds for each number of a column and the next."""
    return all(map(rule, column, itertools.islice(column, 1, None)))


def _leads_out(path: str) -> bool:
    """True if a path may lead out of the folder to whose key it is appended, here or in a store that decodes it."""
    return (".." in path or "%" in path) and leads_up(path)


def _damaged(path: str) -> NbdataError:
    return NbdataError("the index is damaged", path=path, remedy='Build it anew: refresh="always"')
