"""The folder of a cache that is kept: its objects are found again by the next process that needs them.

``DIR/.nbdata/kept-XXXX/`` holds a file for each object, whose name says which version of which object it is
(`name_of`); ``DIR/.nbdata/kept-XXXX.lock`` is the flock of the process that fills it. A file gets its name when it is
whole and verified, so each one may be trusted as long as the machine runs. After the machine was lost only what had
reached the disk may: the file ``durable`` in the folder names that, with the time of each file, since a name may have
been deleted and made again. What it does not name is deleted. The file ``about`` is for people: see
`nbdata.caching.known`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator

from nbdata.caching.folder import LOCK
from nbdata.disk import disk_error, make_folders, sync_disks, syncfs
from nbdata.errors import BadOption
from nbdata.paths import OWN_FOLDER
from nbdata.runtime import file_lock, held
from nbdata.space.limits import round_up
from nbdata.stores.base import ObjectInfo

__all__ = ["KEPT", "KeptFolder", "is_name", "kept_in", "lock_of", "name_of", "room_of_object"]

#: How the names of such folders begin.
KEPT = "kept-"
_NAME = re.compile(r"[0-9a-f]{32}")
_PART, _BOOT, _DURABLE, _ABOUT = ".part", "boot", "durable", "about"
# Bytes that ``about`` may have.
_LONGEST_ABOUT = 4096
# Bytes that a folder's entry for one file takes, with its name: more than any common file system needs.
_ENTRY = 128
# Lines that ``durable`` may hold beside as many as there are files twice; then it is written anew. Bytes of a line at
# least and at most.
_STALE = 100
_LINE, _LONGEST = 56, 80
# Bytes of ``durable`` for each file: two lines, and one in its new form.
_LINES = 3 * _LONGEST


def name_of(info: ObjectInfo) -> str:
    """The name of the file of one version of an object."""
    # The time tells a version only where nothing better does.
    version = (info.etag, info.version) if info.etag or info.version else (info.modified,)
    said = "\0".join(map(str, (info.key, info.size, *version)))
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def kept_in(path: str) -> str | None:
    """The folder of such a cache that a path lies in, or is; None if it does not."""
    found = re.match(rf"(.*/)?{re.escape(OWN_FOLDER)}/{KEPT}[0-9a-f]+", path)
    return found[0] if found is not None else None


def is_name(text: object) -> bool:
    """Whether this is such a name."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def room_of_object(size: int, block: int) -> int:
    """Bytes of disk that the file of an object takes at most, with its entry in the folder and in its record."""
    return round_up(max(size, 1), block) + _ENTRY + _LINES


def lock_of(folder: str) -> file_lock | None:
    """The lock of such a folder, held; None if somebody else holds it. Who removes the folder removes it, too."""
    while True:
        lock = file_lock(folder + LOCK)
        if not lock.acquire(wait=False):
            return None
        if lock.stands():
            return lock
        lock.release()  # it was removed between opening and locking


class KeptFolder:
    """One such folder, for the process that fills it; a context manager.

    Parameters
    ----------
    parent : str
        Made if it is not there.
    of : str
        What the objects come from: each has a folder of its own.
    block : int
        Bytes of a block of the disk.
    boot : str
        What tells this run of the machine from the one before; empty: nobody knows, and nothing may be trusted that had
        not reached the disk.

    Raises
    ------
    BadOption
        When entered, if another process fills it.
    """

    #: Files and folders of its own beside ``about``, in blocks: the folder, the lock, its two records, and their new
    #: forms.
    OVERHEAD_BLOCKS = 8

    def __init__(self, parent: str, of: str, block: int, boot: str) -> None:
        self._own, self._block, self._boot = os.path.join(parent, OWN_FOLDER), block, boot
        self.path = os.path.join(
            self._own, KEPT + hashlib.blake2b(of.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        )
        self.overhead = self.overhead_of(block)
        self._unsynced: list[str] = []  # as many as landed since the last `sync`
        self._counting = threading.Lock()
        self._files = 0
        self._noted = 0  # lines of `durable`
        self._whole = False  # whether its last line is known to be whole
        self._lock: file_lock | None = None

    @property
    def files(self) -> int:
        """Objects that are in it."""
        return self._files

    @classmethod
    def overhead_of(cls, block: int) -> int:
        """Bytes of disk that are not for objects."""
        return cls.OVERHEAD_BLOCKS * block + 2 * round_up(_LONGEST_ABOUT, block)

    @staticmethod
    def about_of(path: str) -> str:
        """The file in the folder of a cache that says what it is."""
        return f"{path}/{_ABOUT}"

    @staticmethod
    def is_in_use(path: str) -> bool:
        """Whether somebody fills the cache of such a folder, or removes it."""
        return held(path + LOCK)

    @property
    def in_use(self) -> bool:
        """Whether somebody fills it, or removes it."""
        return self.is_in_use(self.path)

    def __enter__(self) -> KeptFolder:
        try:
            make_folders(os.path.dirname(self._own), 0o777)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._own, 0o700)
            self._lock = lock_of(self.path)
            if self._lock is None:
                raise BadOption(
                    "another process fills this cache",
                    path=os.path.dirname(self._own),
                    remedy="Give both the same cache= and verify=, and they share it; or another cache_dir=",
                )
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
        except OSError as error:
            raise disk_error(error, self._own) from error
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._lock is not None
        try:
            self.sync()
        finally:
            self._lock.release()

    def found(self) -> Iterator[tuple[str, int]]:
        """The objects that are there and may be trusted, and their sizes; all else is deleted."""
        trusted = self._trusted()
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    line = _line(entry.name, status)
                    if is_name(entry.name) and (trusted is None or line in trusted):
                        self._files += 1
                        yield entry.name, status.st_size
                    elif entry.name not in (_BOOT, _DURABLE, _ABOUT):
                        os.unlink(entry.path)
            self._write(_BOOT, [self._boot])
            with contextlib.suppress(FileNotFoundError):
                self._noted = os.stat(f"{self.path}/{_DURABLE}").st_size // _LINE
            self._shorten()
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _trusted(self) -> set[str] | None:
        """Lines of what had reached the disk before the machine was lost; None if it was not: all may be trusted."""
        if self._boot and self._read(_BOOT) == [self._boot]:
            return None
        return set(self._read(_DURABLE))

    def file_of(self, name: str) -> str:
        """Where an object is, once it is whole."""
        return f"{self.path}/{name}"

    def part_of(self, name: str) -> str:
        """Where it is written until then."""
        return self.file_of(name) + _PART

    def land(self, name: str) -> None:
        """Give an object its name."""
        try:
            os.rename(self.part_of(name), self.file_of(name))
        except OSError as error:
            raise disk_error(error, self.file_of(name)) from error
        with self._counting:
            self._files += 1
            self._unsynced.append(name)

    def drop(self, name: str) -> None:
        """Delete what there is of an object that did not come."""
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.part_of(name))
        except OSError as error:
            raise disk_error(error, self.part_of(name)) from error

    def remove(self, name: str) -> int:
        """Delete an object, and tell its size; AccessDenied and the like if that cannot be. From one thread."""
        size = 0
        try:
            with contextlib.suppress(FileNotFoundError):  # somebody else deleted it
                size = os.stat(self.file_of(name)).st_size
                os.unlink(self.file_of(name))
            with self._counting:
                self._files -= 1
            self._shorten()
            return size
        except OSError as error:
            raise disk_error(error, self.file_of(name)) from error

    def write_about(self, text: str, *, durable: bool) -> None:
        """Say in words of ASCII what the cache is."""
        if len(text) >= _LONGEST_ABOUT:
            raise ValueError(f"{len(text)} characters are more than there is room for")
        try:
            self._write(_ABOUT, [text], durable=durable)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def sync(self) -> None:
        """Have all that has landed reach the disk, and note that; from one thread."""
        with self._counting:
            landed, self._unsynced = self._unsynced, []
        if not landed or syncfs is None:
            return
        try:
            lines = self._lines(landed)
            sync_disks([self.path + "/"])
            if not self._whole or self._too_long(self._noted + len(lines)):
                self._write_anew(lines)
            else:
                with open(f"{self.path}/{_DURABLE}", "a", encoding="ascii") as file:
                    file.writelines(line + "\n" for line in lines)
                self._noted += len(lines)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _too_long(self, lines: int) -> bool:
        return lines > 2 * self._files + _STALE

    def _shorten(self) -> None:
        """Have no more lines of files that are gone than there is room for."""
        if self._too_long(self._noted):
            self._write_anew([])

    def _write_anew(self, more: list[str]) -> None:
        """Write ``durable`` with some lines more, and without those that say nothing of what is there."""
        there = set(self._lines(filter(is_name, os.listdir(self.path))))
        lines = sorted({*self._read(_DURABLE), *more} & there)
        self._write(_DURABLE, lines)
        self._noted, self._whole = len(lines), True

    def _lines(self, names: Iterable[str]) -> list[str]:
        """What ``durable`` says of objects, as they are now."""
        lines = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it had to go
                lines.append(_line(name, os.stat(self.file_of(name))))
        return lines

    def _read(self, record: str) -> list[str]:
        try:
            with open(f"{self.path}/{record}", encoding="ascii") as file:
                return file.read().splitlines()
        except (FileNotFoundError, UnicodeDecodeError):
            return []

    def _write(self, record: str, lines: list[str], *, durable: bool = True) -> None:
        fresh = f"{self.path}/{record}{_PART}"
        with open(fresh, "w", encoding="ascii") as file:
            file.writelines(line + "\n" for line in lines)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(fresh, f"{self.path}/{record}")


def _line(name: str, status: os.stat_result) -> str:
    return f"{name} {status.st_size} {status.st_mtime_ns}"
