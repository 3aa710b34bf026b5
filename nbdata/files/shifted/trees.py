"""Whole folders in a store: listed at once for `os.walk` and `glob`, deleted, and given another name."""

from __future__ import annotations

import io
import itertools
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from nbdata.errors import NotFound, SourceChanged
from nbdata.files.shifted.jobs import copy_folder
from nbdata.files.shifted.places import Target
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.retry import listing, retrying

__all__ = [
    "MOST",
    "Tree",
    "delete_below",
    "holds_anything",
    "holds_files",
    "move_file",
    "move_folder",
    "tree_of",
]

#: The most objects of a tree that is held in memory, together with the folders on the way to them.
MOST = 20_000
# The state in which an object was seen, if it was copied.
_STATE = "select state from seen join copied using (path) where path = ? and seen.size = copied.size"
# Keys that one request deletes at most.
_DELETED = 1000


@dataclass(slots=True)
class Tree:
    """A folder of a listing.

    Attributes
    ----------
    files : dict of str to ObjectInfo
    folders : dict of str to Tree
    """

    files: dict[str, ObjectInfo] = field(default_factory=dict)
    folders: dict[str, Tree] = field(default_factory=dict)

    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of its folders and of its files, as new lists."""
        return sorted(self.folders), sorted(self.files)

    def add(self, path: str, info: ObjectInfo) -> int:
        """Add an object by its path below this folder; return how many entries that takes, with those of new folders.

        The path of an object that stands for a folder has a slash at its end.
        """
        *above, name = path.split("/")
        at, count = self, 1
        for one in above:
            if one not in at.folders:
                at.folders[one] = Tree()
                count += 1
            at = at.folders[one]
        if name:
            at.files[name] = info
        return count


def tree_of(place: Target, most: int = MOST) -> Tree | None:
    """Return all that is below a folder; None if that is more than `most` entries, or the store lists pages only.

    Raises
    ------
    NotFound
        If there is no such folder.
    """
    found = place.place
    if found.store.lists_by_page or not found.store.flat:
        return None
    tree, some, room = Tree(), False, most
    for info in listing(found.control, found.store, found.prefix):
        some = True
        path = info.key[len(found.prefix) :]
        if "//" in f"/{path}" or {".", ".."} & set(path.split("/")):
            return None  # no path means such a name; listed folder by folder it is left out
        room -= tree.add(path, info) if path else 1
        if room < 0:
            return None
    if not some and found.key and not found.store.is_folder(found.prefix):
        raise NotFound("no such folder", path=place.url)
    return tree


def holds_anything(place: Target, *, itself: bool = False) -> bool:
    """Return whether there is an object below a folder; the one that stands for the folder counts with `itself`."""
    found = place.place
    if itself and not found.store.flat:
        return found.store.is_folder(found.prefix)
    listed = listing(found.control, found.store, found.prefix)
    return any(itself or info.key != found.prefix for info in itertools.islice(listed, 2))


def holds_files(place: Target) -> bool:
    """Return whether there is an object below a folder that stands for no folder."""
    found = place.place
    return any(not info.key.endswith("/") for info in listing(found.control, found.store, found.prefix))


def delete_below(place: Target) -> None:
    """Delete all that is below a folder, and the folder, while it is listed."""
    found = place.place
    listed = listing(found.control, found.store, found.prefix)
    folders = list[str]()
    while some := [info.key for info in itertools.islice(listed, _DELETED)]:
        if not found.store.flat:
            folders += {key.rpartition("/")[0] for key in some} - set(folders[-_DELETED:])
        retrying(found.control, lambda some=some: found.store.delete(some))  # type: ignore[misc]
    if not found.store.flat:
        _remove_folders(place)


def _remove_folders(place: Target) -> None:
    """Remove the empty folders below a place in a store that has folders, and the place itself."""
    files = place.files
    folders = [path for path, entry in files.find(place.url, withdirs=True, detail=True).items()
               if entry["type"] == "directory"]  # fmt: skip
    for path in sorted(folders, key=lambda path: path.count("/"), reverse=True):
        files.rmdir(path)
    if files.isdir(place.url):
        files.rmdir(place.url)


def move_file(source: Target, info: ObjectInfo, there: Target) -> None:
    """Copy an object within a store, and delete the version that was copied."""
    mine = source.place
    there.files.cp_file(source.url, there.url)
    now = retrying(mine.control, lambda: mine.store.head(mine.key))
    if (*_state(now), now.version) != (*_state(info), info.version):
        raise SourceChanged(
            "the file was replaced while it was given another name", path=source.url,
            remedy="Both names are there; look which one you want",
        )  # fmt: skip
    retrying(mine.control, lambda: mine.store.delete([mine.key]))


def move_folder(source: Target, there: Target) -> None:
    """Copy a folder within a store, and delete what was copied.

    Raises
    ------
    shutil.Error
        If something could not be copied. Then nothing is deleted.
    SourceChanged
        If objects came, or were replaced, while the folder was copied. They stay where they are.
    """
    mine = source.place
    with closing(sqlite3.connect("")) as seen:  # a temporary file, however many objects there are
        seen.execute("create table seen (path blob primary key, state text, size int) without rowid")
        seen.execute("create table copied (path blob primary key, size int) without rowid")
        for info in listing(mine.control, mine.store, mine.prefix):
            path = info.key[len(mine.prefix) :]
            if path.endswith("/") or not path:
                make_marker(there, path)
            found = _bytes(path), repr(_state(info)), info.size
            seen.execute("insert or replace into seen values (?, ?, ?)", found)
        copy_folder(source, there)
        # The copy may be a job that was begun before, by a call that was killed, and that knows less than was seen now.
        for info in listing(there.place.control, there.place.store, there.place.prefix):
            copied = _bytes(info.key[len(there.place.prefix) :]), info.size
            seen.execute("insert or replace into copied values (?, ?)", copied)
        left = _delete_seen(source, seen)
    if left:
        raise SourceChanged(
            f"{left:,} objects came, or were replaced or not copied, while the folder was given another name",
            path=source.url,
            remedy="They stay under the old name; move them, too",
        )


def make_marker(folder: Target, below: str = "") -> None:
    """Make a folder, or one below it, given with a slash at its end: where there are none, an object for it."""
    found = folder.place
    key = found.prefix + below
    if found.store.flat:
        retrying(found.control, lambda: found.store.write(key, io.BytesIO(), 0))
    else:
        retrying(found.control, lambda: found.store.make_folder(key))


def _delete_seen(source: Target, seen: sqlite3.Connection) -> int:
    """Delete the objects that are as they were seen, and were copied, and return how many others there are."""
    mine, left = source.place, 0
    listed = listing(mine.control, mine.store, mine.prefix)
    while some := list(itertools.islice(listed, _DELETED)):
        same = list[str]()
        for info in some:
            path = _bytes(info.key[len(mine.prefix) :])
            row = seen.execute(_STATE, (path,)).fetchone()
            if row is not None and row[0] == repr(_state(info)):
                same.append(info.key)
        left += len(some) - len(same)
        if same:
            retrying(mine.control, lambda same=same: mine.store.delete(same))  # type: ignore[misc]
    if not left and not mine.store.flat:
        _remove_folders(source)
    return left


def _state(info: ObjectInfo) -> tuple[Any, ...]:
    """Return what tells an object from the one that replaced it; many stores have no ETags."""
    return info.etag, info.size, info.modified


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
