"""Estimates the cost of very many objects and a very fast line, by arithmetic and a small simulation.

``python benchmarks/scale.py`` prints the tables of docs/scale.md within a second. It transfers nothing. The figures per
object (``Cost``) were measured; docs/scale.md says how. Options set other values, for example ``--fetch 300e-6``.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from dataclasses import dataclass, fields, replace

_HOUR = 3600.0
_DAY = 24 * _HOUR


@dataclass(frozen=True)
class Cost:
    """The cost of one object, page or byte, in CPU seconds of one core, seconds, or bytes."""

    plan: float = 19e-6  # CPU seconds to list, plan and record an object
    fetch: float = 0.6e-3  # CPU seconds to transfer, verify, name and record an object of any size
    byte: float = 2.5e-9  # CPU seconds to receive, hash and write a byte
    page: float = 0.075  # seconds for 1,000 objects of a listing from a distant store
    inventory: float = 3e-6  # CPU seconds to read a row of an inventory file (an estimate)
    held: float = 107.0  # bytes of memory for an object that was transferred before
    record: float = 139.0  # bytes on the disk for the same object, in the index
    rows: float = 210.0  # bytes in the runtime folder per object of a running job, for plan and report


@dataclass(frozen=True)
class Case:
    """A workload.

    `size` is the mean size of an object in bytes, `line` the bandwidth in bits per second.
    """

    objects: float
    size: float
    line: float
    agents: int = 1
    cores: int = 8  # cores of each agent's machine
    inventory: bool = False


def stages(case: Case, cost: Cost) -> dict[str, float]:
    """Return the seconds that each part of the work would take if it had the machines for itself."""
    share = case.objects / case.agents
    return {
        "listing": 0.0 if case.inventory else case.objects / 1000 * cost.page,
        "planning": share * (cost.plan + (cost.inventory if case.inventory else 0.0)),
        # Python runs one thread of an agent at a time. Hashing and system calls, most of the cost of a byte, run in
        # parallel.
        "small work": share * cost.fetch,
        "bytes": share * case.size * cost.byte / case.cores,
        "line": case.objects * case.size * 8 / case.line,
    }


def makespan(durations: list[float], agents: int) -> float:
    """Return when the last shard is done if each free agent takes the next one."""
    free = [0.0] * agents
    for duration in durations:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def shards(count: int, spread: float, chance: random.Random) -> list[float]:
    """Return shares of the work as prefixes of a bucket have them: a few are large (lognormal)."""
    sizes = [chance.lognormvariate(0.0, spread) for _ in range(count)]
    whole = sum(sizes)
    return [size / whole for size in sizes]


def lost(agents: int, per_agent: int, spread: float, *, even: bool = False, rounds: int = 40) -> float:
    """Return how much longer the work takes than with perfectly even shards, as a factor; the median of some tries."""
    chance = random.Random(1)
    count = agents * per_agent
    tries = [
        makespan([1 / count] * count if even else shards(count, spread, chance), agents)
        for _ in range(rounds)
    ]
    return statistics.median(tries) * agents


def told(seconds: float) -> str:
    """Return a duration in a readable form."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < 3 * _DAY else f"{seconds / _DAY:.0f} days"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    for part in fields(Cost):
        parser.add_argument(f"--{part.name}", type=float, default=part.default)
    cost = Cost(**vars(parser.parse_args()))

    print(
        "| objects | of | line | agents | listing | "
        + " | ".join(list(stages(Case(1, 1, 1), cost))[1:])
        + " | what holds |"
    )
    print("|---" * 10 + "|")
    for objects in (1e8, 1e9):
        for size, line in ((100e3, 10e9), (100e3, 100e9), (10e6, 100e9)):
            for agents, inventory in ((1, False), (16, True), (128, True)):
                took = stages(Case(objects, size, line, agents, inventory=inventory), cost)
                worst = max(took, key=lambda part: took[part])
                listing = "inventory" if inventory else told(took["listing"])
                rest = " | ".join(told(seconds) for part, seconds in took.items() if part != "listing")
                kind = f"{size / 1e6:g} MB"
                print(
                    f"| {objects:.0e} | {kind} | {line / 1e9:g} Gbit/s | {agents} | {listing} | {rest} | {worst} |"
                )

    print("\n| objects | memory for records | index on the disk | rows while it lasts |\n" + "|---" * 4 + "|")
    for objects in (1e6, 1e8, 1e9):
        sums = (objects * part / 1e9 for part in (cost.held, cost.record, cost.rows))
        print(f"| {objects:.0e} | " + " | ".join(f"{each:,.1f} GB" for each in sums) + " |")

    print(
        "\n| agents | shards for each | by prefixes (lognormal, σ 1.5) | of equal counts |\n"
        + "|---" * 4
        + "|"
    )
    for agents in (16, 128):
        for each in (1, 4, 20, 100):
            even = lost(agents, each, 0.0, even=True)
            print(f"| {agents} | {each} | {lost(agents, each, 1.5):.2f} × | {even:.2f} × |")

    full = Case(0, 1e6, 100e9)
    rate = full.line / 8
    print(f"\n100 Gbit/s are {rate / 1e9:.1f} GB/s: {rate * cost.byte:.0f} cores for the bytes.")
    for size in (100e3, 1e6, 10e6):
        many = rate / size
        agents = many * cost.fetch
        print(f"Of {size / 1e6:g} MB each: {many:,.0f} objects/s, so at least {agents:.0f} agents at a time.")
    half = replace(cost, fetch=cost.fetch / 2)
    print(
        f"Were an object's own cost half of that, {rate / 100e3 * half.fetch:.0f} agents for those of 0.1 MB."
    )


if __name__ == "__main__":
    main()
