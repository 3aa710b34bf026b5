"""What very many objects and a very fast line would take: arithmetic with measured figures, and a small simulation.

``python benchmarks/scale.py`` prints the tables of docs/scale.md in a second. Nothing is moved. The figures of one
object (``Cost``) were measured, see there; each can be given another value, as ``--fetch 300e-6``.
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
    """Of one object, page or byte, in seconds of one core, seconds, or bytes."""

    plan: float = 19e-6  # listed, decided, written down: seconds of a core
    fetch: float = 0.6e-3  # moved, verified, named, recorded: seconds of a core, whatever its size
    byte: float = 2.5e-9  # received, hashed, written: seconds of a core
    page: float = 0.075  # 1,000 objects of a listing from a store that is not near: seconds
    inventory: float = 3e-6  # a row of an inventory file read: seconds of a core (an estimate)
    held: float = 107.0  # of an object that was moved before: bytes of memory
    record: float = 139.0  # the same on the disk, in the index
    rows: float = 210.0  # of an object while a job lasts: bytes in the runtime folder, plan and report


@dataclass(frozen=True)
class Case:
    """So many objects of so many bytes on average, over a line of so many bits a second, by so many agents."""

    objects: float
    size: float
    line: float
    agents: int = 1
    cores: int = 8  # of the machine of each agent
    inventory: bool = False


def stages(case: Case, cost: Cost) -> dict[str, float]:
    """Seconds that each part of the work takes if it had the machines for itself."""
    share = case.objects / case.agents
    return {
        "listing": 0.0 if case.inventory else case.objects / 1000 * cost.page,
        "planning": share * (cost.plan + (cost.inventory if case.inventory else 0.0)),
        # Python runs one thread of an agent at a time; hashing and system calls, most of what a byte costs, run beside.
        "small work": share * cost.fetch,
        "bytes": share * case.size * cost.byte / case.cores,
        "line": case.objects * case.size * 8 / case.line,
    }


def makespan(durations: list[float], agents: int) -> float:
    """When the last shard is done, if each agent takes the next one as it is free."""
    free = [0.0] * agents
    for duration in durations:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def shards(count: int, spread: float, chance: random.Random) -> list[float]:
    """Shares of the work, as prefixes of a bucket have them: few are large (lognormal)."""
    sizes = [chance.lognormvariate(0.0, spread) for _ in range(count)]
    whole = sum(sizes)
    return [size / whole for size in sizes]


def lost(agents: int, per_agent: int, spread: float, *, even: bool = False, rounds: int = 40) -> float:
    """How many times as long as with perfectly even shards it takes, in the middle of some tries."""
    chance = random.Random(1)
    count = agents * per_agent
    tries = [
        makespan([1 / count] * count if even else shards(count, spread, chance), agents)
        for _ in range(rounds)
    ]
    return statistics.median(tries) * agents


def told(seconds: float) -> str:
    """A time for people."""
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
