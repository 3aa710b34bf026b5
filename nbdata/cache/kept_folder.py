"""The folder of a kept cache, whose objects a later process can use again.

``DIR/.nbdata/kept-XXXX/`` holds one file per object. The file's name identifies the object and its version (`name_of`).
``DIR/.nbdata/kept-XXXX.lock`` is the flock of the process that fills the cache. A file gets its name once it is
complete and verified, and then a line in the file ``sealed``:

``NAME SIZE TIME SEAL``
    This user's nbdata made the file (`nbdata.seals`). The time in ns is there since a name may be deleted and created
    again.
``= OFFSET SEAL``
    The files of all lines before this offset had reached the disk.

All sealed files are proven until the machine stops, and after a crash those that had reached the disk. Any other file
is unproven: anybody may have put it there. It counts once its bytes were compared with the store's checksum. So does a
file of another owner, who can set any size and time, in each run. The file
``about`` describes the cache for users: see `nbdata.cache.known`.

The folder stays open: the owner of DIR may exchange ``.nbdata``, and nothing is written or deleted in another one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterator

from nbdata.cache.folder import LOCK
from nbdata.cache.kept_names import KEPT, is_name
from nbdata.disk import disk_error, exchanged, make_folders, sync_disk
from nbdata.errors import BadOption, NbdataError
from nbdata.guarded_trees import Below
from nbdata.lock_files import file_lock, held
from nbdata.made_folders import MADE, MadeFolders, is_of_another, unproven
from nbdata.optional_calls import fdatasync, fsync
from nbdata.own_files import (
    again_if_removed,
    make_own_folder,
    new_record,
    open_own_folder,
    own_folder,
    owner_here,
    read_small,
    small_file,
    taken,
)
from nbdata.seals import Seals
from nbdata.space.limits import round_up

__all__ = ["KeptFolder", "lock_of", "room_of_object"]

_PART, _BOOT, _SEALED, _ABOUT = ".part", "boot", "sealed", "about"
_RECORDS = (_BOOT, _SEALED, _ABOUT, MADE)
# The most bytes of ``boot``, and of ``sealed``: of millions of objects.
_LONGEST_BOOT, _LONGEST_RECORD = 4096, 1 << 30
# The most bytes of ``about``.
_LONGEST_ABOUT = 4096
# Bytes of a folder's entry for one file, with its name: more than any common file system needs.
_ENTRY = 128
# ``sealed`` may have this many lines more than twice the number of files; then it is rewritten.
_STALE = 100
# How often to ask for a lock, and the seconds between: who asks whether it is held takes it for a moment.
_TRIES, _PAUSE = 5, 0.02
# The most bytes of a line.
_LONGEST = 112
# Bytes of ``sealed`` for each file: two lines, and one more while it is rewritten.
_LINES = 3 * _LONGEST
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def room_of_object(size: int, block: int) -> int:
    """The most bytes of disk for an object's file, its folder entry and its lines in the record."""
    return round_up(max(size, 1), block) + _ENTRY + _LINES


def lock_of(folder: str, at: int | None = None) -> file_lock | None:
    """Take a kept folder's lock; None if another process holds it. Removing the folder removes the lock file, too.

    With `at`, a descriptor, `folder` is a name in there.
    """
    left = _TRIES
    while True:
        lock = file_lock(folder + LOCK, at)
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
        proven.
    seals : Seals
        Of the user.

    Attributes
    ----------
    path : str
        The path of the folder.
    fd : int
        Its descriptor, while it is filled.

    Raises
    ------
    BadOption
        On entering, if another process fills the cache.
    """

    #: Blocks of files and folders beside the objects and ``about``: the folder, its seal, the lock, two records, and
    #: their new versions.
    OVERHEAD_BLOCKS = 9

    def __init__(self, parent: str, of: str, block: int, boot: str, seals: Seals) -> None:
        self._parent, self._block, self._boot, self._seals = parent, block, boot, seals
        self._name = KEPT + hashlib.blake2b(of.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        self.path, self.fd = own_folder(parent, self._name), -1
        self.overhead = self.overhead_of(block)
        self._counting = threading.RLock()
        self._files = 0
        self._unproven: set[str] = set()
        self._record = -1  # the descriptor of `sealed`, from `found` on
        self._end = self._lines = 0  # its bytes and its lines
        self._synced = 0  # the bytes of it whose files are known to have reached the disk
        self._lock: file_lock | None = None
        self._owner = -1  # of the files that this user makes
        self._is_made = False  # whether nobody else can have put folders there

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode of the open folder."""
        return (status := os.fstat(self.fd)).st_dev, status.st_ino

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
            raise taken(self.path + LOCK) or disk_error(error, self._parent) from error
        return self

    def _make(self) -> None:
        make_folders(self._parent, 0o777)
        make_own_folder(self._parent)
        own, above = open_own_folder(self._parent)
        try:
            self.path = os.path.join(own, self._name)
            self._make_in(above)
        finally:
            os.close(above)

    def _make_in(self, above: int) -> None:
        self._lock = lock_of(self._name, above)
        if self._lock is None:
            raise BadOption(
                "another process fills this cache",
                path=self._parent,
                remedy="Give both the same cache= and concurrency=, and they share it; or another cache_dir=",
            )
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._name, 0o700, dir_fd=above)
            own_folder(self._parent, self._name)
            self.fd = os.open(self._name, _FOLDER, dir_fd=above)
            if not os.path.samestat(os.lstat(self.path), os.fstat(self.fd)):  # another one was looked at
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
            self._owner = owner_here(self.fd)
            made = MadeFolders(self._seals)
            made.seal(self._name, self.fd)
            self._is_made = made.has(self._name, self.fd)
            if not self._is_made and not is_of_another(self.fd):
                raise unproven(self.path)
        except BaseException:
            self._close()
            self._lock.release()
            raise

    def _close(self) -> None:
        for fd in (self.fd, self._record):
            if fd >= 0:
                os.close(fd)
        self.fd = self._record = -1

    def __exit__(self, *exc: object) -> None:
        assert self._lock is not None
        try:
            self.sync()
        finally:
            self._close()
            self._lock.release()

    def found(self) -> Iterator[tuple[str, int, bool]]:
        """Yield the name and the size of each object, and whether it is proven; delete all other files.

        Call it once, before anything is landed or removed.
        """
        try:
            synced, later = self._sealed_lines()
            if not self._boot or self._said_boot() != self._boot:
                later = {}  # the machine may have stopped before they reached the disk
            proven = synced.keys() | later.keys()
            rest, there = list[str](), set[str]()
            with self._listed() as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    is_file = stat.S_ISREG(status.st_mode)
                    if not (is_name(entry.name) and is_file and status.st_nlink == 1):
                        rest += [entry.name] if entry.name not in _RECORDS or not is_file else []
                        continue
                    self._files += 1
                    line = _line(entry.name, status)
                    there.add(line)
                    is_proven = line in proven and status.st_uid == self._owner
                    if not is_proven:
                        self._unproven.add(entry.name)
                    yield entry.name, status.st_size, is_proven
            self._delete(rest)
            self._write(_BOOT, [self._boot])
            self._write_anew(synced, later, there)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _delete(self, names: list[str]) -> None:
        with Below(self.path, os.dup(self.fd)) as below, contextlib.suppress(OSError):
            for each in names:
                if self._is_made or not stat.S_ISDIR(below.lstat(each).st_mode):
                    below.remove_tree(each)

    @contextlib.contextmanager
    def _listed(self) -> Iterator[Iterator[os.DirEntry[str]]]:
        """List the folder. Several threads may, so each has a descriptor of its own."""
        fd = os.open(".", _FOLDER, dir_fd=self.fd)
        try:
            with os.scandir(fd) as entries:
                yield entries
        finally:
            os.close(fd)

    def _said_boot(self) -> str:
        """The boot in which the last process used the cache; '' if unknown."""
        try:
            return read_small(_BOOT, _LONGEST_BOOT, at=self.fd).decode("ascii").rstrip("\n")
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    def _sealed_lines(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The sealed lines of files that had reached the disk, and the others; up to the first line without a seal.

        They are by what they say.
        """
        lines, offset, synced = list[tuple[int, str, bytes]](), 0, 0
        with (
            contextlib.suppress(FileNotFoundError),
            small_file(_SEALED, _LONGEST_RECORD, at=self.fd) as fd,
            open(fd, "rb", closefd=False) as file,
        ):
            while line := file.readline(_LONGEST + 1):
                text, _, seal = line.decode("ascii", "replace").rpartition(" ")
                if not line.endswith(b"\n") or not self._seals.holds(seal[:-1], self._name, text):
                    break
                mark, _, until = text.partition(" ")
                if mark != "=":
                    lines.append((offset, text, line))
                elif until.isdigit() and int(until) <= offset:
                    synced = max(synced, int(until))
                offset += len(line)
        before = {text: line for at, text, line in lines if at < synced}
        return before, {text: line for at, text, line in lines if at >= synced}

    def is_unproven(self, name: str) -> bool:
        """Whether an object was found that counts only once it was compared with its checksum: see `adopt`."""
        return name in self._unproven

    def adopt(self, name: str) -> None:
        """Count an unproven object as proven; one of another owner only this time."""
        with self._counting:
            self._unproven.discard(name)
            status = os.lstat(name, dir_fd=self.fd)
            if status.st_uid == self._owner:
                self._append(_line(name, status))

    def refuse(self, name: str) -> None:
        """Delete an unproven object, because it is not what its name says."""
        with self._counting:
            self._unproven.discard(name)
            self._files -= 1
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def open(self, name: str) -> int:
        """Open a complete object to read; the caller closes it. Raises OSError."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self.fd)

    def file_of(self, name: str) -> str:
        """The path of a complete object, for errors."""
        return f"{self.path}/{name}"

    def part_of(self, name: str) -> str:
        """The path of an object while it is written, for errors."""
        return self.file_of(self.part_name(name))

    @staticmethod
    def part_name(name: str) -> str:
        """The name of an object's file while it is written."""
        return name + _PART

    def land(self, name: str) -> None:
        """Commit an object: give its file the final name."""
        try:
            os.rename(name + _PART, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            try:
                self._seal(name)
            except BaseException:
                os.unlink(name, dir_fd=self.fd)
                raise
        except OSError as error:
            raise (
                error if isinstance(error, NbdataError) else disk_error(error, self.file_of(name))
            ) from error
        with self._counting:
            self._files += 1

    def _seal(self, name: str) -> None:
        status = os.lstat(name, dir_fd=self.fd)
        if status.st_uid != self._owner:
            raise exchanged(self.file_of(name))
        with self._counting:
            self._append(_line(name, status))

    def _append(self, text: str) -> None:
        """Append a line, whole or not at all. Call it while holding the lock."""
        data = self._sealed(text)
        at = 0
        try:
            while at < len(data):
                at += os.pwrite(self._record, data[at:], self._end + at)
        except OSError:
            with contextlib.suppress(OSError):  # half a line would hide all lines after it
                os.ftruncate(self._record, self._end)
            raise
        self._end += len(data)
        self._lines += 1

    def _sealed(self, text: str) -> bytes:
        return f"{text} {self._seals.of(self._name, text)}\n".encode("ascii")

    def drop(self, name: str) -> None:
        """Delete the part file of an object that could not be fetched."""
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name + _PART, dir_fd=self.fd)
        except OSError as error:
            raise disk_error(error, self.part_of(name)) from error

    def remove(self, name: str) -> int:
        """Delete an object, and return its size. Raises AccessDenied or a similar error. Call it from one thread."""
        size = 0
        try:
            with contextlib.suppress(FileNotFoundError):  # another program deleted it
                size = os.lstat(name, dir_fd=self.fd).st_size
                os.unlink(name, dir_fd=self.fd)
            with self._counting:
                self._files -= 1
                self._unproven.discard(name)
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
        """Sync all committed objects to disk, and record that. Call it from one thread."""
        with self._counting:
            end = self._end
        try:
            if end == self._synced or not sync_disk(self.fd):
                return
            with self._counting:
                self._append(f"= {end}")
                self._synced = self._end
                fdatasync(self._record)
                self._shorten()
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _shorten(self) -> None:
        """Rewrite ``sealed`` if too many of its lines are of deleted files."""
        if self._lines > 2 * self._files + _STALE:
            there = {_line(name, status) for name, status in self._files_there()}
            self._write_anew(*self._sealed_lines(), there)

    def _write_anew(self, synced: dict[str, bytes], later: dict[str, bytes], there: set[str]) -> None:
        """Rewrite ``sealed`` without the lines that match no file: those of `there` do."""
        with self._counting:
            lines = [synced[text] for text in sorted(synced.keys() & there)]
            lines.append(self._sealed(f"= {sum(map(len, lines))}"))
            lines += [later[text] for text in sorted(later.keys() & there)]
            fd = new_record(_SEALED + _PART, self.fd, os.O_RDWR)
            try:
                data = b"".join(lines)
                with open(fd, "wb", closefd=False) as file:
                    file.write(data)
                fsync(fd)
                os.replace(_SEALED + _PART, _SEALED, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            except BaseException:
                os.close(fd)
                raise
            if self._record >= 0:
                os.close(self._record)
            self._record, self._lines = fd, len(lines)
            self._end = len(data)
            self._synced = 0 if later else self._end

    def _files_there(self) -> Iterator[tuple[str, os.stat_result]]:
        with self._listed() as entries:
            for entry in entries:
                if is_name(entry.name):
                    with contextlib.suppress(FileNotFoundError):  # it was evicted
                        yield entry.name, os.lstat(entry.name, dir_fd=self.fd)

    def _write(self, record: str, lines: list[str], *, durable: bool = True) -> None:
        with open(new_record(record + _PART, self.fd), "w", encoding="ascii") as file:
            file.writelines(line + "\n" for line in lines)
            file.flush()
            if durable:
                fsync(file.fileno())
        os.replace(record + _PART, record, src_dir_fd=self.fd, dst_dir_fd=self.fd)


def _line(name: str, status: os.stat_result) -> str:
    return f"{name} {status.st_size} {status.st_mtime_ns}"
