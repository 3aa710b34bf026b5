"""Compares packing small objects of a store into shards and into FFRecord files; for ``make bench-records``.

The two alternate, with a new target in each round. First, one file of each is compared with the source.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from pathlib import Path

import nbdata
from nbdata.demo.server import EmbeddedServer

SIZE = 10_000


def packed(server: EmbeddedServer, folder: Path, count: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Return seconds and MB/s of each way, as medians over rounds. The server's environment variables must be set."""
    server.create_bucket("packing")
    (folder / "small").mkdir()
    for number in range(count):
        (folder / f"small/{number:06}.bin").write_bytes(random.randbytes(SIZE))
    nbdata.push(f"{folder}/small/", "s3://packing/small/", quiet=True)
    ways = {
        "pack into shards": {"format": "shards"},
        "pack --format ffrecord": {"format": "ffrecord"},
        "pack --format ffrecord --no-names": {"format": "ffrecord", "no_names": True},
        "pack shards --format ffrecord": {"format": "ffrecord"},
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for place, (name, options) in enumerate(ways.items()):
            source = (
                f"s3://packing/out-0-{number}/shard-*.tar"
                if name.startswith("pack shards")
                else "s3://packing/small/"
            )
            target = f"s3://packing/out-{place}-{number}{'' if place == 0 else '.ffr'}/"
            began = time.perf_counter()
            assert nbdata.pack(source, target, quiet=True, **options).ok
            took[name].append(time.perf_counter() - began)
    for target in ("out-0-0/shard-*.tar", "out-1-0.ffr/", "out-3-0.ffr/"):
        with nbdata.samples(f"s3://packing/{target}") as samples:
            assert len(samples) == count
            assert samples[count // 2]["bin"] == (folder / f"small/{count // 2:06}.bin").read_bytes()
    middle = {name: statistics.median(runs) for name, runs in took.items()}
    return {name: (seconds, count * SIZE / seconds / 1e6) for name, seconds in middle.items()}


def shown(count: int, found: dict[str, tuple[float, float]]) -> None:
    """Print a row of the report."""
    first = next(iter(found.values()))[0]
    print(f"\npack {count:,} x {SIZE // 1000} KB, S3 to S3 (load {os.getloadavg()[0]:.1f})")
    for name, (seconds, rate) in found.items():
        print(f"| {name} | {seconds:.2f} s | {rate:,.0f} MB/s | {seconds / first:.2f} x |")
