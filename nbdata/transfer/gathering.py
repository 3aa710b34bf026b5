"""Small objects for a crew of workers: they hand them over in batches, and one of them moves all.

A thread an object is what big ones want, and wastes the processor on small ones (see `stores.http.lanes`). So the
worker that comes first with small ones becomes the gatherer until there are none left; the others bring more. What did
not go at the first try is moved in the usual way, as a unit of its own, by whoever is free.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from nbdata.errors import NbdataError
from nbdata.stores.another_try import pushed_back
from nbdata.stores.sessions import Answer, Session, Unusual
from nbdata.transfer.control import Control
from nbdata.transfer.pool import Crew, Unit

__all__ = ["BATCH", "MAX_BYTES", "Gathering"]

#: Objects that are best handed over at a time.
BATCH = 64
#: Bytes of them that may be in memory: as many as there may be requests, of the largest that go together.
MAX_BYTES = 16 << 20
# Objects that may wait to be asked for, and to be asked for again.
_WAITING, _LATER = 4 * BATCH, 64
# Seconds until who waits looks whether all is to end.
_LOOK = 0.2

T = TypeVar("T")


class Gathering(Generic[T]):
    """What small objects are handed over to.

    Parameters
    ----------
    control : Control
    crew : Crew
        Whose workers they are.
    each : callable
        Moves what was handed over by calling `through`, in one thread at a time. What it raises ends all.
    alone : callable
        Moves one that did not go at the first try; told why, or None.
    """

    def __init__(
        self,
        control: Control,
        crew: Crew,
        each: Callable[[], None],
        alone: Callable[[T, NbdataError | None], None],
    ) -> None:
        self._control, self._crew, self._each, self._alone = control, crew, each, alone
        self._changed = threading.Condition()
        self._waiting = deque[T]()
        self._later = 0  # units that were brought and are not done
        self._gathering = False
        self._session: Session[Any] | None = None
        self._resumes = False  # once fewer wait to be asked for again

    def handed(self, batch: list[T]) -> Unit:
        """The unit that hands these over.

        Waits while so many did not go at the first try that nobody gathers: else idle workers would read the whole
        plan. So at most a batch for each worker waits beside `_WAITING`.
        """
        while True:
            self._control.checkpoint()
            with self._changed:
                if self._changed.wait_for(self._may_hand_over, _LOOK):
                    return partial(self.take, batch)

    def _may_hand_over(self) -> bool:
        return not self._resumes or self._crew.broken

    def take(self, batch: list[T]) -> None:
        """Have these moved: by another worker who is at it, or now."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._waiting.extend(batch)
            if self._session is not None:
                self._session.wake()
            if self._gathering or self._resumes:
                return
            self._gathering = True
        try:
            while self._goes_on():
                self._each()
                # A stop ends it before all was done.
                self._control.checkpoint()
        except BaseException:
            with self._changed:
                self._gathering = False
                self._changed.notify_all()
            raise

    def _has_room(self) -> bool:
        return not self._gathering or len(self._waiting) < _WAITING or self._crew.broken

    def _goes_on(self) -> bool:
        """Whether something is left; who has handed over meanwhile may have gone."""
        self._control.checkpoint()
        with self._changed:
            if not self._waiting or self._crew.broken:
                self._gathering = False
                self._changed.notify_all()
                return False
            if self._later < _LATER:
                return True
            # Too many did not go: first those.
            self._gathering, self._resumes = False, True
            self._changed.notify_all()
            return False

    def through(
        self,
        session: Session[Any],
        request: Callable[[T], object | None],
        answered: Callable[[Answer[Any]], None],
    ) -> None:
        """Move what was handed over through a session, which is closed at the end.

        Parameters
        ----------
        request : callable
            Gives the request for one; None if it is not to be moved after all.
        answered : callable
            Told what came of each request.
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
        """What is to be moved next; None if there is nothing now."""
        with self._changed:
            if not self._waiting or self._later >= _LATER or self._crew.broken:
                return None
            wanted = self._waiting.popleft()
            if len(self._waiting) == _WAITING - BATCH:
                self._changed.notify()  # one: each brings so many
            return wanted

    def width(self) -> int:
        """How many may be under way together.

        What goes alone counts with them where the number was told. Elsewhere it does not: most of these wait for their
        next try, and a flaky network would slow all others.
        """
        return max(1, self._crew.wanted - self._later) if self._crew.told else self._crew.wanted

    def missed(self, wanted: T, why: NbdataError | None) -> None:
        """Leave one to be moved in the usual way; of what only that way finds out nothing is told."""
        if isinstance(why, Unusual):
            why = None
        if why is not None and pushed_back(why):
            self._control.pushed_back()
        self.later(lambda: self._alone(wanted, why))

    def later(self, unit: Unit) -> None:
        """Leave something that takes its time to whoever is free."""

        def counted() -> None:
            try:
                unit()
            finally:
                with self._changed:
                    self._later -= 1
                    resumes = self._resumes and self._later <= _LATER // 2
                    if resumes:
                        self._resumes = False
                        self._changed.notify_all()
                if resumes:
                    self._crew.bring([lambda: self.take([])])

        with self._changed:
            self._later += 1
        self._crew.bring([counted])
