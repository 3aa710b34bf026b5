"""A pool of threads that pull units of work from one iterator, and finds its best number of threads.

Threads with blocking calls were measured to be faster and leaner here than asyncio. Pulling units, instead of queueing
them, bounds memory: there are never more units than threads.

The best number of threads depends on the distance to the store: two are enough on loopback, a hundred are too few for
small objects far away. Unless the user sets it, the pool starts small, doubles while that makes it faster, and halves
when the store pushes back (429, 503, silence). Congestion control in TCP does the same; adding one thread at a time
would be too slow for jobs of seconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from nbdata.transfer.control import Control

__all__ = ["FIRST", "MOST", "Unit", "WorkerPool", "run_units"]

#: Requests at a time at the start and at most, unless the user sets their number.
FIRST, MOST = 16, 64
_FEWEST = 2
# Bytes from which an object is large.
_LARGE = 16 << 20
# Seconds between two measurements of the speed. Each new request for a large object puts megabytes into the buffers of
# its connection at once, which looks like speed: there, the first measurement after a change does not count.
_LOOK, _LOOK_LARGE = 0.25, 0.5
# Seconds until the best number so far is tried again, and until growth after the store pushed back.
_SETTLED, _PUSHED_BACK = 10.0, 5.0
# The speed-up from which more threads are worth it.
_WORTH_IT = 1.25
# With a rate limit: bytes a second per thread, since fewer parts at a time lose less when they are interrupted; and the
# share of the limit that counts as all of it.
_FED, _ENOUGH = 4 << 20, 0.8
# Bytes that a unit counts beside those it moves: the time of small ones is spent elsewhere.
_UNIT = 64 << 10

Unit = Callable[[], None]


def run_units(control: Control, units: Iterable[Unit], *, workers: int | None = None) -> None:
    """Run all units; see `WorkerPool`."""
    WorkerPool(control, workers).run(units)


class WorkerPool:
    """Threads that run units of work; their number may change meanwhile.

    Parameters
    ----------
    workers : int, optional
        Number of threads; None adapts it between a few and `MOST`.
    typical : int
        Bytes of a typical object; see `_LOOK_LARGE`.
    sends : bool
        True for uploads: stores write large objects faster when fewer requests compete, so it starts with fewer.

    Attributes
    ----------
    wanted : int
        The number of threads to have, and so of requests under way.
    fixed : bool
        True if the user set that number.
    done : int
        Units that are done, and what units add themselves.
    """

    def __init__(
        self, control: Control, workers: int | None = None, *, typical: int = 0, sends: bool = False
    ) -> None:
        self._control, self.fixed = control, workers is not None
        self._source: Iterator[Unit] = iter(())
        self._submitted = deque[Iterator[Unit]]()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None  # the first one; what the others raise follows from it
        # Whether a thread is asking for the next unit, which may take its time; and whether none is left.
        self._asking = self._exhausted = False
        self._working = 0
        rate = control.rate
        self._large = typical >= _LARGE
        first = FIRST // 2 if sends and self._large else FIRST
        self.wanted = workers or (first if rate is None else max(1, min(first, rate // _FED)))
        self.done = 0
        self.over = threading.Event()

    def run(self, units: Iterable[Unit]) -> None:
        """Run all units, and return when all are done.

        A unit handles the failures it expects. Any other error ends the run: no further unit starts, and the first
        error is raised here once all threads have stopped.
        """
        self._source = iter(units)
        try:
            self.hire(self.wanted)
            if not self.fixed:
                _Pace(self, self._control, large=self._large).keep()
        except BaseException as error:
            self.end(error)
        self.join()

    @property
    def broken(self) -> bool:
        """True after an error: no further unit starts."""
        return self._error is not None

    def submit(self, units: Iterable[Unit]) -> None:
        """Run these units before all others; for units that discover more work.

        Their iterator must not block: only the iterator given to `run` may wait, also for these.
        """
        with self._changed:
            self._submitted.append(iter(units))
            # No more than are needed: small objects submit one at a time, and all would wake for each.
            self._changed.notify(len(units) if isinstance(units, list) else len(self._threads))
            if self._working < self._places():
                self.hire(self.wanted)

    def hire(self, wanted: int) -> None:
        """Have that many threads: more begin now, and fewer go on as they end what they do."""
        with self._changed:
            self.wanted = wanted
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._changed.notify_all()
            while self._working < self._places() and self._more() and self._error is None:
                thread = threading.Thread(target=self._work, name="mover", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system gives no more threads: those that there are do it
                    if not self._working:
                        raise
                    self.wanted = self._working
                    return
                self._threads.append(thread)
                self._working += 1

    def end(self, error: BaseException) -> None:
        """Let nobody begin another unit."""
        with self._changed:
            self._fail(error)
            if not self._working:
                self.over.set()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._changed.notify_all()

    def _places(self) -> int:
        """How many threads there may be: one may only be asking for the next unit, and that may take its time."""
        return self.wanted + (self._asking and not self.fixed)

    def _more(self) -> bool:
        """Whether there may be something to do."""
        return bool(self._submitted) or not self._exhausted

    def _next(self) -> Unit | None:
        """What to do next; None for who is to leave, who then no longer counts."""
        with self._changed:
            try:
                while self._error is None and self._working <= self._places() and self._more():
                    if self._submitted:
                        unit = next(self._submitted[0], None)
                        if unit is not None:
                            return unit
                        self._submitted.popleft()
                    elif self._asking:
                        self._changed.wait()
                    elif (unit := self._ask()) is not None and self._error is None:
                        return unit
            except BaseException as error:
                self._fail(error)
            self._leave()
            return None

    def _ask(self) -> Unit | None:
        """The next unit of what `run` was given; nobody else asks meanwhile, but may be brought some."""
        self._asking = True
        self._changed.release()
        unit = None
        try:
            unit = next(self._source, None)
            return unit
        finally:
            self._changed.acquire()
            self._asking = False
            if unit is None:
                self._exhausted = True
                self._changed.notify_all()
            else:
                self._changed.notify()

    def _leave(self) -> None:
        self._working -= 1
        self._changed.notify()  # who was woken to ask may be the one who leaves
        if not self._working and (self._error is not None or not self._more()):
            self.over.set()

    def _work(self) -> None:
        while (unit := self._next()) is not None:
            try:
                self._control.checkpoint()
                unit()
                self.done += 1  # a count for looking at; that one may get lost between threads does no harm
            except BaseException as error:
                with self._changed:
                    self._fail(error)
                    self._leave()
                return

    def join(self) -> None:
        """Wait for all threads, and raise the first error."""
        self.over.wait()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error


class _Pace:
    """Finds the number of threads while they work, by looking at what they get done."""

    def __init__(self, workers: WorkerPool, control: Control, *, large: bool) -> None:
        self._workers, self._control = workers, control
        self._look = _LOOK_LARGE if large else _LOOK
        # Looks that do not count, at the beginning and after a change; and how many of them are still to come.
        self._skips = self._skipped = 1 if large else 0
        self._before: float | None = None  # how fast it was with half as many, while that is tried out
        self._until = 0.0  # no change before this time

    def keep(self) -> None:
        """Look and change until all work is done."""
        then, pulse, done = time.monotonic(), self._control.pulse(), self._workers.done
        while not self._workers.over.wait(self._look):
            now, beat, count = time.monotonic(), self._control.pulse(), self._workers.done
            moved, span = beat.moved - pulse.moved, now - then
            speed = (moved + (count - done) * _UNIT) / span
            enough = self._control.rate is not None and moved / span > _ENOUGH * self._control.rate
            self._change(now, speed, enough=enough, pushed_back=beat.pushed_back > pulse.pushed_back)
            then, pulse, done = now, beat, count

    def _change(self, now: float, speed: float, *, enough: bool, pushed_back: bool) -> None:
        wanted = self._workers.wanted
        if pushed_back:
            self._before, self._until = None, now + _PUSHED_BACK
            self._workers.hire(min(wanted, max(_FEWEST, wanted // 2)))
        elif speed <= 0 or now < self._until or enough:
            pass  # it is paused, or has only begun; or is well as it is
        elif self._skips:
            self._skips -= 1
        elif self._before is not None and speed < self._before * _WORTH_IT:
            self._before, self._until = None, now + _SETTLED
            self._workers.hire(max(1, wanted // 2))
        elif wanted < MOST:
            self._before, self._skips = speed, self._skipped
            self._workers.hire(min(MOST, wanted * 2))
        else:
            self._before, self._until = None, now + _SETTLED
