"""The items of a cache: group them from a listing, spool them to disk, and read them in any order.

A data set may have millions of items; memory holds two numbers for each.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nbdata.cache.folder import room_of
from nbdata.formats.samples import by_sample
from nbdata.reading.shards.listing import is_shard, named_by_braces, none_missing
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.names import unrepresentable
from nbdata.transfer.selection import Entry

__all__ = ["Group", "ItemFile", "all_named", "grouped"]


@dataclass(frozen=True)
class Group:
    """One item: its name relative to the source, and its objects."""

    key: str
    entries: list[Entry]

    @property
    def size(self) -> int:
        """Bytes of its objects."""
        return sum(entry.info.size for entry in self.entries)

    def room(self, block: int) -> int:
        """The most bytes it takes on disk."""
        return room_of([(entry.path, entry.info.size) for entry in self.entries], block)

    def refused(self) -> tuple[str, str] | None:
        """A path of the item that a bounded cache on a disk cannot hold, and the reason; None if there is none."""
        paths = {entry.path for entry in self.entries}
        for entry in self.entries:
            path = entry.path
            reason = unrepresentable(path)
            if entry.info.size < 0:
                reason = "the store does not report its size, but space must be reserved before it is fetched"
            elif any(path[:at] in paths for at, char in enumerate(path) if char == "/"):
                reason = "lies below a name that is an object itself"
            if reason:
                return path, reason
        return None


def grouped(entries: Iterable[Entry], by: str, loose: Callable[[str], None]) -> Iterator[Group]:
    """Yield the items of a listing in key order; call `loose` with each file that belongs to none."""
    if by == "file":
        yield from (Group(entry.path, [entry]) for entry in entries)
    elif by == "sample":
        yield from (
            Group(key, entries_of_sample)
            for key, entries_of_sample in by_sample(entries, lambda entry: entry.path)
        )
    elif by == "shard":
        for entry in entries:
            if is_shard(entry.path):
                yield Group(entry.path, [entry])
            else:
                loose(entry.path)
    else:
        yield from _folders(entries, loose)


def all_named(source: str, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the listing of a source; at its end, raise NotFound if a name given in braces is missing."""
    names = named_by_braces(source)
    wanted, named = set(names), set[str]()
    for entry in entries:
        if entry.path in wanted:
            named.add(entry.path)
        yield entry
    none_missing(source, names, named)


def _folders(entries: Iterable[Entry], loose: Callable[[str], None]) -> Iterator[Group]:
    name, entries_of_folder = "", list[Entry]()
    for entry in entries:
        folder, slash, _ = entry.path.partition("/")
        if not slash:
            loose(entry.path)
            continue
        if folder != name and entries_of_folder:
            yield Group(name, entries_of_folder)
            entries_of_folder = []
        name = folder
        entries_of_folder.append(entry)
    if entries_of_folder:
        yield Group(name, entries_of_folder)


class ItemFile:
    """Items on disk in two files: one JSON line per item, and the offset of each line.

    `write` makes them in the order of their numbers; only one thread at a time may call `read`.
    """

    def __init__(self, folder: str, block: int) -> None:
        self._path, self._block = os.path.join(folder, "items"), block
        self._begins = array("q")

    def write(self, groups: Iterable[Group]) -> Iterator[Group]:
        """Write items to disk while yielding them."""
        at = 0
        with open(self._path, "wb") as lines:
            for group in groups:
                self._begins.append(at)
                at += lines.write(json.dumps(_plain(group), separators=(",", ":")).encode() + b"\n")
                yield group
        with open(self._path + ".begins", "wb") as numbers:
            self._begins.tofile(numbers)

    def open(self) -> None:
        """Open the items that another ItemFile of the same folder has written."""
        with open(self._path + ".begins", "rb") as numbers:
            self._begins.frombytes(numbers.read())
        self._lines = open(self._path, "rb")  # noqa: SIM115  closed by close

    def close(self) -> None:
        """End reading."""
        self._lines.close()

    def __len__(self) -> int:
        return len(self._begins)

    def read(self, number: int) -> Group:
        """The item with a number."""
        self._lines.seek(self._begins[number])
        key, entries = json.loads(self._lines.readline())
        return Group(key, [Entry(path, ObjectInfo(*info)) for path, *info in entries])


def _plain(group: Group) -> list[Any]:
    return [
        group.key,
        [
            (e.path, e.info.key, e.info.size, e.info.etag, e.info.modified, e.info.version)
            for e in group.entries
        ],
    ]
