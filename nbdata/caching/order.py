"""The order in which items are handed out, epoch by epoch, and when each is needed again.

A pure function of the number of items, the seed and the part, so that every worker and every run computes the same.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator

__all__ = ["NEVER", "Turn", "turns"]

#: When an item is needed that no later epoch takes.
NEVER = 1 << 62


class Turn:
    """One item's turn.

    Attributes
    ----------
    position : int
        Counted over all epochs of the stream, from 0.
    epoch, item : int
        Both from 0; `item` counts in key order.
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
    """The turns of one consumer.

    Parameters
    ----------
    count : int
        Number of items.
    epochs : int
        How often each is handed out.
    first : int
        Number of the first epoch.
    shuffle : bool
        Draw a new order for each epoch; else key order.
    seed : int
        Of the shuffle.
    part : tuple of (number, of)
        Only the turns whose place in the epoch's order is `number` modulo `of`: the parts are disjoint, and together
        they are all. With a shuffle each epoch deals the items out anew.

    Notes
    -----
    `Turn.next_use` is the position of the same item in the next epoch of this part, or `NEVER`. It holds 16 bytes
    an item.
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
