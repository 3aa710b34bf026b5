"""Batches small objects from several workers so that one thread can transfer them all.

One thread per object suits large objects but wastes CPU on small ones (see `stores.http.multiplexer`). So the first
worker with small objects transfers all of them in one session, until none are left. The other workers only add batches.
An object that fails at the first try is transferred again by itself, as a unit of work for any worker.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from nbdata.errors import NbdataError
from nbdata.stores.another_try import pushed_back
from nbdata.stores.sessions import Answer, Session
from nbdata.transfer.control import Control
from nbdata.transfer.retry import Tries
from nbdata.transfer.worker_pool import Unit, WorkerPool

__all__ = ["BATCH", "MAX_BYTES", "Batched", "Batcher"]

#: Objects of one batch.
BATCH = 64
#: Bytes of small objects in memory: as many of the largest batched objects as there may be requests.
MAX_BYTES = 16 << 20
# How many objects may wait for their request, and how many for another try.
_WAITING, _RETRIES = 4 * BATCH, 64
# Seconds between two checks whether the work must stop.
_POLL = 0.2


class Batched(Protocol):
    """A small object.

    Attributes
    ----------
    tries : Tries or None
        The tries so far; None before the first one has failed.
    """

    tries: Tries | None


T = TypeVar("T", bound=Batched)


class Batcher(Generic[T]):
    """Collects small objects and transfers them in sessions.

    Parameters
    ----------
    control : Control
    workers : WorkerPool
        The workers that add objects, and transfer them.
    transfer : callable
        Transfers the added objects by calling `run_session`; one thread at a time. An error it raises ends all the
        work.
    retry : callable
        Transfers one object by itself, after its first try in a session.
    """

    def __init__(
        self,
        control: Control,
        workers: WorkerPool,
        transfer: Callable[[], None],
        retry: Callable[[T], None],
    ) -> None:
        self._control, self._workers, self._transfer, self._retry = control, workers, transfer, retry
        self._changed = threading.Condition()
        self._waiting = deque[T]()
        self._retries = 0  # units that wait for a worker, or run
        self._transferring = False
        self._session: Session[Any] | None = None
        self._retries_first = False  # no new session before enough retries are done

    def unit(self, batch: list[T]) -> Unit:
        """The unit of work that adds a batch.

        Waits while retries come first: otherwise idle workers would read the whole plan. At most `_WAITING` objects
        wait, and one batch per worker.
        """
        while True:
            self._control.checkpoint()
            with self._changed:
                if self._changed.wait_for(self._may_add, _POLL):
                    return partial(self.add, batch)

    def _may_add(self) -> bool:
        return not self._retries_first or self._workers.broken

    def add(self, batch: list[T]) -> None:
        """Add objects, and transfer everything that waits unless another worker does so already."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._waiting.extend(batch)
            if self._session is not None:
                self._session.wake()
            if self._transferring or self._retries_first:
                return
            self._transferring = True
        try:
            while self._goes_on():
                self._transfer()
                # A stop ends the session before everything was transferred.
                self._control.checkpoint()
        except BaseException:
            with self._changed:
                self._transferring = False
                self._changed.notify_all()
            raise

    def _has_room(self) -> bool:
        return not self._transferring or len(self._waiting) < _WAITING or self._workers.broken

    def _goes_on(self) -> bool:
        """True if objects wait. The workers that added them may have left."""
        self._control.checkpoint()
        with self._changed:
            if not self._waiting or self._workers.broken:
                self._transferring = False
                self._changed.notify_all()
                return False
            if self._retries < _RETRIES:
                return True
            self._transferring, self._retries_first = False, True
            self._changed.notify_all()
            return False

    def run_session(
        self,
        session: Session[Any],
        request: Callable[[T], object | None],
        answered: Callable[[Answer[Any]], None],
    ) -> None:
        """Transfer the waiting objects in a session, and close it.

        Parameters
        ----------
        request : callable
            Makes the request for an object; None if the object need not be transferred after all.
        answered : callable
            Called with the answer to each request.
        """
        with session:
            self._session = session
            try:
                self._fill(session, request)
                for answer in session.results():
                    if answer is not None:
                        answered(answer)
                    self._fill(session, request)
            finally:
                self._session = None

    def _fill(self, session: Session[Any], request: Callable[[T], object | None]) -> None:
        for _ in range(session.free):
            wanted = self._next()
            if wanted is None:
                return
            if (asked := request(wanted)) is not None:
                session.submit(asked)

    def _next(self) -> T | None:
        """Return the next waiting object; None if there is none now."""
        with self._changed:
            if not self._waiting or self._retries >= _RETRIES or self._workers.broken:
                return None
            wanted = self._waiting.popleft()
            if len(self._waiting) == _WAITING - BATCH:
                self._changed.notify()  # one worker: each adds a whole batch
            return wanted

    def width(self) -> int:
        """How many requests may run at a time.

        Retries count if the user set the number of requests. Otherwise they do not: most of them only wait for their
        next try, and a flaky network would slow down everything else.
        """
        if not self._workers.fixed:
            return self._workers.wanted
        return max(1, self._workers.wanted - self._retries)

    def alone(self, wanted: T, failed: NbdataError | None = None) -> None:
        """Leave an object to `retry`: its try has failed, or its answer alone does not show whether it is right."""
        if failed is not None and pushed_back(failed):
            self._control.pushed_back()
        wanted.tries = Tries(self._control, failed)
        self.submit(partial(self._retry, wanted))

    def submit(self, unit: Unit) -> None:
        """Leave slow work to any free worker."""

        def counted() -> None:
            try:
                unit()
            finally:
                with self._changed:
                    self._retries -= 1
                    resumes = self._retries_first and self._retries <= _RETRIES // 2
                    if resumes:
                        self._retries_first = False
                        self._changed.notify_all()
                if resumes:
                    self._workers.submit([lambda: self.add([])])

        with self._changed:
            self._retries += 1
        self._workers.submit([counted])
