"""The headers of several FFRecord files as one sequence of samples."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Sequence

from nbdata.formats.ffrecord import Head

__all__ = ["Heads"]


class Heads:
    """Headers, and the samples of all files one behind the other.

    Parameters
    ----------
    heads : sequence of Head
        In the order of the files.

    Attributes
    ----------
    count : int
        How many samples there are.
    """

    def __init__(self, heads: Sequence[Head]) -> None:
        self._heads = list(heads)
        self._ends = list(itertools.accumulate(head.count for head in self._heads))
        self.count = self._ends[-1] if self._ends else 0

    def __len__(self) -> int:
        return len(self._heads)

    def __getitem__(self, file: int) -> Head:
        """The header of a file."""
        return self._heads[file]

    def find(self, number: int) -> tuple[int, int]:
        """The file that holds a sample, and its number there."""
        file = bisect_right(self._ends, number)
        return file, number - (self._ends[file - 1] if file else 0)

    def place(self, number: int) -> tuple[int, int, int]:
        """The file that holds a sample, where it begins there, and the byte behind it."""
        file, own = self.find(number)
        start, end = self._heads[file].place(own)
        return file, start, end

    def size(self, number: int) -> int:
        """Bytes of a sample."""
        _, start, end = self.place(number)
        return end - start

    @property
    def bytes(self) -> int:
        """Of all samples."""
        return sum(head.size - len(head.bytes) for head in self._heads)

    def check(self) -> None:
        """Look at all headers; see `Head.check`."""
        for head in self._heads:
            head.check()

    @property
    def fingerprint(self) -> str:
        """The same for the same samples in the same order, whatever the files are called."""
        digest = hashlib.blake2b(digest_size=16)
        for head in self._heads:
            digest.update(head.size.to_bytes(8, "little"))
            digest.update(head.bytes)
        return digest.hexdigest()
