"""A small thread pool for blocking calls, which keeps the server's event loop free."""

from __future__ import annotations

import asyncio
import queue
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from nbdata.ending import at_end
from nbdata.errors import AgentUnavailable
from nbdata.threads import begin

__all__ = ["Workers"]

_THREADS = 4
# Largest number of running and waiting calls; further calls are refused.
_WAITING = 64

_T = TypeVar("_T")


class Workers:
    """Runs callables in threads; `run` is for the event loop.

    A `ThreadPoolExecutor` would keep the interpreter from ending until its calls have returned, however long a store
    does not answer. These threads are daemons.

    Parameters
    ----------
    name : str
        The name of its threads.
    """

    def __init__(self, name: str = "nbdata") -> None:
        self._name = name
        # A call with the future for its result; None ends a thread.
        self._calls = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]()
        self._threads = self._pending = 0
        weakref.finalize(self, _end, self._calls)
        at_end(self, Workers.close)

    async def run(self, ask: Callable[[], _T]) -> _T:
        """Run the callable in a thread and return its result.

        Raises
        ------
        AgentUnavailable
            If too many calls are already waiting, or the system gives no threads.
        """
        if self._pending >= _WAITING:
            raise AgentUnavailable("too many requests of the panel are open", remedy="Try again in a moment")
        if self._threads < min(_THREADS, self._pending + 1):
            if begin(_work, self._calls, name=self._name):
                self._threads += 1
            elif not self._threads:
                raise AgentUnavailable("the system gives no more threads", remedy="Try again in a moment")
        self._pending += 1
        try:
            future = Future[_T]()
            self._calls.put((future, ask))
            return await asyncio.wrap_future(future)
        finally:
            self._pending -= 1

    def close(self) -> None:
        """Have each thread end once its call has returned."""
        _end(self._calls)


def _end(calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    for _ in range(_THREADS):
        calls.put(None)


def _work(calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (call := calls.get()) is not None:
        future, ask = call
        del call
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(ask())
            except BaseException as error:
                future.set_exception(error)
        del future, ask  # while it waits, a thread keeps no call alive
