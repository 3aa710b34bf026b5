"""The framework of ``make bench``: a server, test data, and rows in which tools run in turn as whole processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ceiling import read_by_sockets
from line import Line
from listing import ListServer
from measure import BIN, Run, agent_pid, interval, same, timed
from peers import COMMANDS

from nbdata.demo.server import EmbeddedServer

__all__ = ["BIN", "COMMANDS", "Bench", "Side", "agent_pid", "same", "slug", "timed"]


# A tool that takes more than this many times as long as nbdata runs only once, to save time.
SLOW = 1.5

SMALL, FEW, BIG, HUGE = "20,000 × 10 KB", "2,000 × 10 KB", "8 × 128 MiB", "1 × 2 GiB"
MANY = "100 × 40 MB"
# Objects of listings by `ListServer`: a sync of objects whose files all exist, and a plan of objects without files.
LISTED, PLANNED = 100_000, 1_000_000
# Bytes of random data that are created at a time.
_PIECE = 64 << 20
# Rows that take long get fewer rounds.
FEWER = {SMALL: 2, HUGE: 2, MANY: 2, f"{LISTED:,}": 2, f"{PLANNED:,}": 1}
# Number of files, and bytes per file.
DATA = {
    SMALL: (20_000, 10_000),
    FEW: (2_000, 10_000),
    BIG: (8, 128 << 20),
    HUGE: (1, 2 << 30),
    MANY: (100, 40_000_000),
    "8 × 64 MiB": (8, 64 << 20),
}
AWAY = "; 20 ms away, 50 MB/s a connection"


def slug(name: str) -> str:
    """Return a data set's name in a form that fits into a key."""
    return name.replace(",", "").replace(" ", "").replace("×", "x")


@dataclass
class Side:
    """A tool and its command for a row. `after` checks and removes the output; `before` prepares the run."""

    tool: str
    command: Callable[[int], list[str]]
    after: Callable[[int], None] = lambda _: None
    before: Callable[[int], None] = lambda _: None
    env: dict[str, str] = field(default_factory=dict)
    agent: bool = True  # whether the agent's CPU time and memory count, for nbdata


@dataclass
class Bench:
    """A working folder, a server, and the measured results."""

    work: Path
    server: EmbeddedServer
    rounds: int
    only: str
    scale: float
    results: list[dict[str, Any]] = field(default_factory=list)
    line: Line | None = None
    lists: ListServer | None = None
    sources: dict[str, Path] = field(default_factory=dict)
    in_store: set[str] = field(default_factory=set)

    # -- one row --------------------------------------------------------------------------------

    def wants(self, row: str) -> bool:
        """True if the user selected this row."""
        return self.only in row

    def row(self, name: str, sides: list[Side], size: int, servers: Sequence[int] = ()) -> None:
        """Run the tools in turn and print a line for each of them; the first one is nbdata.

        `servers` are processes whose CPU time counts as the server's, in addition to the usual ones.
        """
        if not self.wants(name):
            return
        between = [each.process.pid for each in (self.line, self.lists) if each is not None]
        servers = [self.server.pid, *between, *servers]
        runs: dict[str, list[Run]] = {side.tool: [] for side in sides}
        pairs: dict[str, list[float]] = {side.tool: [] for side in sides[1:]}
        most = next((count for label, count in FEWER.items() if label in name), self.rounds)
        for number in range(min(self.rounds, most)):
            shift = number % len(sides)
            took: dict[str, Run] = {}
            for side in [*sides[shift:], *sides[:shift]]:
                if len(runs[side.tool]) >= 1 and self._slow(runs, side, sides[0]):
                    continue
                side.before(number)
                os.sync()  # else this run would share the disk with earlier writes
                run = timed(
                    side.command(number),
                    servers=servers,
                    agent=side.agent and side.tool.startswith("nbdata"),
                    env={**os.environ, **side.env},
                )
                side.after(number)
                runs[side.tool].append(run)
                took[side.tool] = run
            for tool, ratios in pairs.items():
                if tool in took and sides[0].tool in took:
                    ratios.append(took[sides[0].tool].wall / took[tool].wall)
        for side in sides:
            self._print(name, side.tool, runs[side.tool], pairs.get(side.tool, []), size)

    @staticmethod
    def _slow(runs: dict[str, list[Run]], side: Side, first: Side) -> bool:
        if side is first or not runs[first.tool]:
            return False
        return runs[side.tool][0].wall > SLOW * runs[first.tool][0].wall

    def _print(self, name: str, tool: str, runs: list[Run], ratios: list[float], size: int) -> None:
        middle = {
            part: statistics.median(getattr(run, part) for run in runs)
            for part in ("wall", "cpu", "server", "memory", "others")
        }
        told = "1"
        if ratios:
            median, low, high = interval(ratios)
            few = "once" if len(ratios) == 1 else "twice"
            told = f"{median:.2f} ({f'{low:.2f} to {high:.2f}' if len(ratios) > 2 else few})"
        print(
            f"| {name} | {tool} | {middle['wall']:.2f} s | {told} | {middle['cpu']:.2f} s | {middle['server']:.2f} s "
            f"| {middle['memory'] / 1e6:,.0f} MB | {size / middle['wall'] / 1e6:,.0f} MB/s | {middle['others']:.2f} |",
            flush=True,
        )
        self.results.append({
            "row": name, "tool": tool, "bytes": size, "ratios": ratios, "runs": [run.to_dict() for run in runs],
        })  # fmt: skip

    # -- data ---------------------------------------------------------------------------------

    def data(self, name: str) -> tuple[int, int]:
        """Return the number of files of a data set, and the bytes per file."""
        count, size = DATA[name]
        return (max(2, int(count * self.scale)), size) if count > 100 else (count, int(size * self.scale))

    def source(self, name: str, *, store: bool = True) -> Path:
        """Return a folder of files with random bytes.

        Unless `store` is false, the files are uploaded to the store too.
        """
        if name not in self.sources:
            count, size = self.data(name)
            folder = self.work / f"source-{slug(name)}"
            folder.mkdir()
            for number in range(count):
                with (folder / f"{number:05d}").open("wb") as file:
                    for start in range(0, size, _PIECE):
                        file.write(random.randbytes(min(_PIECE, size - start)))
            self.sources[name] = folder
        if store and name not in self.in_store:
            timed(COMMANDS["s5cmd"]["push"](str(self.sources[name]), f"s3://bench/{slug(name)}"))
            self.in_store.add(name)
        return self.sources[name]

    def drop(self, name: str) -> None:
        """Delete a data set's folder, because the disk is small."""
        if name in self.sources:
            shutil.rmtree(self.sources.pop(name))
        if name in self.in_store:
            timed([str(BIN / "s5cmd"), "rm", f"s3://bench/{slug(name)}/*"])
            self.in_store.remove(name)

    @contextmanager
    def over(self, delay: float, rate: float) -> Iterator[Line]:
        """Route all traffic through a line with this delay and bandwidth."""
        with Line(self.server.url, delay, rate) as line:
            self.line = line
            os.environ.update(AWS_ENDPOINT_URL=line.url, S3_ENDPOINT_URL=line.url)
            yield line
        self.line = None
        os.environ.update(self.server.environment(), S3_ENDPOINT_URL=self.server.url)

    def stored(self, place: str) -> tuple[int, int]:
        """Return the bytes and the number of objects below a place in the store, as s5cmd counts them."""
        done = subprocess.run([BIN / "s5cmd", "--json", "du", f"{place}/*"], capture_output=True, check=True)
        told = json.loads(done.stdout)
        return told["size"], told["count"]

    @contextmanager
    def listed(self, objects: int) -> Iterator[ListServer]:
        """Route all requests to a server that only lists."""
        with ListServer(objects) as lists:
            self.lists = lists
            os.environ.update(AWS_ENDPOINT_URL=lists.url, S3_ENDPOINT_URL=lists.url)
            yield lists
        self.lists = None
        os.environ.update(self.server.environment(), S3_ENDPOINT_URL=self.server.url)

    def ceiling(self, name: str) -> None:
        """If a row needs it, measure how fast clients that discard all data can read from the server."""
        if name not in self.in_store:
            return
        read, seconds, cpu = read_by_sockets("bench", f"{slug(name)}/", self.server.pid)
        print(
            f"The server alone, {name}: plain sockets of 4 processes read {read / seconds / 1e6:,.0f} MB/s in "
            f"{seconds:.2f} s; it used {cpu / seconds:.1f} cores meanwhile.",
            flush=True,
        )
        self.results.append({"row": f"ceiling {name}", "bytes": read, "seconds": seconds, "server": cpu})
