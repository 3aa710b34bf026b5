"""``make bench``: nbdata beside its peers, row by row: whole processes in turn on one server, outputs compared.

``ARGS="--only 'pull 8'"`` for some rows, ``--rounds``, ``--json FILE`` for all single runs. The state of the machine is
half of such a figure: read the ratios, and their intervals.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ceiling import read_by_sockets
from line import Line, carried
from listing import SIZE, ListServer, write_files
from measure import BIN, Run, agent_pid, interval, same, timed
from peers import COMMANDS, rclone_environment

from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from nbdata.version import __version__

# A tool that takes this many times as long as nbdata is run once only, for the sake of time.
SLOW = 2.0
# Beyond this share of what the line alone can carry a row says more of the line than of the clients.
BOUND = 0.7


SMALL, FEW, BIG, HUGE = "20,000 × 10 KB", "2,000 × 10 KB", "8 × 128 MiB", "1 × 2 GiB"
MANY = "100 × 40 MB"
# Objects that a server only lists: of which files are there, and of which there are none.
LISTED, PLANNED = 100_000, 1_000_000
# Bytes of random data that are made at a time.
_PIECE = 64 << 20
# Fewer rounds where one takes long.
FEWER = {SMALL: 3, HUGE: 2, MANY: 3, "extract": 3, f"{LISTED:,}": 3, f"{PLANNED:,}": 2}
# Files and bytes of each.
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
    """A name as a part of a key."""
    return name.replace(",", "").replace(" ", "").replace("×", "x")


@dataclass
class Side:
    """One tool's way to do a row's work; `after` looks at what came out, and clears it away."""

    tool: str
    command: Callable[[int], list[str]]
    after: Callable[[int], None] = lambda _: None
    before: Callable[[int], None] = lambda _: None
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Bench:
    """A folder to work in, a server, and what was measured."""

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

    def row(self, name: str, sides: list[Side], size: int) -> None:
        """Measure in turn and print a line for each tool; the first one is nbdata."""
        if self.only not in name:
            return
        between = [each.process.pid for each in (self.line, self.lists) if each is not None]
        servers = [self.server.pid, *between]
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
                run = timed(
                    side.command(number),
                    servers=servers,
                    agent=side.tool == "nbdata",
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
            told = f"{median:.2f} ({low:.2f} to {high:.2f})" if len(ratios) > 2 else f"{median:.2f} (once)"
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
        """How many files, and of how many bytes each."""
        count, size = DATA[name]
        return (max(2, int(count * self.scale)), size) if count > 100 else (count, int(size * self.scale))

    def source(self, name: str, *, store: bool = True) -> Path:
        """A folder of files of random bytes, which is in the store too, unless that is not wanted."""
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
        """Forget a source: the disk is small."""
        if name in self.sources:
            shutil.rmtree(self.sources.pop(name))
        if name in self.in_store:
            timed([str(BIN / "s5cmd"), "rm", f"s3://bench/{slug(name)}/*"])
            self.in_store.remove(name)

    @contextmanager
    def over(self, delay: float, rate: float) -> Iterator[Line]:
        """Everything goes over such a line."""
        with Line(self.server.url, delay, rate) as line:
            self.line = line
            os.environ.update(AWS_ENDPOINT_URL=line.url, S3_ENDPOINT_URL=line.url)
            yield line
        self.line = None
        os.environ.update(self.server.environment(), S3_ENDPOINT_URL=self.server.url)

    def stored(self, place: str) -> tuple[int, int]:
        """Bytes and objects that the store has below a place, as s5cmd counts them."""
        done = subprocess.run([BIN / "s5cmd", "--json", "du", f"{place}/*"], capture_output=True, check=True)
        told = json.loads(done.stdout)
        return told["size"], told["count"]

    # -- verbs --------------------------------------------------------------------------------

    def moves(self, label: str, tools: list[str], verbs: tuple[str, ...], how: str = "") -> None:
        """Pull and push of a source, beside these tools."""
        name = label + how
        if not any(self.only in f"{verb} {name}" for verb in verbs):
            return
        source, (count, size) = self.source(label), self.data(label)
        place = f"s3://bench/{slug(label)}"
        env = rclone_environment(os.environ["AWS_ENDPOINT_URL"])

        def pulled(tool: str) -> Side:
            def after(number: int) -> None:
                out = self.work / f"{tool}{number}"
                assert same(source, out), f"{tool} pulled other bytes"
                shutil.rmtree(out)

            return Side(
                tool,
                lambda number: COMMANDS[tool]["pull"](place, str(self.work / f"{tool}{number}")),
                after,
                env=env,
            )

        def pushed(tool: str) -> Side:
            def after(number: int) -> None:
                if number == 0:  # once, since to fetch it takes as long as what is measured; then its size
                    back = self.work / "back"
                    timed(COMMANDS["s5cmd"]["pull"](f"{place}-{tool}{number}", str(back)))
                    assert same(source, back), f"{tool} pushed other bytes"
                    shutil.rmtree(back)
                assert self.stored(f"{place}-{tool}{number}") == (count * size, count), (
                    f"{tool} pushed not all"
                )
                timed([str(BIN / "s5cmd"), "rm", f"{place}-{tool}{number}/*"])

            return Side(
                tool,
                lambda number: COMMANDS[tool]["push"](str(source), f"{place}-{tool}{number}"),
                after,
                env=env,
            )

        if "pull" in verbs:
            self.row(f"pull {name}", [pulled(tool) for tool in tools], count * size)
        if "push" in verbs:
            self.row(f"push {name}", [pushed(tool) for tool in tools], count * size)

    def nothing_changed(self, name: str) -> None:
        """A pull of what is there already."""
        row = f"pull {name}, nothing changed"
        if self.only not in row:
            return
        source, url, (count, size) = self.source(name), f"s3://bench/{slug(name)}", self.data(name)
        tools = ["nbdata", "s5cmd", "rclone"]
        env = rclone_environment(os.environ["AWS_ENDPOINT_URL"])
        for tool in tools:
            timed(COMMANDS[tool]["pull"](url, str(self.work / tool)), env={**os.environ, **env})
        sides = [
            Side(tool, lambda _, tool=tool: COMMANDS[tool]["nothing"](url, str(self.work / tool)), env=env)  # type: ignore[misc]
            for tool in tools
        ]
        self.row(row, sides, count * size)
        for tool in tools:
            assert same(source, self.work / tool)
            shutil.rmtree(self.work / tool)

    @contextmanager
    def listed(self, objects: int) -> Iterator[ListServer]:
        """Everything goes to a server that only lists."""
        with ListServer(objects) as lists:
            self.lists = lists
            os.environ.update(AWS_ENDPOINT_URL=lists.url, S3_ENDPOINT_URL=lists.url)
            yield lists
        self.lists = None
        os.environ.update(self.server.environment(), S3_ENDPOINT_URL=self.server.url)

    def many_unchanged(self) -> None:
        """A pull of very many files that are there already; nbdata has hashed them once, as it does not know them."""
        count = int(LISTED * self.scale)
        row = f"pull {count:,} × {SIZE} B, nothing changed"
        if self.only not in row:
            return
        tools = ["nbdata", "s5cmd", "rclone"]
        with self.listed(count) as lists:
            for tool in tools:
                write_files(self.work / tool, count)
            timed(COMMANDS["nbdata"]["nothing"](lists.place, str(self.work / "nbdata")))
            env = rclone_environment(lists.url)
            sides = [
                Side(
                    tool,
                    lambda _, tool=tool: COMMANDS[tool]["nothing"](lists.place, str(self.work / tool)),  # type: ignore[misc]
                    env=env,
                )
                for tool in tools
            ]
            self.row(row, sides, count * SIZE)
        for tool in tools:
            shutil.rmtree(self.work / tool)

    def planned(self) -> None:
        """What would be done with very many objects, none of which is there; all they print is thrown away."""
        count = int(PLANNED * self.scale)
        row = f"plan {count:,} objects"
        if self.only not in row:
            return
        with self.listed(count) as lists:
            env = rclone_environment(lists.url)
            out = str(self.work / "planned")
            sides = [
                Side(tool, lambda _, tool=tool: COMMANDS[tool]["plan"](lists.place, out), env=env)  # type: ignore[misc]
                for tool in ("nbdata", "s5cmd", "rclone")
            ]
            self.row(row, sides, count * SIZE)
        ours = self.results[-3]["runs"]
        middle = {part: statistics.median(run[part] for run in ours) for part in ("wall", "memory", "agent")}
        print(
            f"A plan of {count:,} objects: {count / middle['wall']:,.0f} objects/s; at most the agent held "
            f"{middle['agent'] / 1e6:,.0f} MB, and the command {(middle['memory'] - middle['agent']) / 1e6:,.0f} MB.",
            flush=True,
        )

    def checked(self, name: str) -> None:
        """md5check beside md5sum, both against the same sums."""
        row = f"md5check {name}"
        if self.only not in row:
            return
        source, (count, size) = self.source(name, store=False), self.data(name)
        sums = source / "MD5SUMS"
        lines = (f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(source.iterdir()))
        sums.write_text("".join(lines))
        sides = [
            Side("nbdata", lambda _: [str(BIN / "nbdata"), "md5check", str(source), "-q"]),
            Side("md5sum", lambda _: ["bash", "-c", f"cd '{source}' && md5sum -c --quiet MD5SUMS"]),
        ]
        self.row(row, sides, count * size)
        sums.unlink()

    def extracted(self) -> None:
        """20,000 files of 20 KB from 9 gz volumes, beside ``tar xz`` of what ``cat`` or ``s5cmd cat`` gives.

        What was unpacked is removed at the end only: ext4 without a journal gives no inode anew that was freed a
        minute ago, and looks at each of them for every file that is made meanwhile, whoever makes it.
        """
        for folders in (100, 1):
            where = f"in {folders} folders" if folders > 1 else "in one folder"
            rows = {
                kind: f"extract 20,000 × 20 KB from 9 gz volumes {kind}, {where}"
                for kind in ("on the disk", "in S3")
            }
            if any(self.only in row for row in rows.values()):
                source, volumes = self._packed(folders)
                place = f"s3://bench/volumes-{folders}"
                timed(COMMANDS["s5cmd"]["push"](str(volumes), place))
                each = " ".join(f"'{place}/{path.name}'" for path in sorted(volumes.iterdir()))
                self._extracted(rows["on the disk"], source, str(volumes), f"cat '{volumes}'/*")
                self._extracted(
                    rows["in S3"], source, f"{place}/", f"for v in {each}; do '{BIN}/s5cmd' cat \"$v\"; done"
                )
        for path in self.work.glob("unpacked-*"):
            shutil.rmtree(path)

    def _packed(self, folders: int) -> tuple[Path, Path]:
        """Files of 20 KB, of which gzip saves nearly half, and the volumes of their archive."""
        source, volumes = self.work / f"unpacked-source-{folders}", self.work / f"unpacked-volumes-{folders}"
        volumes.mkdir()
        for number in range(int(20_000 * self.scale)):
            path = source / (f"{number % folders:02d}" if folders > 1 else "") / f"{number:05d}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(random.randbytes(12_000) + bytes(8_000))
        whole = self.work / "all.tar.gz"
        with tarfile.open(whole, "w:gz", compresslevel=1) as archive:
            archive.add(source, arcname=".")
        part = -(-whole.stat().st_size // 9)
        with whole.open("rb") as file:
            for number in range(9):
                (volumes / f"all.tar.gz.{number:02d}").write_bytes(file.read(part))
        whole.unlink()
        return source, volumes

    def _extracted(self, row: str, source: Path, volumes: str, read: str) -> None:
        if self.only not in row:
            return
        out = f"{self.work}/unpacked-{slug(row)}"

        def after(tool: str) -> Callable[[int], None]:
            def look(number: int) -> None:
                assert same(source, Path(f"{out}-{tool}{number}")), f"{tool} unpacked other bytes"

            return look

        def ours(number: int) -> list[str]:
            return [str(BIN / "nbdata"), "untar_volumes", volumes, f"{out}-nbdata{number}", "-q"]

        def tar(number: int) -> list[str]:
            target = f"{out}-tar{number}"
            return ["bash", "-c", f"mkdir '{target}' && ({read}) | tar xz -C '{target}'"]

        theirs = "s5cmd cat \\| tar xz" if volumes.startswith("s3:") else "cat \\| tar xz"
        sides = [Side("nbdata", ours, after("nbdata")), Side(theirs, tar, after("tar"))]
        self.row(row, sides, int(20_000 * self.scale) * 20_000)

    def ceiling(self, name: str) -> None:
        """How fast the server is read by clients that throw everything away, if a row needs to know."""
        if name not in self.in_store:
            return
        read, seconds, cpu = read_by_sockets("bench", f"{slug(name)}/", self.server.pid)
        print(
            f"The server alone, {name}: plain sockets of 4 processes read {read / seconds / 1e6:,.0f} MB/s in "
            f"{seconds:.2f} s; it used {cpu / seconds:.1f} cores meanwhile.",
            flush=True,
        )
        self.results.append({"row": f"ceiling {name}", "bytes": read, "seconds": seconds, "server": cpu})


def campaign(bench: Bench) -> None:
    """All rows."""
    fast, both = ["nbdata", "s5cmd", "rclone"], ("pull", "push")
    everybody = [*fast, "s3fs", "boto3"]
    bench.moves(SMALL, fast, both)
    bench.nothing_changed(SMALL)
    bench.checked(SMALL)
    bench.ceiling(SMALL)
    bench.drop(SMALL)
    bench.many_unchanged()
    bench.planned()
    bench.moves(FEW, everybody, both)
    bench.drop(FEW)
    bench.moves(BIG, everybody, both)
    bench.checked(BIG)
    bench.ceiling(BIG)
    bench.drop(BIG)
    bench.moves(HUGE, everybody, both)
    bench.drop(HUGE)
    bench.checked(MANY)
    bench.drop(MANY)
    bench.extracted()
    with bench.over(10, 50e6):
        for name in (FEW, "8 × 64 MiB"):
            bench.moves(name, fast, ("pull",), AWAY)
            bench.drop(name)
    over = [r["bytes"] / run["wall"] for r in bench.results if AWAY in r["row"] for run in r["runs"]]
    if over:
        most = carried(8, 2.0)
        verdict = "proxy-bound" if max(over) > BOUND * most else "not proxy-bound"
        print(f"The line alone carries {most / 1e6:,.0f} MB/s; the rows over it are {verdict}.", flush=True)
        bench.results.append({"row": "ceiling of the line", "bytes_per_second": most})


def main() -> None:
    """Print the tables, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", default="", help="only rows whose name has this in it")
    parser.add_argument("--scale", type=float, default=1.0, help="of the data, to try it out")
    parser.add_argument("--json", help="write every single run to this file")
    options = parser.parse_args()
    os.environ["GOMEMLIMIT"] = "2GiB"  # else SeaweedFS was seen to take 20 GB
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as name:
        work = Path(name)
        for variable in ("RUNTIME", "STATE"):
            os.environ[f"NBDATA_{variable}_DIR"] = f"{work}/{variable.lower()}"
        print(
            f"nbdata {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores\n\n"
            "| work | tool | wall | nbdata's wall over it | CPU, client | CPU, server | memory | rate "
            "| cores that others used |\n" + "|---" * 9 + "|",
            flush=True,
        )
        bench = None
        try:
            with EmbeddedServer.start(work / "server", kind="seaweedfs") as server:
                os.environ.update(server.environment(), S3_ENDPOINT_URL=server.url)
                server.create_bucket("bench")
                bench = Bench(work, server, options.rounds, options.only, options.scale)
                agent_pid()
                began = time.monotonic()
                campaign(bench)
                print(f"All of it took {(time.monotonic() - began) / 60:.1f} min.", flush=True)
        finally:
            stop_all(now=True)
            if bench is not None and options.json:
                Path(options.json).write_text(json.dumps(bench.results, indent=1))


if __name__ == "__main__":
    sys.exit(main())
