"""Simulates a dealt job with 2 to 1,000 workers: the real cutting into parts, and costs that were measured.

``python benchmarks/dealing.py`` prints the table of docs/scale.md in a minute at most; it transfers nothing. With
``--check N`` it compares the simulation with jobs of N objects and 2, 4 and 8 workers. These sleep for as long as their
objects would take, so two cores are enough. The coordinator is one core: it plans first, then deals and merges. Workers
differ in speed. Some die in the middle, and their parts are done again; one prefix of the source, a fiftieth of it, is
ten times as slow as the rest.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import random
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from coordinator import copied_at_once
from listing import SIZE, ListServer

import nbdata
from nbdata.cluster import performer
from nbdata.cluster.cutting import Cutter, cost
from nbdata.cluster.opening import Cluster
from nbdata.engine.job.dealing import PartReport
from nbdata.report import Row

# Parts that are dealt for each that is performed; see `nbdata.cluster.dealing`.
_AHEAD = 2
# The spread of the workers' speeds (lognormal).
_SPREAD = 0.2
# The part of the source that is slow, and how much.
_SLOW, _SLOWER = (0.40, 0.42), 10


@dataclass(frozen=True)
class Costs:
    """CPU seconds of the coordinator."""

    plan: float  # for an object, before anything is dealt
    object: float  # to deal and merge an object
    part: float  # to deal and merge a part


class Simulated:
    """One job.

    Parameters
    ----------
    workers, objects : int
    seconds : float
        What an object takes a worker of mean speed.
    size : int
        Bytes of an object.
    costs : Costs
    hard : bool
        Whether workers differ, a tenth of them dies, and a prefix is slow.
    """

    def __init__(
        self, workers: int, objects: int, seconds: float, size: int, costs: Costs, *, hard: bool
    ) -> None:
        chance = random.Random(1)
        self._seconds, self._costs, self._objects, self._hard = seconds, costs, objects, hard
        self._pace = [chance.lognormvariate(0.0, _SPREAD) if hard else 1.0 for _ in range(workers)]
        self._free = [(0.0, worker) for worker in range(workers)]  # when a worker has done all it has
        whole = objects * (costs.plan + seconds / workers)
        self._dies = {n: chance.uniform(0.2, 0.8) * whole for n in range(workers // 10)} if hard else {}
        row = Row("", "copy", size, {})
        self._cutter = Cutter(itertools.repeat(row, objects), objects, objects * size)
        self._cost = cost(row)
        self._done: list[tuple[float, float, int, int]] = []  # end, seconds, first object, count; a heap
        self._dealt = self._first = 0
        self._clock = objects * costs.plan  # the coordinator's
        self.parts = 0

    def run(self) -> float:
        """Return the seconds until all is merged."""
        places = len(self._pace)
        while True:
            while self._cutter and self._dealt < _AHEAD * places:
                count = len(self._cutter.part(places))
                self._deal(self._first, count, self._clock)
                self._first += count
                self._dealt += 1
            if not self._dealt:
                return self._clock
            end, seconds, first, count = heapq.heappop(self._done)
            if seconds < 0:  # its worker died
                self._deal(first, count, max(end, self._clock))
                continue
            self._dealt -= 1
            self._clock = max(self._clock, end) + self._costs.part + count * self._costs.object
            self._cutter.measured(count * self._cost, seconds)

    def _deal(self, first: int, count: int, now: float) -> None:
        """Give a part to the worker that is free first."""
        self.parts += 1
        free, worker = heapq.heappop(self._free)
        begin, seconds = max(free, now), count * self._seconds * self._pace[worker]
        if self._hard and _SLOW[0] <= first / self._objects < _SLOW[1]:
            seconds *= _SLOWER
        dies = self._dies.get(worker, float("inf"))
        if begin + seconds > dies:  # and nobody takes its place
            heapq.heappush(self._done, (max(dies, now), -1.0, first, count))
            return
        heapq.heappush(self._free, (begin + seconds, worker))
        heapq.heappush(self._done, (begin + seconds, seconds, first, count))


# Seconds that a worker sleeps for an object.
_SLEEPS = 0.006


def slept(job: Any, place: Any, data: bytes) -> PartReport:
    """Report all objects of a part as copied, after the time that they would take."""
    report = copied_at_once(job, place, data)
    time.sleep(_SLEEPS * len(report.rows))
    return report


def dealt(workers: int, objects: int) -> tuple[float, int]:
    """Return the seconds from the first part to the end of a job whose workers sleep, and its parts."""
    enter, leave = Cluster.__enter__, Cluster.__exit__
    times: list[float] = []

    def entered(cluster: Cluster) -> Cluster:
        opened = enter(cluster)
        opened.client.wait_for_workers(workers)
        opened.client.run(setattr, performer, "_performed", slept)
        opened.look()
        times.append(time.perf_counter())
        return opened

    def left(cluster: Cluster, *error: object) -> None:
        times.append(time.perf_counter())
        leave(cluster, *error)

    Cluster.__enter__, Cluster.__exit__ = entered, left  # type: ignore[method-assign]
    try:
        with ListServer(objects) as server:
            options: dict[str, Any] = {
                "endpoint_url": server.url,
                "key": "k",
                "secret": "s",
                "region": "none",
            }
            report = nbdata.copy(
                server.place, f"s3://bench/{workers}", cluster=f"local:{workers}", storage_options=options,
                quiet=True,
            )  # fmt: skip
    finally:
        Cluster.__enter__, Cluster.__exit__ = enter, leave  # type: ignore[method-assign]
    assert report.files == objects, report
    return times[1] - times[0], report.details["cluster"]["parts"]


def check(costs: Costs, objects: int) -> None:
    """Compare jobs whose workers sleep with their simulation, and print a table."""
    os.environ["NBDATA_HOST"] = "inline"
    print("| objects | workers | ideal | simulated | parts | run | parts | load |\n" + "|---" * 8 + "|")
    with tempfile.TemporaryDirectory() as state:
        os.environ["NBDATA_STATE_DIR"] = state
        for workers in (2, 4, 8):
            simulated = Simulated(workers, objects, _SLEEPS, SIZE, costs, hard=False)
            expected = simulated.run() - objects * costs.plan
            seconds, parts = dealt(workers, objects)
            print(
                f"| {objects:,} | {workers} | {objects * _SLEEPS / workers:.1f} s | {expected:.1f} s | "
                f"{simulated.parts} | {seconds:.1f} s | {parts} | {os.getloadavg()[0]:.0f} |",
                flush=True,
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=float, default=22e-6, help="CPU seconds to plan an object")
    parser.add_argument("--object", type=float, default=32e-6, help="CPU seconds to deal and merge one")
    parser.add_argument("--part", type=float, default=5e-3, help="CPU seconds to deal and merge a part")
    parser.add_argument("--check", type=int, metavar="N", help="compare with jobs of N objects")
    args = parser.parse_args()
    costs = Costs(args.plan, args.object, args.part)
    if args.check:
        check(costs, args.check)
        return
    print(
        "| objects | workers | ideal | even workers | of which the plan | uneven, some die, a slow prefix |"
    )
    print("|---" * 6 + "|")
    for name, size, seconds, each in (
        ("10 KB", 10_000, 0.6e-3, 1_000_000),
        ("1 MB", 1_000_000, 3.1e-3, 1_000_000),
        ("10 MB", 10_000_000, 25.6e-3, 1_000_000),
    ):
        for workers in (2, 4, 16, 64, 256, 1000):
            ideal = each * seconds / workers
            even, hard = (
                Simulated(workers, each, seconds, size, costs, hard=hard).run() for hard in (False, True)
            )
            print(
                f"| 10⁶ × {name} | {workers:,} | {ideal:,.0f} s | {even:,.0f} s | {each * costs.plan:.0f} s | "
                f"{hard:,.0f} s |"
            )


if __name__ == "__main__":
    main()
