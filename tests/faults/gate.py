"""A proxy on loopback that holds a transfer after a number of bytes.

Then a test can kill a process at a known moment.
"""

from __future__ import annotations

import threading
from types import TracebackType

from tests.slow import SlowProxy
from tests.waiting import PATIENCE


class Gate(SlowProxy):
    """Forwards `limit` bytes in one direction at full speed; later bytes wait until `open` is called.

    A test that needs some complete objects at that moment transfers few at a time. With objects of `size` bytes and
    `concurrency` transfers in progress, more than ``limit / size - concurrency`` objects are complete when the gate
    holds.

    Parameters
    ----------
    limit : int
        Limit in bytes, including headers; negative: no limit.
    answers : bool
        The direction that is counted and held: responses if true, else requests.
    """

    def __init__(self, upstream: str, *, limit: int = -1, answers: bool = True, port: int = 0) -> None:
        super().__init__(upstream, rate=1, port=port)
        self._limit, self._held_way = limit, answers
        self._passing = threading.Condition()
        self._sizes: list[int] = []
        self.passed = 0

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.open()
        super().__exit__(kind, error, trace)

    def open(self) -> None:
        """Let all bytes pass from now on."""
        with self._passing:
            self._limit = -1
            self._passing.notify_all()

    def close(self, *, after: int = 0) -> None:
        """Let `after` more bytes pass, then hold."""
        with self._passing:
            self._limit = self.passed + after
            self._passing.notify_all()

    @property
    def holds(self) -> bool:
        """True if a transfer waits at the gate."""
        with self._passing:
            return self._waiting > 0

    @property
    def _waiting(self) -> int:
        """The number of transfers that wait. One that may pass by now does not, although it may still have to wake."""
        return sum(not self._passes(size) for size in self._sizes)

    def wait_until_it_holds(self) -> None:
        """Wait until a transfer waits at the gate."""
        with self._passing:
            held = self._passing.wait_for(lambda: self._waiting > 0, PATIENCE)
            assert held, f"only {self.passed:,} bytes came to the gate"

    def _wait(self, size: int, answers: bool) -> None:
        with self._passing:
            if answers == self._held_way:
                if not self._passes(size):
                    self._sizes.append(size)
                    self._passing.notify_all()
                    self._passing.wait_for(lambda: self._passes(size))
                    self._sizes.remove(size)
                self.passed += size
            self._count(size, answers)

    def _passes(self, size: int) -> bool:
        return self._limit < 0 or self.passed + size <= self._limit
