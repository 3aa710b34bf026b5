"""Small objects for a crew of workers: they hand them over in batches, and one of them moves all.

A thread an object is what big ones want, and wastes the processor on small ones (see `nbdata.stores.lanes`). So the
worker that comes first with small ones becomes the gatherer until there are none left; the others bring more, or move
in the usual way, one at a time, what did not go at the first try.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic

from nbdata.errors import NbdataError
from nbdata.stores.base import T
from nbdata.transfer.control import Control

__all__ = ["BATCH", "Gathering"]

#: Objects that are best handed over at a time.
BATCH = 64
# Objects that may wait to be asked for, and to be asked for again.
_WAITING, _ALONE = 4 * BATCH, 64


class Gathering(Generic[T]):
    """What small objects are handed over to.

    Parameters
    ----------
    control : Control
    each : callable
        Moves what `next` gives until that is None, and calls `missed` for what did not go; `Store.read_each` and
        `Store.write_each` do. It runs in one thread at a time. What it raises ends all.
    alone : callable
        Moves one that did not go at the first try; told why, or None.
    """

    def __init__(
        self, control: Control, each: Callable[[], None], alone: Callable[[T, NbdataError | None], None]
    ) -> None:
        self._control, self._each, self._move_alone = control, each, alone
        self._changed = threading.Condition()
        self._waiting = deque[T]()
        self._alone: deque[tuple[T, NbdataError | None]] = deque()
        self._gathering = self._broken = False

    def take(self, batch: list[T]) -> None:
        """Have these moved: by another worker who is at it, or now."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._alone or self._has_room())
                if self._broken:
                    return
                if not self._alone:
                    self._waiting.extend(batch)
                    if self._gathering:
                        return
                    self._gathering = True
                    break
                left = self._alone.popleft()
            self._move_alone(*left)
        try:
            self._gather()
        except BaseException:
            with self._changed:
                self._gathering, self._broken = False, True
                self._changed.notify_all()
            raise

    def _has_room(self) -> bool:
        return self._broken or not self._gathering or len(self._waiting) < _WAITING

    def _gather(self) -> None:
        """Until nothing is left; who has handed over meanwhile may have gone."""
        while True:
            self._control.checkpoint()
            self._each()
            with self._changed:
                left = self._alone.popleft() if self._alone else None
                if left is None and not self._waiting:
                    self._gathering = False
                    self._changed.notify_all()
                    return
            if left is not None:
                self._move_alone(*left)

    def next(self) -> T | None:
        """What is to be moved next; None if there is nothing now."""
        with self._changed:
            if not self._waiting or len(self._alone) >= _ALONE:
                return None
            wanted = self._waiting.popleft()
            if len(self._waiting) == _WAITING - BATCH:
                self._changed.notify()  # one: each brings so many
            return wanted

    def missed(self, wanted: T, why: NbdataError | None) -> None:
        """Leave one to be moved in the usual way."""
        with self._changed:
            self._alone.append((wanted, why))
            self._changed.notify()
