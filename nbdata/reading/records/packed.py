"""Packed folders as samples: which files make one, and where each lies in the FFRecord file."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterator

from nbdata.disk import make_folders, write_file
from nbdata.errors import BadOption, NotFound
from nbdata.formats.ffrecord import Head, refuse_wrong
from nbdata.formats.packed_folder import MARK, files_of, is_packed, names_of
from nbdata.formats.sample_index import IndexWriter, SampleIndex, ShardMember
from nbdata.reading.loose import grouped, refuse_twice
from nbdata.reading.records.files import RecordFile, fingerprint_of
from nbdata.reading.records.remote import bytes_of
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.selection import Entry, glob_filter
from nbdata.verbs.samples import SampleSource

__all__ = ["index_of_names", "names_in"]

# Bytes of the largest names that are read without a look at how they begin.
_AT_ONCE = 1 << 20
# Bytes of the largest names.
_MOST = 1 << 30
# Names that a report shows of what was left out.
_NAMED = 10


def names_in(
    control: Control, store: Store, file: RecordFile, head: Head, *, compare: bool
) -> list[tuple[str, int]] | None:
    """The paths of a packed folder with the numbers of their samples; None if the file is none.

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
    if end - start > _MOST:
        raise BadOption(
            "the names of this packed folder are too large", path=file.url, expected=f"{_MOST:,} bytes"
        )
    if start + known < end:
        data += bytes_of(control, store, file.info, start + known, end)
    if compare:
        refuse_wrong(head, head.count - 1, data)
    return list(files_of(names_of(bytes(data), head.count - 1, file.url)))


def index_of_names(
    path: str, operation: SampleSource, file: RecordFile, head: Head, names: list[tuple[str, int]]
) -> SampleIndex:
    """Make the index of the samples in a packed folder, at a path.

    Raises
    ------
    NotFound
        If no file belongs to a sample.
    BadOption
        If a key comes twice.
    """
    numbers = dict(names)
    passes = glob_filter(operation.include, operation.exclude)
    left_out: list[str] = []

    def entries() -> Iterator[Entry]:
        for name in sorted(numbers, key=lambda name: name.encode("utf-8", "surrogatepass")):
            if passes(name):
                start, end = head.place(numbers[name])
                yield Entry(name, ObjectInfo(name, end - start))

    writer, hashes = IndexWriter(), array("q")
    for key, objects in grouped(entries(), operation.by, left_out.append):
        members = []
        for one in objects:
            number = numbers[one.path]
            start, end = head.place(number)
            members.append(ShardMember(one.field, 0, start, end - start, head.crcs[number]))
        writer.add_members(key, members)
        hashes.append(hash(key))
    if not len(writer):
        raise NotFound(
            f"none of the {len(numbers):,} files of this packed folder belongs to a sample", path=file.url,
            remedy='A sample is what shares a name up to its first dot, as 12.jpg, 12.cls; by="file" takes each file',
        )  # fmt: skip
    if operation.by != "file":
        refuse_twice(writer, hashes, operation)
    about = {
        "listing": fingerprint_of([file]),
        "elsewhere": "",
        "left_out": len(left_out),
        "left_out_names": left_out[:_NAMED],
        "unproven": 0,
        "built": time.time(),
    }
    make_folders(os.path.dirname(path), 0o700)
    write_file(path, writer.pieces(about), umask=0o077)
    return SampleIndex(path)
