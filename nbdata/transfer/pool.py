"""Many units of work at once, on a bounded number of threads that pull them from one iterator.

Threads and blocking calls were measured faster and leaner here than asyncio. Pulling (rather than queueing)
bounds what is in memory: never more units than threads exist at a time.

How many threads are best depends on the way to the store: two are enough on loopback, a hundred are too few for small
objects far away. So unless it is told, the crew finds out: it begins modestly, grows while that makes it faster, and
shrinks when the store pushes back (429, 503, silence). The same idea as in TCP: additive is too slow for jobs of
seconds, so it doubles, and goes back one step when a step was of no use.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from nbdata.transfer.control import Control

__all__ = ["FIRST", "MOST", "Crew", "Unit", "run_units"]

#: Requests at a time at the beginning, and at most, unless told otherwise.
FIRST, MOST = 16, 64
_FEWEST = 2
# From so many bytes on an object is a large one.
_LARGE = 16 << 20
# Seconds between two looks at how fast it is; and of large objects, of which each new request at once puts megabytes
# into the buffers of its connection: this is no speed, so the first look after a change does not count there.
_LOOK, _LOOK_LARGE = 0.25, 0.5
# Seconds until a number that was found best is doubted again, and after the store pushed back.
_SETTLED, _PUSHED_BACK = 10.0, 5.0
# Growth is worth it if it makes the whole faster by this factor.
_WORTH_IT = 1.25
# Bytes a second that are worth a thread, where the rate is limited: few parts at a time are done sooner, each, and so
# less is lost when they are broken off. And such a share of the rate is as good as all of it.
_FED, _ENOUGH = 4 << 20, 0.8
# A unit is worth so many bytes, beside those that it moves: small ones take as long for other reasons.
_UNIT = 64 << 10

Unit = Callable[[], None]


def run_units(control: Control, units: Iterable[Unit], *, workers: int | None = None) -> None:
    """Run all units; see `Crew`."""
    Crew(control, workers).run(units)


class Crew:
    """The threads that run units; their number may change while they work.

    Parameters
    ----------
    workers : int, optional
        Threads; None lets their number adapt itself between a few and `MOST`.
    typical : int
        Bytes of a typical object; see `_LOOK_LARGE`.
    sends : bool
        To a store, which has to write what it gets: of large objects fewer requests at the beginning, since more of
        them contend there.

    Attributes
    ----------
    wanted : int
        How many there are to be; so many requests may be under way.
    told : bool
        Whether that was told, and so is kept.
    done : int
        What was done: units, and what units count themselves.
    """

    def __init__(
        self, control: Control, workers: int | None = None, *, typical: int = 0, sends: bool = False
    ) -> None:
        self._control, self.told = control, workers is not None
        self._source: Iterator[Unit] = iter(())
        self._brought = deque[Iterator[Unit]]()
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
        """Run all units; returns when all are done.

        A unit deals with the failures it expects; what it raises ends the whole: no further unit is begun,
        and the first error is raised here when all threads are back.
        """
        self._source = iter(units)
        try:
            self.hire(self.wanted)
            if not self.told:
                _Pace(self, self._control, large=self._large).keep()
        except BaseException as error:
            self.end(error)
        self.join()

    @property
    def broken(self) -> bool:
        """Whether an error ends all."""
        return self._error is not None

    def bring(self, units: Iterable[Unit]) -> None:
        """Have these done before any others; for units that find out what there is to do.

        They are given at once, each: only what `run` was given may take its time for the next one, or wait for these.
        """
        with self._changed:
            self._brought.append(iter(units))
            # No more than are needed: small objects bring one at a time, and all would wake for each.
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
        return self.wanted + (self._asking and not self.told)

    def _more(self) -> bool:
        """Whether there may be something to do."""
        return bool(self._brought) or not self._exhausted

    def _next(self) -> Unit | None:
        """What to do next; None for who is to leave, who then no longer counts."""
        with self._changed:
            try:
                while self._error is None and self._working <= self._places() and self._more():
                    if self._brought:
                        unit = next(self._brought[0], None)
                        if unit is not None:
                            return unit
                        self._brought.popleft()
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

    def __init__(self, crew: Crew, control: Control, *, large: bool) -> None:
        self._crew, self._control = crew, control
        self._look = _LOOK_LARGE if large else _LOOK
        # Looks that do not count, at the beginning and after a change; and how many of them are still to come.
        self._skips = self._skipped = 1 if large else 0
        self._before: float | None = None  # how fast it was with half as many, while that is tried out
        self._until = 0.0  # no change before this time

    def keep(self) -> None:
        """Look and change until all work is done."""
        then, pulse, done = time.monotonic(), self._control.pulse(), self._crew.done
        while not self._crew.over.wait(self._look):
            now, beat, count = time.monotonic(), self._control.pulse(), self._crew.done
            moved, span = beat.moved - pulse.moved, now - then
            speed = (moved + (count - done) * _UNIT) / span
            enough = self._control.rate is not None and moved / span > _ENOUGH * self._control.rate
            self._change(now, speed, enough=enough, pushed_back=beat.pushed_back > pulse.pushed_back)
            then, pulse, done = now, beat, count

    def _change(self, now: float, speed: float, *, enough: bool, pushed_back: bool) -> None:
        wanted = self._crew.wanted
        if pushed_back:
            self._before, self._until = None, now + _PUSHED_BACK
            self._crew.hire(min(wanted, max(_FEWEST, wanted // 2)))
        elif speed <= 0 or now < self._until or enough:
            pass  # it is paused, or has only begun; or is well as it is
        elif self._skips:
            self._skips -= 1
        elif self._before is not None and speed < self._before * _WORTH_IT:
            self._before, self._until = None, now + _SETTLED
            self._crew.hire(max(1, wanted // 2))
        elif wanted < MOST:
            self._before, self._skips = speed, self._skipped
            self._crew.hire(min(MOST, wanted * 2))
        else:
            self._before, self._until = None, now + _SETTLED
