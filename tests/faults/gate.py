"""A proxy on loopback that lets so many bytes through and then holds the rest: a moment to kill somebody at."""

from __future__ import annotations

import threading
from types import TracebackType

from tests.slow import SlowProxy
from tests.waiting import PATIENCE


class Gate(SlowProxy):
    """Forwards at full speed until `limit` bytes have gone one way; then they wait until `open`.

    Whoever is to be caught with some objects whole asks for few at a time: of objects of `size` bytes, `concurrency` of
    them under way, more than ``limit / size - concurrency`` are whole when the gate holds.

    Parameters
    ----------
    limit : int
        Bytes, heads included; negative: all.
    answers : bool
        Which way is counted and held: what the server says, or what it is told.
    """

    def __init__(self, upstream: str, *, limit: int = -1, answers: bool = True) -> None:
        super().__init__(upstream, rate=1)
        self._limit, self._held_way = limit, answers
        self._passing = threading.Condition()
        self._waiting = 0
        self.passed = 0

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.open()
        super().__exit__(kind, error, trace)

    def open(self) -> None:
        """Let all through from now on."""
        with self._passing:
            self._limit = -1
            self._passing.notify_all()

    def close(self, *, after: int = 0) -> None:
        """Hold all that comes when so many more bytes have passed."""
        with self._passing:
            self._limit = self.passed + after
            self._passing.notify_all()

    @property
    def holds(self) -> bool:
        """Whether somebody waits at the gate."""
        with self._passing:
            return self._waiting > 0

    def wait_until_it_holds(self) -> None:
        """Until somebody waits at the gate."""
        with self._passing:
            held = self._passing.wait_for(lambda: self._waiting > 0, PATIENCE)
            assert held, f"only {self.passed:,} bytes came to the gate"

    def _wait(self, size: int, answers: bool) -> None:
        with self._passing:
            if answers == self._held_way:
                if not self._passes(size):
                    self._waiting += 1
                    self._passing.notify_all()
                    self._passing.wait_for(lambda: self._passes(size))
                    self._waiting -= 1
                self.passed += size
            self._count(size, answers)

    def _passes(self, size: int) -> bool:
        return self._limit < 0 or self.passed + size <= self._limit
