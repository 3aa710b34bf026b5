"""Plans how FFRecord samples are read, so that neighbours come as one range, and cuts them out of it again.

A range of neighbours is called by one number: that of its first sample, with the number of samples that follow in the
lowest bits. So it can be requested from a fetcher, which knows samples by number.
"""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from isal.isal_zlib import crc32

from nbdata.formats.ffrecord import Head
from nbdata.reading.records.heads import Heads

__all__ = ["RANGE", "Run", "cut", "first_wrong", "is_ascending", "runs_of", "stretches"]

# Most bytes of a gap that is read along between two samples.
_GAP = 16 << 10
#: Most bytes of a range of several samples.
RANGE = 8 << 20
# Bits of a range's number for the samples that follow its first one.
_MORE = 16


class Run(NamedTuple):
    """Some samples of one file that are read as one range.

    Attributes
    ----------
    first, samples : int
        The first sample, and the number of samples in the range.
    wanted : sequence of int
        Those that are asked for, ascending.
    """

    first: int
    samples: int
    wanted: Sequence[int]

    @property
    def number(self) -> int:
        """The number that the range is requested by."""
        return self.first << _MORE | (self.samples - 1)

    @staticmethod
    def of_number(number: int) -> tuple[int, int]:
        """Return the first sample of a requested range, and the number of its samples."""
        return number >> _MORE, (number & ((1 << _MORE) - 1)) + 1


def is_ascending(numbers: Sequence[int]) -> bool:
    """True if each number is greater than the one before, as in all ranges here."""
    return isinstance(numbers, range) or len(numbers) < 2 or all(map(operator.lt, numbers, numbers[1:]))


def stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Divide ascending numbers into stretches of consecutive ones: the first of each, and its exclusive end."""
    if not numbers:
        return []
    if numbers[-1] - numbers[0] + 1 == len(numbers):
        return [(numbers[0], numbers[-1] + 1)]
    found: list[tuple[int, int]] = []
    first = before = numbers[0]
    for number in numbers[1:]:
        if number != before + 1:
            found.append((first, before + 1))
            first = number
        before = number
    found.append((first, before + 1))
    return found


def runs_of(heads: Heads, numbers: Sequence[int]) -> list[Run]:
    """Return the ranges that cover ascending samples; those with small gaps between them share one."""
    runs: list[Run] = []
    last_file, begin, reached = -1, 0, 0
    for first, end in stretches(numbers):
        while first < end:
            file, own = heads.find(first)
            head = heads[file]
            here = min(end - first, head.count - own)
            start, _ = head.place(own)
            joins = file == last_file and 0 <= start - reached <= _GAP and first - runs[-1].first < 1 << _MORE
            wanted: Sequence[int]
            if joins and head.place(own)[1] - begin <= RANGE:
                began, _, wanted = runs.pop()
            else:
                began, begin, wanted = first, start, ()
            most = min(here, (1 << _MORE) - (first - began))
            count = _that_end(head, own, most, begin + RANGE)
            more = range(first, first + count)
            if isinstance(wanted, list):
                wanted += more
            else:
                wanted = [*wanted, *more] if wanted else more
            runs.append(Run(began, first + count - began, wanted))
            first += count
            last_file, reached = file, head.place(own + count - 1)[1]
    return runs


def _that_end(head: Head, first: int, most: int, limit: int) -> int:
    """Return how many samples of a file, at least one, end before a limit."""
    # The start of the next one is the end of a sample.
    count = bisect_right(head.starts, limit, first + 1, min(first + most + 1, head.count)) - first - 1
    if first + count + 1 == head.count and count < most and head.size <= limit:
        count += 1
    return max(1, count)


def cut(bounds: Sequence[int], data: bytes | bytearray | memoryview) -> list[bytes]:
    """Cut neighbours out of their range; `bounds` are the start of each in the file, and the end of the last."""
    begin = bounds[0]
    if len(bounds) == 2:
        return [bytes(data)]
    if isinstance(data, bytes):
        return [data[start - begin : end - begin] for start, end in itertools.pairwise(bounds)]
    view = memoryview(data)
    return [bytes(view[start - begin : end - begin]) for start, end in itertools.pairwise(bounds)]


def first_wrong(head: Head, first: int, contents: Sequence[bytes | bytearray]) -> int | None:
    """Return the place of the first of some neighbours in a file whose CRC-32 is not that of the header; else None."""
    got, expected = list(map(crc32, contents)), head.crcs[first : first + len(contents)].tolist()
    if got == expected:
        return None
    return next(place for place, (one, other) in enumerate(zip(got, expected, strict=True)) if one != other)
