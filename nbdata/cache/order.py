"""The order of items, epoch by epoch, and the next use of each item.

It depends only on the number of items, the seed and the part, so every worker and every run computes the same order.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator

__all__ = ["NEVER", "Turn", "turns"]

#: The next use of an item that no later epoch needs.
NEVER = 1 << 62


class Turn:
    """One use of an item.

    Attributes
    ----------
    position : int
        Its place in all epochs of the stream, from 0.
    epoch, item : int
        Both from 0. `item` is the index in key order.
    """

    __slots__ = ("epoch", "item", "next_use", "position")

    def __init__(self, position: int, epoch: int, item: int, next_use: int) -> None:
        self.position, self.epoch, self.item, self.next_use = position, epoch, item, next_use


def turns(
    count: int,
    *,
    epochs: int = 1,
    first: int = 0,
    shuffle: bool = False,
    seed: int = 0,
    part: tuple[int, int] = (0, 1),
) -> Iterator[Turn]:
    """Yield the turns of one consumer.

    Parameters
    ----------
    count : int
        Number of items.
    epochs : int
        How many times each item is used.
    first : int
        The number of the first epoch.
    shuffle : bool
        True draws a new order for each epoch. False keeps key order.
    seed : int
        The seed of the shuffle.
    part : tuple of (number, of)
        Takes only the turns whose place in the epoch's order is `number` modulo `of`. The parts are disjoint and
        complete. With a shuffle, each epoch assigns the items to the parts anew.

    Notes
    -----
    `Turn.next_use` is the position of the same item in the next epoch of this part, or `NEVER`. Takes 16 bytes of
    memory per item.
    """
    position = 0
    order = _order(count, first, shuffle, seed, part)
    for epoch in range(first, first + epochs):
        last = epoch + 1 == first + epochs
        after = array("q") if last else _order(count, epoch + 1, shuffle, seed, part)
        places = array("q", [-1]) * (count if after else 0)
        for place, item in enumerate(after):
            places[item] = place
        begin = position + len(order)
        for item in order:
            place = places[item] if after else -1
            yield Turn(position, epoch, item, begin + place if place >= 0 else NEVER)
            position += 1
        order = after


def _order(count: int, epoch: int, shuffle: bool, seed: int, part: tuple[int, int]) -> array[int]:
    order = array("q", range(count))
    if shuffle:
        random.Random(f"{seed}/{epoch}").shuffle(order)
    number, of = part
    return order[number::of]
