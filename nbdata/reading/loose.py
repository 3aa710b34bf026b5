"""The index of loose objects: read from the state folder, or built from the listing of their store."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import json
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nbdata.disk import make_folders
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.formats.sample_index import IndexWriter, SampleIndex
from nbdata.formats.sample_objects import SampleObject
from nbdata.formats.samples import by_sample, is_hidden, split_name
from nbdata.reading.index_files import write_index
from nbdata.redaction import redacted
from nbdata.sizes import counted
from nbdata.stores.base import Location
from nbdata.transfer.selection import Entry, Filters
from nbdata.transfer.sources import Opener, find, known_as
from nbdata.verbs.options import Filtering
from nbdata.verbs.samples import SampleSource

__all__ = ["INDEX_NAME", "Found", "grouped", "index_name", "index_of", "known_index", "refuse_twice"]

#: Start of the names of indexes that are stored beside the data.
INDEX_NAME = "_nbdata-index"
# Most names of left-out files that a report shows.
_NAMED = 10
# Seconds between two progress updates of a listing.
_SHOW_EVERY = 0.5

_Told = Callable[[int, int], None]


@dataclass
class Found:
    """An index, and the place that its paths are relative to.

    Attributes
    ----------
    index : SampleIndex
    prefix : str
        The key of the folder that its paths start from.
    built : bool
        Whether it was just built.
    """

    index: SampleIndex
    prefix: str
    built: bool


@dataclass
class _LeftOut:
    """Files that belong to no sample."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.names) < _NAMED:
            self.names.append(path)


def index_of(
    opener: Opener,
    told: _Told = lambda _samples, _objects: None,
    saved: Callable[[str], SampleIndex | None] = lambda _path: None,
) -> Found:
    """Return the index of the samples of an operation `SampleSource`, as its ``refresh`` says.

    Parameters
    ----------
    told : callable
        Called now and then during building, with the numbers of samples and objects so far.
    saved : callable
        Fetches an index that is stored beside the data to a path; None if there is none.

    Raises
    ------
    NotFound
        If the source does not exist, or has no samples.
    BadOption
        If two samples have one key.
    """
    operation = opener.operation
    assert isinstance(operation, SampleSource)
    name = index_name(operation, known_as(opener, operation.place))
    path = os.path.join(opener.context.state_dir, "samples", f"{name}.idx")
    known = None if operation.refresh == "always" else known_index(path)
    make_folders(os.path.dirname(path), 0o700)
    if operation.refresh == "never":
        if known is not None:
            return Found(known, known.about["prefix"], built=False)
        if (brought := saved(path)) is not None:
            return Found(brought, brought.about["prefix"], built=False)
    writer, about = _build(opener, told)
    if known is not None and known.about["listing"] == about["listing"]:
        return Found(known, about["prefix"], built=False)
    write_index(opener.context, path, writer.pieces(about))
    return Found(SampleIndex(path), about["prefix"], built=True)


def index_name(operation: SampleSource, *sources: str) -> str:
    """Return the name of a source's index: the same for the same sources (see `known_as`) and selection."""
    by = operation.by
    if callable(by):
        with contextlib.suppress(OSError, TypeError, ValueError):
            by = _source_of(by)
    said = [
        *sources,
        str(by),
        *operation.options_in(Filtering).values(),
    ]
    return hashlib.sha256(json.dumps(said).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _source_of(by: Callable[..., object]) -> str:
    """Return the source of a function, with the plain values that it has from where it was made."""
    values = [cell.cell_contents for cell in getattr(by, "__closure__", None) or ()]
    values += getattr(by, "__defaults__", None) or ()
    plain = [repr(value) for value in values if isinstance(value, (str, bytes, int, float))]
    return "\n".join([inspect.getsource(by), *plain])


def known_index(path: str) -> SampleIndex | None:
    """Return the index at a path, or None."""
    try:
        return SampleIndex(path)
    except FileNotFoundError:
        return None
    except (NbdataError, OSError):  # it is built again
        return None


def _build(opener: Opener, told: _Told) -> tuple[IndexWriter, dict[str, Any]]:
    operation = opener.operation
    assert isinstance(operation, SampleSource)
    found = find(opener, operation.place)
    digest = hashlib.blake2b(digest_size=16)
    left_out, objects, shown = _LeftOut(), 0, time.monotonic()
    writer = IndexWriter()
    filters = Filters(operation)
    passes = filters.passes

    def selected() -> Iterator[Entry]:
        nonlocal objects, shown
        for entry in filters.entries_in_time(found.entries):
            info, path = entry.info, entry.path
            if path.rpartition("/")[2].startswith(INDEX_NAME) or not passes(path):
                continue
            digest.update(
                f"{path}\0{info.etag}\0{info.size}\0{info.version}\0".encode("utf-8", "surrogatepass")
            )
            objects += 1
            if objects % 1000 == 0 and time.monotonic() - shown > _SHOW_EVERY:
                shown = time.monotonic()
                told(len(writer), objects)
            yield entry

    hashes = array("q")
    for key, entries in grouped(selected(), operation.by, left_out.add):
        if callable(operation.by):  # its source may be that of another function, or use other values by now
            said = [key, *((one.field, one.path) for one in entries)]
            digest.update(json.dumps(said).encode("ascii"))
        writer.add(key, entries)
        hashes.append(hash(key))
    for row in opener.control.bad_entries.rows:
        left_out.add(f"{row.path} ({row.detail['reason']})")
    if not objects:
        raise NotFound(
            f"there are no samples: nothing passes {' and '.join(operation.filters_given)}" if operation.filtered
            else "there are no samples: nothing is there",
            path=redacted(operation.place), remedy="Check the spelling and the filters",
        )  # fmt: skip
    if not len(writer):
        raise NotFound(
            f"none of the {counted(objects, 'objects')} belongs to a sample, such as {left_out.names[0]}",
            path=redacted(operation.place),
            remedy='A sample is what shares a name up to its first dot, as 12.jpg, 12.cls; by="file" takes each file',
        )
    if operation.by != "file":
        refuse_twice(writer, hashes, operation)
    about = {
        "source": redacted(operation.place),
        "prefix": _prefix(found.location),
        "listing": digest.hexdigest(),
        "objects": objects,
        "left_out": left_out.count,
        "left_out_names": left_out.names,
        "built": time.time(),
    }
    return writer, about


def _prefix(location: Location) -> str:
    return location.key if location.is_folder else "".join(location.key.rpartition("/")[:2])


def grouped(
    entries: Iterable[Entry], by: object, left_out: Callable[[str], None]
) -> Iterator[tuple[str, list[SampleObject]]]:
    """Group a listing into samples: keys, and their objects by field."""
    if by == "file":
        for entry in entries:
            key, name = split_name(entry.path)
            yield (key, [_object(name, entry)]) if name else (entry.path, [_object("bin", entry)])
        return
    if callable(by):
        yield from _by_function(entries, by, left_out)
        return

    def named() -> Iterator[Entry]:
        for entry in entries:
            if split_name(entry.path)[1] and not is_hidden(entry.path):
                yield entry
            else:
                left_out(entry.path)

    for key, found in by_sample(named(), lambda entry: entry.path):
        yield key, [_object(split_name(entry.path)[1].lower(), entry) for entry in found]


def _by_function(
    entries: Iterable[Entry], by: Callable[[str], object], left_out: Callable[[str], None]
) -> Iterator[tuple[str, list[SampleObject]]]:
    """Group samples by a function; the files of one need not be adjacent, so all are held in memory."""
    samples: dict[str, list[SampleObject]] = {}
    for entry in entries:
        said = by(entry.path)
        if said is None:
            left_out(entry.path)
        elif isinstance(said, tuple) and len(said) == 2 and all(isinstance(word, str) for word in said):
            samples.setdefault(said[0], []).append(_object(said[1], entry))
        else:
            raise BadOption(
                f"by({entry.path!r}) returned {said!r}",
                expected="(key, field), two strings, or None to leave the file out",
            )
    yield from sorted(samples.items())


def _object(name: str, entry: Entry) -> SampleObject:
    info = entry.info
    # The time identifies a version only if nothing better does.
    modified = None if info.etag or info.version else info.modified
    return SampleObject(name, entry.path, info.size, info.etag, modified, info.version)


def refuse_twice(writer: IndexWriter, hashes: array[int], operation: SampleSource) -> None:
    """BadOption if two samples have the same key, or a sample has two fields of the same name."""
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    for one, other in itertools.pairwise(order):
        if hashes[one] == hashes[other] and writer.key(one) == writer.key(other):
            raise _twice(f"the key {writer.key(one)!r} comes twice", operation)
    for number in range(len(writer)):
        if (name := writer.field_twice(number)) is not None:
            raise _twice(f"the sample {writer.key(number)!r} has two files for its field {name!r}", operation)


def _twice(what: str, operation: SampleSource) -> BadOption:
    return BadOption(
        what, path=redacted(operation.place),
        remedy="Leave one of them out with exclude, or name them apart with by=FUNCTION",
    )  # fmt: skip
