"""Hits of the cache of samples in shuffled epochs, by simulation: the order of eviction with and without told epochs.

Run with ``.venv/bin/python benchmarks/eviction.py`` (a minute). Objects are equal; `CacheContents` alone, no bytes.
Without told epochs the least recently used object goes first.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nbdata.cache.contents import CacheContents, Wanted
from nbdata.protocols import Epoch

OBJECTS, BATCH, AHEAD = 2000, 16, 8
LIMITS = (0.1, 0.25, 0.4, 0.6, 0.8, 0.95)
WANTED = [Wanted(f"{number:032x}", 1, number) for number in range(2 * OBJECTS)]


class Step(NamedTuple):
    """A batch of a loop, and what the loop announces after it."""

    loop: str
    epoch: int
    batch: list[int]
    ahead: list[int]
    first: bool
    last: bool


def loop(
    name: str, objects: Sequence[int], epochs: Iterable[int], seed: int, part: tuple[int, int] = (0, 1)
) -> Iterator[Step]:
    """Yield the batches of a loop over objects, or a part of it, shuffled in each epoch."""
    for epoch in epochs:
        order = random.Random(f"{seed}/{epoch}").sample(objects, len(objects))[part[0] :: part[1]]
        for at in range(0, len(order), BATCH):
            end = at + BATCH
            ahead = order[end : end + AHEAD * BATCH // part[1]]
            yield Step(name, epoch, order[at:end], ahead, at == 0, end >= len(order))


def turns(*loops: Iterator[Step]) -> Iterator[Step]:
    """Yield the batches of loops that run side by side, until the first one ends."""
    for steps in zip(*loops, strict=False):
        yield from steps


class Simulation:
    """A cache, and the objects used and fetched in each epoch of each loop."""

    def __init__(self, limit: float, *, told: bool) -> None:
        self.gone: list[str] = []
        self.cache = CacheContents(int(limit * OBJECTS), self.gone.append)
        self.told = told
        self.used: dict[tuple[str, int], int] = {}
        self.fetched: dict[tuple[str, int], int] = {}
        self._numbers = itertools.count()

    def run(self, steps: Iterable[Step]) -> Simulation:
        """Read batches through the cache."""
        cache = self.cache
        for step in steps:
            before, lease, epoch = cache.fetched, next(self._numbers), Epoch(step.loop, str(step.epoch))
            if step.first and self.told:
                cache.note_epoch(step.loop, epoch)
            cache.announce(step.loop, [WANTED[number] for number in step.batch + step.ahead])
            cache.acquire(lease, step.loop, [WANTED[number] for number in step.batch])
            while (chosen := cache.next(0)) is not None:
                cache.committed(chosen.name)
            assert cache.wait(lease, 0) == {}
            cache.release(lease)
            if step.last and self.told:
                cache.note_epoch(step.loop, epoch._replace(over=True))
            key = step.loop, step.epoch
            self.used[key] = self.used.get(key, 0) + len(step.batch)
            self.fetched[key] = self.fetched.get(key, 0) + cache.fetched - before
        return self

    def hits(self, *epochs: int) -> float:
        """The share of uses in these epochs of all loops that needed no fetch."""
        keys = [key for key in self.used if key[1] in epochs]
        return 1 - sum(self.fetched[key] for key in keys) / sum(self.used[key] for key in keys)


def one(simulation: Simulation) -> str:
    """One loop."""
    return f"{simulation.run(loop('A', range(OBJECTS), range(6), 1)).hits(2, 3, 4, 5):.0%}"


def two(simulation: Simulation) -> str:
    """Two loops, each in an order of its own."""
    loops = [loop(name, range(OBJECTS), range(6), seed) for seed, name in enumerate("AB")]
    return f"{simulation.run(turns(*loops)).hits(2, 3, 4, 5):.0%}"


def ranks(simulation: Simulation) -> str:
    """Four ranks of one training, which announce as much together."""
    loops = [loop(f"{rank}", range(OBJECTS), range(6), 1, (rank, 4)) for rank in range(4)]
    return f"{simulation.run(turns(*loops)).hits(2, 3, 4, 5):.0%}"


def slower(simulation: Simulation) -> str:
    """Two loops, the second one three times as slow."""
    fast, slow = loop("A", range(OBJECTS), range(9), 1), loop("B", range(OBJECTS), range(3), 2)
    return f"{simulation.run(turns(fast, fast, fast, slow)).hits(2, 3, 4, 5, 6, 7, 8):.0%}"


def behind(simulation: Simulation) -> str:
    """Two loops in the same order, the second one 20 batches behind."""
    first, second = (loop(name, range(OBJECTS), range(6), 1) for name in "AB")
    simulation.run(itertools.islice(first, 20))
    return f"{simulation.run(turns(first, second)).hits(2, 3, 4, 5):.0%}"


def small(simulation: Simulation) -> str:
    """A loop over all objects, beside one over ten of them (hits of the latter)."""
    simulation.run(turns(loop("A", range(OBJECTS), range(4), 1), loop("B", range(10), range(1000), 2)))
    keys = [key for key in simulation.used if key[0] == "B" and key[1] > 10]
    return f"{1 - sum(simulation.fetched[key] > 0 for key in keys) / len(keys):.0%}"


def changed(simulation: Simulation) -> str:
    """Epochs after the third one, in which the loop has another selection of as many objects."""
    simulation.run(loop("A", range(OBJECTS), range(3), 1))
    simulation.run(loop("B", range(OBJECTS, 2 * OBJECTS), range(5), 1))
    return " ".join(
        f"{1 - simulation.fetched['B', epoch] / simulation.used['B', epoch]:.0%}" for epoch in range(5)
    )


def main() -> None:
    """Print the table."""
    print("| limit, of the data |", " | ".join(f"{limit:.0%}" for limit in LIMITS), "|")
    print("|---" * (len(LIMITS) + 1) + "|")
    for scenario in (one, ranks, two, slower, behind, small, changed):
        for told in (False, True):
            row = " | ".join(scenario(Simulation(limit, told=told)) for limit in LIMITS)
            way = "told epochs" if told else "least recently used"
            print(f"| {scenario.__doc__} {way} | {row} |", flush=True)


if __name__ == "__main__":
    main()
