"""Run the cache of samples: keep objects that processes announce and acquire on the disk, within a limit.

One generator asks `CacheContents` for the next object and hands out the work; workers fetch the files. A file gets its
name only when it is complete and verified. The job ends some time after the last process has left. The files stay on
the disk, and the next job finds them again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from functools import partial

from nbdata.cache.cached_objects import Wanted
from nbdata.cache.contents import CacheContents
from nbdata.cache.kept_folder import KeptFolder, room_of_object
from nbdata.cache.known import KnownCache, known_cache, note_cache, note_in
from nbdata.disk import file_error, full_disk_told, internal_error
from nbdata.ending import Daemon
from nbdata.engine.cache.file_fetching import FileFetching
from nbdata.engine.cache.small_files import WantedFile
from nbdata.engine.job.run import Run
from nbdata.engine.job.shared_cache import OpenCache
from nbdata.errors import BadOption, Cancelled, NbdataError
from nbdata.redaction import redacted
from nbdata.report import Plan, Report
from nbdata.seals import Seals
from nbdata.sizes import counted, format_size
from nbdata.space.limits import disk_of
from nbdata.transfer.part_records import boot
from nbdata.transfer.sources import folder_part, known_as
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verbs.sample_cache import SampleCache
from nbdata.verification.same_bytes import same_bytes

__all__ = ["perform", "plan"]

#: Seconds from the last process leaving until the job ends: the workers of the next epoch usually come at once.
IDLE = 30.0
# Seconds to wait for new work, and between two displays of the content of the cache.
_WAIT, _SHOW_EVERY = 0.2, 0.5
# Seconds that a process may take to leave a cache, including the sync of committed files.
_LEAVING = 5.0
# Seconds between two syncs of committed files.
_SYNC_EVERY = 5.0
# Seconds between two checks whether the cache is paused and unused.
_LOOK = 1.0
# Seconds between two notes of its content.
_NOTE_EVERY = 2.0


def plan(run: Run) -> Plan:
    """Plan the room that the cache may still take; writes nothing."""
    op = run.operation
    assert isinstance(op, SampleCache)
    out = Plan("sample_cache", *op.places())
    out.needed = max(0, op.max_size - _there(_folder(run, op)))
    return out


def _folder(run: Run, op: SampleCache) -> KeptFolder:
    # Each --verify has its own folder: files kept under a weaker option were not verified enough for a stronger one.
    of, block = f"{known_as(run, op.source)}\n{op.verify}", disk_of(op.cache_dir)[2]
    return KeptFolder(op.cache_dir, of, block, boot(), Seals(run.context.state_dir))


def _there(folder: KeptFolder) -> int:
    """The disk usage in bytes of files that are in the cache already."""
    found = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(folder.path) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                found += entry.stat(follow_symlinks=False).st_blocks * 512
    return found


def perform(run: Run, planned: Plan) -> Report:
    """Run the cache until no process uses it."""
    op = run.operation
    assert isinstance(op, SampleCache)
    return _ObjectCache(run, op, planned.needed).run_all()


class _ObjectCache:
    """Runs one cache while it is in use."""

    def __init__(self, run: Run, op: SampleCache, reserved: int) -> None:
        assert run.cache is not None
        self.run, self.op, self.cache, self.reserved = run, op, run.cache, reserved
        self.block = disk_of(op.cache_dir)[2]
        self.folder = _folder(run, op)
        if op.max_size <= self.folder.overhead:
            raise BadOption(
                f"cache: {format_size(op.max_size)} is too little",
                expected=f"more than {format_size(self.folder.overhead)}, which its own records take",
            )
        self.contents = CacheContents(op.max_size - self.folder.overhead, self._remove)
        self.workers = WorkerPool(run.control, op.concurrency)
        self.store = run.open(folder_part(op.source)).store
        self.files = FileFetching(run.control, self.workers, self.store, op.verify, self._fatal)
        self.lock = threading.Lock()
        self.bytes = 0
        self.shown = self.synced = self.noted = 0.0
        self.about: KnownCache | None = None

    def run_all(self) -> Report:
        self._wait_for_who_leaves()
        with self.folder:
            try:
                self._find()
                self._note(durable=True)
                note_cache(self.run.context.state_dir, self.folder.path)
                self.cache.opened(
                    OpenCache(self.contents, self.folder.path, self.folder.identity, self.block)
                )
                self._reserve_rest()
                with self._watched():
                    self.workers.run(self._units())
            except BaseException as error:
                self.contents.close(internal_error(error))
                raise
            finally:
                self.files.close()
        source, target = self.op.places()
        return Report(
            verb="sample_cache",
            source=source,
            target=target,
            state="DONE",
            counts={"fetched": self.contents.fetched},
            details={"read": self.cache.read, "fetched": self.cache.fetched},
            files=self.contents.fetched,
            bytes=self.bytes,
        )

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Watch in a thread for a cache that is paused and unused; its users would wait for it to resume."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK) and not self.cache.end_if_left_paused(IDLE):
                pass

        Daemon(watch, name="paused-cache").start()
        try:
            yield
        finally:
            over.set()

    def _wait_for_who_leaves(self) -> None:
        """Wait until the folder is released: by a cleanup, or by the job of another limit that no process uses now.

        Raises
        ------
        BadOption
            If processes still use the cache of the other job.
        """
        began = unused = time.monotonic()
        while self.folder.in_use:
            now, cache = time.monotonic(), self._of_another_job()
            if not cache.consumers:
                unused = now
            if now - unused > _LEAVING:
                raise BadOption(
                    "this cache is in use with other options",
                    path=self.op.cache_dir,
                    got=f"{counted(cache.consumers, 'processes')} with cache={format_size(cache.limit)}",
                    remedy="Give all the same cache= and concurrency=, and they share it; or another cache_dir=",
                )
            if now - began > IDLE + _LEAVING:
                return
            self.run.control.phase("waits for processes that leave the cache")
            self.run.control.sleep(_WAIT)

    def _of_another_job(self) -> KnownCache:
        try:
            return known_cache(self.folder.path)
        except OSError:  # it is being removed, or belongs to another user
            return KnownCache(self.folder.path)

    def _find(self) -> None:
        """Take over existing files; delete those that no longer fit."""
        too_many = list[str]()
        for name, size, proven in self.folder.found():
            wanted = Wanted(name, room_of_object(size, self.block), None)
            if self.contents.used + wanted.room <= self.contents.capacity:
                self.contents.there(wanted, proven=proven)
            else:
                too_many.append(name)
        for name in too_many:
            self.folder.remove(name)

    def _reserve_rest(self) -> None:
        """Reserve the room of files that the plan counted, and that were not valid any more or are gone since."""
        more = self.contents.capacity - self.contents.used - self.reserved
        if more > 0 and self.run.reservation is not None:
            self.run.reservation.grow(more, fresh=True)

    @contextlib.contextmanager
    def _fatal(self) -> Iterator[None]:
        """End the job on an error inside, so no process waits for an object that will never come."""
        try:
            with full_disk_told(self.folder.path):
                yield
        except Cancelled:
            raise
        except Exception as error:
            known_error = internal_error(error)
            self.contents.close(known_error)
            self.run.control.fail(known_error)
            raise

    def _units(self) -> Iterator[Unit]:
        with self._fatal():
            while True:
                wanted = self.contents.next(0)
                if wanted is None:
                    yield from self.files.flush()  # a process may wait for these
                    self._look_after()
                    wanted = self.contents.next(_WAIT)
                self._show()
                if wanted is not None and self.folder.is_unproven(wanted.name):
                    yield partial(self._prove, wanted)
                elif wanted is not None:
                    yield from self.files.fetch(self._wanted_file(wanted))
                elif self.workers.broken or self.cache.end_if_idle(IDLE):
                    return

    def _look_after(self) -> None:
        """Do periodic tasks while there is nothing to fetch."""
        self.run.control.checkpoint()
        now = time.monotonic()
        if now - self.synced > _SYNC_EVERY:
            self.synced = now
            self.folder.sync()

    def _wanted_file(self, wanted: Wanted) -> WantedFile:
        name, folder = wanted.name, self.folder
        return WantedFile(
            wanted.of, folder.fd, folder.part_name(name), folder.part_of(name), partial(self._file, wanted)
        )

    def _prove(self, wanted: Wanted) -> None:
        """Compare a file that anybody may have put there with the store's checksum, and fetch it if that is not it."""
        with self._fatal():
            if self._is_proven(wanted):
                self.folder.adopt(wanted.name)
                self.contents.committed(wanted.name, fetched=False)
            else:
                self.folder.refuse(wanted.name)
                self.files.fetch_alone(self._wanted_file(wanted))

    def _is_proven(self, wanted: Wanted) -> bool:
        path = self.folder.file_of(wanted.name)
        try:
            fd = self.folder.open(wanted.name)
        except OSError:
            return False
        try:
            return same_bytes(self.run.control, self.store, wanted.of, fd, path, forged=True)
        except Cancelled:
            raise
        except NbdataError:  # fetching it tells what is wrong
            return False
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _file(self, wanted: Wanted) -> Iterator[None]:
        """Fetch one object, in any thread: commit it, or report the error to the processes that wait for it."""
        try:
            yield
            self.folder.land(wanted.name)
        except (NbdataError, OSError) as refused:
            error = file_error(refused, wanted.of.key)
            self.run.control.checkpoint()  # an error caused by a stop is no failure
            self.folder.drop(wanted.name)
            if error.path is None:
                error.path = wanted.of.key
            self.contents.failed(wanted.name, error)
            return
        self.run.control.advance(files=1)
        with self.lock:
            self.bytes += wanted.of.size
        if self.run.reservation is not None:
            self.run.reservation.note_written(wanted.room, 1)
        self.contents.committed(wanted.name)

    def _remove(self, name: str) -> None:
        size = self.folder.remove(name)
        if self.run.reservation is not None:
            self.run.reservation.note_written(-room_of_object(size, self.block), -1)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self.shown > _SHOW_EVERY:
            self.shown = now
            used, capacity = format_size(self.contents.used), format_size(self.contents.capacity)
            rate = self.cache.hit_rate
            hits = "" if rate is None else f", {rate:.0%} hits"
            self.run.control.phase(f"{used} of {capacity} in the cache{hits}, used by {self.cache.consumers}")
        if now - self.noted > _NOTE_EVERY:
            self._note(durable=False)

    def _note(self, *, durable: bool) -> None:
        """Note the content of the cache on disk, if it has changed."""
        self.noted, contents = time.monotonic(), self.contents
        about = KnownCache(
            self.folder.path,
            redacted(self.op.source),
            self.op.verify,
            self.op.max_size,
            contents.used + self.folder.overhead,
            self.folder.files,
            self.cache.read,
            self.cache.fetched,
            self.cache.consumers,
        )
        if about != self.about:
            self.about = about
            try:
                note_in(self.folder, about, durable=durable)
            except NbdataError:  # it is only for display; writing an object shows disk errors
                self.about = None
