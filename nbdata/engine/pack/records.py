"""Assign samples to FFRecord files, and map each byte of a file to its source.

Each field is a record, and the fields of a sample follow each other. The last record holds their names, which makes a
file a packed folder; without names, a sample is one record. All sizes and offsets are known beforehand, but a CRC-32
only for fields that were read before. The header holds all of them, so it is made last.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from array import array
from collections.abc import Iterator

from isal.isal_zlib import crc32

from nbdata.engine.pack.layout import Cut
from nbdata.engine.pack.paths import Clashes
from nbdata.engine.pack.source import Field, Order, PackSource
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.ffrecord import HeadWriter, head_size
from nbdata.formats.neighbours import Runs, key_of
from nbdata.formats.packed_folder import NamesSize, names_bytes
from nbdata.sizes import counted
from nbdata.transfer.names import unrepresentable
from nbdata.verbs.pack import Pack
from nbdata.verbs.shard_names import DEFAULT_SIZE

__all__ = ["RecordLayout", "record_cuts"]

#: Most records of a file: its header then takes 12 MiB of memory, and its names about 200 MiB for a moment.
MOST_RECORDS = 1 << 20
# Most files by default, where possible: the format's own advice.
_MOST_FILES = 200


def record_cuts(op: Pack, source: PackSource, order: Order) -> Iterator[Cut]:
    """Yield the files, in order.

    Raises
    ------
    BadOption
        If a sample could not be found again, its path clashes with another one, or the store does not report its size.
    """
    named, position, number, total = not op.no_names, 0, 0, len(source)
    clashes = Clashes(folders=True, remedy="Leave one of them out, or give it another name")
    if named and source.shards:
        _refuse_twice(source, order)
    sizes = _Sizes(op, source)
    while position < total:
        end = op.end_of_shard(number, position, total)
        yield (cut := _cut(source, order, position, end, sizes, clashes, named=named))
        position += cut.samples
        number += 1
    clashes.refuse(lambda: _paths(source, order))


def _paths(source: PackSource, order: Order) -> Iterator[str]:
    """The paths of all records in packed folders."""
    runs = Runs()
    for position in range(len(order)):
        own = source.key(order[position])
        key = key_of(own, runs.number(own))
        for path, _ in _records(source, order[position], key, named=True):
            yield path


def _runs_before(source: PackSource, order: Order, position: int) -> Runs:
    """The run of equal keys that ends before a position: a run may continue from one file to the next."""
    runs, first = Runs(), position
    while first and source.key(order[first - 1]) == source.key(order[position]):
        first -= 1
    for number in range(first, position):
        runs.number(source.key(order[number]))
    return runs


class _Sizes:
    """The size limits of a file.

    Attributes
    ----------
    most : int or None
        Most bytes of a file; a file with a single sample may be larger.
    enough : int or None
        The file ends with the sample that makes it this large.
    refuse : bool
        Whether more than `MOST_RECORDS` are an error, since the number of files is given.
    """

    def __init__(self, op: Pack, source: PackSource) -> None:
        self.most, self.enough = op.shard_size, None
        self.refuse = op.shard_count is not None or not op.names.numbered
        if self.most is None and not self.refuse:
            total = sum(field.piece.size for number in range(len(source)) for field in source.fields(number))
            self.enough = max(DEFAULT_SIZE, -(-total // _MOST_FILES))


def _cut(
    source: PackSource, order: Order, first: int, end: int, sizes: _Sizes, clashes: Clashes, *, named: bool
) -> Cut:
    digest = hashlib.blake2b(b"ffrecord named" if named else b"ffrecord", digest_size=16)
    names, payload, records, renamed, unguarded = NamesSize(), 0, int(named), 0, 0
    position, runs, before, total = first, _runs_before(source, order, first), "", len(source)

    def size() -> int:
        return head_size(records) + payload + (names.bytes if named else 0)

    while position < total:
        number = order[position]
        own = source.key(number)
        key = key_of(own, runs.number(own))
        files = _records(source, number, key, named=named)
        more = sum(field.piece.size for _, field in files) + head_size(len(files)) - head_size(0)
        more += names.more(path for path, _ in files) if named else 0
        # With --by file, files that readers will take for one sample stay together.
        if position > first and not (own == before and files[0][1].path):
            enough = sizes.enough is not None and size() >= sizes.enough
            full = sizes.most is not None and size() + more > sizes.most
            full = full or (records + len(files) > MOST_RECORDS and not sizes.refuse)
            if position >= end or enough or full:
                break
        for path, field in files:
            _refuse(path, field, named=named)
            if named:
                names.add(path)
                clashes.add(path)
            digest.update(f"{path}\0{field.piece.size}\0{field.version}\0".encode("utf-8", "surrogatepass"))
            payload += field.piece.size
            unguarded += not field.is_told_apart
        records += len(files)
        renamed += key != own and any(not field.path for _, field in files)
        before = own
        position += 1
    if records > MOST_RECORDS and position - first > 1:
        raise BadOption(
            f"an FFRecord file would have {counted(records, 'records')}",
            expected=f"at most {MOST_RECORDS:,}",
            remedy="Make more files: a larger --shard-count, or a TARGET with a place for a number",
        )
    return Cut(first, position - first, size(), digest.hexdigest(), renamed, unguarded)


def _records(source: PackSource, number: int, key: str, *, named: bool) -> list[tuple[str, Field]]:
    """The records for a sample, with their paths."""
    fields = source.fields(number)
    if not named and len(fields) != 1:
        raise BadOption(
            f"the sample {key!r} has {len(fields)} fields ({', '.join(field.name for field in fields[:5])}): without "
            "names it could not be taken apart again",
            remedy="Leave --no-names out, or take one field of each with --include",
        )
    return [(field.path or f"{key}.{field.name}", field) for field in fields]


def _refuse(path: str, field: Field, *, named: bool) -> None:
    """Raise BadOption if this record could not be read again."""
    if field.piece.size < 0:
        raise BadOption(
            "the store does not report the size of this object",
            path=field.piece.info.key,
            remedy="Pull the source, and pack it from the disk",
        )
    why = unrepresentable(path) if named else None
    if why is not None:
        raise BadOption(
            f"the name {path!r} {why}: no packed folder can have it",
            path=field.piece.info.key,
            remedy="Leave it out with --exclude, give it another name, or use --no-names",
        )


def _keys(source: PackSource, order: Order) -> Iterator[str]:
    """The keys of the samples in packed folders; adjacent samples with kept paths and one key become one sample."""
    runs = Runs()
    for position in range(len(order)):
        own = source.key(order[position])
        number = runs.number(own)
        if number == 1 or not source.fields(order[position])[0].path:
            yield key_of(own, number)


def _refuse_twice(source: PackSource, order: Order) -> None:
    """Raise BadOption if a key is repeated after other keys: readers could not separate the samples."""
    ordered = sorted(array("q", map(hash, _keys(source, order))))
    twice = {one for one, other in itertools.pairwise(ordered) if one == other}
    seen = set[str]()
    for key in _keys(source, order) if twice else ():
        if hash(key) in twice:
            if key in seen:
                raise BadOption(
                    f"two samples have the key {key!r}",
                    remedy="Use --sort: then they are neighbours, and the second is called KEY~2; leave one out with "
                    "--select; or use --no-names",
                )
            seen.add(key)


class RecordLayout:
    """Maps each byte of one file to its source; safe to use from many threads.

    Memory holds 21 bytes per record, 12 per sample, and the names.

    Attributes
    ----------
    size, largest : int
        Bytes of the file, and of its largest field.
    begin : int
        Bytes of the header.
    known : bool
        Whether the header is known before the records are read.
    """

    def __init__(self, source: PackSource, order: Order, cut: Cut, *, named: bool) -> None:
        self._source, self._order, self._first, self._named = source, order, cut.first, named
        self.size, self.largest = cut.size, 0
        # For each sample, its number among those with the same key, and its first record.
        self._numbers, self._firsts = array("I"), array("Q")
        sizes, crcs, names = array("q"), array("I"), list[str]()
        self._told = bytearray()  # whether the CRC-32 of each record is known; an empty one has 0
        runs = _runs_before(source, order, cut.first)
        for number in range(cut.samples):
            self._numbers.append(runs.number(source.key(order[cut.first + number])))
            self._firsts.append(len(sizes))
            for path, field in self._of(number):
                crcs.append(field.crc or 0)
                self._told.append(field.crc is not None or not field.piece.size)
                if named:
                    names.append(path)
                sizes.append(field.piece.size)
                self.largest = max(self.largest, field.piece.size)
        self._table = names_bytes(names) if named else b""
        if named:
            crcs.append(crc32(self._table))
            self._told.append(True)
            sizes.append(len(self._table))
        self.known = all(self._told)
        self._head, self._made = HeadWriter(sizes), b""
        for record, crc in enumerate(crcs):
            self._head.found(record, crc)
        self._starts = self._head.starts()
        self.begin = self._starts[0]
        assert self._starts[-1] == cut.size

    def _of(self, number: int) -> list[tuple[str, Field]]:
        """The records for a sample of this file."""
        sample = self._order[self._first + number]
        return _records(
            self._source, sample, key_of(self._source.key(sample), self._numbers[number]), named=self._named
        )

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes | Field]]:
        """Yield the pieces between two offsets behind the header, in order, each with its start offset."""
        starts, firsts = self._starts, self._firsts
        record = bisect.bisect_right(starts, start) - 1
        number = bisect.bisect_right(firsts, record) - 1
        while number < len(firsts) and starts[firsts[number]] < end:
            for record, (_, field) in enumerate(self._of(number), firsts[number]):
                if field.piece.size:
                    yield starts[record], field
            number += 1
        if self._named:
            yield starts[-2], self._table

    def behind(self, start: int, records: int) -> int:
        """The end of the last of `records` records, counted from the one at the offset."""
        first = bisect.bisect_right(self._starts, start) - 1
        return self._starts[min(first + records, len(self._starts) - 1)]

    def found(self, at: int, data: memoryview, low: int = 0) -> None:
        """Receive bytes of the record that begins at an offset: all of it, or, in order, the bytes from `low` on."""
        record = bisect.bisect_right(self._starts, at) - 1
        self._head.found(record, crc32(data, self._head.crc(record) if low else 0))
        self._told[record] = 1

    def header(self) -> bytes:
        """The header; NbdataError unless `found` has received all records, as CRC-32s would be wrong."""
        if not self._made:
            if not all(self._told):
                raise NbdataError(
                    "the header of an FFRecord file was to be written before its records were read"
                )
            self._made = b"".join(self._head.pieces())
        return self._made
