"""Assign samples to shards, and map each byte of a shard to its source."""

from __future__ import annotations

import bisect
import hashlib
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from nbdata.engine.job.run import Run
from nbdata.engine.pack.sorting import sorted_numbers
from nbdata.engine.pack.source import Field, Order, PackSource
from nbdata.errors import BadOption
from nbdata.formats.neighbours import Runs, key_of
from nbdata.formats.permutation import Permutation
from nbdata.formats.shard_writing import END, header_size, member_header, padding
from nbdata.formats.shards import is_archive, is_meta, split_member
from nbdata.verbs.pack import Pack

__all__ = ["Cut", "Layout", "cuts", "order_of"]


def order_of(run: Run, op: Pack, source: PackSource) -> Order:
    """The order in which samples are packed; memory holds at most 8 bytes for each."""
    if op.shuffle:
        return Permutation(len(source), seed=op.seed, epoch=0)
    if op.sort:
        return sorted_numbers(run, op, source)
    return range(len(source))


class Cut(NamedTuple):
    """The content of one shard.

    Attributes
    ----------
    first, samples : int
        The position of its first sample, and the number of samples.
    size : int
        Bytes of the shard.
    digest : str
        Equal for the same samples under the same names.
    renamed : int
        Samples whose name differs from the source.
    unguarded : int
        Fields without a version at the source.
    """

    first: int
    samples: int
    size: int
    digest: str
    renamed: int
    unguarded: int


def cuts(op: Pack, source: PackSource, order: Order) -> Iterator[Cut]:
    """Yield the shards, in order.

    Raises
    ------
    BadOption
        If a sample could not be read back unchanged from a shard, or the store does not report its size.
    """
    position, number, total = 0, 0, len(source)
    while position < total:
        most = None if op.shard_count is not None else op.most_bytes
        yield (cut := _cut(source, order, position, op.end_of_shard(number, position, total), most))
        position += cut.samples
        number += 1


def _cut(source: PackSource, order: Order, first: int, end: int, most: int | None) -> Cut:
    digest, size, renamed, unguarded = hashlib.blake2b(digest_size=16), len(END), 0, 0
    position, runs, before = first, Runs(), ""
    archives = 0  # at the beginning
    while position < end:
        own = source.key(order[position])
        key = key_of(own, runs.number(own))
        facts, more, untold, names = [], 0, 0, list[str]()
        members = list(_members(source, order[position], key))
        for name, field in members:
            more += header_size(name, field.piece.size) + field.piece.size + padding(field.piece.size)
            facts.append(f"{name}\0{field.piece.size}\0{field.version}\0")
            untold += not field.is_told_apart
            names.append(field.name)
        if most is not None and size + more > most and position > first:
            break
        _refuse_unreadable(members, key, before)
        digest.update("".join(facts).encode("utf-8", "surrogatepass"))
        archives += position < first + 2 and is_archive(names)
        renamed += key != own
        unguarded += untold
        before = key
        size += more
        position += 1
    if archives and archives == min(2, position - first):
        raise BadOption(
            f"the samples here are nothing but tar files, such as {key!r}: the shard would be a tar of tars",
            path=source.fields(order[first])[0].piece.info.key,
            remedy="If these files are shards, name them, as in folder/*.tar; if not, --rename tar=frames.tar",
        )
    return Cut(first, position - first, size, digest.hexdigest(), renamed, unguarded)


def _members(source: PackSource, number: int, key: str) -> Iterator[tuple[str, Field]]:
    """The members for a sample."""
    for field in source.fields(number):
        yield f"{key}.{field.name}", field


def _refuse_unreadable(members: list[tuple[str, Field]], key: str, before: str) -> None:
    """Raise BadOption if a reader of the shard would find a different sample."""
    for name, field in members:
        if field.piece.size < 0:
            raise BadOption(
                "the store does not report the size of this object",
                path=field.piece.info.key,
                remedy="Pull the source, and pack it from the disk",
            )
        if is_meta(name) or split_member(name) != (key, field.name) or field.name in ("__key__", "__url__"):
            raise BadOption(
                f"the file {name!r} would be in no sample, or in another one: see WebDataset's rules for names",
                path=field.piece.info.key,
                remedy="Leave it out with --exclude, or give it another name",
            )
    if key == before:
        raise BadOption(f"two neighbours would have the key {key!r}", remedy="Give one of them another name")


class Layout:
    """Maps each byte of one shard to its source; safe to use from many threads.

    Memory holds 8 bytes per sample, and 4 more if a key is repeated.
    """

    def __init__(self, source: PackSource, order: Order, cut: Cut) -> None:
        self._source, self._order, self._first = source, order, cut.first
        # For each sample, its number among those with the same key; empty if every key is unique.
        self._numbers = array("I")
        self.size = cut.size
        self.largest = 0
        self._begins = array("Q")
        at, runs = 0, Runs()
        if cut.renamed:
            keys = (source.key(order[cut.first + number]) for number in range(cut.samples))
            self._numbers.extend(runs.number(key) for key in keys)
        for number in range(cut.samples):
            self._begins.append(at)
            for name, field in self._members(number):
                size = field.piece.size
                self.largest = max(self.largest, size)
                at += header_size(name, size) + size + padding(size)
        assert at + len(END) == cut.size

    def _members(self, number: int) -> Iterator[tuple[str, Field]]:
        """The members for a sample of this shard."""
        sample = self._order[self._first + number]
        key = key_of(self._source.key(sample), self._numbers[number] if self._numbers else 1)
        return _members(self._source, sample, key)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes | Field]]:
        """Yield the pieces between two offsets, in order: bytes or fields, each with its start offset.

        The first and the last may extend beyond the offsets.
        """
        number = max(0, bisect.bisect_right(self._begins, start) - 1)
        while number < len(self._begins) and self._begins[number] < end:
            at = self._begins[number]
            for name, field in self._members(number):
                size = field.piece.size
                header = member_header(name, size)
                if at + len(header) > start:
                    yield at, header
                at += len(header)
                if at + size > start and size:
                    yield at, field
                at += size
                if count := padding(size):
                    yield at, bytes(count)
                at += count
                if at >= end:
                    return
            number += 1
        yield self.size - len(END), END
