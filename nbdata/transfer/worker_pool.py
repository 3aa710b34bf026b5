"""A pool of threads that take units of work from one iterator. It finds the best number of threads.

In measurements, threads with blocking calls were faster and leaner than asyncio here. Taking units from an iterator
instead of queueing them limits memory: there are never more units than threads.

The best number of threads depends on the distance to the store. Two are enough on loopback; a hundred are too few for
small objects far away. Unless the user sets it, the pool starts small, doubles while that is faster, and halves when
the store pushes back (429, 503, silence). Congestion control in TCP does the same. Adding one thread at a time would be
too slow for jobs of seconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from nbdata.ending import Daemon
from nbdata.transfer.control import Control

__all__ = ["FIRST", "MOST", "Unit", "WorkerPool", "run_units"]

#: The number of concurrent requests at the start, and the most, unless the user sets it.
FIRST, MOST = 16, 64
_FEWEST = 2
# From this many bytes on, an object is large.
_LARGE = 16 << 20
# Seconds between two measurements of the speed. Each new request for a large object first fills the buffers of its
# connection with megabytes, which looks like speed. So with large objects the first measurement after a change does
# not count.
_LOOK, _LOOK_LARGE = 0.25, 0.5
# Seconds until a larger number is tried again, and until growth after the store pushed back.
_SETTLED, _PUSHED_BACK = 10.0, 5.0
# More threads are worth it from this speed-up on.
_WORTH_IT = 1.25
# With a rate limit: bytes per second per thread, since an interruption loses less with fewer parts at a time; and the
# share of the limit that counts as all of it.
_FED, _ENOUGH = 4 << 20, 0.8
# Bytes that a unit counts in addition to those it moves, because small units spend their time elsewhere.
_UNIT = 64 << 10

Unit = Callable[[], None]


def run_units(control: Control, units: Iterable[Unit], *, workers: int | None = None) -> None:
    """Run all units; see `WorkerPool`."""
    WorkerPool(control, workers).run(units)


class WorkerPool:
    """Threads that run units of work. Their number may change.

    Parameters
    ----------
    workers : int, optional
        Number of threads; None adapts it between a few and `MOST`.
    typical : int
        Bytes of a typical object; see `_LOOK_LARGE`.
    sends : bool
        True for uploads, which start with fewer threads: stores write large objects faster with fewer requests.

    Attributes
    ----------
    wanted : int
        The target number of threads, and so of concurrent requests.
    fixed : bool
        True if the user set that number.
    done : int
        The number of finished units, and what units add themselves.
    """

    def __init__(
        self, control: Control, workers: int | None = None, *, typical: int = 0, sends: bool = False
    ) -> None:
        self._control, self.fixed = control, workers is not None
        self._source: Iterator[Unit] = iter(())
        self._submitted = deque[Iterator[Unit]]()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None  # the first error; later errors follow from it
        # Whether a thread is waiting for the next unit from the iterator, and whether the iterator is exhausted.
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
        error is raised here after all threads have stopped.
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
        """Run these units before all others. For units that discover more work.

        Their iterator must not block. Only the iterator given to `run` may wait, also for these units.
        """
        with self._changed:
            self._submitted.append(iter(units))
            # Wake no more threads than needed: small objects submit one unit at a time.
            self._changed.notify(len(units) if isinstance(units, list) else len(self._threads))
            if self._working < self._places():
                self.hire(self.wanted)

    def hire(self, wanted: int) -> None:
        """Change the number of threads: new ones start now, surplus ones end after their current unit."""
        with self._changed:
            self.wanted = wanted
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._changed.notify_all()
            while self._working < self._places() and self._more() and self._error is None:
                thread = Daemon(self._work, name="mover")
                try:
                    thread.start()
                except RuntimeError:  # the system gives no more threads, so the existing ones do the work
                    if not self._working:
                        raise
                    self.wanted = self._working
                    return
                self._threads.append(thread)
                self._working += 1

    def end(self, error: BaseException) -> None:
        """Start no further unit."""
        with self._changed:
            self._fail(error)
            if not self._working:
                self.over.set()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._changed.notify_all()

    def _places(self) -> int:
        """The number of threads allowed: one more than wanted while one of them waits for the next unit."""
        return self.wanted + (self._asking and not self.fixed)

    def _more(self) -> bool:
        """Whether there may be more units."""
        return bool(self._submitted) or not self._exhausted

    def _next(self) -> Unit | None:
        """Return the next unit, or None if the thread must end; it then no longer counts."""
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
        """Take the next unit from the iterator of `run`. Other threads meanwhile run only submitted units."""
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
        self._changed.notify()  # the thread that was woken to ask may be the one that leaves
        if not self._working and (self._error is not None or not self._more()):
            self.over.set()

    def _work(self) -> None:
        while (unit := self._next()) is not None:
            try:
                self._control.checkpoint()
                unit()
                self.done += 1  # an estimate for measurements; a count lost between threads does no harm
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
    """Adjusts the number of threads while they work, from measurements of their speed."""

    def __init__(self, workers: WorkerPool, control: Control, *, large: bool) -> None:
        self._workers, self._control = workers, control
        self._look = _LOOK_LARGE if large else _LOOK
        # Measurements that do not count, at the beginning and after a change; and how many of them remain.
        self._skips = self._skipped = 1 if large else 0
        self._before: float | None = None  # the speed with half as many threads, while more are tried
        self._until = 0.0  # no change before this time

    def keep(self) -> None:
        """Measure and adjust until all work is done."""
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
            pass  # paused, just started, or fast enough
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
