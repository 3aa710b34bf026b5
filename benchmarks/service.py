"""Compares a loader service with DataLoaders and with a pickled multiprocessing.Queue.

Run with ``make bench-service``; ``ARGS="--rounds 1"`` is quick. Services, consumers and loaders are processes of their
own. Ways of a row run in turn, on local files; the figures are medians over rounds. Batches have 64 samples: JPEGs of
224 × 224 that are decoded to one tensor, or 110 KB of bytes each.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

BATCH, SIDE, SIZE = 64, 224, 110_000
KINDS = ("images", "bytes")
AHEAD = 64 << 20
# Batches that are handed over, and that are read and decoded.
HANDED, READ = 100, 40
# Batches before the clock starts, more than are ready when the first one is asked for.
WARM = 12
WORKERS = 2


# -- what is served ---------------------------------------------------------------------------------


class Ready:
    """Yields the same batch again and again, so that only the hand-over takes time."""

    def __init__(self, kind: str, count: int) -> None:
        self._batch: Any = np.random.default_rng(1).integers(0, 256, (BATCH, SIDE, SIDE, 3), np.uint8)
        if kind == "bytes":
            self._batch = [os.urandom(SIZE) for _ in range(BATCH)]
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._count):
            yield self._batch


def pixels(sample: dict[str, Any]) -> Any:
    """Return the pixels of a sample."""
    import nbdata

    return nbdata.decode(sample, images="numpy")["jpg"]


def content(sample: dict[str, Any]) -> bytes:
    """Return the bytes of a sample."""
    data: bytes = sample["bin"]
    return data


def loader_of(folder: str, kind: str) -> Any:
    """Return the loader that services and the DataLoaders beside them have."""
    import nbdata
    from nbdata.loaders.pytorch import SampleLoader

    options: dict[str, Any] = {"shuffle": True, "num_workers": WORKERS, "persistent_workers": True}
    if kind == "images":
        options["transform"] = pixels
    else:
        options |= {"transform": content, "collate_fn": list}
    return SampleLoader(nbdata.samples(f"{folder}/{kind}/"), BATCH, **options)


def make(folder: Path) -> None:
    """Write the samples: pictures that compress about as photographs do, and random bytes."""
    from PIL import Image

    random = np.random.default_rng(2)
    for kind in KINDS:
        (folder / kind).mkdir()
    for number in range(BATCH * 16):
        small = Image.fromarray(random.integers(0, 256, (28, 28, 3), np.uint8))
        small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(
            folder / f"images/{number:05}.jpg", quality=90
        )
        (folder / f"bytes/{number:05}.bin").write_bytes(os.urandom(SIZE))


# -- processes --------------------------------------------------------------------------------------


def cpu() -> float:
    """Return the CPU seconds of this process and of its children, also of workers that have not ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ticks = 0
    for child in multiprocessing.active_children():
        with contextlib.suppress(FileNotFoundError):
            user, system = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
    return sum(one.ru_utime + one.ru_stime for one in both) + ticks / os.sysconf("SC_CLK_TCK")


def taken(batches: Iterator[Any], count: int) -> float:
    """Take batches; return the seconds that they take once what was ready before is taken."""
    for _ in range(WARM):
        next(batches)
    began = time.perf_counter()
    for _ in range(count):
        batch = next(batches)
        assert len(batch) == BATCH
    return time.perf_counter() - began


def endless(source: Any) -> Iterator[Any]:
    """Yield the batches of one epoch after the other."""
    while True:
        yield from source


def serve(loader: Any, options: str) -> None:
    """Serve until standard input ends; then print the CPU seconds since it was ready, and the peak memory."""
    from nbdata.loaders.service import serve as start

    with start(loader, ahead=AHEAD, name=f"bench-{os.getpid()}", **json.loads(options)) as service:
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, cpu()
        print(service.address, flush=True)
        sys.stdin.read()
    del loader
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"cpu": cpu() - began, "before": before, "peak": peak}), flush=True)


def consume(address: str, count: int) -> None:
    """Take batches of a service; print the seconds, and the CPU seconds."""
    from nbdata.loaders.service import Client

    began = cpu()
    with Client(address) as client:
        wall = taken(endless(client), count)
    print(json.dumps({"wall": wall, "cpu": cpu() - began}), flush=True)


def load(folder: str, kind: str, count: int) -> None:
    """Take batches of a loader in this process; print the same."""
    loader = loader_of(folder, kind)
    batches, began = endless(loader), cpu()
    wall = taken(batches, count)
    del batches
    print(json.dumps({"wall": wall, "cpu": cpu() - began}), flush=True)


def started(*words: object) -> subprocess.Popen[str]:
    """Start this program in one of its roles."""
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> dict[str, float]:
    """Return what a process prints at its end."""
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a process of the benchmark ended with status {process.returncode}")
    said: dict[str, float] = json.loads(out.splitlines()[-1])
    return said


def service(words: tuple[object, ...], options: dict[str, Any], consumers: int, count: int) -> dict[str, Any]:
    """Run a service with consumers; return the seconds of the slowest, the CPU seconds of all, and the memory."""
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(started(*words, json.dumps({"consumers": consumers, **options})))
        assert one.stdout is not None
        address = one.stdout.readline().strip()
        runs = [started("consume", address, count) for _ in range(consumers)]
        ends = [told(run) for run in runs]
        end = told(one)
    return {
        "wall": max(run["wall"] for run in ends),
        "cpu": end["cpu"] + sum(run["cpu"] for run in ends),
        "peak": end["peak"],
        "before": end["before"],
    }


def loaders(folder: str, kind: str, together: int, count: int) -> dict[str, Any]:
    """Run DataLoaders side by side; return the seconds of the slowest, and the CPU seconds of all."""
    ends = [told(run) for run in [started("load", folder, kind, count) for _ in range(together)]]
    return {"wall": max(run["wall"] for run in ends), "cpu": sum(run["cpu"] for run in ends)}


def _fill(queue: Any, kind: str, count: int) -> None:
    for batch in Ready(kind, count):
        queue.put(batch)
    queue.close()


def queued(kind: str, count: int) -> float:
    """Hand batches over by a pickled multiprocessing.Queue; return the seconds."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue(3)
    process = context.Process(target=_fill, args=(queue, kind, count + WARM))
    process.start()
    wall = taken((queue.get() for _ in itertools.count()), count)
    process.join()
    return wall


# -- rows -------------------------------------------------------------------------------------------


def row(title: str, ways: dict[str, list[float]]) -> None:
    """Print a row of the report: medians, and the first one beside the last."""
    medians = [statistics.median(values) for values in ways.values()]
    shown = "; ".join(f"{name} {value:,.2f}" for name, value in zip(ways, medians, strict=True))
    print(f"| {title} | {shown} | {medians[0] / medians[-1]:.2f} |", flush=True)


def measure(folder: str, rounds: int, handed: int, read: int) -> None:
    """Measure and print all rows."""
    print(f"load {os.getloadavg()[0]:.1f}\n")
    print("| work | batches/s (CPU seconds a batch, MB) | first / last |\n|---|---|---|")
    for kind in KINDS:
        found: dict[str, list[float]] = {"ipc": [], "tcp, encrypted": [], "queue": []}
        for _ in range(rounds):
            for name, listen in (("ipc", "ipc"), ("tcp, encrypted", "tcp://127.0.0.1:0")):
                run = service(("ready", kind), {"listen": listen}, 1, handed)
                found[name].append(handed / run["wall"])
            found["queue"].append(handed / queued(kind, handed))
        row(f"hand over {kind}: ipc beside a queue", {name: found[name] for name in ("ipc", "queue")})
        row(
            f"hand over {kind}: tcp beside a queue",
            {name: found[name] for name in ("tcp, encrypted", "queue")},
        )
    for kind in KINDS:
        one: dict[str, list[float]] = {"service": [], "DataLoader": []}
        rates: dict[str, list[float]] = {"service": [], "DataLoaders": []}
        spent: dict[str, list[float]] = {"service": [], "DataLoaders": []}
        memory: dict[str, list[float]] = {"peak": [], "allowed": []}
        for _ in range(rounds):
            run = service(("serve", folder, kind), {}, 1, read)
            one["service"].append(read / run["wall"])
            one["DataLoader"].append(read / loaders(folder, kind, 1, read)["wall"])
            both = service(("serve", folder, kind), {"mode": "broadcast"}, 2, read)
            beside = loaders(folder, kind, 2, read)
            for name, two in (("service", both), ("DataLoaders", beside)):
                rates[name].append(2 * read / two["wall"])
                spent[name].append(two["cpu"] / (2 * (read + WARM)))
            memory["peak"].append(max(run["peak"], both["peak"]) / 1e3)
            memory["allowed"].append(AHEAD / 1e6 + 150 + both["before"] / 1e3)
        row(f"read {kind}: one consumer", one)
        row(f"read {kind}: two consumers", rates)
        row(f"read {kind}: two consumers, CPU seconds a batch", spent)
        row(f"read {kind}: MB of the service beside what it may take", memory)


def main() -> None:
    """Play a role, or measure."""
    match sys.argv[1:]:
        case ["ready", kind, options]:
            serve(Ready(kind, HANDED * 2), options)
        case ["serve", folder, kind, options]:
            serve(loader_of(folder, kind), options)
        case ["consume", address, count]:
            consume(address, int(count))
        case ["load", folder, kind, count]:
            load(folder, kind, int(count))
        case _:
            parser = argparse.ArgumentParser(description=__doc__)
            parser.add_argument("--rounds", type=int, default=3)
            parser.add_argument("--handed", type=int, default=HANDED, help="batches that are handed over")
            parser.add_argument("--read", type=int, default=READ, help="batches that are read and decoded")
            options = parser.parse_args()
            with tempfile.TemporaryDirectory() as folder:
                make(Path(folder))
                measure(folder, options.rounds, options.handed, options.read)


if __name__ == "__main__":
    main()
