"""Ranges of files: clipped to the size of the file, and neighbours merged into one request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Range", "clipped", "merged"]

# Two ranges with at most this many bytes between them are fetched by one request: a request costs more.
_GAP = 16 << 10
# Bytes from which a merged range does not grow any more.
_LONGEST = 8 << 20


class Range(NamedTuple):
    """The bytes ``start:end`` that a caller asked for, at `number` in its list."""

    start: int
    end: int
    number: int


def clipped(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Return the bytes of a slice ``[start:end]`` of a file; negative ones count from its end."""
    first, behind, _ = slice(start, end).indices(size)
    return first, max(first, behind)


def merged(ranges: Sequence[Range], gap: int | None = None) -> Iterator[tuple[int, int, list[Range]]]:
    """Yield the ranges to fetch, each with those that it holds.

    Parameters
    ----------
    ranges : sequence of Range
        Of one file, in any order.
    gap : int, optional
        The most bytes between two ranges of one request. None: 16 KiB.

    Examples
    --------
    >>> [(start, end, len(held)) for start, end, held in merged([Range(0, 10, 0), Range(12, 20, 1)])]
    [(0, 20, 2)]
    """
    most = _GAP if gap is None else gap
    held: list[Range] = []
    start = end = 0
    for one in sorted(ranges):
        if held and (one.start - end > most or one.end - start > _LONGEST):
            yield start, end, held
            held = []
        if not held:
            start, end = one.start, one.end
        held.append(one)
        end = max(end, one.end)
    if held:
        yield start, end, held
