"""The folder of a cache of blocks: its files, their bound, and the locks by which mounts share it.

``DIR/.nbdata/blocks-VERSION/`` has one file for each version of an object (`version_file`), and one for each listing
(`listings`). The file ``room`` says how many bytes all of them take. Its flock is held while anything is made, written
or deleted, so that what it says is at least what is there. Each mount holds a shared flock on
``DIR/.nbdata/blocks-VERSION.lock``: the cache is in use. It holds one on each file whose version is open, which is not
deleted then.

The folder is trusted only if this user's nbdata made it in this place (`nbdata.made_folders`). Else it is emptied, or
refused if others could have put it there. It stays open: the owner of DIR may exchange ``.nbdata``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import struct
import time
import zlib
from collections.abc import Iterator

from nbdata.cache.folder import LOCK
from nbdata.cache.kept_names import BLOCKS
from nbdata.disk import disk_error, make_folders
from nbdata.errors import BadOption, NbdataError
from nbdata.files.blocks.room import DiskRoom
from nbdata.files.blocks.version_file import VersionFile, overhead_of, record_of
from nbdata.guarded_trees import Below
from nbdata.lock_files import file_lock
from nbdata.made_folders import MADE, MadeFolders, unproven
from nbdata.optional_calls import set_time
from nbdata.own_files import again_if_removed, make_own_folder, open_own_folder, own_folder, owner_here, taken
from nbdata.seals import Seals
from nbdata.sizes import format_size
from nbdata.space.limits import disk_of, round_up
from nbdata.stores.base import ObjectInfo

__all__ = ["LEAST", "LISTING", "BlockFolder"]

#: The fewest bytes of a cache.
LEAST = 16 << 20
#: The suffix of the files of listings.
LISTING = ".list"
# The number is that of the form of the files: those of another form are in another folder.
_NAME = f"{BLOCKS}{1:016x}"
_ROOM = "room"
_NAMES = re.compile(rf"[0-9a-f]{{32}}({re.escape(LISTING)})?")
_TOTAL = struct.Struct("<QI")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The part of the bound that is made free at a time, so that the folder is seldom looked through; and the most that the
# table of one version may take.
_PART = 32


class BlockFolder:
    """The folder of one cache, open for one mount. Methods that change it are for one thread at a time.

    Parameters
    ----------
    parent : str
        Created if missing.
    most : int
        The most bytes of all files in it.
    state_dir : str
        The state folder of the user.

    Attributes
    ----------
    path : str
    most : int

    Raises
    ------
    NbdataError
        If it cannot be made, is not this user's, or its disk has no locks.
    """

    def __init__(self, parent: str, most: int, state_dir: str) -> None:
        if most < LEAST:
            raise BadOption(
                f"cache: {format_size(most)} is too little", expected=f"at least {format_size(LEAST)}"
            )
        self.most = most
        self._parent = parent
        self._made = MadeFolders(Seals(state_dir))
        self.path = own_folder(parent, _NAME)
        self._fd = self._alive = -1
        self._owner = -1
        try:
            again_if_removed(self._open)
            self._block = disk_of(self.path)[2]
            self._room = DiskRoom(self.path, state_dir)
            with self.locked():
                self._look_through()
        except OSError as error:
            self.close()
            if isinstance(error, NbdataError):
                raise
            raise taken(self.path + LOCK) or disk_error(error, self.path) from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        make_folders(self._parent, 0o777)
        make_own_folder(self._parent)
        own, above = open_own_folder(self._parent)
        try:
            self.path = os.path.join(own, _NAME)
            self._alive = _shared_lock(above, self.path)
            with contextlib.suppress(FileExistsError):
                os.mkdir(_NAME, 0o700, dir_fd=above)
            own_folder(self._parent, _NAME)
            self._fd = os.open(_NAME, _FOLDER, dir_fd=above)
            self._owner = owner_here(self._fd)
            self._prove()
        except BaseException:
            self._close()
            raise
        finally:
            os.close(above)

    def _prove(self) -> None:
        """Seal a new folder. Empty one whose seal is missing, if nobody else can have put it there."""
        for _ in range(2):
            self._made.seal(_NAME, self._fd)
            if self._made.is_sealed(_NAME, self._fd):
                return
            if not self._made.has(_NAME, self._fd):
                break
            with Below(self.path, os.dup(self._fd)) as below:
                for name in os.listdir(self._fd):
                    below.remove(name)
        raise unproven(self.path)

    def _close(self) -> None:
        for fd in (self._fd, self._alive):
            if fd >= 0:
                os.close(fd)
        self._fd = self._alive = -1

    def close(self) -> None:
        """Let go of the folder, which stays."""
        if (room := getattr(self, "_room", None)) is not None:
            with contextlib.suppress(OSError, NbdataError):
                room.close()
        self._close()

    # -- files -------------------------------------------------------------------------------------

    def suits(self, size: int) -> bool:
        """Whether an object of a size can be kept: its table must not push out what is kept of others."""
        return overhead_of(size) <= self.most // _PART

    def opened(self, name: str) -> VersionFile | None:
        """Open the file of a version, which is not deleted while it is open; None if there is no right one."""
        try:
            fd = os.open(name, _FILE, dir_fd=self._fd)
        except OSError:  # also a link in its place, or a pipe
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink != 1:  # it was just deleted, or has another name somewhere
                raise ValueError("it has not one name")
            return VersionFile.opened(fd, name, self._owner)
        except (OSError, ValueError, RecursionError):
            os.close(fd)
            return None

    def made(self, name: str, place: str, info: ObjectInfo) -> VersionFile | None:
        """Return the file of a version, made if there is none; None if there is no room. Call it while `locked`.

        Raises
        ------
        OSError
            If the disk refuses.
        ValueError
            If it cannot be kept.
        """
        if (found := self.opened(name)) is not None:
            return found
        record = record_of(place, info)
        if not self.take(overhead_of(info.size)):
            return None
        new = f"new-{secrets.token_hex(8)}"
        fd = os.open(new, _FILE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            made = VersionFile.made(fd, record, info)
            os.replace(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            return made
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=self._fd)
            raise

    def remove(self, name: str) -> None:
        """Delete a file, if it is there. Its room is found when the folder is looked through."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def replace(self, name: str, data: bytes) -> bool:
        """Write a file as a whole; return False if there is no room. Call it while `locked`."""
        if not self.take(len(data)):
            return False
        new = f"new-{secrets.token_hex(8)}"
        fd = os.open(new, _FILE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._fd)
        try:
            done = 0
            while done < len(data):
                done += os.write(fd, data[done:])
            os.replace(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=self._fd)
            raise
        finally:
            os.close(fd)
        return True

    def content(self, name: str, most: int) -> tuple[bytes, float] | None:
        """Return a whole file and when it was written, in seconds since 1970; None if there is no right one."""
        try:
            fd = os.open(name, _FILE, dir_fd=self._fd)
        except OSError:
            return None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != self._owner or status.st_size > most:
                return None
            data = b""
            while len(data) < status.st_size and (more := os.read(fd, status.st_size - len(data))):
                data += more
            return data, status.st_mtime
        except OSError:
            return None
        finally:
            os.close(fd)

    def touch(self, name: str) -> None:
        """Note that a file is as it was just written."""
        set_time(name, time.time_ns(), dir_fd=self._fd)

    # -- their bound -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all other mounts from changing the cache."""
        with contextlib.ExitStack() as stack:
            lock = file_lock(_ROOM, self._fd)
            lock.acquire()
            stack.callback(lock.release)
            yield

    @property
    def used(self) -> int:
        """The bytes of all files, as far as they are known without the lock."""
        try:
            return self._total()
        except (OSError, ValueError):
            return 0

    def take(self, size: int) -> bool:
        """Count bytes that are about to be written; return False if there is no room. Call it while `locked`.

        Versions that were used longest ago are deleted for them, as far as none is open.
        """
        try:
            total = self._total()
        except ValueError:
            total = self._look_through()
        size = round_up(size, self._block)
        if total + size > self.most:
            total = self._free(size)
            if total + size > self.most:
                return False
        if not self._room.take(size):
            before = total
            total = self._free(
                self.most - before + size
            )  # the disk is short: old ones make room for new ones
            if total == before or not self._room.take(size):
                return False
        self._note(total + size)
        return True

    def _total(self) -> int:
        fd = os.open(_ROOM, _FILE, dir_fd=self._fd)
        try:
            data = os.pread(fd, _TOTAL.size, 0)
        finally:
            os.close(fd)
        if len(data) != _TOTAL.size:
            raise ValueError("nothing is noted")
        total, crc = _TOTAL.unpack(data)
        if zlib.crc32(data[:8]) != crc:
            raise ValueError("what is noted is damaged")
        return int(total)

    def _note(self, total: int) -> None:
        fd = os.open(_ROOM, _FILE, dir_fd=self._fd)
        try:
            os.pwrite(fd, _TOTAL.pack(total, zlib.crc32(total.to_bytes(8, "little"))), 0)
        finally:
            os.close(fd)

    def _look_through(self) -> int:
        """Count all files, and delete those that are over the bound; return their bytes."""
        total = sum(size for _, size, _ in self._files())
        self._note(total)
        return self._free(0) if total > self.most else total

    def _free(self, size: int) -> int:
        """Delete what was used longest ago, so that there is room for so many bytes and some more; return the total."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        wanted = self.most - size - (self.most // _PART if size else 0)
        gone = False
        for _, taken_up, name in files:
            if total <= wanted:
                break
            if self._delete(name):
                total, gone = total - taken_up, True
        self._note(total)
        if gone:
            self._room.freed()
        return total

    def _delete(self, name: str) -> bool:
        """Delete a file, unless a mount has it open."""
        try:
            fd = os.open(name, _FILE, dir_fd=self._fd)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=self._fd)
            return True
        except OSError:
            return False
        finally:
            os.close(fd)

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """Yield when each file was used, its bytes and its name; delete what is no file of the cache."""
        strange = list[str]()
        fd = os.open(".", _FOLDER, dir_fd=self._fd)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if entry.name in (_ROOM, MADE):
                        continue
                    try:
                        status = os.lstat(entry.name, dir_fd=self._fd)
                    except FileNotFoundError:  # another mount has just deleted it
                        continue
                    right = stat.S_ISREG(status.st_mode) and status.st_uid == self._owner
                    if not right or not _NAMES.fullmatch(entry.name):
                        strange.append(entry.name)
                        continue
                    yield status.st_mtime_ns, status.st_blocks * 512, entry.name
        finally:
            os.close(fd)
        with Below(self.path, os.dup(self._fd)) as below:
            for name in strange:
                below.remove_tree(name)


def _shared_lock(above: int, path: str) -> int:
    """Take the lock that says that the cache is in use; return its descriptor.

    Raises
    ------
    BadOption
        If the disk has no locks.
    OSError
        If it is just being removed.
    """
    fd = os.open(_NAME + LOCK, _FILE | os.O_CREAT, 0o600, dir_fd=above)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        if not os.path.samestat(os.stat(_NAME + LOCK, dir_fd=above, follow_symlinks=False), os.fstat(fd)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.ENOLCK, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise BadOption(
                "cache: the disk has no locks, by which mounts share it",
                path=path,
                remedy="Choose another --cache-dir",
            ) from error
        raise
    return fd
