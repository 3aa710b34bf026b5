"""Assigns the shards of an epoch to the parts of a training, also after an interruption.

The shards of an epoch have an order, either the source's or a shuffled one; a *position* is a place in it. Part I of N
reads every N-th position. If there are more parts than shards, parts that share a shard take its samples in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from nbdata.client.reading.orders import part_of
from nbdata.client.reading.shares import Shares
from nbdata.errors import BadOption
from nbdata.formats.permutation import Permutation

__all__ = ["Left", "Work", "merged", "shares_of", "work_of"]


@dataclass
class Left:
    """The unread rest of an epoch.

    Attributes
    ----------
    done : set of int
        Positions whose samples were all given out.
    begun : dict of int to int
        For other positions, the number of samples given out.
    """

    done: set[int] = field(default_factory=set)
    begun: dict[int, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON-able data, with runs of positions as pairs of first and last."""
        return {"done": _runs(self.done), "begun": sorted(self.begun.items())}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Left:
        """Rebuild the state from `to_dict`."""
        done = {number for first, last in data["done"] for number in range(first, last + 1)}
        return cls(done, {int(position): int(given) for position, given in data["begun"]})


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


@dataclass(frozen=True)
class Work:
    """The work of one part.

    Attributes
    ----------
    positions : sequence of int
        The positions to read, in this order.
    share : tuple of (int, int)
        ``(I, N)``: read only every N-th sample of each shard, starting with the I-th.
    """

    positions: Sequence[int]
    share: tuple[int, int] = (0, 1)


def work_of(part: tuple[int, int], count: int, left: Left) -> Work:
    """Return the work of a part in an epoch of that many shards.

    Shards that were begun come first. Positions are dealt in turn, so all parts have equally many, or one more.
    """
    number, parts = part
    if left.done or left.begun:
        open_ones = [position for position in range(count) if position not in left.done]
        open_ones.sort(key=lambda position: position not in left.begun)
        positions: Sequence[int] = open_ones
    else:
        positions = range(count)
    if parts <= len(positions) or not positions:
        return Work(positions[number::parts])
    if left.begun:  # how many samples each share has given is not known
        return Work(positions[number::parts])
    mine = number % len(positions)
    sharing = len(range(mine, parts, len(positions)))
    return Work(positions[mine : mine + 1], (number // len(positions), sharing))


def shares_of(parts: int, numbers: Sequence[int] | Permutation, counts: Sequence[int] | None) -> Shares:
    """Return how much each part has of an epoch, from its beginning.

    Parameters
    ----------
    numbers : sequence of int
        The numbers of the shards, by position.
    counts : sequence of int or None
        The samples of each shard; None if they are not known.
    """
    works = [work_of((number, parts), len(numbers), Left()) for number in range(parts)]
    if counts is None:
        return Shares([Fraction(len(work.positions), work.share[1]) for work in works], "shards")
    shares = []
    for work in works:
        at, of = work.share
        shares.append(sum(len(range(at, counts[numbers[position]], of)) for position in work.positions))
    return Shares(shares)


def merged(states: Sequence[dict[str, Any]], count: int) -> Left:
    """Combine the states of all parts of an epoch into what is left of it.

    Raises
    ------
    BadOption
        If a part is missing, or the states are not of one epoch.
    """
    if not states:
        raise BadOption("there are no states to go on from")
    parts = sorted(part_of(state["part"]) for state in states)
    expected = [(number, parts[0][1]) for number in range(parts[0][1])]
    if parts != expected:
        raise BadOption(
            "these are not the states of all parts",
            expected=", ".join(f"{number}/{of}" for number, of in expected),
            got=", ".join(f"{number}/{of}" for number, of in parts),
            remedy="Give the state of each rank and worker, of the same moment",
        )
    common = ("samples", "shuffle", "seed", "epoch", "window", "left")
    for name in common:
        if any(state[name] != states[0][name] for state in states):
            raise BadOption(f"these states are not of one epoch: {name} differs")
    left = Left.of(states[0]["left"])
    for state in states:
        work = work_of(part_of(state["part"]), count, Left.of(state["left"]))
        if work.share[1] > 1:
            raise BadOption(
                "these states are of more parts than there are shards",
                remedy="Go on with as many ranks and workers as before, or begin the epoch anew",
            )
        opened = dict(state["open"])
        for position in work.positions[: state["next"]]:
            left.begun.pop(position, None)
            if position not in opened:
                left.done.add(position)
        left.begun.update({position: given for position, given in opened.items() if given})
    return left
