"""How files come to stand under their final names: written aside, made durable in batches, then renamed.

The folders that they are written and land in are `nbdata.transfer.target_folder`'s. One thread commits: it takes
whatever files are ready, makes their bytes durable with one ``syncfs``, announces what it is about to do, renames them
all, fsyncs the folders they stand in and those that folders were made in, and only then reports them (so that they are
recorded). While it syncs, the next batch gathers: group commit, as in databases.

A kill at any point leaves final names untouched or whole, and at worst temporaries that the next run or
``cleanup`` removes.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nbdata.disk import disk_error, make_durable, sync_disks, sync_folder, syncfs
from nbdata.errors import Cancelled, NbdataError
from nbdata.transfer.control import Control
from nbdata.transfer.target_folder import TargetFolder, target_error

__all__ = ["Committer", "PendingFile"]

# Files that may wait for the committer, and their bytes; more holds the writers.
_WAITING, _WAITING_BYTES = 2048, 128 << 20
# Files of a batch, and their bytes: bound what a kill makes us fetch again.
_BATCH, _BATCH_BYTES = 1024, 64 << 20
# Folders of a batch from which on one syncfs is faster than to sync each of them.
_MANY = 16
# How long a batch gathers, in seconds: each costs the disk a few milliseconds, however small it is.
_GATHER = 0.1


@dataclass
class PendingFile:
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
        Of the bytes, what `Committer.reserve` was told of.
    inode : int or None
        Of the file that was written, where another job may have put its own in its place.
    error : NbdataError or None
        Set when it could not land.
    stat : os.stat_result or None
        Of the final file, once it landed.
    of : any
        What it is for: the caller's own.
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
    of: Any = None


class Committer:
    """Files on their way into one target folder; a context manager around the whole transfer.

    Parameters
    ----------
    root : str
        The target folder, absolute; made if missing.
    control : Control
        Whose job it is; it waits there for a job of another machine that works in the same folder.
    umask : int
        The user's, for files and folders.
    committed : callable
        Called from the committing thread with each batch after it is durable.
    announce : callable
        Called with each batch before its files get their names.
    made : callable
        Called with each folder that was made for them.
    most : callable
        Bytes that may be on their way, from before they are fetched until they have landed: what a kill loses.

    Attributes
    ----------
    target : TargetFolder
        Gives the places and temporaries of what is to land; entered and left with this.
    """

    def __init__(
        self,
        root: str,
        control: Control,
        *,
        umask: int,
        committed: Callable[[list[PendingFile]], None],
        announce: Callable[[list[PendingFile]], None] = lambda _: None,
        made: Callable[[str], None] = lambda _: None,
        most: Callable[[], int] = lambda: sys.maxsize,
    ) -> None:
        self._most, self._reserved = most, 0
        self._pressed = 0  # how many wait for that
        self.target = TargetFolder(root, control, umask=umask, made=made)
        self._announce, self._report = announce, committed
        self._ready: deque[PendingFile] = deque()
        self._ready_bytes = 0
        self._queue = threading.Lock()
        self._due, self._room = threading.Condition(self._queue), threading.Condition(self._queue)
        self._ended = False  # nothing comes any more
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    def __enter__(self) -> Committer:
        self.target.enter()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if isinstance(exc[1], Cancelled):
            # What still waits is dropped: a stop does not wait for the disk.
            self._broken = self._broken or exc[1]
        self._finish()
        self.target.leave()
        if self._broken is not None and exc[1] is None:
            raise self._broken

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

    def commit(self, file: PendingFile) -> None:
        """Hand over a whole, closed file; waits while too many are waiting already."""
        self.commit_all((file,))

    def commit_all(self, files: Sequence[PendingFile]) -> None:
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
        self.target.sync_folders()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def _finish(self) -> None:
        """Let the committer finish what is there, and wait for it."""
        with self._queue:
            self._ended = True
            self._due.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            if self._broken is None:
                try:
                    self._commit_batch(batch)
                except BaseException as error:
                    self._broken = error  # go on taking, so that nobody waits for ever
            self.release(sum(file.reserved for file in batch))

    def _next_batch(self) -> list[PendingFile]:
        """What has gathered; nothing at the end."""
        with self._queue:
            self._due.wait_for(lambda: self._ready or self._ended)
            self._due.wait_for(self._is_batch, _GATHER)
            batch, size = list[PendingFile](), 0
            while self._ready and len(batch) < _BATCH and size < _BATCH_BYTES:
                batch.append(self._ready.popleft())
                size += _weight(batch[-1])
            self._ready_bytes -= size
            self._room.notify_all()
            return batch

    def _commit_batch(self, batch: list[PendingFile]) -> None:
        self.target.check()
        try:
            make_durable([file.temporary for file in batch if not file.synced])
        except OSError as error:
            for file in batch:
                file.error = disk_error(error, file.final)
        self._announce([file for file in batch if file.error is None])
        parents: dict[str, list[PendingFile]] = {}
        self.target.check()  # again: to sync may take as long as another machine needs to take us for dead
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
                file.error = target_error(error, file.final)
        self._sync_names(parents)
        self.target.sync_folders()
        self._report(batch)

    def _sync_names(self, parents: dict[str, list[PendingFile]]) -> None:
        """Make the new names durable: folder by folder, or where they are many, all at once."""
        if len(parents) > _MANY and syncfs is not None:
            moved = [file for files in parents.values() for file in files]
            try:
                # A file and its temporary are on the same disk.
                sync_disks([file.temporary for file in moved])
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


def _weight(file: PendingFile) -> int:
    """Bytes that are still to be written to the disk."""
    return 0 if file.synced else file.size
