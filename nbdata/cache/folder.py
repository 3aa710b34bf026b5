"""The private folder of one cache. It lives while its lock is held, and is removed after its owner's death.

``DIR/.nbdata/cache-XXXX/`` holds one folder per slot, and ``DIR/.nbdata/cache-XXXX.lock`` is the flock. If the lock is
free, the owner is dead. The next cache there, or ``cleanup``, then removes the folder, unless others could have put it
there (`nbdata.made_folders`).

The folder stays open: the owner of DIR may exchange ``.nbdata``, and nothing is written or deleted in another one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator

from nbdata.disk import disk_error
from nbdata.guarded_trees import Below, remove_folder
from nbdata.lock_files import file_lock, held
from nbdata.made_folders import MadeFolders
from nbdata.own_files import again_if_removed, make_own_folder, open_own_folder
from nbdata.seals import Seals
from nbdata.space.limits import round_up

__all__ = ["LOCK", "CacheFolder", "cache_folders", "is_cache", "room_of"]

_PREFIX = "cache-"
#: The suffix of the lock file's name.
LOCK = ".lock"
# What follows the prefix.
_ID = re.compile("[0-9a-f]{16}")
# Bytes of a folder's entry for one file, without the name: more than any common file system needs.
_ENTRY = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def room_of(files: list[tuple[str, int]], block: int) -> int:
    """The most bytes of disk for files (relative path, size) in a folder of their own, with their folders."""
    folders: dict[str, int] = {"": 0}
    total = 0
    for path, size in files:
        total += round_up(size, block)
        *above, name = path.split("/")
        at = ""
        for part in above:
            inner = f"{at}/{part}"
            if inner not in folders:
                folders[inner] = 0
                folders[at] += len(os.fsencode(part)) + _ENTRY
            at = inner
        folders[at] += len(os.fsencode(name)) + _ENTRY
    return total + sum(round_up(max(names, 1), block) for names in folders.values())


class CacheFolder:
    """A cache's folder on disk. A context manager that leaves nothing behind.

    Parameters
    ----------
    parent : str
        Created if missing.
    block : int
        Block size of its disk, in bytes.
    seals : Seals
        Of the user.

    Attributes
    ----------
    path : str
        The path of the folder.
    fd : int
        Its descriptor, while it exists.
    """

    #: Blocks of its own files and folders: the folder, its seal, the lock, and what they add to their parent.
    OVERHEAD_BLOCKS = 5

    def __init__(self, parent: str, block: int, seals: Seals) -> None:
        self._made = MadeFolders(seals)
        self._parent, self._name = parent, f"{_PREFIX}{secrets.token_hex(8)}"
        self._own = self.path = ""
        self._above = self.fd = -1
        self.overhead = self.OVERHEAD_BLOCKS * block

    def __enter__(self) -> CacheFolder:
        try:
            again_if_removed(self._make)
        except OSError as error:
            raise disk_error(error, self._own or self._parent) from error
        return self

    def _make(self) -> None:
        os.makedirs(self._parent, exist_ok=True)
        make_own_folder(self._parent)
        self._own, above = open_own_folder(self._parent)
        try:
            self.path = os.path.join(self._own, self._name)
            _remove_dead(self._own, above, self._made)
            self._lock = file_lock(self._name + LOCK, above)
            self._lock.acquire()
            try:
                os.mkdir(self._name, 0o700, dir_fd=above)
                self.fd = os.open(self._name, _FOLDER, dir_fd=above)
                self._made.seal(self._name, self.fd)
            except BaseException:  # the folder above may be gone, and the lock in the next one
                self._lock.release()
                raise
            self._below = Below(self.path, self.fd)
        except BaseException:
            os.close(above)
            raise
        self._above = above

    def __exit__(self, *exc: object) -> None:
        try:
            _remove(self._name, self._above, self._lock, self._is_it)
            with contextlib.suppress(OSError):  # others may have files there
                os.rmdir(f"../{os.path.basename(self._own)}", dir_fd=self._above)
        finally:
            self._below.close()
            os.close(self._above)
            self._above = self.fd = -1

    def _is_it(self, folder: int) -> bool:
        return os.path.samestat(os.fstat(folder), os.fstat(self.fd))

    def slot(self, number: int) -> str:
        """The path of a slot's folder."""
        return f"{self.path}/{number}"

    def make_slot(self, number: int, folders: Iterable[str]) -> None:
        """Make a slot's folder and folders in it. Raises AccessDenied or a similar error."""
        made = set[str]()
        try:
            os.mkdir(str(number), 0o700, dir_fd=self.fd)
            for folder in folders:
                at = str(number)
                for name in folder.split("/"):
                    at = f"{at}/{name}"
                    if at not in made:
                        os.mkdir(at, 0o700, dir_fd=self.fd)
                        made.add(at)
        except OSError as error:
            raise disk_error(error, self.slot(number)) from error

    def remove(self, number: int) -> None:
        """Delete a slot's files. Raises AccessDenied or a similar error."""
        try:
            with contextlib.suppress(FileNotFoundError):  # nothing was written, or the user's code deleted it
                self._below.remove(str(number))
        except OSError as error:
            raise disk_error(error, self.slot(number)) from error


def is_cache(name: str, prefix: str = _PREFIX) -> bool:
    """True for the names that nbdata gives to caches with this prefix."""
    return name.startswith(prefix) and _ID.fullmatch(name, len(prefix)) is not None


def cache_folders(own: str, prefix: str = _PREFIX, *, at: int | None = None) -> Iterator[tuple[str, bool]]:
    """Yield the caches in a ``.nbdata`` folder with this prefix, and whether their owners live.

    With `at`, its descriptor, the folder is not opened by its path.
    """
    fd = os.open(own if at is None else ".", _FOLDER, dir_fd=at)
    try:
        with os.scandir(fd) as entries:
            names = sorted(
                e.name for e in entries if is_cache(e.name, prefix) and e.is_dir(follow_symlinks=False)
            )
        for name in names:
            yield os.path.join(own, name), held(name + LOCK, fd)
    finally:
        os.close(fd)


def _remove_dead(own: str, above: int, made: MadeFolders) -> None:
    """Remove the folders of killed processes, but those that others could have put there."""
    for path, alive in cache_folders(own, at=above):
        if not alive:
            name = os.path.basename(path)
            lock = file_lock(name + LOCK, above)
            with contextlib.suppress(OSError):  # something else has the place of the lock: cleanup removes it
                if lock.acquire(wait=False):
                    _remove(name, above, lock, functools.partial(made.has, name))


def _remove(name: str, above: int, lock: file_lock, expected: Callable[[int], bool]) -> None:
    """Remove the folder first: while it exists, so does the lock that shows its owner."""
    removed = True
    with contextlib.suppress(OSError):
        removed = remove_folder(name, above, expected)
    with contextlib.suppress(OSError):
        if removed:
            os.unlink(name + LOCK, dir_fd=above)
    lock.release()
