"""Compares FFRecord in nbdata with the original library, loose files and memcpy, for random batches.

Run with ``make bench-records``. The data is on the disk, or in a store that is near or 20 ms away. The original library
is measured if it can be imported (see tests/ffrecord/beside_original.py). The ways of a row alternate in one process
and read batches of the same indices; the figures are medians over rounds. First, the data that each way delivers is
compared. Client and server share the machine's cores.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import record_packing
import record_streams
from line import Line

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.ffrecord import FileReader, FileWriter

BATCH, SIZE, FILES = 128, 100_000, 4
Way = Callable[[list[int]], Any]


def made(folder: Path, count: int) -> list[bytes]:
    """Create samples, write them as FFRecord files and as loose files, and return them."""
    samples = [random.randbytes(SIZE) for _ in range(count)]
    (folder / "train.ffr").mkdir()
    (folder / "loose").mkdir()
    each = count // FILES
    for file in range(FILES):
        with FileWriter(folder / f"train.ffr/PART_{file:05}.ffr", each) as writer:
            for sample in samples[file * each : (file + 1) * each]:
                writer.write_one(sample)
    for number, sample in enumerate(samples):
        (folder / f"loose/{number:05}.bin").write_bytes(sample)
    return samples


def rates(ways: dict[str, Way], count: int, rounds: int, batches: int) -> dict[str, tuple[float, float]]:
    """Let the ways alternate; return each way's samples per second, and milliseconds of CPU time per sample."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        asked = [[random.randrange(count) for _ in range(BATCH)] for _ in range(batches)]
        for name, way in ways.items():
            began, cpu = time.perf_counter(), time.process_time()
            for indices in asked:
                way(indices)
            wall, used = time.perf_counter() - began, time.process_time() - cpu
            found[name].append((batches * BATCH / wall, 1e3 * used / (batches * BATCH)))
    return {
        name: (statistics.median(rate for rate, _ in runs), statistics.median(cpu for _, cpu in runs))
        for name, runs in found.items()
    }


def shown(title: str, found: dict[str, tuple[float, float]]) -> None:
    """Print the rows of the report."""
    print(f"\n{title} (load {os.getloadavg()[0]:.1f})")
    for name, (rate, cpu) in found.items():
        print(f"| {name} | {rate:,.0f} | {cpu:.3f} |")


def local_ways(folder: Path, samples: list[bytes]) -> dict[str, Way]:
    """Return the ways to read the samples from local files."""
    files, views = FileReader(folder / "train.ffr"), FileReader(folder / "train.ffr", mapped=True)
    source = nbdata.samples(f"{folder}/train.ffr/")
    target, memory = np.empty(BATCH * SIZE, np.uint8), np.frombuffer(b"".join(samples), np.uint8)
    paths = [str(folder / f"loose/{number:05}.bin") for number in range(len(samples))]

    def loose(indices: list[int]) -> list[bytes]:
        found = []
        for index in indices:
            with open(paths[index], "rb") as file:
                found.append(file.read())
        return found

    def memcpy(indices: list[int]) -> np.ndarray:
        for place, index in enumerate(indices):
            target[place * SIZE : (place + 1) * SIZE] = memory[index * SIZE : (index + 1) * SIZE]
        return target

    ways: dict[str, Way] = {
        "nbdata FileReader": files.read,
        "nbdata FileReader, mapped=True": views.read,
        "nbdata.samples, fetch": lambda indices: [sample["bin"] for sample in source.fetch(indices)],
        "loose files, open and read": loose,
        "memcpy of samples in memory": memcpy,
    }
    try:
        import ffrecord
    except ImportError:
        print("the original library is not there: its rows are left out")
    else:
        ways["ffrecord"] = ffrecord.FileReader(folder / "train.ffr").read
        ways["ffrecord, check_data=False"] = ffrecord.FileReader(folder / "train.ffr", check_data=False).read
    indices = [random.randrange(len(samples)) for _ in range(BATCH)]
    for name, way in ways.items():
        if name != "memcpy of samples in memory":
            assert [bytes(one) for one in way(indices)] == [samples[index] for index in indices], name
    return ways


def dropped(folder: Path) -> None:
    """Remove the files from the page cache."""
    for path in [*folder.glob("train.ffr/*"), *folder.glob("loose/*")]:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def cold(folder: Path, ways: dict[str, Way], count: int) -> dict[str, tuple[float, float]]:
    """Read each sample once from the disk, in random order."""
    found = {}
    for name, way in ways.items():
        order = random.sample(range(count), count)
        dropped(folder)
        began, cpu = time.perf_counter(), time.process_time()
        for at in range(0, count, BATCH):
            way(order[at : at + BATCH])
        found[name] = (count / (time.perf_counter() - began), 1e3 * (time.process_time() - cpu) / count)
    return found


def loader_rows(folder: Path, count: int, rounds: int) -> None:
    """Measure PyTorch's DataLoader over files, from the page cache and from the disk."""
    import record_loader

    for title, before in (("page cache", lambda _: None), ("cold", dropped)):
        found = record_loader.epochs(folder, count, rounds, before)
        print(
            f"\nDataLoader, {record_loader.WORKERS} workers, batch {BATCH}, {title} (load {os.getloadavg()[0]:.1f})"
        )
        for name, (rate, times) in found.items():
            print(f"| {name} | {rate:,.0f} | {times:.2f} x |")


@contextmanager
def endpoint(url: str) -> Iterator[None]:
    """Let ``s3://`` mean this server."""
    before = os.environ["AWS_ENDPOINT_URL"]
    os.environ["AWS_ENDPOINT_URL"] = url
    try:
        yield
    finally:
        os.environ["AWS_ENDPOINT_URL"] = before


def stored_ways() -> dict[str, Way]:
    """Return the ways to read the samples from the store that the environment names."""
    samples, loose = nbdata.samples("s3://bench/train.ffr/"), nbdata.samples("s3://bench/loose/")
    reader = FileReader("s3://bench/train.ffr/")
    return {
        "nbdata.samples of FFRecord": samples.fetch,
        "nbdata FileReader": reader.read,
        "nbdata.samples of loose objects": loose.fetch,
        "one ranged GET a sample in turn": lambda indices: [samples.fetch([index]) for index in indices],
    }


def main() -> None:
    """Measure and print all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--small", type=int, default=20_000, help="objects of 10 KB that are packed")
    parser.add_argument("--tiny", type=int, default=200_000, help="samples of 200 B that are streamed")
    parser.add_argument("--only", default="", help="warm, cold, loader, store, pack or streams")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nbdata-records-", dir=os.environ.get("BENCH_DIR")) as name:
        folder = Path(name)
        samples = [] if options.only in ("pack", "streams") else made(folder, options.samples)
        if options.only in ("", "warm", "cold"):
            ways = local_ways(folder, samples)
            if options.only != "cold":
                shown("page cache", rates(ways, len(samples), options.rounds, 8))
            if options.only != "warm":
                files = {
                    name: way for name, way in ways.items() if "memcpy" not in name and "mapped" not in name
                }
                for turn in range(2):
                    shown(f"cold, turn {turn + 1}", cold(folder, files, len(samples)))
            del ways
        if options.only in ("", "loader"):
            loader_rows(folder, len(samples), max(3, options.rounds // 2))
        if options.only not in ("", "store", "pack", "streams"):
            return
        with EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False) as server:
            os.environ.update(server.environment())
            if options.only in ("", "pack"):
                found = record_packing.packed(server, folder, options.small, max(1, options.rounds // 2))
                record_packing.shown(options.small, found)
            if options.only in ("", "streams"):
                counts = {200: options.tiny, 10_000: options.small}
                found = record_streams.streamed(server, folder, counts, max(1, options.rounds // 2))
                record_streams.shown(found)
            if options.only in ("pack", "streams"):
                return
            server.create_bucket("bench")
            nbdata.push(f"{folder}/train.ffr/", "s3://bench/train.ffr/", quiet=True)
            nbdata.push(f"{folder}/loose/", "s3://bench/loose/", quiet=True)
            ways = stored_ways()
            indices = [random.randrange(len(samples)) for _ in range(BATCH)]
            for sample, index in zip(ways["nbdata.samples of FFRecord"](indices), indices, strict=True):
                assert sample["bin"] == samples[index]
            shown("S3 on loopback", rates(ways, len(samples), options.rounds, 2))
            with Line(server.url, 10, 0) as line, endpoint(line.url):
                shown("S3, 20 ms away", rates(stored_ways(), len(samples), max(3, options.rounds // 2), 1))


if __name__ == "__main__":
    main()
