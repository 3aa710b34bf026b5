"""A shuffled order that keeps neighbours close: blocks in a random order, and a shuffle within a window.

Reading in this order can read whole blocks at once. The order takes no memory, and depends only on its parameters.
"""

from __future__ import annotations

import hashlib

from nbdata.formats.permutation import Permutation

__all__ = ["BlockOrder"]


class BlockOrder:
    """The numbers below `count`, or a part of them, for one seed and epoch.

    Each epoch has other blocks, in another order. Parts are runs of that order whose lengths differ by at most one. The
    same number of parts always gives the same parts.

    Parameters
    ----------
    count : int
    seed, epoch : int
    block : int
        How many neighbours stay together.
    window : int
        How many numbers are shuffled together.
    part : tuple of (int, int)
        ``(I, N)``.

    Examples
    --------
    >>> order = BlockOrder(10, seed=1, epoch=0, block=2, window=4)
    >>> sorted(order[position] for position in range(len(order)))
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(
        self,
        count: int,
        *,
        seed: int,
        epoch: int,
        block: int,
        window: int,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        number, parts = part
        self._count, self._block, self.window = count, block, window
        self._begin, self._end = count * number // parts, count * (number + 1) // parts
        self._said = f"{seed} {epoch} {number}/{parts}"
        self._blocks = Permutation(count // block, seed=seed, epoch=epoch)
        self._shift = _number(f"shift {seed} {epoch}") % max(1, count)
        self._at, self._numbers = -1, list[int]()

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, position: int) -> int:
        """Return the number at a position of the order."""
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} of {len(self)}")
        window, place = divmod(position, self.window)
        if window != self._at:
            self._at, self._numbers = window, self._of_window(window)
        return self._numbers[place]

    def _of_window(self, window: int) -> list[int]:
        """Return the numbers of one window in their order: computing them together is several times as fast."""
        size = min(self.window, len(self) - window * self.window)
        begin, blocks, count = self._begin + window * self.window, self._blocks, self._count
        block = self._block
        before: list[int] = []
        at = begin
        while at < begin + size:
            number, rest = divmod(at, block)
            more = min(block - rest, begin + size - at)
            first = (blocks[number] * block + rest if number < len(blocks) else at) + self._shift
            before += [place % count for place in range(first, first + more)]
            at += more
        inside = Permutation(size, seed=_number(f"window {self._said}"), epoch=window)
        return [before[place] for place in inside]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
