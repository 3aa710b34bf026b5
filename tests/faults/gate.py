"""A proxy on loopback that lets so many bytes through and then holds the rest: a moment to kill somebody at."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from tests.slow import SlowProxy


class Gate(SlowProxy):
    """Forwards at full speed until `limit` bytes have gone one way; then they wait until `open`.

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

    @property
    def holds(self) -> bool:
        """Whether somebody waits at the gate."""
        with self._passing:
            return self._waiting > 0

    def wait_until_it_holds(self, timeout: float = 30.0) -> None:
        """Until somebody waits at the gate."""
        end = time.monotonic() + timeout
        while not self._waiting:
            assert time.monotonic() < end, f"only {self.passed:,} bytes came to the gate"
            time.sleep(0.01)

    def _wait(self, size: int, answers: bool) -> None:
        if answers != self._held_way:
            return
        with self._passing:
            self._waiting += 1
            self._passing.wait_for(lambda: self._limit < 0 or self.passed + size <= self._limit)
            self._waiting -= 1
            self.passed += size
