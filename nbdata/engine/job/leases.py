"""Items that a running job hands out: offered, leased to one connection, then acknowledged or given back.

The engine offers an item, and waits while no consumer has credit for it. A consumer's connection leases it, and
acknowledges it when it has finished with it. Then `done` returns the item to its owner, who may delete it. A connection
that ends gives back its unacknowledged items, and the next consumer gets them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from nbdata.engine.job.task import Task
from nbdata.errors import NbdataError
from nbdata.protocols import Item

__all__ = ["Leases"]


class Leases:
    """The items of one job; many threads may use it."""

    def __init__(self, control: Task) -> None:
        self._control = control
        self._done: Callable[[Item], None] = lambda _item: None
        self._bound = 1
        self._ready: deque[Item] = deque()
        self._leased: dict[str, dict[int, Item]] = {}
        self._ending = 0  # acknowledged, but `done` has not returned yet
        self._changed = threading.Condition()
        self._closed = self._ended = self._complete = False
        self._error: NbdataError | None = None

    def opened(self, done: Callable[[Item], None], *, bound: int) -> None:
        """Set the function for acknowledged items, and how many items may wait to be leased (else 1)."""
        self._done, self._bound = done, bound

    def offer(self, item: Item) -> None:
        """Offer one more item; waits while earlier ones are not taken. Raises Cancelled if the job must end."""
        with self._changed:
            while len(self._ready) >= self._bound:
                self._changed.wait(0.1)
                self._end_if_told()
            if not self._ended:  # else no consumer may get it any more
                self._ready.append(item)
            self._changed.notify_all()

    def close(self) -> None:
        """Say that no more items will come; waits until all are taken and acknowledged."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._ready or any(self._leased.values()) or self._ending:
                self._changed.wait(0.1)
                self._end_if_told()
            self._complete = not self._ended

    def _end_if_told(self) -> None:
        """Raise Cancelled if the job must end. A pause does not block it: consumers give back meanwhile, too."""
        if self._control.is_set():
            self._control.checkpoint()

    def end(self, error: NbdataError | None = None) -> None:
        """End at once, even with items left: consumers must not wait. Only the first `error` counts."""
        with self._changed:
            self._ended = True
            self._error = self._error or error
            self._ready.clear()
            self._changed.notify_all()

    def release(self) -> None:
        """Release all references to the engine: the job stays listed long after its work is over."""
        self._done = lambda _item: None

    def drain(self) -> None:
        """Wait until consumers have given back their items, or the job is cancelled; call it after `end`."""
        with self._changed:
            while (any(self._leased.values()) or self._ending) and not self._control.abandoned:
                self._changed.wait(0.1)

    @property
    def ended(self) -> bool:
        """True if the job is over, even with items left."""
        return self._ended

    @property
    def error(self) -> NbdataError | None:
        """The error that ended it, if one was given."""
        return self._error

    @property
    def complete(self) -> bool:
        """True if every item was taken and acknowledged."""
        return self._complete

    def lease(self, consumer: str, credit: int, timeout: float) -> Item | None:
        """Lease the next item to a consumer that holds fewer than `credit`; None after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    (self._ready and self._holds(consumer) < credit) or self._ended or self._no_more(consumer)
                ),
                timeout,
            )
            if self._ended or not self._ready or self._holds(consumer) >= credit:
                return None
            item = self._ready.popleft()
            # Looked up only now: during the wait, the consumer may have given all items back.
            self._leased.setdefault(consumer, {})[item.number] = item
            self._changed.notify_all()
            return item

    def _holds(self, consumer: str) -> int:
        return len(self._leased.get(consumer, {}))

    def exhausted(self, consumer: str) -> bool:
        """True if a consumer can get no more items: none are left, and other consumers hold none to give back."""
        with self._changed:
            return self._ended or self._no_more(consumer)

    def _no_more(self, consumer: str) -> bool:
        others = any(items for name, items in self._leased.items() if name != consumer)
        return self._closed and not self._ready and not others

    def acknowledge(self, consumer: str, number: int) -> None:
        """Take back an item that the consumer has finished with."""
        with self._changed:
            item = self._leased.get(consumer, {}).pop(number, None)
            self._ending += item is not None
            self._changed.notify_all()
        if item is not None:
            try:
                self._done(item)
            finally:
                with self._changed:
                    self._ending -= 1
                    self._changed.notify_all()

    def give_back(self, consumer: str) -> None:
        """Make the unacknowledged items of a consumer whose connection ended available to others."""
        with self._changed:
            items = self._leased.pop(consumer, {}).values()
            self._ready.extendleft(sorted(items, key=lambda item: -item.number))
            self._changed.notify_all()
