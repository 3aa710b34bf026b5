"""A small thread pool for blocking calls, which keeps the server's event loop free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from nbdata.errors import AgentUnavailable

__all__ = ["Workers"]

_THREADS = 4
# Largest number of running and waiting calls; further calls are refused.
_WAITING = 64

_T = TypeVar("_T")


class Workers:
    """Runs callables in threads; `run` is for the event loop.

    Parameters
    ----------
    name : str
        The name of its threads.
    """

    def __init__(self, name: str = "nbdata") -> None:
        self._pool = ThreadPoolExecutor(_THREADS, name)
        self._pending = 0

    async def run(self, ask: Callable[[], _T]) -> _T:
        """Run the callable in a thread and return its result.

        Raises
        ------
        AgentUnavailable
            If too many calls are already waiting.
        """
        if self._pending >= _WAITING:
            raise AgentUnavailable("too many requests of the panel are open", remedy="Try again in a moment")
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, ask)
        finally:
            self._pending -= 1
