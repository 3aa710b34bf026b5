"""Cuts the rows of a plan into parts of about two seconds, and smaller ones at the end.

The cost of an object is counted in bytes: those that it has, and some for the object itself. How many of them a worker
moves in a second shows with the first parts, which are small for that reason. Toward the end a part is a share of what
is left, so that all workers end at about the same time.
"""

from __future__ import annotations

from collections.abc import Iterator

from nbdata.engine.job.dealing import MOST
from nbdata.report import Row

__all__ = ["Cutter", "cost"]

# Seconds that a part should take, that the first ones should take, and the least at the end.
_SECONDS, _FIRST, _LEAST = 2.0, 0.25, 0.1
# What an object costs beside its bytes, and the bytes a worker moves in a second before any part has shown it.
_OBJECT, _PACE = 64 << 10, 40 << 20
# The share of each new measurement in the pace.
_SHARE = 0.3


def cost(row: Row) -> int:
    """Return what an object costs, in bytes."""
    return _OBJECT + max(0, row.size)


class Cutter:
    """Cuts rows into parts.

    Parameters
    ----------
    rows : iterator of Row
    files, size : int
        How many rows there are, and their bytes; about.
    most : int
        The most rows of a part.
    """

    def __init__(self, rows: Iterator[Row], files: int, size: int, most: int = MOST) -> None:
        self._most = most
        self._rows, self._left = rows, files * _OBJECT + size
        self._pace, self._measured = float(_PACE), False
        self._next: Row | None = next(rows, None)

    def __bool__(self) -> bool:
        """True if rows are left."""
        return self._next is not None

    def measured(self, spent: int, seconds: float) -> None:
        """Take the time that a part took which cost that much."""
        pace = spent / max(seconds, 0.001)
        self._pace = pace if not self._measured else (1 - _SHARE) * self._pace + _SHARE * pace
        self._measured = True

    def part(self, places: int) -> list[Row]:
        """Return the rows of the next part for one of this many places; none if there are no more."""
        share = self._left / self._pace / (2 * max(1, places))
        seconds = max(_LEAST, min(_SECONDS if self._measured else _FIRST, share))
        rows, spent = list[Row](), 0
        while self._next is not None and len(rows) < self._most:
            more = cost(self._next)
            if rows and spent + more > seconds * self._pace:
                break
            rows.append(self._next)
            spent += more
            self._next = next(self._rows, None)
        self._left = max(0, self._left - spent)
        return rows
