"""Ends what nbdata still does when the interpreter ends.

At its end, Python kills daemon threads wherever they are, and clears the modules that generators and destructors still
need. So nothing of nbdata may run by then: passes, readers and jobs of this process are told to end, and nbdata's
threads are waited for. This happens once the threads of the user that are no daemons have ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Daemon", "at_end"]

# Seconds for all threads together. Only a call that nothing can interrupt, such as a look-up of a name, takes longer.
_PATIENCE = 5.0

_T = TypeVar("_T")


class Daemon(threading.Thread):
    """A thread of nbdata. It belongs to an object that is told `at_end`, and ends soon after."""

    def __init__(self, work: Callable[..., object], *args: object, name: str) -> None:
        super().__init__(target=work, args=args, name=name, daemon=True)


# The functions that close what is open, by a reference to it; the oldest first.
_closings: dict[weakref.ref[Any], Callable[[Any], object]] = {}


def at_end(owner: _T, close: Callable[[_T], object]) -> None:
    """Have ``close(owner)`` called when the interpreter ends, if `owner` still exists; the latest owners come first.

    `close` must not wait, and may come after the owner was closed. The child of a fork closes only what it has opened.
    """
    _closings[weakref.ref(owner, _forget)] = close


def _forget(reference: weakref.ref[Any]) -> None:
    _closings.pop(reference, None)


def _end() -> None:
    for reference, close in reversed(list(_closings.items())):
        owner = reference()
        if owner is not None:
            with contextlib.suppress(Exception):
                close(owner)
    until = time.monotonic() + _PATIENCE
    while (left := until - time.monotonic()) > 0 and (thread := _running()) is not None:
        thread.join(left)


def _running() -> Daemon | None:
    """Return a thread that has not ended; those that end may have begun it just now."""
    daemons = (thread for thread in threading.enumerate() if isinstance(thread, Daemon))
    return next((thread for thread in daemons if thread is not threading.current_thread()), None)


atexit.register(_end)
os.register_at_fork(after_in_child=_closings.clear)
