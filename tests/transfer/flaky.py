"""A store whose reads fail as connections do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbdata.errors import StoreUnavailable
from nbdata.stores.local import LocalStore

__all__ = ["Flaky", "broken"]


class Flaky(LocalStore):
    """The local disk with faulty reads: for each block it calls `trouble(read, at, count)`.

    That function raises, or returns the number of bytes that arrive.
    """

    def __init__(self, trouble: Callable[[int, int, int], int], *, honours: bool = True, ranges: bool = True):
        self.trouble, self.honours, self.ranges = trouble, honours, ranges
        self.starts: list[int] = []

    def read(self, key: str, start: int = 0, end: int | None = None, **options: Any) -> Any:
        self.starts.append(start)
        body = super().read(key, *((start, end) if self.honours else (0, None)), **options)
        number, readinto, at = len(self.starts), body.readinto, body.start

        def troubled(buffer: memoryview) -> int:
            nonlocal at
            count = readinto(buffer)
            told = self.trouble(number, at, count)
            at += told
            return told

        body.readinto = troubled  # type: ignore[method-assign]
        return body


def broken(reads: int, at: int, read: int, offset: int, count: int) -> int:
    """A trouble function: the first `reads` reads break off at the byte `at`."""
    if read <= reads and offset >= at:
        raise StoreUnavailable("the connection broke", details={"retry": True})
    return count
