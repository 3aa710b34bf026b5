"""Perform one cache_stream: pass items in order through a folder of bounded size, fetching several ahead.

One generator takes room for each item and hands out the work; workers fetch the files. The thread that finishes the
last file of an item hands out complete items, in order. An item that the consumer has acknowledged is deleted, or kept
for the next epoch. Its room lets the generator continue.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from nbdata.cache.folder import CacheFolder
from nbdata.cache.order import NEVER, Turn, turns
from nbdata.cache.room import CacheRoom, Slot
from nbdata.disk import file_error, full_disk_told, internal_error
from nbdata.engine.cache.file_fetching import FileFetching
from nbdata.engine.cache.items import Group, ItemFile
from nbdata.engine.cache.small_files import WantedFile
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.job.shortage import numbered
from nbdata.errors import BadOption, Cancelled, NbdataError, NotEnoughSpace
from nbdata.protocols import Item
from nbdata.report import WAITS_FOR_LOOP, Plan, Report
from nbdata.seals import Seals
from nbdata.sizes import format_size
from nbdata.space.limits import disk_of
from nbdata.transfer.selection import Entry
from nbdata.transfer.sources import folder_part
from nbdata.transfer.worker_pool import WorkerPool
from nbdata.verbs.cache_stream import CacheStream

__all__ = ["ItemCache"]

# Most items that are handed out or wait for it; limits memory if everything is in the cache.
_AHEAD = 4096
# Seconds between two displays of the content of the cache.
_SHOW_EVERY = 0.5
# The remedy for an item that no folder can hold.
_REFUSED = "Leave it out with --exclude, or all such with --on-error report"


@dataclass
class _Delivery:
    """One turn of an item for the consumer."""

    turn: Turn
    key: str
    size: int
    filling: _Filling
    began: float


class _Filling:
    """A slot whose files are being fetched."""

    def __init__(self, slot: Slot, files: int) -> None:
        self.slot = slot
        self.files = self.left = files
        self.ready = self.failed = False


class ItemCache:
    """Passes the items of one cache_stream through its cache."""

    def __init__(self, run: Run, planned: Plan, op: CacheStream) -> None:
        assert run.leases is not None
        self.run, self.op, self.leases = run, op, run.leases
        self.results = Results(run)
        self.results.notes.extend(planned.notes)
        self.block = disk_of(op.cache_dir)[2]
        self.items = ItemFile(run.folder, self.block)
        self.store = run.open(folder_part(op.source)).store
        self.folder = CacheFolder(op.cache_dir, self.block, Seals(run.context.state_dir))
        self.needed = planned.needed
        capacity = self.needed - self.folder.overhead
        # Items fetched ahead must not evict kept ones, nor must one item wait for another.
        ahead = max(3 * planned.details["largest"], capacity // 4) if op.keep == "lru" else None
        self.room = CacheRoom(capacity, self._delete, ahead=ahead)
        self.lock = threading.Lock()
        self.slots: dict[int, _Filling] = {}  # by the slot's number
        self.queue: deque[_Delivery] = deque()  # in order; the first may be incomplete
        self.offered: dict[int, _Delivery] = {}
        self.ahead = threading.Semaphore(_AHEAD)
        self.workers = WorkerPool(run.control, op.concurrency)
        self.files = FileFetching(run.control, self.workers, self.store, op.verify, self._fatal)
        self.numbered = self.handed = self.hits = 0
        self.shown, self.idle = 0.0, False

    def run_all(self) -> Report:
        self.items.open()
        try:
            with self.folder:
                self.leases.opened(self._done, bound=2 * _AHEAD)
                try:
                    self.workers.run(self._fatal_units())
                    self.shown = 0.0
                    self._show()
                    self.leases.close()
                except Exception:
                    if self.leases.error is not None:  # the consumer must see that error, not a missing file
                        self.leases.drain()
                    raise
        finally:
            self.items.close()
            self.files.close()
        counts = {"items": self.handed}
        if self.op.keep == "lru":
            counts["from the cache"] = self.hits
        self.results.counts = {**counts, **self.results.counts}
        return self.results.report()

    @contextlib.contextmanager
    def _fatal(self) -> Iterator[None]:
        """End the stream on an error inside, so no process waits for space or an item that will never come."""
        try:
            with full_disk_told(self.folder.path):
                yield
        except Cancelled:
            raise
        except Exception as error:
            if self.leases.error is not None:  # the first error is reported already
                raise
            known_error = internal_error(error)
            if isinstance(known_error, NotEnoughSpace):
                numbered(known_error, self.run, self.op.cache_dir, self.needed)
            self.leases.end(known_error)
            self.run.control.fail(known_error)
            raise

    def _fatal_units(self) -> Iterator[Callable[[], None]]:
        with self._fatal():
            for unit in self._units():
                yield self._fatal()(unit)

    # -- in order: one thread at a time ---------------------------------------------------------

    def _units(self) -> Iterator[Callable[[], None]]:
        op, control = self.op, self.run.control
        for turn in turns(
            len(self.items),
            epochs=op.epochs,
            first=op.first_epoch,
            shuffle=op.shuffle,
            seed=op.seed,
            part=op.share(),
        ):
            group = self.items.read(turn.item)
            if (refused := group.refused()) is not None:
                path, why = refused
                error = BadOption(f"it cannot be streamed: {why}", path=path, remedy=_REFUSED)
                self._failed(path, error, Outcome.UNREPRESENTABLE)
                continue
            if not self.ahead.acquire(blocking=False):
                yield from self.files.flush()
                while not self.ahead.acquire(timeout=0.1):
                    self._pause()
            room = group.room(self.block)
            taken = self.room.take(turn.item, room, turn.position)
            if taken is None:
                yield from self.files.flush()
                taken = self.room.take(turn.item, room, turn.position, self._pause)
            assert taken is not None
            slot, new = taken
            with self.lock:
                filling = self.slots.setdefault(slot.number, _Filling(slot, len(group.entries)))
                self.queue.append(_Delivery(turn, group.key, group.size, filling, time.monotonic()))
            self._show()
            if new:
                yield from self._fill(filling, group)
            else:
                self.hits += 1
                control.advance(bytes=group.size)
                self._hand_out()
        yield from self.files.flush()

    def _pause(self) -> None:
        """Check for a stop while waiting for room: after a fatal error, no room is given back."""
        self.run.control.checkpoint()
        if self.workers.broken:
            raise Cancelled("the stream has ended")
        self._show()

    def _fill(self, filling: _Filling, group: Group) -> Iterator[Callable[[], None]]:
        number, cache = filling.slot.number, self.folder
        cache.make_slot(number, {os.path.dirname(entry.path) for entry in group.entries} - {""})
        for entry in group.entries:
            name = f"{number}/{entry.path}"
            wanted = WantedFile(
                entry.info, cache.fd, name, f"{cache.path}/{name}", partial(self._file, filling, entry)
            )
            yield from self.files.fetch(wanted)

    # -- from many threads ----------------------------------------------------------------------

    @contextlib.contextmanager
    def _file(self, filling: _Filling, entry: Entry) -> Iterator[None]:
        """Fetch one file; its error ends the stream or leaves the item out."""
        failed = True
        try:
            yield
            failed = False
        except (NbdataError, OSError) as error:
            self._failed(entry.path, error)
        self._one_less(filling, failed=failed)

    def _failed(self, path: str, error: Exception, outcome: Outcome = Outcome.FAILED) -> None:
        self.run.control.checkpoint()  # an error caused by a stop is no failure
        error = file_error(error, path)
        if error.path is None:
            error.path = path
        if self.op.on_error != "report":
            raise error
        self.results.fail(path, error, outcome=outcome)

    def _one_less(self, filling: _Filling, *, failed: bool) -> None:
        if not failed:
            self.results.answered()
        with self.lock:
            filling.left -= 1
            filling.failed |= failed
            if filling.left:
                return
            filling.ready = True
        if self.run.reservation is not None:
            self.run.reservation.note_written(filling.slot.room, filling.files)
        self._hand_out()

    def _hand_out(self) -> None:
        """Offer complete items, in order; leave out items that failed."""
        left_out = []
        with self.lock:
            while self.queue and self.queue[0].filling.ready:
                delivery = self.queue.popleft()
                if delivery.filling.failed:
                    left_out.append(delivery)
                    continue
                path = f"{self.folder.slot(delivery.filling.slot.number)}/{delivery.key}"
                item = Item(
                    self.numbered, path, delivery.key, delivery.size, delivery.turn.epoch, delivery.began
                )
                self.numbered += 1
                self.offered[item.number] = delivery
                self.leases.offer(item)
        for delivery in left_out:
            self._give_back(delivery, NEVER)

    def _done(self, item: Item) -> None:
        """Release an item that the consumer is done with."""
        with self.lock:
            delivery = self.offered.pop(item.number)
            self.handed += 1
        self.run.control.advance(files=1)
        self._give_back(delivery, delivery.turn.next_use if self.op.keep == "lru" else NEVER)

    def _give_back(self, delivery: _Delivery, next_use: int) -> None:
        self.room.release(delivery.filling.slot, next_use)
        self.ahead.release()
        self._show()

    def _delete(self, slot: Slot) -> None:
        self.folder.remove(slot.number)
        with self.lock:
            filling = self.slots.pop(slot.number)
        if self.run.reservation is not None and filling.ready:
            self.run.reservation.note_written(-slot.room, -filling.files)

    def _show(self) -> None:
        """Show what is in the cache, or that the consumer has not taken it; at once when that is over."""
        now = time.monotonic()
        if now - self.shown <= _SHOW_EVERY and not self.idle:
            return
        with self.lock:
            self.idle = bool(self.offered) and not self.queue  # nothing is being fetched
        self.shown = now
        used, capacity = format_size(self.room.used), format_size(self.room.capacity)
        self.run.control.phase(WAITS_FOR_LOOP if self.idle else f"{used} of {capacity} in the cache")
