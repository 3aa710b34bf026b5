"""Resolve a SOURCE: to one object, the contents of a folder, or all matches of a glob."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.globs import glob_regex, may_match_below
from nbdata.history import failed_into
from nbdata.operation import Context, Operation
from nbdata.origins import store_of
from nbdata.paths import as_folder, glob_base, glob_pattern, has_glob, is_url
from nbdata.redaction import redacted
from nbdata.signed_urls import without_signature
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.http.servers import servers_of
from nbdata.stores.local import MAY_HOLD, LocalStore, Noticed
from nbdata.transfer.close_names import close_name
from nbdata.transfer.control import Control
from nbdata.transfer.retry import listing, retrying
from nbdata.transfer.selection import Entry, read_paths
from nbdata.transfer.worker_pool import FIRST
from nbdata.verbs.options import Selecting

__all__ = [
    "Found",
    "Opener",
    "find",
    "folder_part",
    "head_of",
    "known_as",
    "no_match",
    "require_folder",
    "servers_at",
]

# How many names are requested ahead of the reader.
_AHEAD = 256
# How many entries of a listing are counted at a time.
_COUNTED = 256
# The syntax of bucket names.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Opener(Protocol):
    """The caller of a search for objects: a run of the engine, or a process that reads samples itself."""

    @property
    def operation(self) -> Operation:
        """The operation whose options apply."""

    @property
    def context(self) -> Context:
        """The client's folder and credentials."""

    @property
    def control(self) -> Control:
        """Stops the search, and counts."""

    def open(self, place: str) -> Location:
        """The store and key of a place."""


@dataclass(frozen=True)
class Found:
    """The result of resolving a source.

    Attributes
    ----------
    location : Location
        The location of the object, or of the folder that paths are relative to.
    single : ObjectInfo or None
        The object, if the source is a single one.
    """

    location: Location
    single: ObjectInfo | None
    entries: Iterator[Entry]


def find(opener: Opener, place: str, noticed: Noticed | None = None) -> Found:
    """Resolve a source and return its objects, streamed, with paths relative to the folder or glob base.

    Parameters
    ----------
    noticed : callable, optional
        Called during the listing with the relative path of each local entry that is no file.

    Raises
    ------
    NotFound
        If there is no such object or folder, or a glob matches nothing.
    BadOption
        If the source is an object and a folder of the same name exists too.
    """
    if has_glob(place):
        return _glob(opener, place, noticed)
    location = opener.open(place)
    if location.is_folder:
        inside = _below(opener, location, noticed)
        found = next(inside, None)
        if found is None:
            require_folder(opener, location)
            return Found(location, None, iter(()))
        return Found(location, None, itertools.chain([found], inside))
    single = head_of(opener, location)
    name = location.key.rpartition("/")[2]
    if single is not None and not location.store.below_objects:
        # Nothing below it is requested: on a web server, that would read the whole file as an index page.
        return Found(location, single, iter([Entry(name, single)]))
    folder = Location(location.store, location.key + "/", location.place + "/")
    below = _below(opener, folder, noticed)
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
        require_folder(opener, folder)
        return Found(folder, None, iter(()))
    return Found(folder, None, itertools.chain([first], below))


def head_of(opener: Opener, location: Location) -> ObjectInfo | None:
    """Return the store's metadata of the object at a place; None if there is none."""
    try:
        return retrying(opener.control, lambda: location.store.head(location.key))
    except NotFound as error:
        if error.details.get("bucket"):
            raise
        return None


def _below(opener: Opener, folder: Location, noticed: Noticed | None = None) -> Iterator[Entry]:
    """Yield all objects below a folder. Folder markers (empty, named like a folder) are skipped."""
    store = folder.store
    if noticed is not None and isinstance(store, LocalStore):
        store = LocalStore(lambda key, kind, error: noticed(key[len(folder.key) :], kind, error))
    op = opener.operation
    names = op.files_from if isinstance(op, Selecting) else None
    if names is not None and folder.store.lists_by_page:
        yield from _named(opener, folder, names)
        return
    count = 0
    for info in listing(opener.control, store, folder.key):
        opener.control.checkpoint()
        count += 1
        if count == _COUNTED:
            opener.control.listed(count)
            count = 0
        path = info.key[len(folder.key) :]
        if path and not (info.key.endswith("/") and info.size <= 0):
            yield Entry(path, info)
    opener.control.listed(count)


def _named(opener: Opener, folder: Location, names: str) -> Iterator[Entry]:
    """Yield the objects below a folder that a file names, in key order. Missing ones are left out."""

    def ask(path: str) -> Entry | None:
        try:
            return Entry(path, retrying(opener.control, lambda: folder.store.head(folder.key + path)))
        except NotFound:
            return None

    paths = sorted(read_paths(names))
    with ThreadPoolExecutor(FIRST, thread_name_prefix="asking") as asking:
        for at in range(0, len(paths), _AHEAD):
            yield from filter(None, asking.map(ask, paths[at : at + _AHEAD]))


def require_folder(opener: Opener, folder: Location) -> None:
    """Raise an error unless an empty folder exists. Only stores with real folders have empty ones."""
    if folder.key and not folder.store.is_folder(folder.key):
        if isinstance(folder.store, LocalStore) and (kind := folder.store.special(folder.key)):
            raise BadOption(
                f"the source is a {kind}", path=folder.place.rstrip("/"), expected="a file or a folder",
                remedy="Write what it gives to a file first",
            )  # fmt: skip
        if isinstance(folder.store, LocalStore) and os.path.islink(link := "/" + folder.key.rstrip("/")):
            raise NotFound(
                "the source is a link whose target does not exist", path=folder.place.rstrip("/"),
                got=os.readlink(link), remedy="Name what it should lead to",
            )  # fmt: skip
        written = redacted(opener.operation.places()[0])
        if written.rstrip("/") != folder.place.rstrip("/"):
            written = folder.place
        if written.endswith("/") and _is_object(opener, folder):
            raise NotFound(
                "this is an object, not a folder", path=folder.place, remedy="Leave out the slash at its end"
            )
        near = close_name(opener.control, folder)
        remedy = f"Did you mean {near}?" if near else "Check the spelling, and upper and lower case"
        if isinstance(folder.store, LocalStore):
            remedy = failed_into(opener.context.state_dir, "/" + folder.key) or remedy
        if isinstance(folder.store, LocalStore) and (url := _as_bucket(opener)):
            remedy += f"{' Or' if near else ';'} {url}, if a bucket is meant"
        raise NotFound("no such object or folder", path=written, remedy=remedy)


def _is_object(opener: Opener, folder: Location) -> bool:
    """True if there is an object of this name, written without the slash at the end of the folder's."""
    bare = Location(folder.store, folder.key.rstrip("/"), folder.place.rstrip("/"))
    try:
        return bare.key != "" and head_of(opener, bare) is not None
    except NbdataError:  # the folder is missing all the same
        return False


def _as_bucket(opener: Opener) -> str:
    """Return the s3:// URL of a source that looks like a bucket without its scheme; otherwise ''."""
    folder = opener.context.cwd.rstrip("/") + "/"
    source = opener.operation.places()[0]
    written = source.removeprefix(folder)
    bucket, slash, _ = written.partition("/")
    if (
        not opener.context.cwd
        or written == source
        or not slash
        or not _BUCKET.fullmatch(bucket)
        or os.path.lexists(folder + bucket)
    ):
        return ""
    return f"s3://{written}"


def _glob(opener: Opener, place: str, noticed: Noticed | None) -> Found:
    base = glob_base(place)
    location = opener.open(base)
    wanted = glob_pattern(place).rstrip("/")
    pattern = glob_regex(wanted)
    others = 0

    def matching_too(path: str, kind: str, error: NbdataError | None) -> None:
        nonlocal others
        held = kind in MAY_HOLD and may_match_below(wanted, path)
        if noticed is not None and (held or pattern.fullmatch(path)):
            others += 1
            noticed(path, kind, error)

    below = _below(opener, location, None if noticed is None else matching_too)
    matching = (e for e in below if pattern.fullmatch(e.path))
    first = next(matching, None)
    if first is None and not others:
        raise no_match(opener, place)
    return Found(location, None, matching if first is None else itertools.chain([first], matching))


def no_match(opener: Opener, place: str) -> NotFound:
    """Return the error for a glob that matches nothing, also if something has the pattern itself as its name."""
    remedy = "'*' stays in a folder, '**' crosses folders"
    named = opener.open(place)
    with contextlib.suppress(NbdataError):  # nothing matches all the same
        if head_of(opener, named) is not None or named.store.is_folder(as_folder(named.key)):
            pattern = glob_pattern(place)
            written = place.replace(pattern, re.sub(r"[*?\[{]", r"[\g<0>]", pattern))
            remedy = f"It is a pattern; for what has exactly this name, write {redacted(written)}"
    return NotFound("nothing matches", path=redacted(place), remedy=remedy)


def folder_part(source: str) -> str:
    """Return a place in the same store that can always be opened: the source without its glob."""
    return glob_base(source) if has_glob(source) else source


def servers_at(opener: Opener, places: Iterable[str]) -> str:
    """Return the servers of the stores of some places, see `servers_of`; nothing for places on the disk."""
    stores = {store_of(place): place for place in places if is_url(place)}
    return servers_of(opener.open(folder_part(place)).store for place in stores.values())


def known_as(opener: Opener, place: str) -> str:
    """Return by which name records and caches know a place: its server, and its URL without what only signs it.

    A URL such as ``s3://bucket/`` stands for other objects where the configuration leads to another server.
    """
    return f"{servers_at(opener, [place])}\n{without_signature(place)}"
