"""Wait for a call that cannot be interrupted, such as resolving a name, no longer than the job runs."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import NoReturn, TypeVar

from nbdata.errors import Cancelled
from nbdata.stores.objects import Stop
from nbdata.threads import begin

__all__ = ["waited_for"]

_T = TypeVar("_T")


def waited_for(call: Callable[[], _T], stop: Stop | None) -> _T:
    """Return the result of a call, or raise its error. If the job stops, the call goes on in its own thread.

    Raises
    ------
    Cancelled
        If `stop` ended the waiting.
    """
    if stop is None:
        return call()
    came = queue.SimpleQueue[Callable[[], _T]]()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            came.put(lambda error=error: _raised(error))  # type: ignore[misc]
        else:
            came.put(lambda: result)

    def abort() -> None:
        came.put(lambda: _raised(Cancelled("cancelled")))

    if not begin(run, name="waited-for"):
        return call()
    stop.add(abort)
    try:
        return came.get()()
    finally:
        stop.remove(abort)


def _raised(error: BaseException) -> NoReturn:
    raise error
