"""The folders of a mounted place: listed when they are first asked for, and remembered for a time."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from types import MappingProxyType
from typing import TypeVar

from nbdata.errors import NbdataError, NotFound, StoreUnavailable, without_calls
from nbdata.files.blocks.cache import BlockCache
from nbdata.files.blocks.reach import AGAIN
from nbdata.files.connections import Place
from nbdata.files.mounted import wire
from nbdata.redaction import shortened
from nbdata.sizes import format_size
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.retry import listing_of_folder, retrying

__all__ = ["ABOUT", "Folder", "Folders", "OddNames", "is_name", "is_same"]

#: A text file at the top of each mount that says what is mounted, and how it goes.
ABOUT = ".nbdata-mount"
# Bytes that the names of all folders take that are remembered, about a million of them; those asked for longest ago are
# forgotten first. And the most that one folder may take: two to four million names.
_REMEMBERED, _LARGEST = 640 << 20, 2 << 30
# Bytes of an entry, and of a folder, beside the letters of its texts.
_EACH, _FOLDER = 490, 1500
# Names that are read of a folder before one of them is asked for by itself.
_FIRST = 1000
# The longest name of a file, in bytes (NAME_MAX), and the most odd ones that are told by name.
_LONGEST, _TOLD = 255, 100
# What is remembered of the headers of an object.
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})

_T = TypeVar("_T")


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


@dataclass
class Folder:
    """What is known of one folder.

    Attributes
    ----------
    names : dict of str to ObjectInfo or None
        The files by name, in the order of the listing; None for a folder.
    rest : iterator or None
        The listing, as far as it is not read; None once all names are known.
    listed : float
        When the listing began, by `time.monotonic`.
    odd : OddNames
        Keys in it that do not show.
    asked : dict of str to ObjectInfo or None
        What was asked for by its name before the listing came to it.
    failed : Exception or None
        What ended the listing, for all who wait for it. Who comes later has it begun anew, unless it is too large.
    size : int
        About the bytes that its names take.
    counted : int
        Those that count for the limit of all folders.
    kept : float or None
        When it was listed, in seconds since 1970, if it was found in the cache because the store did not answer.
    """

    names: dict[str, ObjectInfo | None] = field(default_factory=dict)
    rest: Iterator[ObjectInfo] | None = None
    listed: float = 0.0
    asked: dict[str, ObjectInfo | None] = field(default_factory=dict)
    odd: OddNames = field(default_factory=OddNames)
    failed: Exception | None = None
    size: int = 0
    counted: int = 0
    kept: float | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


class Folders:
    """The folders below a place, by their paths relative to it; safe to use from many threads.

    Parameters
    ----------
    place : Place
        The folder that is mounted.
    max_age : float
        Seconds that a listing is remembered.
    cache : BlockCache, optional
        Keeps listings on the disk, for when the store does not answer.
    """

    def __init__(self, place: Place, max_age: float, cache: BlockCache | None = None) -> None:
        self._place, self._max_age, self._about = place, max_age, place.prefix + ABOUT
        self._lock = threading.Lock()
        self._cache = cache
        self._known: OrderedDict[str, Folder] = OrderedDict()
        self._size = 0
        # By folder and name: the version that has the number, and the number.
        self._inodes: dict[str, dict[str, tuple[ObjectInfo | None, int]]] = {}
        self._counter = itertools.count(wire.ROOT + 1)
        #: How many listings were begun.
        self.listings = 0

    @property
    def odd(self) -> OddNames:
        """The keys that do not show in all folders that are remembered."""
        found = OddNames()
        with self._lock:
            for folder in self._known.values():
                found.count += folder.odd.count
                found.some += folder.odd.some[: _TOLD - len(found.some)]
        return found

    def notes(self) -> Sequence[str]:
        """Return what the store turned out to be unable to do."""
        return self._place.store.notes()

    def inode(self, path: str, info: ObjectInfo | None) -> int:
        """Return the number of a folder or of a version of a file, which it keeps while its folder is remembered.

        Numbers grow in the order of the listing: cp and others read the files of a folder by their numbers, so as not
        to have a disk seek.
        """
        if not path:
            return wire.ROOT
        above, _, name = path.rpartition("/")
        with self._lock:
            return self._number(above, name, info)

    def _number(self, above: str, name: str, info: ObjectInfo | None) -> int:
        numbers = self._inodes.setdefault(above, {})
        found = numbers.get(name)
        if found is None or not is_same(found[0], info):
            found = numbers[name] = (info, next(self._counter))
        return found[1]

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
                if name in folder.names:
                    return folder.names[name]
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

    def sized(self, path: str) -> ObjectInfo:
        """Return a file whose listing does not say its size, as those of web servers, with its size; 0 if unknown."""
        place = self._place
        info = self._reached(lambda: retrying(place.control, lambda: place.store.head(self.key_of(path))))
        self.note(path, info)
        return info if info.size >= 0 else info._replace(size=0)

    def note(self, path: str, info: ObjectInfo) -> None:
        """Remember that a file is of another version than it was listed."""
        above, _, name = path.rpartition("/")
        folder = self._folder(above)
        with folder.lock:
            if folder.rest is not None and name not in folder.names:
                self._keep_asked(above, folder, name, info)
            else:
                before, found = folder.names.get(name), _lean(info)
                folder.size += _size_of(name, found) - (_size_of(name, before) if name in folder.names else 0)
                folder.names[name] = found
                with self._lock:
                    self._count(above, folder)

    @property
    def oldest_kept(self) -> float | None:
        """When the oldest listing was made that came from the cache, in seconds since 1970; None if none did."""
        with self._lock:
            return min((one.kept for one in self._known.values() if one.kept is not None), default=None)

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
            self._drop(path)
            place, self.listings = self._place, self.listings + 1
            prefix = f"{place.prefix}{path}/" if path else place.prefix
            found = Folder(
                rest=listing_of_folder(place.control, place.store, prefix), listed=now, size=_base(path)
            )
            self._known[path] = found
            self._known.move_to_end(path)
            self._count(path, found)
            return found

    def _read(self, path: str, folder: Folder, most: int) -> None:
        """Read at most so many more names of a folder."""
        if folder.failed is not None:
            raise folder.failed
        prefix = len(self._prefix(path))
        before = len(folder.names)
        rest = folder.rest
        assert rest is not None
        try:
            some = self._reached(lambda: list(itertools.islice(rest, most)))
            if len(some) < most:
                folder.rest = None
            for info in some:
                self._add(folder, info, prefix)
        except Exception as error:
            if isinstance(error, StoreUnavailable) and self._take_kept(path, folder):
                return
            folder.failed = without_calls(error)  # type: ignore[assignment]
            with self._lock:
                if self._known.get(path) is folder:
                    self._drop(path)
            raise
        if folder.size > _LARGEST:
            raise self._too_large(path, folder)
        with self._lock:
            for name in itertools.islice(folder.names, before, None):
                self._number(path, name, folder.names[name])
            if folder.rest is None:
                self._forget_numbers(path, folder)
            self._count(path, folder)
        if folder.rest is None and self._cache is not None:
            self._cache.keep_names(self._prefix(path), folder.names, folder.size)

    def _reached(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of `attempt`; with a cache, fail at once while the store is known not to answer."""
        return attempt() if self._cache is None else self._cache.reach.run(attempt)

    def _prefix(self, path: str) -> str:
        return f"{self._place.prefix}{path}/" if path else self._place.prefix

    def _take_kept(self, path: str, folder: Folder) -> bool:
        """Take the last listing of a folder that the cache has, for some seconds; return False if it has none."""
        found = None if self._cache is None else self._cache.kept_names(self._prefix(path))
        if found is None:
            return False
        with self._lock:
            folder.names, folder.rest, folder.kept = found.names, None, found.at
            folder.size = _base(path) + sum(_size_of(name, info) for name, info in found.names.items())
            folder.listed = time.monotonic() - max(0.0, self._max_age - AGAIN)
            for name, info in found.names.items():
                self._number(path, name, info)
            self._count(path, folder)
        return True

    def _add(self, folder: Folder, info: ObjectInfo, prefix: int) -> None:
        name = info.key[prefix:]
        if not name:  # the object that stands for the folder itself
            return
        is_folder = name.endswith("/")
        name = name[:-1] if is_folder else name
        if not is_name(name) or name in folder.names or info.key == self._about:
            folder.odd.add(info.key)
            folder.size += _EACH  # so that these, too, come to an end
            if is_folder and is_name(name):
                folder.names[name] = None  # the folder, and not the file of its name
            return
        found = folder.names[name] = None if is_folder else info
        folder.size += _size_of(name, found)

    def _ask(self, path: str, folder: Folder, name: str) -> None:
        """Ask for one name of a folder with so many that they are not all read for it."""
        place = self._place
        key = self.key_of(f"{path}/{name}" if path else name)
        try:
            below = self._reached(
                lambda: next(iter(listing_of_folder(place.control, place.store, key + "/")), None)
            )
            if below is not None:
                self._keep_asked(path, folder, name, None)
                return
            with contextlib.suppress(NotFound, IsADirectoryError):
                info = self._reached(lambda: retrying(place.control, lambda: place.store.head(key)))
                self._keep_asked(path, folder, name, info)
        except StoreUnavailable:
            if not self._take_kept(path, folder):
                raise

    def _keep_asked(self, path: str, folder: Folder, name: str, info: ObjectInfo | None) -> None:
        """Remember what was asked for by its name; forget the others if there are too many of them."""
        found = None if info is None else _lean(info)
        size = _size_of(name, found)
        if folder.size + size > _LARGEST:
            folder.size -= sum(_size_of(*one) for one in folder.asked.items())
            folder.asked = {}
        folder.size += size - (_size_of(name, folder.asked[name]) if name in folder.asked else 0)
        folder.asked[name] = found
        with self._lock:
            self._count(path, folder)

    def _too_large(self, path: str, folder: Folder) -> NbdataError:
        """Keep little of a folder with too many names; return the error for all who list it.

        Its files are found by their names.
        """
        folder.failed = NbdataError(
            "the folder has more names than a mount can show",
            path=shortened(self._prefix(path)),
            expected=f"names that take at most {format_size(_LARGEST)} of memory",
            got=f"{len(folder.names) + folder.odd.count:,} names so far, and more",
            remedy="Open its files by their names, or list it with nbdata ls",
        )
        folder.names = dict(itertools.islice(folder.names.items(), _FIRST))
        folder.rest, folder.odd = iter(()), OddNames()
        known = (*folder.names.items(), *folder.asked.items())
        folder.size = _base(path) + sum(_size_of(name, info) for name, info in known)
        with self._lock:
            self._forget_numbers(path, folder)
            self._count(path, folder)
        return folder.failed

    def _drop(self, path: str) -> None:
        """Forget a listing, if there is one."""
        folder = self._known.pop(path, None)
        if folder is not None:
            self._size -= folder.counted

    def _forget_numbers(self, path: str, folder: Folder) -> None:
        """Forget the numbers of what is in a folder no more."""
        numbers = self._inodes.get(path, {})
        for name in [one for one in numbers if one not in folder.names and one != ABOUT]:
            del numbers[name]

    def _count(self, path: str, folder: Folder) -> None:
        """Count the names of a folder that is remembered; forget others if they take too much."""
        if self._known.get(path) is not folder:
            return
        self._size += folder.size - folder.counted
        folder.counted = folder.size
        while self._size > _REMEMBERED and len(self._known) > 1:
            gone = next(iter(self._known))
            if gone == path:
                break
            self._drop(gone)
            self._inodes.pop(gone, None)


def _lean(info: ObjectInfo) -> ObjectInfo:
    """Return what is remembered of a file: no headers, of which a store may send many."""
    return info._replace(headers=_NO_HEADERS) if info.headers else info


def _base(path: str) -> int:
    """Return about how many bytes a folder takes without its names."""
    return _FOLDER + 4 * len(path)


def _size_of(name: str, info: ObjectInfo | None) -> int:
    """Return about how many bytes a name takes, with what is known of it."""
    if info is None:
        return _EACH + 4 * len(name)
    key, etag, version, checksums = info.key, info.etag, info.version, info.checksums
    size = len(key) + len(name)
    size = _EACH + len(etag) + (size if key.isascii() else 4 * size)
    if version or checksums or info.composite:
        size += getsizeof(version) + sum(map(getsizeof, (*checksums.values(), *info.composite.values())))
    return size


def is_same(one: ObjectInfo | None, other: ObjectInfo | None) -> bool:
    """Return whether both are the same version of a file, or folders; without ETags that is not known, and assumed."""
    if one is None or other is None:
        return one is other
    return (one.etag, one.size) == (other.etag, other.size) or not (one.etag or other.etag)


def is_name(name: str) -> bool:
    """Return whether the last part of a key can be the name of a file."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(os.fsencode(name)) <= _LONGEST
    except UnicodeEncodeError:
        return False
