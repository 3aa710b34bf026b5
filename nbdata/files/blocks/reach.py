"""Knows whether a store answers, so that a mount does not wait for it a minute each time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from nbdata.errors import Cancelled, NbdataError, StoreUnavailable
from nbdata.files.connections import Place
from nbdata.threads import begin

__all__ = ["AGAIN", "Reach"]

#: Seconds after which a store that did not answer is asked again, once somebody wants anything of it.
AGAIN = 5.0
# Seconds that a request waits for the answer to that.
_PATIENCE = 1.0
# The name of what it is asked for; that there is none is an answer.
_ANY = ".nbdata-mount"

_T = TypeVar("_T")


class Reach:
    """Whether the store of one mount answers; safe to use from many threads.

    A request that fails has all its retries, of about a minute. Then the store is asked for something else by a thread,
    since one object may be all that fails. If that is not answered either, requests fail at once, until it is: it is
    asked again at the next request, and every few seconds while there are any.

    Parameters
    ----------
    place : Place
        The folder that is mounted.

    Attributes
    ----------
    down : float or None
        When the store was found not to answer, in seconds since 1970; None while it answers.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._asked = -AGAIN
        self._asking: threading.Event | None = None
        self._why = ""
        self.down: float | None = None

    def run(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of `attempt`, which has retries of its own.

        Raises
        ------
        StoreUnavailable
            If the store does not answer: at once if that is known.
        """
        self._check()
        try:
            found = attempt()
        except StoreUnavailable:
            self._ask_again()
            raise
        self._answered()
        return found

    def _check(self) -> None:
        if self.down is None:
            return
        self._ask_again()
        if self.down is not None:
            raise StoreUnavailable(f"the store does not answer ({self._why})", path=self._place.folder.place)

    def _ask_again(self) -> None:
        """Have the store asked, if that was not done in the last seconds, and wait a little for its answer."""
        with self._lock:
            now = time.monotonic()
            if self._asking is None and now - self._asked >= AGAIN:
                self._asked, self._asking = now, threading.Event()
                if not begin(self._ask, self._asking, name="reach"):
                    self._asking = None
            asking, left = self._asking, self._asked + _PATIENCE - now
        if asking is not None and left > 0:
            asking.wait(left)

    def _ask(self, asking: threading.Event) -> None:
        try:
            self._place.store.head(self._place.prefix + _ANY)
            self._answered()
        except (StoreUnavailable, Cancelled) as error:
            self._failed(error)
        except (NbdataError, OSError):  # it says that there is none, or that it is not for this user
            self._answered()
        finally:
            with self._lock:
                self._asking = None
            asking.set()

    def _failed(self, error: NbdataError) -> None:
        with self._lock:
            self._why = error.message
            if self.down is None:
                self.down = time.time()

    def _answered(self) -> None:
        if self.down is not None:
            with self._lock:
                self.down = None
