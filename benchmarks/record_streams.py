"""Streams of FFRecord files with small samples, in order and shuffled, with and without names;.

Each pass opens the samples anew and is compared in number and bytes. Ways take turns; medians over rounds.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

import nbdata
from nbdata.client.records.writer import FileWriter
from nbdata.demo.server import EmbeddedServer
from nbdata.formats.packed_folder import names_bytes

FILES = 4


def made(folder: Path, count: int, size: int) -> None:
    """Make the same samples as records, and as packed folders."""
    data, each = random.randbytes(size + count), count // FILES
    for kind in ("records", "packed"):
        (folder / f"{kind}-{size}.ffr").mkdir()
        for file in range(FILES):
            numbers = range(file * each, (file + 1) * each)
            with FileWriter(folder / f"{kind}-{size}.ffr/PART_{file:05}.ffr") as writer:
                for number in numbers:
                    writer.write_one(data[number : number + size])
                if kind == "packed":
                    writer.write_one(
                        names_bytes([f"{number // 1000:04}/{number:07}.bin" for number in numbers])
                    )


def one_pass(url: str, count: int, size: int, options: dict[str, Any]) -> tuple[float, float]:
    """Return samples a second, and microseconds of this process's processors for each."""
    with nbdata.samples(url) as samples:
        assert len(samples) == count
        began, cpu = time.perf_counter(), time.process_time()
        got = total = 0
        for sample in samples.stream(**options):
            got += 1
            total += len(sample["bin"])
        wall, used = time.perf_counter() - began, time.process_time() - cpu
    assert (got, total) == (count, count * size)
    return count / wall, 1e6 * used / count


def streamed(
    server: EmbeddedServer, folder: Path, counts: dict[int, int], rounds: int
) -> dict[str, tuple[float, float]]:
    """Samples a second and microseconds of processor for each, medians; the server's environment is set."""
    found: dict[str, list[tuple[float, float]]] = {}
    server.create_bucket("streams")
    for size, count in counts.items():
        made(folder, count, size)
        for kind in ("records", "packed"):
            nbdata.push(f"{folder}/{kind}-{size}.ffr/", f"s3://streams/{kind}-{size}.ffr/", quiet=True)
        for _ in range(rounds):
            for place in (str(folder), "s3://streams"):
                for kind in ("records", "packed"):
                    for order, options in {"in order": {}, "shuffled": {"shuffle": True, "seed": 1}}.items():
                        name = (
                            f"{count:,} x {size:,} B, {'S3' if '://' in place else 'disk'}, {kind}, {order}"
                        )
                        found.setdefault(name, []).append(
                            one_pass(f"{place}/{kind}-{size}.ffr/", count, size, options)
                        )
    return {
        name: (statistics.median(rate for rate, _ in runs), statistics.median(cpu for _, cpu in runs))
        for name, runs in found.items()
    }


def shown(found: dict[str, tuple[float, float]]) -> None:
    """Show the rows of the report."""
    print(
        f"\nstreams of small samples: samples/s, microseconds of processor each (load {os.getloadavg()[0]:.1f})"
    )
    for name, (rate, cpu) in found.items():
        print(f"| {name} | {rate:,.0f} | {cpu:.2f} |")
