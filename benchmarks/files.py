"""Compares nbdata's file system with s3fs, obstore's store for fsspec and pyarrow's S3FileSystem, on one server.

Run with ``make bench-files``; ``ARGS="--only cat"`` selects rows, and ``--scale 0.1`` takes a tenth of the data. Ways
run in turn as whole processes (benchmarks/file_ways.py); the figures are medians. Before that each way runs once to
compare its bytes with those of nbdata. Client and server share the machine's cores, so the CPU seconds of both are
reported beside the wall time.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import file_ways
from file_ways import BIG, CHUNK, COLUMNS, CSV, MIB, PARQUET, ROWS, SMALL, ZARR
from line import Line
from listing import ListServer
from measure import machine_cpu, process_cpu

from nbdata.demo.server import EmbeddedServer

WAYS = ("nbdata", "s3fs", "obstore", "pyarrow")
NAMES = {
    "nbdata": "nbdata",
    "nbdata-not-verified": "nbdata, verify none",
    "samples": "nbdata.samples, fetch",
    "s3fs": "s3fs",
    "obstore": "obstore",
    "pyarrow": "pyarrow",
}
BUCKET = "bench-files"
# Milliseconds in each direction of the line that some rows use.
_AWAY = 10


@dataclass
class Work:
    """A row of the table.

    `count` is the number of objects, ranges or reads; `size` is what the large object has.
    """

    name: str
    work: str
    count: int = 0
    threads: int = 1
    ways: tuple[str, ...] = WAYS
    away: bool = False


@dataclass
class Run:
    """The cost of one run: wall seconds, CPU seconds of client, server and unrelated processes, bytes of memory."""

    wall: float
    cpu: float
    server: float
    memory: int
    others: float


class Bench:
    """A server with the data, and one that only lists."""

    def __init__(
        self, folder: Path, server: EmbeddedServer, lists: ListServer, options: argparse.Namespace
    ) -> None:
        self.folder, self.server, self.lists = folder, server, lists
        self.rounds, self.only = options.rounds, options.only
        self.size = _large(options.scale) * MIB
        self.scale = options.scale
        server.create_bucket(BUCKET)
        import boto3

        self.client = boto3.client("s3")

    def put(self, works: list[Work]) -> None:
        """Create the data of these works."""
        wanted = {work.work for work in works}
        put = self.client.put_object
        if "cat" in wanted:
            count = max(work.count for work in works if work.work == "cat")
            with ThreadPoolExecutor(8) as pool:
                for done in [
                    pool.submit(put, Bucket=BUCKET, Key=f"{SMALL}/{number:05}", Body=random.randbytes(10_240))
                    for number in range(count)
                ]:
                    done.result()
        if wanted & {"ranges", "sequential", "random"}:
            place = self.folder / BIG
            with place.open("wb") as file:
                for _ in range(self.size // MIB):
                    file.write(random.randbytes(MIB))
            self.client.upload_file(str(place), BUCKET, BIG)
            place.unlink()
        if wanted & {"parquet", "csv"}:
            self._put_tables()
        if "zarr" in wanted:
            self._put_array()

    def _put_tables(self) -> None:
        import numpy as np
        import pandas as pd

        rows = int(3_200_000 * self.scale)
        numbers = np.random.default_rng(1)
        table = pd.DataFrame({name: numbers.random(rows) for name in "abcdefgh"})
        data = io.BytesIO()
        table.to_parquet(data)
        data.seek(0)
        self.client.upload_fileobj(data, BUCKET, PARQUET)
        text = io.BytesIO(table[: rows // 4].to_csv(index=False).encode())
        self.client.upload_fileobj(text, BUCKET, CSV)

    def _put_array(self) -> None:
        import numpy as np
        import zarr

        place = self.folder / ZARR
        shape = (max(1, int(ROWS * self.scale)) * CHUNK, COLUMNS * CHUNK)
        array = zarr.create_array(
            str(place), shape=shape, chunks=(CHUNK, CHUNK), dtype="float32", compressors=None
        )
        array[:] = np.random.default_rng(1).random(shape, dtype="float32")
        with ThreadPoolExecutor(8) as pool:
            files = [path for path in place.rglob("*") if path.is_file()]
            list(pool.map(lambda path: self._upload(path, f"{ZARR}/{path.relative_to(place)}"), files))

    def _upload(self, path: Path, key: str) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())

    def _told(self, way: str, work: Work, *more: str) -> dict[str, Any]:
        bucket = "bench" if work.work == "find" else BUCKET
        command = [sys.executable, file_ways.__file__, way, work.work, "--bucket", bucket]
        command += ["--count", str(work.count), "--size", str(self.size), "--threads", str(work.threads)]
        done = subprocess.run([*command, *more], capture_output=True, text=True)
        if done.returncode:  # else they only complain about connections that they have not closed
            raise RuntimeError(f"{way} failed: {done.stderr[-2000:]}")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    def compared(self, way: str, work: Work) -> str:
        """Return the digest of what a way reads; of what it has written, as another client reads it."""
        told = self._told(way, work, "--compare")
        if work.work == "write":
            digest = hashlib.md5()
            for block in self.client.get_object(Bucket=BUCKET, Key="written")["Body"].iter_chunks(MIB):
                digest.update(block)
            assert digest.hexdigest() == told["digest"], f"{way} wrote other bytes"
        return f"{told['size']} {told['digest']}"

    def run(self, way: str, work: Work, servers: list[int]) -> Run:
        """Run one way in its own process."""
        os.sync()
        serving, machine, mine = sum(map(process_cpu, servers)), machine_cpu(), os.times()
        told = self._told(way, work)
        serving, machine = sum(map(process_cpu, servers)) - serving, machine_cpu() - machine
        now = os.times()
        own = serving + sum(now[:4]) - sum(mine[:4])
        lasted = now.elapsed - mine.elapsed
        return Run(told["wall"], told["cpu"], serving, told["memory"], max(0.0, machine - own) / lasted)

    def compare(self, work: Work) -> None:
        """Run each way in turn and print a line for each."""
        server: EmbeddedServer | ListServer = self.lists if work.work == "find" else self.server
        servers = [self.lists.process.pid if work.work == "find" else self.server.pid]
        kept = dict(os.environ)
        with ExitStack() as stack:
            url = server.url
            if work.away:
                line = stack.enter_context(Line(url, _AWAY, 0))
                servers.append(line.process.pid)
                url = line.url
            os.environ["AWS_ENDPOINT_URL"] = url
            digests = {way: self.compared(way, work) for way in work.ways}
            assert len(set(digests.values())) == 1, f"the ways differ: {digests}"
            runs: dict[str, list[Run]] = {way: [] for way in work.ways}
            for _ in range(self.rounds):
                for way in work.ways:
                    runs[way].append(self.run(way, work, servers))
        os.environ.clear()
        os.environ.update(kept)
        for way in work.ways:
            _print(work.name, way, runs[way], runs[work.ways[0]])


def _print(name: str, way: str, runs: list[Run], ours: list[Run]) -> None:
    """Print the line of a way; ratios are of the runs of the same round."""
    middle = {
        what: statistics.median(getattr(run, what) for run in runs)
        for what in ("wall", "cpu", "server", "memory", "others")
    }
    pairs = list(zip(ours, runs, strict=True))
    faster = statistics.median(run.wall / our.wall for our, run in pairs)
    leaner = statistics.median(our.cpu / max(run.cpu, 0.01) for our, run in pairs)
    print(
        f"| {name} | {NAMES[way]} | {middle['wall']:.2f} s | {faster:.2f} | {middle['cpu']:.2f} s | {leaner:.2f} "
        f"| {middle['server']:.2f} s | {middle['memory'] / 1e6:,.0f} MB | {middle['others']:.2f} |",
        flush=True,
    )


def _large(scale: float) -> int:
    """Return the MiB of the large object."""
    return max(2, int(1024 * scale))


def works(scale: float) -> list[Work]:
    """Return all rows."""

    def some(count: int) -> int:
        return max(8, int(count * scale))

    rows = []
    for away, where in ((False, ""), (True, ", 20 ms away")):
        rows += [
            Work(f"find {some(100_000):,} objects{where}", "find", some(100_000), away=away),
            Work(f"cat {some(2000):,} × 10 KB{where}", "cat", some(2000), away=away),
            Work(f"cat_ranges {some(1000):,} × 64 KiB{where}", "ranges", some(1000), away=away),
        ]
    sequential = ("nbdata", "nbdata-not-verified", "samples", *WAYS[1:])
    return [
        *rows,
        Work(f"read_parquet of {200 * scale:.0f} MB, two of eight columns", "parquet"),
        Work(f"read_csv of {125 * scale:.0f} MB", "csv"),
        Work(
            f"zarr array of {max(1, int(ROWS * scale)) * COLUMNS:,} chunks", "zarr", ways=WAYS[:3]
        ),  # fsspec's asynchronous wrapper does not take pyarrow's
        Work(f"read of {_large(scale)} MiB, 1 MiB at a time", "sequential", ways=sequential),
        Work(f"random {some(1000):,} × 64 KiB, 1 thread", "random", some(1000)),
        Work(f"random {some(1000):,} × 64 KiB, 8 threads", "random", some(1000), threads=8),
        Work(f"write of {_large(scale)} MiB, 1 MiB at a time", "write"),
    ]


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the data; 1: an object of 1 GiB")
    parser.add_argument("--only", default="", help="only rows whose name has this in it")
    options = parser.parse_args()
    chosen = [work for work in works(options.scale) if options.only in work.name]
    os.environ["GOMEMLIMIT"] = "2GiB"  # without it, SeaweedFS took up to 20 GB
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        for variable in ("RUNTIME", "STATE"):
            os.environ[f"NBDATA_{variable}_DIR"] = f"{folder}/{variable.lower()}"
        server = EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False)
        stack.enter_context(server)
        os.environ.update(server.environment())
        lists = stack.enter_context(ListServer(max(8, int(100_000 * options.scale))))
        bench = Bench(folder, server, lists, options)
        bench.put(chosen)
        print(
            "| work | way | wall | its wall over nbdata's | CPU, client | nbdata's CPU over its | CPU, server | memory "
            "| cores that others used |\n" + "|---" * 9 + "|",
            flush=True,
        )
        for work in chosen:
            bench.compare(work)


if __name__ == "__main__":
    main()
