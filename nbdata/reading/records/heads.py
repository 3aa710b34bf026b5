"""The headers of several FFRecord files as one sequence of samples."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Sequence

from nbdata.formats.ffrecord import Head

__all__ = ["Heads"]


class Heads:
    """The headers of several files; their samples are numbered through, one file after the other.

    Parameters
    ----------
    heads : sequence of Head
        In the order of the files.

    Attributes
    ----------
    count : int
        The number of samples.
    begins : list of int
        The number of the first sample of each file.
    """

    def __init__(self, heads: Sequence[Head]) -> None:
        self._heads = list(heads)
        self._ends = list(itertools.accumulate(head.count for head in self._heads))
        self.begins = [0, *self._ends[:-1]]
        self.count = self._ends[-1] if self._ends else 0

    def __len__(self) -> int:
        return len(self._heads)

    def __getitem__(self, file: int) -> Head:
        """Return the header of a file."""
        return self._heads[file]

    def find(self, number: int) -> tuple[int, int]:
        """Return the file that holds a sample, and the sample's number there."""
        file = bisect_right(self._ends, number)
        return file, number - (self._ends[file - 1] if file else 0)

    def place(self, number: int) -> tuple[int, int, int]:
        """Return the file that holds a sample, with the sample's start and exclusive end there."""
        file, own = self.find(number)
        start, end = self._heads[file].place(own)
        return file, start, end

    def bytes_of(self, first: int, end: int) -> int:
        """Return the bytes of consecutive samples."""
        total = 0
        while first < end:
            file, own = self.find(first)
            count = min(end - first, self._heads[file].count - own)
            total += self._heads[file].place(own + count - 1)[1] - self._heads[file].place(own)[0]
            first += count
        return total

    @property
    def bytes(self) -> int:
        """Total bytes of all samples."""
        return sum(head.size - len(head.bytes) for head in self._heads)

    def check(self) -> None:
        """Check all headers; see `Head.check`."""
        for head in self._heads:
            head.check()

    @property
    def fingerprint(self) -> str:
        """A digest that is equal for the same samples in the same order, whatever the files' names."""
        digest = hashlib.blake2b(digest_size=16)
        for head in self._heads:
            digest.update(head.size.to_bytes(8, "little"))
            digest.update(head.bytes)
        return digest.hexdigest()
