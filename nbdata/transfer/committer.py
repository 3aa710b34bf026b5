"""Commit files: they are written as temporaries, made durable in batches, and then renamed to their final names.

`nbdata.transfer.target_folder` provides the folders. One thread commits. It takes all ready files and makes their bytes
durable with one ``syncfs``. It announces its next step, renames the files, and fsyncs their folders and the parents of
new folders. Only then it reports the files, so that they are recorded. The next batch collects meanwhile: group commit,
as in databases.

A kill at any point leaves each final name untouched or complete. At worst it leaves temporaries, which the next run or
``cleanup`` removes.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nbdata.disk import disk_error, exchanged, make_durable, sync_disks
from nbdata.ending import Daemon
from nbdata.errors import Cancelled, NbdataError, UnsafeMember
from nbdata.guarded_folders import NamedFolders
from nbdata.optional_calls import fsync
from nbdata.same_files import same_file
from nbdata.transfer.control import Control
from nbdata.transfer.target_folder import TargetFolder, target_error

__all__ = ["Committer", "PendingFile"]

# How many files may wait for the committer, and how many bytes; with more, writers wait.
_WAITING, _WAITING_BYTES = 2048, 128 << 20
# Files and bytes of a batch. They limit what must be fetched again after a kill.
_BATCH, _BATCH_BYTES = 1024, 64 << 20
# From this many folders in a batch, one syncfs is faster than a sync of each.
_MANY = 16
# Seconds in which a batch collects files: each batch costs a few milliseconds, however small it is.
_GATHER = 0.1


@dataclass
class PendingFile:
    """A complete, verified file that waits for its final name.

    Attributes
    ----------
    path : str
        Relative to the target.
    temporary, final : str
        The current and the final path of the bytes; both absolute.
    size : int
    written : os.stat_result or str
        The status of the written file, from its open descriptor: only this file may get the name. Of a symbolic link,
        where it leads.
    synced : bool
        Whether the bytes are already on disk.
    tag : str
        The tag for the index.
    reserved : int
        The bytes that `Committer.reserve` already counts.
    shared : bool
        Whether another job may replace the temporary by its own, which may be incomplete.
    error : NbdataError or None
        The error, if the commit failed.
    stat : os.stat_result or None
        The status of the final file, once it is committed.
    of : any
        The caller's own tag.
    """

    path: str
    temporary: str
    final: str
    size: int
    written: os.stat_result | str
    synced: bool = False
    tag: str = ""
    reserved: int = 0
    shared: bool = False
    error: NbdataError | None = None
    stat: os.stat_result | None = None
    of: Any = None


class Committer:
    """Commits files to one target folder. A context manager around the whole transfer.

    Parameters
    ----------
    root : str
        The target folder, absolute. Created if missing.
    control : Control
        The job's control. The job waits while a job of another machine works in the same folder.
    umask : int
        The user's umask, for files and folders.
    committed : callable
        Called in the committing thread with each batch once it is durable.
    announce : callable
        Called with each batch before its files are renamed.
    made : callable
        Called with each created folder.
    most : callable
        Returns the most bytes of uncommitted files, counted from before the fetch: a kill loses at most these.
    named : str, optional
        The folder above that the user named; see `TargetFolder`.
    opened : NamedFolders, optional
        The folders that the job has opened.

    Attributes
    ----------
    target : TargetFolder
        Provides the folders and temporaries of the files. Entered and left together with the committer.
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
        named: str | None = None,
        opened: NamedFolders | None = None,
    ) -> None:
        self._most, self._reserved = most, 0
        self._pressed = 0  # threads that wait for reserved bytes to be released
        self.target = TargetFolder(root, control, umask=umask, made=made, named=named, opened=opened)
        self._announce, self._report = announce, committed
        self._ready: deque[PendingFile] = deque()
        self._ready_bytes = 0
        self._queue = threading.Lock()
        self._due, self._room = threading.Condition(self._queue), threading.Condition(self._queue)
        self._ended = False  # no more files come
        self._broken: BaseException | None = None
        self._thread = Daemon(self._run, name="committer")

    def __enter__(self) -> Committer:
        self.target.enter()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if isinstance(exc[1], Cancelled):
            # Waiting files are dropped: a stop does not wait for the disk.
            self._broken = self._broken or exc[1]
        self._finish()
        self.target.leave()
        if self._broken is not None and exc[1] is None:
            raise self._broken

    def reserve(self, size: int) -> None:
        """Wait until `size` more bytes may be uncommitted. A file larger than the limit goes alone."""
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
        """Release reserved bytes."""
        with self._queue:
            self._reserved -= size
            self._room.notify_all()

    def commit(self, file: PendingFile) -> None:
        """Hand over a complete, closed file. Waits while too many files wait."""
        self.commit_all((file,))

    def commit_all(self, files: Sequence[PendingFile]) -> None:
        """Hand over several files, at hardly more cost than one."""
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
            # Not each time: waking a thread takes longer than renaming a file.
            if idle or self._is_batch():
                self._due.notify()

    def _has_room(self) -> bool:
        many = len(self._ready) >= _WAITING or self._ready_bytes >= _WAITING_BYTES
        return self._broken is not None or not many

    def _is_batch(self) -> bool:
        many = len(self._ready) >= _BATCH or self._ready_bytes >= _BATCH_BYTES
        return self._ended or self._pressed > 0 or many

    def flush(self) -> None:
        """Wait until all files handed over are committed."""
        self._finish()
        if self._broken is not None:
            raise self._broken
        self.target.sync_folders()
        self._ended = False
        self._thread = Daemon(self._run, name="committer")
        self._thread.start()

    def _finish(self) -> None:
        """Let the committer finish the waiting files, and wait for it."""
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
                    self._broken = error  # keep taking files, so that no thread waits for ever
            self.release(sum(file.reserved for file in batch))

    def _next_batch(self) -> list[PendingFile]:
        """Wait for the next batch; empty at the end."""
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
            make_durable([self.target.relative(file.temporary) for file in batch if not file.synced])
        except OSError as error:
            for file in batch:
                file.error = disk_error(error, file.final)
        self._announce([file for file in batch if file.error is None])
        parents: dict[str, list[PendingFile]] = {}
        self.target.check()  # again: during a long sync, another machine may take this job for dead
        with _OpenFolders(self.target) as folders:
            for file in batch:
                if file.error is not None:
                    continue
                parent = file.final.rpartition("/")[0] or "/"
                try:
                    file.stat = self._give_name(file, folders.at(parent))
                    parents.setdefault(parent, []).append(file)
                except (OSError, UnsafeMember) as error:
                    file.error = error if isinstance(error, NbdataError) else target_error(error, file.final)
            self._sync_names(parents, folders)
        self.target.sync_folders()
        self._report(batch)

    def _give_name(self, file: PendingFile, folder: int) -> os.stat_result:
        """Rename a file into its open folder; return its status. Raise AccessDenied if another file has its place."""
        name = file.final.rpartition("/")[2]
        at, temporary = self.target.relative(file.temporary)
        if file.shared:
            _refuse_other(file, os.lstat(temporary, dir_fd=at), temporary, at)
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=folder)
        # After the rename, because it changes the file's ctime last.
        found = os.lstat(name, dir_fd=folder)
        _refuse_other(file, found, name, folder)
        return found

    def _sync_names(self, parents: dict[str, list[PendingFile]], folders: _OpenFolders) -> None:
        """Make the new names durable: folder by folder, or with one sync of the disks if there are many."""
        if len(parents) > _MANY:
            moved = [file for files in parents.values() for file in files]
            try:
                # A file and its temporary are on the same disk.
                if sync_disks([self.target.relative(file.temporary) for file in moved]):
                    return
            except OSError as error:
                for file in moved:
                    file.error = disk_error(error, file.final)
                return
        for parent, files in parents.items():
            try:
                fsync(folders.at(parent))
            except UnsafeMember as error:
                for file in files:
                    file.error = error
            except OSError as error:
                for file in files:
                    file.error = disk_error(error, file.final)


class _OpenFolders:
    """Some folders of a target, open while a batch is committed. A context manager, which closes them."""

    def __init__(self, target: TargetFolder) -> None:
        self._target = target
        self._open: dict[str, int] = {}

    def __enter__(self) -> _OpenFolders:
        return self

    def __exit__(self, *exc: object) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def at(self, parent: str) -> int:
        """Return the descriptor of a folder, valid until the next call."""
        fd = self._open.get(parent)
        if fd is None:
            if len(self._open) == _MANY:  # a process may have only so many open files
                self.__exit__()
            fd = self._open[parent] = self._target.open_folder(parent)
        return fd


def _refuse_other(file: PendingFile, found: os.stat_result, name: str, folder: int | None) -> None:
    """Raise AccessDenied if what has a name in a folder, with this status, is not the written file."""
    if isinstance(file.written, str):
        same = stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=folder) == file.written
    else:
        same = same_file(found, file.written)
    if not same:
        raise exchanged(file.final)


def _weight(file: PendingFile) -> int:
    """Bytes that are not yet on disk."""
    return 0 if file.synced else file.size
