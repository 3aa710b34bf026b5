"""A control for work outside a job. It can be stopped, and it counts retries."""

from __future__ import annotations

import threading
from collections.abc import Callable

from nbdata.ending import at_end
from nbdata.errors import Cancelled, NbdataError
from nbdata.threads import ForkLock
from nbdata.transfer.bad_entries import BadEntries
from nbdata.transfer.control import Pulse

__all__ = ["FreeControl"]

_BLOCK = 1 << 20


class FreeControl:
    """A `Control` without a job; safe to use from many threads.

    Attributes
    ----------
    error : NbdataError or None
        The error given to `fail`.
    bad_entries : BadEntries
    """

    rate: int | None = None
    block = _BLOCK

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._stopped = threading.Event()
        self._aborts: list[Callable[[], None]] = []
        self._units = self._moved = self._retries = self._pushed_back = 0
        self.error: NbdataError | None = None
        self.bad_entries = BadEntries(warn=True)
        at_end(self, FreeControl.stop)

    def stop(self) -> None:
        """Stop the work: wake every call that waits on the network, and let each checkpoint raise Cancelled."""
        with self._lock:
            self._stopped.set()
            aborts, self._aborts = self._aborts, []
        for abort in aborts:
            abort()

    def is_set(self) -> bool:
        return self._stopped.is_set()

    def add(self, abort: Callable[[], None]) -> None:
        with self._lock:
            if not self._stopped.is_set():
                self._aborts.append(abort)
                return
        abort()

    def remove(self, abort: Callable[[], None]) -> None:
        with self._lock:
            if abort in self._aborts:
                self._aborts.remove(abort)

    def checkpoint(self) -> None:
        if self._stopped.is_set():
            raise Cancelled("reading has ended")

    def sleep(self, seconds: float) -> None:
        self._stopped.wait(seconds)
        self.checkpoint()

    def advance(
        self,
        *,
        files: int = 0,
        bytes: int = 0,  # noqa: A002
        present: int = 0,
        failures: int = 0,
    ) -> None:
        with self._lock:
            self._units += max(0, files)
            self._moved += max(0, bytes)

    def tried_again(self, error: Exception) -> None:
        with self._lock:
            self._retries += 1

    def listed(self, count: int) -> None:
        pass

    def pushed_back(self) -> None:
        with self._lock:
            self._pushed_back += 1

    def pulse(self) -> Pulse:
        with self._lock:
            return Pulse(self._units, self._moved, self._retries, self._pushed_back)

    def expect_more(self, *, files: int, bytes: int) -> None:  # noqa: A002
        pass

    def fail(self, error: NbdataError) -> None:
        self.error = error
        self.stop()

    def phase(self, text: str) -> None:
        pass
