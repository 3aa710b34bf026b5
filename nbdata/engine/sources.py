"""What a SOURCE means: one object, the contents of a folder, or all that a glob matches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from nbdata.engine.run import Run
from nbdata.errors import BadOption, NotFound
from nbdata.paths import glob_base, glob_pattern, has_glob
from nbdata.redaction import redacted
from nbdata.stores.base import Location, ObjectInfo
from nbdata.transfer.pool import FIRST
from nbdata.transfer.retry import listing, retrying
from nbdata.transfer.selection import Entry, glob_regex, read_paths

__all__ = ["Found", "find", "folder_part", "head_of"]

# Names that are asked for ahead of who reads them.
_AHEAD = 256


@dataclass(frozen=True)
class Found:
    """What a source was found to be.

    Attributes
    ----------
    location : Location
        Of the object, or of the folder that paths are relative to.
    single : ObjectInfo or None
        The object, if it is one.
    """

    location: Location
    single: ObjectInfo | None
    entries: Iterator[Entry]


def find(run: Run, place: str) -> Found:
    """Look at a source and give its objects, streamed, with paths relative to the folder or glob base.

    Raises
    ------
    NotFound
        If there is no such object or folder, or a glob matches nothing.
    BadOption
        If the source is an object and a folder of the same name exists too.
    """
    if has_glob(place):
        return _glob(run, place)
    location = run.open(place)
    if location.is_folder:
        inside = _below(run, location)
        found = next(inside, None)
        if found is None:
            _require_folder(location)
            return Found(location, None, iter(()))
        return Found(location, None, itertools.chain([found], inside))
    single = head_of(run, location)
    name = location.key.rpartition("/")[2]
    if single is not None and not location.store.below_objects:
        # Nothing is asked for below it: to list what is a file of http would read all of it.
        return Found(location, single, iter([Entry(name, single)]))
    folder = Location(location.store, location.key + "/", location.place + "/")
    below = _below(run, folder)
    first = next(below, None)
    if single is not None and first is not None:
        raise BadOption(
            "the source is an object, and there are objects below it too",
            path=location.place,
            remedy=f"Write {location.place}/ for those below; a glob such as {location.place}* takes both",
        )
    if single is not None:
        return Found(location, single, iter([Entry(name, single)]))
    if first is None:
        _require_folder(folder)
        return Found(folder, None, iter(()))
    return Found(folder, None, itertools.chain([first], below))


def head_of(run: Run, location: Location) -> ObjectInfo | None:
    """What the store says of the object at a place; None if there is none."""
    try:
        return retrying(run.control, lambda: location.store.head(location.key))
    except NotFound as error:
        if error.details.get("bucket"):
            raise
        return None


def _below(run: Run, folder: Location) -> Iterator[Entry]:
    """All objects below a folder; folder markers (empty, named like a folder) are no data."""
    names = getattr(run.operation, "files_from", None)
    if names is not None and folder.store.lists_by_page:
        yield from _named(run, folder, names)
        return
    for info in listing(run.control, folder.store, folder.key):
        run.control.checkpoint()
        path = info.key[len(folder.key) :]
        if path and not (info.key.endswith("/") and info.size <= 0):
            yield Entry(path, info)


def _named(run: Run, folder: Location, names: str) -> Iterator[Entry]:
    """The objects below a folder that a file names, in key order; those that are not there are left out."""

    def ask(path: str) -> Entry | None:
        try:
            return Entry(path, retrying(run.control, lambda: folder.store.head(folder.key + path)))
        except NotFound:
            return None

    paths = sorted(read_paths(names))
    with ThreadPoolExecutor(FIRST, thread_name_prefix="asking") as asking:
        for at in range(0, len(paths), _AHEAD):
            yield from filter(None, asking.map(ask, paths[at : at + _AHEAD]))


def _require_folder(folder: Location) -> None:
    """An empty folder is one where the store knows folders; else nothing is there."""
    if folder.key and not folder.store.is_folder(folder.key):
        raise NotFound(
            "no such object or folder",
            path=folder.place.rstrip("/"),
            remedy="Check the spelling, and upper and lower case",
        )


def _glob(run: Run, place: str) -> Found:
    base = glob_base(place)
    location = run.open(base)
    pattern = glob_regex(glob_pattern(place).rstrip("/"))
    matching = (e for e in _below(run, location) if pattern.fullmatch(e.path))
    first = next(matching, None)
    if first is None:
        raise NotFound(
            "nothing matches", path=redacted(place), remedy="'*' stays in a folder, '**' crosses folders"
        )
    return Found(location, None, itertools.chain([first], matching))


def folder_part(source: str) -> str:
    """A place in the same store that is sure to be openable: the source without its glob."""
    return glob_base(source) if has_glob(source) else source
