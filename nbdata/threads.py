"""Threads where the system may give no more of them, and locks where a fork may copy them while they are held."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

__all__ = ["ForkLock", "begin"]


def begin(work: Callable[..., object], *args: object, name: str) -> bool:
    """Run `work` in a thread of its own, which ends with this process; False if the system gives no more threads."""
    try:
        threading.Thread(target=work, args=args, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


class ForkLock:
    """A lock that is free in a child of a fork: the thread that may have held it is the parent's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As of `threading.Lock`."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """As of `threading.Lock`."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """In the child."""
        self._lock = threading.Lock()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_after_fork)
