"""Compares ``nbdata.samples`` with other ways to feed training from a store (benchmarks/loader_ways.py), on one server.

Run with ``make bench-loaders``; ``ARGS="--only 'batch 4'"`` selects rows. Ways run in turn as whole processes; the
figures are medians. The data that each way delivers is compared by checksum. Client and server share the machine's
cores, so the CPU seconds of both are reported beside the rate.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from line import Line
from listing import ListServer
from measure import BIN, machine_cpu, process_cpu

from nbdata.demo.server import EmbeddedServer

WAYS = Path(__file__).with_name("loader_ways.py")
PEERS = ("obstore", "s3torchconnector", "litdata")
OURS = ("nbdata", "nbdata-verified", "nbdata-no-ahead")
NAMES = {
    "nbdata": "nbdata, verify none",
    "nbdata-verified": "nbdata",
    "nbdata-no-ahead": "nbdata, verify none, without look-ahead",
    "obstore": "obstore, gathered",
    "s3torchconnector": "s3torchconnector, 16 threads",
    "litdata": "litdata StreamingRawDataset",
    "boto3": "boto3, one by one",
    "s5cmd-sampler": "s5cmd sampler, 500 a call",
    "mount": "files of nbdata mount",
}
# These ways take so long that they run once, on a part of the samples.
SLOW, PART = ("boto3", "s5cmd-sampler", "mount"), 500


@dataclass
class Work:
    """A row of the table: its samples, batch size, number of workers, and the computing time per step."""

    name: str
    data: str
    batch: int
    workers: int
    ways: tuple[str, ...]
    step: float = 0.0
    away: bool = False


@dataclass
class Run:
    """The cost of one run: samples, seconds, and the CPU time of the client, the server and other processes."""

    samples: int
    wall: float
    cpu: float
    step: float
    deviation: float
    digest: str
    server: float
    others: float

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.samples / self.wall

    @property
    def client(self) -> float:
        """Milliseconds of the client's CPU time per sample."""
        return 1e3 * self.cpu / self.samples

    @property
    def serving(self) -> float:
        """Milliseconds of the server's CPU time per sample."""
        return 1e3 * self.server / self.samples


class Bench:
    """A server with the samples."""

    def __init__(self, folder: Path, server: EmbeddedServer, options: argparse.Namespace) -> None:
        self.folder, self.server, self.rounds, self.only = folder, server, options.rounds, options.only
        self.line: Line | None = None
        self.counts: dict[str, int] = {}
        self.digests: dict[str, str] = {}
        server.create_bucket("bench")

    def put(self, data: str, count: int, sizes: tuple[int, int]) -> None:
        """Create samples of two files with these sizes. litdata gets its own copy, because it writes an index there."""
        source, digest = self.folder / data, hashlib.sha256()
        source.mkdir()
        for number in range(count):
            digest.update(f"{number:05}".encode())
            for field, size in zip(("jpg", "cls"), sizes, strict=True):
                content = random.randbytes(size)
                digest.update(hashlib.md5(content).digest())
                (source / f"{number:05}.{field}").write_bytes(content)
        for place in (data, f"{data}-litdata"):
            command = [str(BIN / "s5cmd"), "cp", f"{source}/*", f"s3://bench/{place}/"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for file in source.iterdir():
            file.unlink()
        self.counts[data], self.digests[data] = count, digest.hexdigest()

    def run(self, way: str, work: Work, *, take: int = 0) -> Run:
        """Run one way in its own process."""
        place = f"{work.data}-litdata" if way == "litdata" else work.data
        count = self.counts[work.data]
        command = [sys.executable, str(WAYS), way, "--url", f"s3://bench/{place}/", "--count", str(count)]
        command += ["--batch", str(work.batch), "--workers", str(work.workers), "--step", str(work.step)]
        command += ["--ahead", str(64 if work.batch < 16 else 8), "--take", str(take)]
        os.sync()
        serving, machine, mine, began = self._serving(), machine_cpu(), os.times(), time.monotonic()
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        seconds = time.monotonic() - began
        serving, machine, now = self._serving() - serving, machine_cpu() - machine, os.times()
        told: dict[str, Any] = json.loads(out.splitlines()[-1])
        own = serving + sum(now[:4]) - sum(mine[:4])
        if not take:
            assert told["digest"] == self.digests[work.data], f"{way} gave other bytes"
        return Run(**told, server=serving, others=max(0.0, machine - own) / seconds)

    def _serving(self) -> float:
        line = process_cpu(self.line.process.pid) if self.line is not None else 0.0
        return process_cpu(self.server.pid) + line

    @contextmanager
    def away(self, delay: float) -> Iterator[None]:
        """Put a delay of this many milliseconds in each direction between client and server."""
        with Line(self.server.url, delay, 0) as self.line:
            os.environ.update(AWS_ENDPOINT_URL=self.line.url, S3_ENDPOINT_URL=self.line.url)
            yield
        self.line = None
        os.environ.update(self.server.environment(), S3_ENDPOINT_URL=self.server.url)

    def compare(self, work: Work) -> None:
        """Run each way in turn and print a line for each."""
        if self.only not in work.name:
            return
        runs: dict[str, list[Run]] = {way: [] for way in work.ways}
        for number in range(self.rounds):
            for way in work.ways:
                if way not in SLOW:
                    runs[way].append(self.run(way, work))
                elif not number:
                    runs[way].append(self.run(way, work, take=min(PART, self.counts[work.data])))
        rate = {way: statistics.median(run.rate for run in runs[way]) for way in work.ways}
        for way in work.ways:
            middle = {
                name: statistics.median(getattr(run, name) for run in runs[way])
                for name in ("client", "serving", "step", "deviation", "others")
            }
            ratio = rate[work.ways[0]] / rate[way]
            if way not in SLOW:  # the rounds of all ways alternate
                pairs = zip(runs[work.ways[0]], runs[way], strict=True)
                ratio = statistics.median(ours.rate / run.rate for ours, run in pairs)
            print(
                f"| {work.name} | {NAMES[way]} | {rate[way]:,.0f} | {ratio:.2f} | {middle['step'] * 1e3:.1f} ± "
                f"{middle['deviation'] * 1e3:.1f} ms | {middle['client']:.2f} ms | {middle['serving']:.2f} ms "
                f"| {middle['others']:.2f} |",
                flush=True,
            )

    def windows(self) -> None:
        """Print how many requests it takes to read windows in the order of keys."""
        if self.only not in "windows(8)":
            return
        command = [sys.executable, str(WAYS), "windows", "--url", "s3://bench/small/", "--count", "0"]
        told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        objects = 2 * self.counts["small"]
        print(
            f"\n`windows(8)` in the order of keys: {told['windows']:,} windows of {objects:,} objects took "
            f"{told['requests']:,} requests for their bytes.",
            flush=True,
        )


# Program of a worker that opens an index of many samples and looks up a thousand. It prints the time, and the memory
# that the worker needed for this.
_WORKER = """
import json, pickle, sys, time
from pathlib import Path

def own():
    fields = Path("/proc/self/smaps_rollup").read_text().split()
    return int(fields[fields.index("Private_Dirty:") + 1]) * 1024  # clean pages are the file's, for all processes

import nbdata.client.reading.stored
data = Path(sys.argv[1]).read_bytes()
before, began = own(), time.perf_counter()
samples = pickle.loads(data)
opened = time.perf_counter() - began
order = iter(samples.batch_sampler(1000, shuffle=True, seed=1))
keys = [samples.key(number) for number in next(order)]
print(json.dumps({"opened": opened, "added": own() - before, "keys": len(keys)}))
"""


def index(count: int, folder: Path) -> None:
    """Print the cost of an index of this many samples of two objects each."""
    program = (
        "import os, pickle, sys, time, nbdata, json\n"
        "from pathlib import Path\n"
        "began, cpu = time.perf_counter(), time.process_time()\n"
        "samples = nbdata.samples(sys.argv[1], verify='none', storage_options={'anon': True})\n"
        "built = time.perf_counter() - began, time.process_time() - cpu\n"
        "Path(sys.argv[2]).write_bytes(pickle.dumps(samples))\n"
        "began = time.perf_counter()\n"
        "nbdata.samples(sys.argv[1], refresh='never', storage_options={'anon': True})\n"
        "print(json.dumps([*built, time.perf_counter() - began, os.path.getsize(samples.index.path), len(samples)]))\n"
    )
    with ListServer(2 * count, pairs=True) as server:
        environment = {**os.environ, "AWS_ENDPOINT_URL": server.url}
        place = str(folder / "pickled")

        def told(*words: str) -> Any:
            command = [sys.executable, "-c", *words]
            return json.loads(
                subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
            )

        wall, cpu, never, size, found = told(program, f"{server.place}/", place)
        assert found == count, f"{found} samples"
        worker = told(_WORKER, place)
    print(
        f"\nThe index of {count:,} samples of two objects: built in {wall:.1f} s with {cpu:.1f} s of CPU, "
        f'{size / 1e6:.0f} MB on the disk; `refresh="never"` took {1e3 * never:.1f} ms, a worker opened it in '
        f"{1e3 * worker['opened']:.1f} ms and had {worker['added'] / 1e6:.1f} MB more of its own after 1,000 "
        "look-ups in a shuffled order.",
        flush=True,
    )


def works() -> list[Work]:
    """Return all rows."""
    every = (*OURS, *PEERS, *SLOW)
    few = ("nbdata", "nbdata-verified", *PEERS)
    rows = [
        Work("batch 4, 0 workers", "small", 4, 0, every),
        Work("batch 64, 0 workers", "small", 64, 0, few),
        Work("batch 64, 2 workers", "small", 64, 2, few),
    ]
    rows += [
        Work("20 ms away, batch 4, 0 workers", "small", 4, 0, every, away=True),
        Work("20 ms away, batch 64, 0 workers", "small", 64, 0, (*OURS, *PEERS), away=True),
        Work("20 ms of Python a step, batch 16, 0 workers", "small", 16, 0, few, 0.02),
        Work("20 ms of Python a step, batch 16, 2 workers", "small", 16, 2, few, 0.02),
        Work("3 MB + 1 MB, batch 4, 0 workers", "large", 4, 0, every),
    ]
    return rows


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--index", type=int, default=1_000_000, help="samples of the index")
    parser.add_argument("--only", default="", help="only rows whose name has this in it")
    options = parser.parse_args()
    os.environ["GOMEMLIMIT"] = "2GiB"  # without it, SeaweedFS took up to 20 GB
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as name:
        folder = Path(name)
        for variable in ("RUNTIME", "STATE"):
            os.environ[f"NBDATA_{variable}_DIR"] = f"{folder}/{variable.lower()}"
        with EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False) as server:
            os.environ.update(server.environment(), S3_ENDPOINT_URL=server.url)
            bench = Bench(folder, server, options)
            bench.put("small", options.samples, (100_000, 10_000))
            bench.put("large", 60, (3_000_000, 1_000_000))
            print(
                "| work | way | samples/s | nbdata's over it | a step | CPU a sample, client | CPU a sample, server "
                "| cores that others used |\n" + "|---" * 8 + "|",
                flush=True,
            )
            for work in works():
                if work.away:
                    with bench.away(10):
                        bench.compare(work)
                else:
                    bench.compare(work)
            bench.windows()
            if options.only in "index":
                index(options.index, folder)


if __name__ == "__main__":
    main()
