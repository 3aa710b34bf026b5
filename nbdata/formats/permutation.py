"""Shuffled orders that need no memory: a pseudo-random permutation of ``0 … n-1``, computed number by number.

A Feistel network over the smallest even number of bits that holds `n`, with cycle walking: a result that is too large
is put in again (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). The round function mixes
64-bit integers with the finaliser of MurmurHash3 (Appleby, public domain); it shuffles well, but is not a cipher.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

__all__ = ["Permutation"]

_ROUNDS = 6
_MASK = (1 << 64) - 1


class Permutation:
    """The order of the numbers below `count`, for one seed and epoch.

    Parameters
    ----------
    count : int
    seed, epoch : int
        The same two always give the same order, on every machine and Python version.

    Examples
    --------
    >>> order = Permutation(5, seed=1, epoch=0)
    >>> sorted(order)
    [0, 1, 2, 3, 4]
    """

    def __init__(self, count: int, *, seed: int, epoch: int) -> None:
        self._count = count
        self._half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
        self._low = (1 << self._half) - 1
        digest = hashlib.blake2b(f"nbdata {seed} {epoch}".encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = [int.from_bytes(digest[at : at + 8], "little") for at in range(0, 8 * _ROUNDS, 8)]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> int:
        """Return the number at a position of the order."""
        if not 0 <= position < self._count:
            raise IndexError(f"position {position} of {self._count}")
        half, low, keys = self._half, self._low, self._keys
        value = position
        while True:
            left, right = value >> half, value & low
            for key in keys:
                left, right = right, left ^ (_mixed(right ^ key) & low)
            value = left << half | right
            if value < self._count:
                return value

    def __iter__(self) -> Iterator[int]:
        """Yield all numbers in their order, several times as fast as by position.

        A round depends on half of the bits only, so a table of all its results is short.
        """
        half, low = self._half, self._low
        one, two, three, four, five, six = (
            [_mixed(right ^ key) & low for right in range(low + 1)] for key in self._keys
        )
        for position in range(self._count):
            value = position
            while True:
                left, right = value >> half, value & low
                left ^= one[right]
                right ^= two[left]
                left ^= three[right]
                right ^= four[left]
                left ^= five[right]
                right ^= six[left]
                value = left << half | right
                if value < self._count:
                    break
            yield value


def _mixed(value: int) -> int:
    value &= _MASK
    value = (value ^ (value >> 33)) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ (value >> 33)
