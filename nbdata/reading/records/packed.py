"""Packed folders as samples: groups their files, and finds each in the FFRecord file."""

from __future__ import annotations

import contextlib
import os
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.formats.ffrecord import Head, refuse_wrong
from nbdata.formats.packed_folder import MARK, files_of, is_packed, names_of, refuse_large_names
from nbdata.formats.sample_index import IndexWriter, SampleIndex
from nbdata.formats.sample_objects import ShardMember
from nbdata.operation import Context
from nbdata.reading.index_files import write_index
from nbdata.reading.loose import grouped, index_name, refuse_twice
from nbdata.reading.records.heads import Heads
from nbdata.reading.records.remote import bytes_of
from nbdata.reading.source_file import SourceFile, fingerprint_of, first_of_each
from nbdata.signed_urls import without_signature
from nbdata.sizes import counted
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.http.servers import servers_of
from nbdata.transfer.control import Control
from nbdata.transfer.selection import Entry, Filters
from nbdata.verbs.samples import SampleSource

__all__ = ["index_of_packed", "names_in"]

# Up to this many bytes, names are read without checking first how they start.
_AT_ONCE = 1 << 20
# Number of files whose names are read at a time.
_FILES_AT_A_TIME = 8
# Most names of left-out files that a report shows.
_NAMED = 10


def names_in(
    control: Control, store: Store, file: SourceFile, head: Head, *, compare: bool
) -> list[tuple[str, int]] | None:
    """Return the paths in a packed folder with the numbers of their samples; None if the file is not one.

    Raises
    ------
    BadArchive, ChecksumMismatch
        If the names are damaged.
    """
    if not head.count:
        return None
    start, end = head.place(head.count - 1)
    if end - start <= len(MARK):
        return None
    known = end - start if end - start <= _AT_ONCE else len(MARK)
    data = bytes_of(control, store, file.info, start, start + known)
    if not is_packed(data):
        return None
    refuse_large_names(end - start, head.count, file.url)
    if start + known < end:
        data += bytes_of(control, store, file.info, start + known, end)
    if compare:
        refuse_wrong(head, head.count - 1, data)
    return list(files_of(names_of(bytes(data), head.count - 1, file.url)))


def _is_named(control: Control, store: Store, file: SourceFile, head: Head) -> bool:
    """True if the last record of a file starts as names do."""
    if not head.count:
        return False
    start, end = head.place(head.count - 1)
    if end - start <= len(MARK):
        return False
    return is_packed(bytes_of(control, store, file.info, start, start + len(MARK)))


def index_of_packed(
    control: Control,
    operation: SampleSource,
    files: Sequence[SourceFile],
    heads: Heads,
    store_of: Callable[[SourceFile], Store],
    context: Context,
) -> SampleIndex | None:
    """Return the index of the samples in packed folders, kept in the state folder; None if the files have no names.

    Samples are ordered by file, and within a file by their first record. In place of an offset the index has the number
    of each record in its file, and it is only used with the headers that it was made with. Files without records are
    passed over. That files have no names is kept too, as an index without samples.

    Raises
    ------
    NotFound
        If no file belongs to a sample.
    BadOption
        If two samples have one key, or some files are packed folders and others are not.
    """
    servers = servers_of(store_of(file) for file in first_of_each(files))
    name = index_name(operation, servers, *map(without_signature, operation.sources))
    path = os.path.join(context.state_dir, "samples", f"{name}.packed.idx")
    fingerprint = fingerprint_of(files)
    known = all(file.is_told_apart for file in files)  # else what is kept may be of other bytes
    if known and operation.refresh != "always" and not callable(operation.by):
        with contextlib.suppress(NbdataError, OSError):
            found = SampleIndex(path)
            told = found.about.get("listing"), found.about.get("heads")
            if told == (fingerprint, heads.fingerprint) and "named" in found.about:
                return found if found.about["named"] else None
    compare = operation.verify != "none"

    def names_of_file(number: int) -> list[tuple[str, int]] | None:
        return names_in(control, store_of(files[number]), files[number], heads[number], compare=compare)

    def is_named(number: int) -> bool:
        return _is_named(control, store_of(files[number]), files[number], heads[number])

    filled = [number for number in range(len(files)) if heads[number].count]
    first = names_of_file(filled[0]) if filled else None
    with ThreadPoolExecutor(_FILES_AT_A_TIME, "names") as asking:
        if first is None:
            if any(asking.map(is_named, filled[1:])):
                raise _mixed(files[filled[0]])
            with contextlib.suppress(NbdataError, OSError):
                about = {
                    "listing": fingerprint,
                    "heads": heads.fingerprint,
                    "named": False,
                    "built": time.time(),
                }
                write_index(context, path, IndexWriter().pieces(about))
            return None
        maker = _Maker(operation)
        maker.add(filled[0], first, heads[filled[0]])
        for begin in range(1, len(filled), _FILES_AT_A_TIME):
            batch = filled[begin : begin + _FILES_AT_A_TIME]
            for number, names in zip(batch, asking.map(names_of_file, batch), strict=True):
                if names is None:
                    raise _mixed(files[number])
                maker.add(number, names, heads[number])
    return maker.finish(context, path, files, {"listing": fingerprint, "heads": heads.fingerprint})


def _mixed(file: SourceFile) -> BadOption:
    return BadOption(
        "this FFRecord file has no names, while others of the same source have",
        path=file.url,
        remedy="Make samples of each kind by itself",
    )


class _Maker:
    """Builds the index while the names of each file are added."""

    def __init__(self, operation: SampleSource) -> None:
        self._operation = operation
        filters = Filters(operation)
        if filters.by_time:
            raise BadOption(
                f"{filters.by_time[0]}: a packed folder does not keep when its files were changed",
                remedy="Select with --include",
            )
        self._passes = filters.passes
        self._writer, self._hashes = IndexWriter(), array("q")
        self._count = 0
        self._left_out, self._left_out_names = 0, list[str]()

    def add(self, file: int, names: list[tuple[str, int]], head: Head) -> None:
        """Add the samples of a file."""
        numbers = dict(names)
        self._count += len(names)
        found = []
        for key, objects in grouped(self._entries(numbers, head), self._operation.by, self._leave_out):
            members = []
            for one in objects:
                number = numbers[one.path]
                start, end = head.place(number)
                members.append(ShardMember(one.field, file, number, end - start, head.crcs[number]))
            paths = [one.path for one in objects]
            found.append((min(numbers[path] for path in paths), key, members, paths))
        for _, key, members, paths in sorted(found):
            self._writer.add_members(key, members, paths)
            self._hashes.append(hash(key))

    def _entries(self, numbers: dict[str, int], head: Head) -> Iterator[Entry]:
        for name in sorted(numbers, key=lambda name: name.encode("utf-8", "surrogatepass")):
            if self._passes(name):
                start, end = head.place(numbers[name])
                yield Entry(name, ObjectInfo(name, end - start))

    def _leave_out(self, name: str) -> None:
        self._left_out += 1
        if len(self._left_out_names) < _NAMED:
            self._left_out_names.append(name)

    def finish(
        self, context: Context, path: str, files: Sequence[SourceFile], about: dict[str, str]
    ) -> SampleIndex:
        """Write the index; `about` says of which files it is."""
        writer, operation = self._writer, self._operation
        if not len(writer):
            raise NotFound(
                f"none of the {counted(self._count, 'files')} of this packed folder belongs to a sample",
                path=files[0].url,
                remedy="A sample is what shares a name up to its first dot, as 12.jpg, 12.cls; "
                'by="file" takes each file',
            )
        if operation.by != "file":
            refuse_twice(writer, self._hashes, operation)
        told = {
            **about,
            "named": True,
            "elsewhere": "",
            "left_out": self._left_out,
            "left_out_names": self._left_out_names,
            "unproven": 0,
            "built": time.time(),
        }
        write_index(context, path, writer.pieces(told))
        return SampleIndex(path)
