"""How files come to stand under their final names: written aside, made durable in batches, then renamed.

Temporaries live in ``TARGET/.nbdata/`` (beside the file where a mount point lies between), which is there
only while something is unfinished. One thread commits: it takes whatever files are ready, makes their bytes
durable with one ``syncfs``, announces what it is about to do, renames them all, fsyncs the folders they stand in and
those that folders were made in, and only then reports them (so that they are recorded). While it syncs, the next batch
gathers: group commit, as in databases.

A kill at any point leaves final names untouched or whole, and at worst temporaries that the next run or
``cleanup`` removes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import secrets
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nbdata.errors import AccessDenied, Cancelled, NbdataError, UnsafeMember
from nbdata.paths import OWN_FOLDER
from nbdata.stores.local import disk_error, sync_folder
from nbdata.transfer.control import Control
from nbdata.transfer.marks import Mark

__all__ = ["Landed", "Landing"]

# Files that may wait for the committer, and their bytes; more holds the writers.
_WAITING, _WAITING_BYTES = 2048, 128 << 20
# Files of a batch, and their bytes: bound what a kill makes us fetch again.
_BATCH, _BATCH_BYTES = 1024, 64 << 20
# Folders of a batch from which on one syncfs is faster than to sync each of them.
_MANY = 16
# Folders that are remembered as made and looked at; one that is not is looked at again.
_KNOWN = 50_000
# How long a batch gathers, in seconds: each costs the disk a few milliseconds, however small it is.
_GATHER = 0.1


@dataclass
class Landed:
    """A whole, verified file that waits for its final name.

    Attributes
    ----------
    path : str
        Relative to the target.
    temporary, final : str
        Where the bytes are, and where they go; both absolute.
    size : int
    synced : bool
        Whether the bytes are on disk already.
    tag : str
        What the index is to remember.
    mtime_ns : int or None
        Time to give the file, or None for now.
    reserved : int
        Of the bytes, what `Landing.reserve` was told of.
    inode : int or None
        Of the file that was written, where another job may have put its own in its place.
    error : NbdataError or None
        Set when it could not land.
    stat : os.stat_result or None
        Of the final file, once it landed.
    """

    path: str
    temporary: str
    final: str
    size: int
    synced: bool = False
    tag: str = ""
    mtime_ns: int | None = None
    reserved: int = 0
    inode: int | None = None
    error: NbdataError | None = None
    stat: os.stat_result | None = None


class Landing:
    """Files on their way into one target folder; a context manager around the whole transfer.

    Parameters
    ----------
    root : str
        The target folder, absolute; made if missing.
    control : Control
        Whose job it is; it waits there for a job of another machine that works in the same folder.
    umask : int
        The user's, for files and folders.
    landed : callable
        Called from the committing thread with each batch after it is durable.
    landing : callable
        The same before its files get their names.
    most : callable
        Bytes that may be on their way, from before they are fetched until they have landed: what a kill loses.
    """

    def __init__(
        self,
        root: str,
        control: Control,
        *,
        umask: int,
        landed: Callable[[list[Landed]], None],
        landing: Callable[[list[Landed]], None] = lambda _: None,
        most: Callable[[], int] = lambda: sys.maxsize,
    ) -> None:
        self._control = control
        self._most, self._reserved = most, 0
        self._pressed = 0  # how many wait for that
        self.root = root.rstrip("/") or "/"
        self.file_mode = 0o666 & ~umask
        self._folder_mode = 0o777 & ~umask
        self._announce, self._report = landing, landed
        self._token = secrets.token_hex(6)
        self._staging: dict[int, str] = {}  # st_dev -> folder for temporaries
        self._marks: list[Mark] = []  # one in each of them
        self._checked: dict[str, str] = {}  # parent -> staging folder, for parents known to be inside
        self._made: set[str] = set()
        self._unsynced: set[str] = set()  # folders with a new folder in them
        self._lock, self._making, self._syncing = threading.Lock(), threading.Lock(), threading.Lock()
        self._number = 0
        self._ready: deque[Landed] = deque()
        self._ready_bytes = 0
        self._queue = threading.Lock()
        self._due, self._room = threading.Condition(self._queue), threading.Condition(self._queue)
        self._ended = False  # nothing comes any more
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._commit_all, name="committer", daemon=True)

    def __enter__(self) -> Landing:
        try:
            self.make_folder(self.root)
            self._real_root = os.path.realpath(self.root)
            found = os.stat(self.root)
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            self.identity = (found.st_dev, found.st_ino)
            self.staging(self.root)
        except OSError as error:
            raise _as_target_error(error, self.root) from error
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if isinstance(exc[1], Cancelled):
            self._broken = (
                self._broken or exc[1]
            )  # what still waits is dropped: a stop does not wait for the disk
        self._finish()
        for mark in self._marks:
            mark.remove()
        for folder in self._staging.values():
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):
                    if name.startswith(self._token):
                        os.unlink(os.path.join(folder, name))
            with contextlib.suppress(OSError):  # not empty: partials of big objects stay
                os.rmdir(folder)
        if self._broken is not None and exc[1] is None:
            raise self._broken

    # -- folders ------------------------------------------------------------------------------

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents with the user's mode."""
        if path in self._made:
            return
        missing = []
        at = path
        while not os.path.isdir(at):
            missing.append(at)
            at = os.path.dirname(at)
        for folder in reversed(missing):
            try:
                self._make(folder, 0o777)
                os.chmod(folder, self._folder_mode)
            except FileExistsError as error:
                if not os.path.isdir(folder):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from error
        self._made.add(path)

    def staging(self, parent: str) -> str:
        """The folder for temporaries on the same file system as `parent`."""
        device = os.stat(parent).st_dev
        with self._lock:
            folder = self._staging.get(device)
            if folder is None:
                folder = os.path.join(parent, OWN_FOLDER)
                while not self._enter(folder):
                    pass
                self._staging[device] = folder
            return folder

    def _enter(self, folder: str) -> bool:
        """Make a folder for temporaries, with a mark that keeps another job there from removing it as empty.

        False if that happened just now, or if another machine works there: then after a while.
        """
        with contextlib.suppress(FileExistsError):
            self._make(folder, 0o700)
        try:
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise UnsafeMember(f"{OWN_FOLDER} in the target is not a folder of ours", path=folder)
            mark = Mark(folder, self._token)
            elsewhere = mark.remove_dead()
        except FileNotFoundError:
            return False
        if elsewhere is not None:
            mark.remove()  # else two that wait would wait for each other
            self._control.phase(f"waits for a job on {elsewhere}, which works in the same folder")
            self._control.sleep(random.uniform(0.5, 1.5))
            return False
        self._control.phase("")
        mark.keep()
        self._marks.append(mark)
        return True

    def check(self) -> None:
        """NbdataError if another machine has taken this job for dead."""
        for mark in self._marks:
            mark.check()

    def prepare(self, path: str) -> tuple[str, str]:
        """Final path for a relative path and the folder for its temporaries; makes its parent folder.

        Raises
        ------
        UnsafeMember
            If a symbolic link in the target leads the path out of it.
        """
        final = os.path.join(self.root, path)
        parent = os.path.dirname(final)
        staging = self._checked.get(parent)
        if staging is None:
            try:
                self._refuse_outside(parent, path)
                self.make_folder(parent)
                self._refuse_outside(parent, path)
                if len(self._checked) >= _KNOWN:  # else a million folders would be held
                    self._checked.clear()
                    self._made.clear()
                staging = self._checked[parent] = self.staging(parent)
            except OSError as error:
                if isinstance(error, NbdataError):
                    raise
                raise _as_target_error(error, parent) from error
        return final, staging

    def _make(self, folder: str, mode: int) -> None:
        with self._making:  # or somebody might record a file in it before it is known as new
            os.mkdir(folder, mode)
            self._unsynced.add(os.path.dirname(folder))

    def sync_folders(self) -> None:
        """Make the folders durable that were made so far."""
        with self._syncing:  # nobody goes on while another still syncs what he needs
            with self._making:
                folders, self._unsynced = self._unsynced, set()
            for folder in folders:
                try:
                    with contextlib.suppress(PermissionError):  # one may write there, and not look
                        sync_folder(folder)
                except OSError as error:
                    raise disk_error(error, folder) from error

    def _refuse_outside(self, parent: str, path: str) -> None:
        real = os.path.realpath(parent)
        if real != self._real_root and not real.startswith(self._real_root.rstrip("/") + "/"):
            raise UnsafeMember(
                "a symbolic link leads out of the target",
                path=path,
                expected=f"a path below {self.root}",
                got=real,
            )

    # -- files --------------------------------------------------------------------------------

    def unused(self, staging: str) -> str:
        """A name for a temporary that is no regular file; removed at the end like any other."""
        with self._lock:
            self._number += 1
            return f"{staging}/{self._token}{self._number:x}"

    def temporary(self, staging: str) -> tuple[int, str]:
        """A new empty file for writing; it is removed at the end unless it landed."""
        path = self.unused(staging)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self.file_mode), path
        except OSError as error:
            raise disk_error(error, path) from error

    def written(self, staging: str, data: memoryview, path: str) -> str:
        """A new temporary with these bytes, closed."""
        fd, temporary = self.temporary(staging)
        try:
            os.fchmod(fd, self.file_mode)
            while data:
                data = data[os.write(fd, data) :]
        except BaseException as error:
            with contextlib.suppress(FileNotFoundError):  # another machine took it for that of a dead job
                os.unlink(temporary)
            if isinstance(error, OSError):
                raise disk_error(error, f"file for {path}") from error
            raise
        finally:
            os.close(fd)
        return temporary

    def reserve(self, size: int) -> None:
        """Wait until so many more bytes may be on their way; a file that is larger than all goes alone."""
        with self._queue:
            if not self._fits(size):
                self._pressed += 1
                self._due.notify()
                self._room.wait_for(lambda: self._broken is not None or self._fits(size))
                self._pressed -= 1
            if self._broken is not None:
                raise self._broken
            self._reserved += size

    def _fits(self, size: int) -> bool:
        return not self._reserved or self._reserved + size <= self._most()

    def release(self, size: int) -> None:
        """They are not on their way any more."""
        with self._queue:
            self._reserved -= size
            self._room.notify_all()

    def land(self, file: Landed) -> None:
        """Hand over a whole, closed file; waits while too many are waiting already."""
        self.land_all((file,))

    def land_all(self, files: Sequence[Landed]) -> None:
        """Hand over several, which costs little more than one."""
        more = 0
        for file in files:
            if not file.reserved and not file.synced:
                file.reserved = file.size
                more += file.size
        if more:
            self.reserve(more)
        with self._queue:
            self._room.wait_for(self._has_room)
            if self._broken is not None:
                raise self._broken
            idle = not self._ready
            self._ready.extend(files)
            self._ready_bytes += sum(map(_weight, files))
            # Not each time: to wake a thread takes longer than to rename a file.
            if idle or self._is_batch():
                self._due.notify()

    def _has_room(self) -> bool:
        many = len(self._ready) >= _WAITING or self._ready_bytes >= _WAITING_BYTES
        return self._broken is not None or not many

    def _is_batch(self) -> bool:
        many = len(self._ready) >= _BATCH or self._ready_bytes >= _BATCH_BYTES
        return self._ended or self._pressed > 0 or many

    def flush(self) -> None:
        """Wait until all that was handed over has landed."""
        self._finish()
        if self._broken is not None:
            raise self._broken
        self.sync_folders()
        self._ended = False
        self._thread = threading.Thread(target=self._commit_all, name="committer", daemon=True)
        self._thread.start()

    def _finish(self) -> None:
        """Let the committer finish what is there, and wait for it."""
        with self._queue:
            self._ended = True
            self._due.notify()
        self._thread.join()

    def _commit_all(self) -> None:
        while batch := self._next_batch():
            if self._broken is None:
                try:
                    self._commit(batch)
                except BaseException as error:
                    self._broken = error  # go on taking, so that nobody waits for ever
            self.release(sum(file.reserved for file in batch))

    def _next_batch(self) -> list[Landed]:
        """What has gathered; nothing at the end."""
        with self._queue:
            self._due.wait_for(lambda: self._ready or self._ended)
            self._due.wait_for(self._is_batch, _GATHER)
            batch, size = list[Landed](), 0
            while self._ready and len(batch) < _BATCH and size < _BATCH_BYTES:
                batch.append(self._ready.popleft())
                size += _weight(batch[-1])
            self._ready_bytes -= size
            self._room.notify_all()
            return batch

    def _commit(self, batch: list[Landed]) -> None:
        self.check()
        try:
            _make_durable([file for file in batch if not file.synced])
        except OSError as error:
            for file in batch:
                file.error = disk_error(error, file.final)
        self._announce([file for file in batch if file.error is None])
        parents: dict[str, list[Landed]] = {}
        self.check()  # again: to sync may take as long as another machine needs to take us for dead
        for file in batch:
            if file.error is not None:
                continue
            try:
                if file.inode is not None and file.inode != os.lstat(file.temporary).st_ino:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                if file.mtime_ns is not None:
                    os.utime(file.temporary, ns=(file.mtime_ns, file.mtime_ns))
                os.replace(file.temporary, file.final)
                # After the rename, since that is what last changes the file's ctime.
                file.stat = os.lstat(file.final)
                parents.setdefault(file.final.rpartition("/")[0] or "/", []).append(file)
            except OSError as error:
                file.error = _as_target_error(error, file.final)
        self._sync_names(parents)
        self.sync_folders()
        self._report(batch)

    def _sync_names(self, parents: dict[str, list[Landed]]) -> None:
        """Make the new names durable: folder by folder, or where they are many, all at once."""
        if len(parents) > _MANY and _syncfs is not None:
            moved = [file for files in parents.values() for file in files]
            try:
                _sync_disks(moved)
            except OSError as error:
                for file in moved:
                    file.error = disk_error(error, file.final)
            return
        for parent, files in parents.items():
            try:
                sync_folder(parent)
            except OSError as error:
                for file in files:
                    file.error = disk_error(error, file.final)


def _weight(file: Landed) -> int:
    """Bytes that are still to be written to the disk."""
    return 0 if file.synced else file.size


def _as_target_error(error: OSError, path: str) -> NbdataError:
    if isinstance(error, NbdataError):
        return error
    if error.errno in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST):
        return AccessDenied(
            "a folder stands where a file is to be", path=path, remedy="Remove it, or use another target"
        )
    if error.errno == errno.ENOTDIR:
        return AccessDenied(
            "a file stands where a folder is to be", path=path, remedy="Remove it, or use another target"
        )
    return disk_error(error, path)


_syncfs: Callable[[int], int] | None
try:
    _syncfs = ctypes.CDLL(None, use_errno=True).syncfs
except (AttributeError, OSError):  # not Linux
    _syncfs = None


def _make_durable(files: list[Landed]) -> None:
    """Bytes of all files on disk: one syncfs for many, else fdatasync each (as for one or two)."""
    if len(files) > 2 and _syncfs is not None:
        _sync_disks(files)
        return
    for file in files:
        fd = os.open(file.temporary, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)


def _sync_disks(files: list[Landed]) -> None:
    """All bytes and names on the disks of these files; a file and its temporary are on the same one."""
    assert _syncfs is not None
    for folder in {file.temporary.rpartition("/")[0] for file in files}:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(fd)
