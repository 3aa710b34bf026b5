"""Threads for when the system may refuse more, locks that forks may copy while held, and the number of processors."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from nbdata.ending import Daemon

__all__ = ["ForkLock", "begin", "processors"]


def begin(work: Callable[..., object], *args: object, name: str) -> bool:
    """Run `work` in its own daemon thread; return False if the system gives no more threads."""
    try:
        Daemon(work, *args, name=name).start()
    except RuntimeError:
        return False
    return True


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ForkLock:
    """A lock that is free in a child of a fork: only a thread of the parent can have held it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See `threading.Lock`."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """See `threading.Lock`."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Make the lock anew; called in the child."""
        self._lock = threading.Lock()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_after_fork)
