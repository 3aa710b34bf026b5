"""Reads samples by number: one thread keeps many requests in flight, also for samples that are needed later.

`Fetcher.fetch` is called with the samples of a batch and the batches that follow. A thread requests the batch first,
then as many of the following samples as `ahead_bytes` allows. So the connections stay full between two batches. Small
objects, and ranges of large ones, go through a session of the store (`Store.reading`). A few more threads handle second
tries and further questions to the store.
"""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nbdata.ending import at_end
from nbdata.errors import Cancelled, ChecksumMismatch, NbdataError, without_calls
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.pieces import Content, Piece, SecondTry, refuse_beyond, too_large
from nbdata.reading.timeline import Timeline
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.stores.sessions import Answer, Read
from nbdata.threads import begin
from nbdata.transfer.control import Control
from nbdata.transfer.part_records import validator
from nbdata.verification.checker import right

__all__ = ["AHEAD_BYTES", "LEAST_WIDTH", "WIDTH", "Fetcher"]

#: Requests at a time by default: enough for a store that is 20 ms away.
WIDTH = 64
#: The least for each worker, however many share the connections of one loader.
LEAST_WIDTH = 8
#: Bytes of samples to fetch ahead, by default.
AHEAD_BYTES = 256 << 20
# Bytes per range of a large object, and the size from which an object is read in ranges.
_RANGE, _LARGE = 8 << 20, 16 << 20
# Most bytes of a range that is received in the memory of its connection; larger ones get their own memory.
_OWN = 1 << 20
# Bytes of a session's requests in flight, beyond those that samples hold: 1.6 GB/s from a store that is 20 ms away.
# With eight times as much, samples of 4 MB took a third more time, because bytes leave the processor's cache.
_SESSION_BYTES = 32 << 20
# Threads for second tries.
_TRIES_AGAIN = 8
# Seconds without work after which the thread ends; the next fetch starts another.
_IDLE = 10.0


class _Object:
    """A piece in flight."""

    __slots__ = ("data", "left", "number", "piece", "sample")

    def __init__(self, sample: _Sample, number: int, piece: Piece) -> None:
        self.sample, self.number, self.piece = sample, number, piece
        self.data: bytearray | io.BytesIO | None = None  # its own memory, if it has some
        self.left = 1  # requests still in flight

    def memory(self) -> memoryview:
        """Take memory for the piece; called when its first bytes have come, since its size may be a lie."""
        self.data = bytearray(self.piece.size)
        return memoryview(self.data)


@dataclass(slots=True, eq=False)
class _Sample:
    """A sample in flight, or complete and not handed out yet."""

    number: int
    size: int = 0
    begun: bool = False
    left: int = 0  # missing objects
    ahead: bool = False  # counts towards the bytes that may be fetched ahead
    fields: list[Content] = field(default_factory=list)
    error: NbdataError | None = None
    batches: list[_Batch] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Batch:
    """One call of `fetch`, with the number of its missing samples."""

    left: int


class Fetcher:
    """Reads the samples of one index; many threads of one process may use it.

    Parameters
    ----------
    store : Store
    control : Control
        Stops all work in progress.
    pieces : callable
        Returns the pieces of a sample by its number.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    width : int
        Most requests at a time.
    ahead_bytes : int
        Most bytes of samples fetched ahead, including those in flight. A single sample may exceed it.

    Attributes
    ----------
    counts : Counts
    timeline : Timeline
        The times at which `fetch` waited.
    """

    def __init__(
        self,
        store: Store,
        control: Control,
        pieces: Callable[[int], Sequence[Piece]],
        *,
        verify: str,
        width: int,
        ahead_bytes: int,
    ) -> None:
        self._store, self._control, self._pieces_of = store, control, pieces
        self._verify, self._width, self._ahead_bytes = verify, width, ahead_bytes
        self._on_disk = isinstance(store, LocalStore)
        self._second_try = SecondTry(control, store, verify)
        self._changed = threading.Condition()
        self._samples: dict[int, _Sample] = {}  # in flight, or complete
        self._demanded: deque[_Sample] = deque()  # not started yet
        self._coming: Iterator[int] = iter(())  # numbers of the samples to fetch ahead
        self._ahead_used = 0
        self._running = self._closed = False
        self._session_wake: Callable[[], None] | None = None
        self._second = deque[Callable[[], None]]()  # second tries; at most as many as objects in flight
        self._trying = 0  # threads that make them
        self._began: float | None = None
        self.timeline = Timeline()
        self.counts = Counts()
        at_end(self, Fetcher.close)

    # -- called from any thread -------------------------------------------------------------------

    def fetch(
        self, numbers: Sequence[int], ahead: Iterable[int] = (), *, keep: int = 0
    ) -> list[list[Content]]:
        """Return the pieces of each sample, in the order requested; bytearrays belong to the caller.

        Parameters
        ----------
        ahead : iterable of int
            Numbers of the samples of the next calls, soonest first. Samples fetched ahead that are not among them
            are dropped.
        keep : int
            How many of the last samples to keep for the next call.

        Raises
        ------
        NbdataError
            The error of the first sample that failed. The others can be requested again.
        """
        began = time.monotonic()
        coming = list(ahead)
        with self._changed:
            if self._closed:
                raise Cancelled("these samples were closed")
            batch = _Batch(0)
            wanted = {number: self._demand(number, batch) for number in dict.fromkeys(numbers)}
            kept = {*coming, *(numbers[-keep:] if keep else ())}
            self._expect(coming, kept)
            self._wake()
            try:
                self._changed.wait_for(lambda: not batch.left or self._closed)
            finally:
                for sample in wanted.values():
                    sample.batches.remove(batch)
                    if not sample.batches:
                        self._leave(sample, kept)
            if batch.left:
                raise Cancelled("these samples were closed")
            self._count(wanted.values(), len(numbers), began)
        error = next((one.error for one in wanted.values() if one.error is not None), None)
        if error is not None:
            # The error's traceback keeps this call's variables alive for as long as the error lives.
            wanted.clear()
            del sample
            raise error
        return [wanted[number].fields for number in numbers]

    def _demand(self, number: int, batch: _Batch) -> _Sample:
        sample = self._samples.get(number)
        if sample is None:
            sample = self._samples[number] = _Sample(number)
            self._demanded.append(sample)
        self._not_ahead(sample)
        sample.batches.append(batch)
        if not sample.begun or sample.left:
            batch.left += 1
        return sample

    def _leave(self, sample: _Sample, kept: set[int]) -> None:
        """Keep a sample that no call waits for any more for the next call, or forget it."""
        if sample.number in kept and sample.begun and not sample.left and sample.error is None:
            sample.ahead = True
            self._ahead_used += sample.size
        else:
            self._forget(sample)

    def _expect(self, coming: list[int], kept: set[int]) -> None:
        """Note which samples come next, and drop samples that were fetched for nothing."""
        # A copy, for the garbage collector may call this in the middle of it, when it ends a forgotten pass.
        for sample in list(self._samples.values()):
            if sample.ahead and sample.number not in kept:
                self._forget(sample)
        self._coming = (number for number in coming if number not in self._samples)

    def _not_ahead(self, sample: _Sample) -> None:
        if sample.ahead:
            sample.ahead = False
            self._ahead_used -= sample.size

    def _forget(self, sample: _Sample) -> None:
        """Drop a sample; its data in flight is dropped on arrival."""
        self._not_ahead(sample)
        if self._samples.get(sample.number) is sample:
            del self._samples[sample.number]

    def _count(self, samples: Iterable[_Sample], asked: int, began: float) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = began
        self.counts.samples += asked
        self.counts.waited += now - began
        self.counts.seconds = now - self._began
        self.timeline.add(began - self._began, now - self._began)
        self.counts.bytes += sum(len(data) for sample in samples for data in sample.fields)

    def _wake(self) -> None:
        if self._running:
            if self._session_wake is not None:
                self._session_wake()
            self._changed.notify_all()
            return
        self._running = True
        if not begin(self._run, name="samples"):
            self._running = False
            raise _no_thread()

    def note_epoch(self, epoch: Epoch) -> None:
        """Do nothing: see `PieceReader.note_epoch`."""

    def drop_ahead(self) -> None:
        """Drop all samples that no call has requested."""
        with self._changed:
            self._expect([], set())

    def close(self) -> None:
        """Start nothing more; calls that wait in `fetch` raise. Requests in flight end with the control."""
        with self._changed:
            self._closed = True
            self._samples.clear()
            self._demanded.clear()
            self._second.clear()
            self._changed.notify_all()
            if self._session_wake is not None:
                self._session_wake()

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._has_work():
                with self._store.reading(lambda: self._width, _SESSION_BYTES) as session:
                    self._session_wake = session.wake
                    while self._fill(session.free, session.submit):
                        for answer in session.results():
                            if answer is not None:
                                self._take(answer)
                            self._fill(session.free, session.submit)
                    self._session_wake = None
                self._control.checkpoint()
        except BaseException as error:
            known_error = (
                error if isinstance(error, NbdataError) else NbdataError(f"internal error: {error!r}")
            )
            with self._changed:
                self._running, self._session_wake = False, None
                for sample in list(self._samples.values()):
                    self._fail(sample, known_error)
                self._demanded.clear()

    def _has_work(self) -> bool:
        """Wait for work; False ends the thread."""
        with self._changed:
            if (
                not self._changed.wait_for(lambda: self._closed or self._next_is_there(), _IDLE)
                or self._closed
            ):
                self._running = False
                return False
            return True

    def _next_is_there(self) -> bool:
        if self._demanded:
            return True
        first = next(self._coming, None) if self._may_go_ahead() else None
        if first is None:
            return False
        self._coming = itertools.chain([first], self._coming)
        return True

    def _may_go_ahead(self) -> bool:
        return self._ahead_used < self._ahead_bytes

    def _fill(self, free: int, submit: Callable[[Read[_Object]], None]) -> bool:
        """Submit as many requests as there is room for; return True if there were any."""
        some = False
        while free > 0:
            with self._changed:
                sample = self._next()
            if sample is None:
                break
            for request in self._requests(sample):
                submit(request)
                free -= 1
                some = True
        return some

    def _next(self) -> _Sample | None:
        while self._demanded:
            sample = self._demanded.popleft()
            if sample.batches:
                return sample
        while self._may_go_ahead():
            number = next(self._coming, None)
            if number is None:
                return None
            if number not in self._samples:
                sample = self._samples[number] = _Sample(number, ahead=True)
                return sample
        return None

    def _requests(self, sample: _Sample) -> list[Read[_Object]]:
        """Start a sample, and return its requests."""
        try:
            pieces = self._pieces_of(sample.number)
            refuse_beyond(pieces)
        except NbdataError as error:
            with self._changed:
                self._fail(sample, error)
            return []
        try:
            return self._begin(sample, pieces)
        except (MemoryError, OverflowError, OSError):
            largest = max(pieces, key=lambda piece: piece.size)
            with self._changed:
                self._fail(sample, too_large(largest))
            return []

    def _begin(self, sample: _Sample, pieces: Sequence[Piece]) -> list[Read[_Object]]:
        requests: list[Read[_Object]] = []
        with self._changed:
            sample.begun, sample.left = True, len(pieces)
            sample.fields = [b""] * len(pieces)
            sample.size = sum(max(0, piece.size) for piece in pieces)
            if sample.ahead:
                self._ahead_used += sample.size
            if not pieces:
                self._tell(sample)
        for number, piece in enumerate(pieces):
            item = _Object(sample, number, piece)
            in_ranges = piece.end is not None or (self._store.ranges and bool(validator(piece.info)))
            if piece.size < 0 or (piece.size > _LARGE and not in_ranges):
                self._try_again(item, None)  # in one stream
            elif piece.size > _LARGE or (piece.end is not None and piece.size > _OWN):
                requests += self._ranges(item)
            else:
                requests.append(Read(item, piece.info, piece.start, piece.end))
        return requests

    def _ranges(self, item: _Object) -> list[Read[_Object]]:
        piece = item.piece
        if piece.size <= _RANGE:
            return [Read(item, piece.info, piece.start, piece.end, item.memory)]
        # The system gives such zeros page by page, when bytes are written over them.
        item.data = io.BytesIO(bytes(piece.size))
        view, first, behind = item.data.getbuffer(), piece.start, piece.start + piece.size
        cuts = [*range(first, behind, _RANGE), behind]
        item.left = len(cuts) - 1
        parts = [(begin, end, view[begin - first : end - first]) for begin, end in itertools.pairwise(cuts)]
        return [Read(item, piece.info, begin, end, lambda part=part: part) for begin, end, part in parts]  # type: ignore[misc]

    def _take(self, answer: Answer[Read[_Object]]) -> None:
        request = answer.request
        item: _Object = request.of
        if item.left == 0:  # another range of the object has failed
            return
        if answer.error is not None:
            item.left = 0
            self._try_again(item, answer.error)
            return
        item.left -= 1
        if item.left:
            return
        data: Content
        if item.data is None:
            data = bytes(answer.data)
        else:
            data = item.data if isinstance(item.data, bytearray) else item.data.getvalue()  # copies nothing
        self._compare(item, answer.told or item.piece.info, data)

    def _compare(self, item: _Object, answered: ObjectInfo, data: Content) -> None:
        """Hand over the bytes of a piece; those of a whole object only if they pass the check."""
        if item.piece.end is not None:
            self._done(item, data, proven=True)
            return
        try:
            proven = right(answered, self._verify, memoryview(data))
        except ChecksumMismatch as error:
            self._try_again(item, error)
            return
        if proven is None:
            self._later(item, lambda: self._second_try.compare(item.piece, data))
        else:
            self._done(item, data, proven=proven)

    def _done(self, item: _Object, data: Content, *, proven: bool) -> None:
        sample = item.sample
        with self._changed:
            if sample.error is not None:
                return
            sample.fields[item.number] = data
            if not proven and self._verify != "none" and not self._on_disk:
                self.counts.unverified += 1
            if sample.left <= 0:
                return
            sample.left -= 1
            if not sample.left:
                self._tell(sample)

    def _tell(self, sample: _Sample) -> None:
        for batch in sample.batches:
            batch.left -= 1
            if not batch.left:
                self._changed.notify_all()

    def _fail(self, sample: _Sample, error: NbdataError) -> None:
        """Fail only the sample of the failed object. The next call that needs it tries again."""
        if sample.begun and not sample.left:
            return
        # Keep neither its bytes nor the error's call frames, which hold them.
        sample.begun, sample.left, sample.fields = True, 0, []
        without_calls(error)
        sample.error = error
        if sample.ahead:  # no call has requested it yet
            self._forget(sample)
        self._tell(sample)

    # -- second tries -----------------------------------------------------------------------------

    def _try_again(self, item: _Object, error: NbdataError | None) -> None:
        self._later(item, lambda: self._second_try.read(item.piece, error))

    def _later(self, item: _Object, work: Callable[[], tuple[Content, bool]]) -> None:
        def run() -> None:
            try:
                data, proven = work()
            except Exception as error:
                known_error = (
                    error if isinstance(error, NbdataError) else NbdataError(f"internal error: {error!r}")
                )
                with self._changed:
                    self._fail(item.sample, known_error)
            else:
                self._done(item, data, proven=proven)

        with self._changed:
            if self._closed:
                return
            self._second.append(run)
            if self._trying < _TRIES_AGAIN and begin(self._try_second, name="samples-again"):
                self._trying += 1
            elif not self._trying:
                self._second.clear()
                self._fail(item.sample, _no_thread())

    def _try_second(self) -> None:
        while True:
            with self._changed:
                if not self._second:
                    self._trying -= 1
                    return
                run = self._second.popleft()
            run()


def _no_thread() -> NbdataError:
    return NbdataError("the system gives no more threads", remedy="End some, or raise the limit (ulimit -u)")
