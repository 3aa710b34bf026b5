"""Compares ``cache_stream`` with the pipeline that people write themselves (benchmarks/consumers.py), on one server.

Run with ``make bench-stream``; ``ARGS="--size 1GB"`` uses less data. Consumers run in turn as whole processes; the
figures are medians. The bytes that a consumer gets are compared with the uploaded ones, outside the timed runs.

Client and server share the machine's cores. So the benchmark also measures how fast clients that do nothing else can
read from the server, and how much CPU time other processes took. Loopback is faster than any network, so the folders
are also streamed over a line with the latency and bandwidth of a cloud's network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ceiling import read_by_sockets
from line import Line
from measure import BIN, agent_cpu, machine_cpu, process_cpu

from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from nbdata.sizes import parse_size

CONSUMERS = Path(__file__).with_name("consumers.py")


@dataclass
class Run:
    """The cost of one run: wall and CPU seconds, bytes of disk, and the cores that other processes used."""

    items: int
    wall: float
    waited: float
    cpu: float
    server: float
    peak: int
    others: float
    digest: str

    @property
    def rate(self) -> float:
        """Items per second."""
        return self.items / self.wall


@dataclass
class Work:
    """The items to stream, and the consumer's work for each item."""

    name: str
    url: str
    by: str
    limit: int
    kind: str
    each: float
    digest: str


def disk_use(folder: str) -> int:
    """Return the bytes of disk that a folder uses now; files that vanish meanwhile do not count."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    total += disk_use(entry.path)
    return total


class Watcher(threading.Thread):
    """Repeatedly measures a folder's disk use from a separate thread, and keeps the maximum."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.peak, self.over = str(folder), 0, threading.Event()
        self.start()

    def run(self) -> None:
        """Measure until `over` is set. The pauses grow with the time that one measurement takes."""
        pause = 0.0
        while not self.over.wait(pause):
            began = time.thread_time()
            self.peak = max(self.peak, disk_use(self.folder))
            pause = max(0.05, 50 * (time.thread_time() - began))


class Bench:
    """A server with the data, and a working folder."""

    def __init__(self, folder: Path, server: EmbeddedServer, options: argparse.Namespace) -> None:
        self.folder, self.server, self.only = folder, server, options.only
        self.rounds, self.calm = options.rounds, options.calm
        self.line: Line | None = None
        server.create_bucket("bench")

    def put(self, name: str, count: int, files: list[str], size: int) -> str:
        """Create `count` items with these files each, upload them to the bucket, and return the digest of all."""
        seen = []
        step = max(1, (256 << 20) // (size * len(files)))
        for begin in range(0, count, step):  # in batches, because the disk also holds the server's copy
            source = self.folder / "source"
            for number in range(begin, min(begin + step, count)):
                for file in files:
                    path = source / file.format(number)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    content = random.randbytes(size)
                    seen.append(f"{path.name} {hashlib.md5(content).hexdigest()}")
                    path.write_bytes(content)
            command = [str(BIN / "s5cmd"), "cp", f"{source}/*", f"s3://bench/{name}/"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            shutil.rmtree(source)
        return hashlib.sha256("\n".join(sorted(seen)).encode()).hexdigest()

    def consume(self, side: str, work: Work, *options: str) -> Run:
        """Run a consumer once; repeat it up to three times if other processes keep the machine busy.

        Return the calmest run.
        """
        tries = [self._consume(side, work, *options)]
        while tries[-1].others > self.calm and len(tries) < 4:
            tries.append(self._consume(side, work, *options))
        return min(tries, key=lambda run: run.others)

    def _consume(self, side: str, work: Work, *options: str) -> Run:
        cache = Path(tempfile.mkdtemp(dir=self.folder))
        command = [
            sys.executable,
            str(CONSUMERS),
            side,
            "--url",
            work.url,
            "--cache",
            str(cache),
            "--by",
            work.by,
        ]
        command += ["--limit", str(work.limit), "--work", work.kind, "--each", str(work.each), *options]
        watcher = Watcher(cache)
        mine = os.times()
        server, agent, machine, began = (self._serving(), agent_cpu(), machine_cpu(), time.monotonic())
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        seconds = time.monotonic() - began
        server, agent = self._serving() - server, agent_cpu() - agent
        machine, now = machine_cpu() - machine, os.times()
        watcher.over.set()
        watcher.join()
        told: dict[str, Any] = json.loads(out)
        own = server + agent + sum(now[:4]) - sum(mine[:4])
        if left := disk_use(str(cache)):
            assert side == "homemade", f"{left} bytes left behind"
        shutil.rmtree(cache)
        return Run(
            told["items"],
            told["wall"],
            told["waited"],
            told["cpu"] + (agent if side == "ours" else 0.0),
            server,
            watcher.peak,
            max(0.0, machine - own) / seconds,
            told["digest"],
        )

    def _serving(self) -> float:
        """CPU seconds of the server and of the line in front of it."""
        line = process_cpu(self.line.process.pid) if self.line is not None else 0.0
        return process_cpu(self.server.pid) + line

    @contextmanager
    def over(self, delay: float, rate: float) -> Iterator[None]:
        """Route all traffic through a line with this delay and bandwidth."""
        with Line(self.server.url, delay, rate) as self.line:
            os.environ.update(AWS_ENDPOINT_URL=self.line.url, S3_ENDPOINT_URL=self.line.url)
            yield
        self.line = None
        os.environ.update(self.server.environment(), S3_ENDPOINT_URL=self.server.url)

    def compare(self, work: Work) -> None:
        """Run each consumer in turn for this work and print a line for each; nothing if the work is not selected."""
        if self.only not in work.name:
            return
        ways = {
            "home-made": ("homemade",),
            "cache_stream": ("ours",),
            "cache_stream, verify none": ("ours", "--verify", "none"),
        }
        for side, *options in ways.values():
            assert self.consume(side, work, "--digest", *options).digest == work.digest, (
                side,
                "saw other bytes",
            )
        rounds = [
            {way: self.consume(side, work, *options) for way, (side, *options) in ways.items()}
            for _ in range(self.rounds)
        ]
        for way in ways:
            runs = [found[way] for found in rounds]
            ratio = statistics.median(found[way].rate / found["home-made"].rate for found in rounds)
            middle = {
                name: statistics.median(getattr(run, name) for run in runs)
                for name in ("rate", "wall", "waited", "cpu", "server", "others")
            }
            print(
                f"| {work.name} | {way} | {middle['rate']:.1f} | {ratio:.2f} | {middle['wall']:.2f} s "
                f"| {middle['waited']:.2f} s | {middle['cpu']:.2f} s | {middle['server']:.2f} s "
                f"| {max(run.peak for run in runs) / 1e6:,.0f} MB | {middle['others']:.2f} |",
                flush=True,
            )

    def ceiling(self, name: str, size: int) -> None:
        """Measure and print how fast several processes read all objects over plain sockets and discard them."""
        took = []
        for _ in range(self.rounds):
            read, seconds, cpu = read_by_sockets("bench", f"{name}/", self.server.pid)
            assert read == size, f"{read} bytes of {size}"
            took.append((seconds, cpu))
        wall, cpu = (statistics.median(side) for side in zip(*took, strict=True))
        print(
            f"\n{name}: 4 processes that read to nowhere take {wall:.2f} s ({size / wall / 1e6:,.0f} MB/s), "
            f"the server meanwhile {cpu:.2f} CPU seconds.",
            flush=True,
        )


def main() -> None:
    """Run the benchmark and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", default="4GB", help="of the big data set; its cache is a quarter of it")
    parser.add_argument("--samples", type=int, default=5000, help="of the small data set")
    parser.add_argument(
        "--calm", type=float, default=0.4, help="cores that others may use; else a run is repeated"
    )
    parser.add_argument("--only", default="", help="only rows whose name has this in it")
    options = parser.parse_args()
    folders, file = max(4, parse_size(options.size) // (64 << 20)), 8 << 20
    os.environ["GOMEMLIMIT"] = "2GiB"  # without it, SeaweedFS took up to 20 GB
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as name:
        folder = Path(name)
        for variable in ("RUNTIME", "STATE"):
            os.environ[f"NBDATA_{variable}_DIR"] = f"{folder}/{variable.lower()}"
        try:
            with EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False) as server:
                os.environ.update(server.environment(), S3_ENDPOINT_URL=server.url)
                bench = Bench(folder, server, options)
                big = bench.put("big", folders, [f"{{0:04d}}/{{0:04d}}-{n}" for n in range(8)], file)
                samples = bench.put("small", options.samples, ["{0:05d}.jpg", "{0:05d}.json"], 50_000)
                print(
                    "| work | way | items/s | × home-made | wall | of it waiting | CPU, client and agent "
                    "| CPU, server | peak on disk | cores that others used |\n" + "|---" * 10 + "|",
                    flush=True,
                )
                size = folders * 8 * file
                for kind in ("sleep", "compute"):
                    work = Work(
                        f"folders, {kind} 20 ms", "s3://bench/big/", "folder", size // 4, kind, 0.02, big
                    )
                    bench.compare(work)
                for delay, rate in ((10, 40e6), (10, 20e6)):
                    with bench.over(delay, rate):
                        name = (
                            f"folders, sleep 20 ms; {2 * delay} ms away, {rate / 1e6:.0f} MB/s a connection"
                        )
                        bench.compare(Work(name, "s3://bench/big/", "folder", size // 4, "sleep", 0.02, big))
                limit = options.samples * 100_000 // 4
                for kind in ("sleep", "compute"):
                    work = Work(
                        f"samples, {kind} 1 ms", "s3://bench/small/", "sample", limit, kind, 0.001, samples
                    )
                    bench.compare(work)
                with bench.over(10, 40e6):
                    name = "samples, sleep 1 ms; 20 ms away"
                    bench.compare(Work(name, "s3://bench/small/", "sample", limit, "sleep", 0.001, samples))
                bench.ceiling("big", size)
                bench.ceiling("small", options.samples * 100_000)
        finally:
            stop_all(now=True)


if __name__ == "__main__":
    main()
