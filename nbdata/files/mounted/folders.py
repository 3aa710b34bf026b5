"""The folders of a mounted place: listed when they are first asked for, and remembered for a time."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from nbdata.errors import NotFound, without_calls
from nbdata.files.connections import Place
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.retry import listing_of_folder, retrying

__all__ = ["Folder", "Folders", "OddNames", "is_name"]

# The most names of all folders that are remembered; those asked for longest ago are forgotten first.
_MOST = 1_000_000
# Names that are read of a folder before one of them is asked for by itself.
_FIRST = 1000
# The longest name of a file, in bytes (NAME_MAX), and the most odd ones that are told by name.
_LONGEST, _TOLD = 255, 100


@dataclass
class Folder:
    """What is known of one folder.

    Attributes
    ----------
    names : dict of str to ObjectInfo or None
        The files by name, in the order of the listing; None for a folder.
    rest : iterator or None
        The listing, as far as it is not read; None once all names are known.
    asked : dict of str to ObjectInfo or None
        What was asked for by its name before the listing came to it.
    failed : Exception or None
        What ended the listing, for all who wait for it. Who comes later has it begun anew.
    listed : float
        When the listing began, by `time.monotonic`.
    """

    names: dict[str, ObjectInfo | None] = field(default_factory=dict)
    rest: Iterator[ObjectInfo] | None = None
    asked: dict[str, ObjectInfo | None] = field(default_factory=dict)
    failed: Exception | None = None
    listed: float = 0.0
    lock: threading.RLock = field(default_factory=threading.RLock)


@dataclass
class OddNames:
    """Keys that are no names of files, or stand beside a folder of their name; they do not show.

    Attributes
    ----------
    count : int
    some : list of str
        The first hundred keys.
    """

    count: int = 0
    some: list[str] = field(default_factory=list)

    def add(self, key: str) -> None:
        """Count one."""
        self.count += 1
        if len(self.some) < _TOLD:
            self.some.append(key)


class Folders:
    """The folders below a place, by their paths relative to it; safe to use from many threads.

    Parameters
    ----------
    place : Place
        The folder that is mounted.
    max_age : float
        Seconds that a listing is remembered.
    """

    def __init__(self, place: Place, max_age: float) -> None:
        self._place, self._max_age = place, max_age
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Folder] = OrderedDict()
        self._names = 0
        self._inodes: dict[str, dict[str, int]] = {"": {"": 1}}
        self._counter = itertools.count(2)
        self.odd = OddNames()
        #: How many listings were begun.
        self.listings = 0

    def inode(self, path: str) -> int:
        """Return the number of a file or folder, which it keeps while its folder is remembered, also anew.

        Numbers grow in the order of the listing: cp and others read the files of a folder by their numbers, so as not
        to have a disk seek.
        """
        above, _, name = path.rpartition("/")
        with self._lock:
            return self._number(above, name)

    def _number(self, above: str, name: str) -> int:
        numbers = self._inodes.setdefault(above, {})
        if (found := numbers.get(name)) is None:
            found = numbers[name] = next(self._counter)
        return found

    def key_of(self, path: str) -> str:
        """Return the key of a path."""
        return self._place.prefix + path

    def find(self, path: str) -> ObjectInfo | None:
        """Return the file at a path; None if it is a folder.

        Raises
        ------
        NotFound
            If there is neither.
        """
        if not path:
            return None
        above, _, name = path.rpartition("/")
        folder = self._folder(above)
        with folder.lock:
            if not folder.names and folder.rest is not None:
                self._read(above, folder, _FIRST)
            if name in folder.names:
                return folder.names[name]
            if name not in folder.asked and folder.rest is not None:
                self._ask(above, folder, name)
            if name not in folder.asked:
                raise NotFound("no such file or folder", path=path)
            return folder.asked[name]

    def names(self, path: str) -> dict[str, ObjectInfo | None]:
        """Return all names in a folder, with what they are: see `Folder`. It is not to be changed."""
        folder = self._folder(path)
        with folder.lock:
            while folder.rest is not None:
                self._read(path, folder, _FIRST)
            return folder.names

    def begins(self) -> bool:
        """Return whether there is anything at the top; asks the store, whose errors it raises."""
        folder = self._folder("")
        with folder.lock:
            if folder.rest is not None:
                self._read("", folder, _FIRST)
            return bool(folder.names)

    def known(self, path: str) -> dict[str, ObjectInfo | None]:
        """Return the names that are known of the folder that a path is in. It is not to be changed."""
        return self._folder(path.rpartition("/")[0]).names

    def size_of(self, path: str) -> int:
        """Return the bytes of a file whose listing does not say them, as those of web servers."""
        place = self._place
        info = retrying(place.control, lambda: place.store.head(self.key_of(path)))
        self.note(path, info)
        return max(info.size, 0)

    def note(self, path: str, info: ObjectInfo) -> None:
        """Remember that a file is of another version than it was listed."""
        above, _, name = path.rpartition("/")
        folder = self._folder(above)
        with folder.lock:
            known = folder.names if folder.rest is None or name in folder.names else folder.asked
            known[name] = info

    @property
    def oldest(self) -> float:
        """Seconds since the oldest listing that is remembered began."""
        with self._lock:
            times = [one.listed for one in self._known.values()]
        return time.monotonic() - min(times) if times else 0.0

    def _folder(self, path: str) -> Folder:
        now = time.monotonic()
        with self._lock:
            found = self._known.get(path)
            if found is not None and now - found.listed <= self._max_age:
                self._known.move_to_end(path)
                return found
            if found is not None:
                self._names -= len(found.names)
            place, self.listings = self._place, self.listings + 1
            prefix = f"{place.prefix}{path}/" if path else place.prefix
            found = Folder(rest=listing_of_folder(place.control, place.store, prefix), listed=now)
            self._known[path] = found
            self._known.move_to_end(path)
            return found

    def _read(self, path: str, folder: Folder, most: int) -> None:
        """Read at most so many more names of a folder."""
        if folder.failed is not None:
            raise folder.failed
        prefix = len(f"{self._place.prefix}{path}/" if path else self._place.prefix)
        before = len(folder.names)
        assert folder.rest is not None
        try:
            some = list(itertools.islice(folder.rest, most))
            if len(some) < most:
                folder.rest = None
            for info in some:
                self._add(folder, info, prefix)
        except Exception as error:
            folder.failed = without_calls(error)  # type: ignore[assignment]
            with self._lock:
                if self._known.get(path) is folder:
                    del self._known[path]
                    self._names -= before
            raise
        with self._lock:
            for name in itertools.islice(folder.names, before, None):
                self._number(path, name)
        self._count(len(folder.names) - before, path, folder)

    def _add(self, folder: Folder, info: ObjectInfo, prefix: int) -> None:
        name = info.key[prefix:]
        if not name:  # the object that stands for the folder itself
            return
        is_folder = name.endswith("/")
        name = name[:-1] if is_folder else name
        if not is_name(name) or name in folder.names:
            self.odd.add(info.key)
            if is_folder and is_name(name):
                folder.names[name] = None  # the folder, and not the file of its name
            return
        folder.names[name] = None if is_folder else info

    def _ask(self, path: str, folder: Folder, name: str) -> None:
        """Ask for one name of a folder with so many that they are not all read for it."""
        place = self._place
        key = self.key_of(f"{path}/{name}" if path else name)
        below = next(iter(listing_of_folder(place.control, place.store, key + "/")), None)
        if below is not None:
            folder.asked[name] = None
            return
        with contextlib.suppress(NotFound, IsADirectoryError):
            folder.asked[name] = retrying(place.control, lambda: place.store.head(key))

    def _count(self, more: int, path: str, folder: Folder) -> None:
        with self._lock:
            if self._known.get(path) is not folder:  # another one took its place
                return
            self._names += more
            while self._names > _MOST and len(self._known) > 1:
                gone, dropped = next(iter(self._known.items()))
                if gone == path:
                    break
                del self._known[gone]
                self._inodes.pop(gone, None)
                self._names -= len(dropped.names)


def is_name(name: str) -> bool:
    """Return whether the last part of a key can be the name of a file."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(os.fsencode(name)) <= _LONGEST
    except UnicodeEncodeError:
        return False
