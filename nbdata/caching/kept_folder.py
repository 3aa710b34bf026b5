"""The folder of a kept cache, whose objects a later process can use again.

``DIR/.nbdata/kept-XXXX/`` holds one file per object. The file's name identifies the object and its version (`name_of`).
``DIR/.nbdata/kept-XXXX.lock`` is the flock of the process that fills the cache. A file gets its name once it is
complete and verified, so each file is valid until the machine stops. After a crash, only files that had reached the
disk are valid. The file ``durable`` in the folder lists those, with the time of each, since a name may be deleted and
created again. Files not in the list are deleted. The file ``about`` describes the cache for users: see
`nbdata.caching.known`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Iterator

from nbdata.caching.folder import LOCK, again_if_removed
from nbdata.disk import disk_error, make_folders, sync_disks, syncfs
from nbdata.errors import BadOption
from nbdata.own_files import own_folder, without_waiting
from nbdata.paths import OWN_FOLDER
from nbdata.runtime import file_lock, held
from nbdata.space.limits import round_up
from nbdata.stores.base import ObjectInfo

__all__ = ["KEPT", "KeptFolder", "is_name", "kept_in", "lock_of", "name_of", "room_of_object"]

#: The prefix of these folders' names.
KEPT = "kept-"
_NAME = re.compile(r"[0-9a-f]{32}")
_PART, _BOOT, _DURABLE, _ABOUT = ".part", "boot", "durable", "about"
# The most bytes of ``about``.
_LONGEST_ABOUT = 4096
# Bytes of a folder's entry for one file, with its name: more than any common file system needs.
_ENTRY = 128
# ``durable`` may have this many lines more than twice the number of files; then it is rewritten. The least and the
# most bytes of a line.
_STALE = 100
# How often to ask for a lock, and the seconds between: who asks whether it is held takes it for a moment.
_TRIES, _PAUSE = 5, 0.02
_LINE, _LONGEST = 56, 80
# Bytes of ``durable`` for each file: two lines, and one more while it is rewritten.
_LINES = 3 * _LONGEST


def name_of(info: ObjectInfo) -> str:
    """The file name for one version of an object."""
    # The time identifies a version only if there is no ETag and no version id.
    version = (info.etag, info.version) if info.etag or info.version else (info.modified,)
    said = "\0".join(map(str, (info.key, info.size, *version)))
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def kept_in(path: str) -> str | None:
    """The kept-cache folder that a path is or lies in; None if there is none."""
    found = re.match(rf"(.*/)?{re.escape(OWN_FOLDER)}/{KEPT}[0-9a-f]+", path)
    return found[0] if found is not None else None


def is_name(text: object) -> bool:
    """Whether a text is the name of an object's file."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def room_of_object(size: int, block: int) -> int:
    """The most bytes of disk for an object's file, its folder entry and its lines in the record."""
    return round_up(max(size, 1), block) + _ENTRY + _LINES


def lock_of(folder: str) -> file_lock | None:
    """Take a kept folder's lock; None if another process holds it. Removing the folder removes the lock file, too."""
    left = _TRIES
    while True:
        lock = file_lock(folder + LOCK)
        if not lock.acquire(wait=False):
            if left := left - 1:
                time.sleep(_PAUSE)
                continue
            return None
        if lock.stands():
            return lock
        lock.release()  # the file was removed between opening and locking it


class KeptFolder:
    """One kept folder, for the process that fills it. A context manager.

    Parameters
    ----------
    parent : str
        Created if missing.
    of : str
        The origin of the objects. Each origin has its own folder.
    block : int
        Block size of the disk, in bytes.
    boot : str
        The id of the machine's current boot. If empty, it is unknown, and only files that had reached the disk are
        valid.

    Raises
    ------
    BadOption
        On entering, if another process fills the cache.
    """

    #: Blocks of files and folders beside the objects and ``about``: the folder, the lock, two records, and their new
    #: versions.
    OVERHEAD_BLOCKS = 8

    def __init__(self, parent: str, of: str, block: int, boot: str) -> None:
        self._own, self._block, self._boot = os.path.join(parent, OWN_FOLDER), block, boot
        self.path = os.path.join(
            self._own, KEPT + hashlib.blake2b(of.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        )
        self.overhead = self.overhead_of(block)
        self._unsynced: list[str] = []  # files committed since the last `sync`
        self._counting = threading.Lock()
        self._files = 0
        self._noted = 0  # lines of `durable`
        self._whole = False  # True once the last line is known to be complete
        self._lock: file_lock | None = None

    @property
    def files(self) -> int:
        """The number of objects in the folder."""
        return self._files

    @classmethod
    def overhead_of(cls, block: int) -> int:
        """Bytes of disk that are not for objects."""
        return cls.OVERHEAD_BLOCKS * block + 2 * round_up(_LONGEST_ABOUT, block)

    @staticmethod
    def about_of(path: str) -> str:
        """The path of the file that describes a cache."""
        return f"{path}/{_ABOUT}"

    @staticmethod
    def is_in_use(path: str) -> bool:
        """Whether a process fills the cache in a folder, or removes it."""
        return held(path + LOCK)

    @property
    def in_use(self) -> bool:
        """Whether a process fills this cache, or removes it."""
        return self.is_in_use(self.path)

    def __enter__(self) -> KeptFolder:
        try:
            again_if_removed(self._make)
        except OSError as error:
            raise disk_error(error, self._own) from error
        return self

    def _make(self) -> None:
        make_folders(os.path.dirname(self._own), 0o777)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._own, 0o700)
        own_folder(os.path.dirname(self._own))
        self._lock = lock_of(self.path)
        if self._lock is None:
            raise BadOption(
                "another process fills this cache",
                path=os.path.dirname(self._own),
                remedy="Give both the same cache= and concurrency=, and they share it; or another cache_dir=",
            )
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        try:
            own_folder(os.path.dirname(self._own), os.path.basename(self.path))
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *exc: object) -> None:
        assert self._lock is not None
        try:
            self.sync()
        finally:
            self._lock.release()

    def found(self) -> Iterator[tuple[str, int]]:
        """Yield the name and size of each valid object, and delete everything else."""
        try:
            trusted = self._trusted()
            with os.scandir(self.path) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    line = _line(entry.name, status)
                    whole = is_name(entry.name) and stat.S_ISREG(status.st_mode)
                    if whole and (trusted is None or line in trusted):
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
        """The lines of files on disk before the machine stopped; None if it did not stop, so all files are valid."""
        if self._boot and self._read(_BOOT) == [self._boot]:
            return None
        return set(self._read(_DURABLE))

    def file_of(self, name: str) -> str:
        """The path of a complete object."""
        return f"{self.path}/{name}"

    def part_of(self, name: str) -> str:
        """The path of an object while it is written."""
        return self.file_of(name) + _PART

    def land(self, name: str) -> None:
        """Commit an object: give its file the final name."""
        try:
            os.rename(self.part_of(name), self.file_of(name))
        except OSError as error:
            raise disk_error(error, self.file_of(name)) from error
        with self._counting:
            self._files += 1
            self._unsynced.append(name)

    def drop(self, name: str) -> None:
        """Delete the part file of an object that could not be fetched."""
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.part_of(name))
        except OSError as error:
            raise disk_error(error, self.part_of(name)) from error

    def remove(self, name: str) -> int:
        """Delete an object, and return its size. Raises AccessDenied or a similar error. Call it from one thread."""
        size = 0
        try:
            with contextlib.suppress(FileNotFoundError):  # another program deleted it
                size = os.stat(self.file_of(name)).st_size
                os.unlink(self.file_of(name))
            with self._counting:
                self._files -= 1
            self._shorten()
            return size
        except OSError as error:
            raise disk_error(error, self.file_of(name)) from error

    def write_about(self, text: str, *, durable: bool) -> None:
        """Write the description of the cache, in ASCII."""
        if len(text) >= _LONGEST_ABOUT:
            raise ValueError(f"{len(text)} characters are more than there is room for")
        try:
            self._write(_ABOUT, [text], durable=durable)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def sync(self) -> None:
        """Sync all committed objects to disk, and record them. Call it from one thread."""
        with self._counting:
            committed, self._unsynced = self._unsynced, []
        if not committed or syncfs is None:
            return
        try:
            lines = self._lines(committed)
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
        """Rewrite ``durable`` if too many of its lines are of deleted files."""
        if self._too_long(self._noted):
            self._write_anew([])

    def _write_anew(self, more: list[str]) -> None:
        """Rewrite ``durable`` with additional lines, and without those that match no file."""
        there = set(self._lines(filter(is_name, os.listdir(self.path))))
        lines = sorted({*self._read(_DURABLE), *more} & there)
        self._write(_DURABLE, lines)
        self._noted, self._whole = len(lines), True

    def _lines(self, names: Iterable[str]) -> list[str]:
        """The lines of ``durable`` for objects, as their files are now."""
        lines = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it was evicted
                lines.append(_line(name, os.stat(self.file_of(name))))
        return lines

    def _read(self, record: str) -> list[str]:
        try:
            with open(f"{self.path}/{record}", encoding="ascii", opener=without_waiting) as file:
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
