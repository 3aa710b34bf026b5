"""What `nbdata.shift` costs: copies of trees beside pull, and calls on the local disk with and without it.

``python benchmarks/shift.py [--rounds 3] [--scale 1]``; at scale 1 it needs 4 GB of disk.
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

import nbdata
from nbdata.demo.server import EmbeddedServer

# Calls a measurement.
_CALLS = 5000


def trees(folder: Path, scale: float) -> dict[str, Path]:
    """Write the trees, and return them by name."""
    found = {}
    for name, count, size in (("2,000 × 10 KB", 2000, 10_240), ("8 × 128 MiB", 8, 128 << 20)):
        found[name] = folder / name.replace(" ", "")
        found[name].mkdir(parents=True)
        for number in range(max(1, int(count * scale))):
            (found[name] / f"{number:05}").write_bytes(os.urandom(size))
    return found


def copies(server: EmbeddedServer, folder: Path, rounds: int, scale: float) -> None:
    """Print the seconds of pull and of copytree."""
    server.create_bucket("shift")
    print("| tree | pull | shutil.copytree | ratio of the rounds |\n|---|---|---|---|", flush=True)
    for name, source in trees(folder, scale).items():
        url, seconds = f"s3://shift/{source.name}", {"pull": list[float](), "copytree": list[float]()}
        nbdata.push(str(source), url + "/", quiet=True)
        for _ in range(rounds):
            for how in seconds:
                target, began = folder / "target", time.perf_counter()
                if how == "pull":
                    nbdata.pull(url + "/", str(target), quiet=True)
                else:
                    with nbdata.shift():
                        shutil.copytree(url, target)
                seconds[how].append(time.perf_counter() - began)
                assert sum(one.stat().st_size for one in target.iterdir()) == sum(
                    one.stat().st_size for one in source.iterdir()
                )
                shutil.rmtree(target)
        ratios = [copy / pull for copy, pull in zip(seconds["copytree"], seconds["pull"], strict=True)]
        pull, copy = (statistics.median(some) for some in seconds.values())
        print(f"| {name} | {pull:.2f} s | {copy:.2f} s | {statistics.median(ratios):.2f} |", flush=True)


def calls(folder: Path) -> None:
    """Print the microseconds of CPU of calls on the local disk, without the shift and with it."""
    path, wide = folder / "file", folder / "wide"
    path.write_text("x")
    for number in range(10_000):
        (wide / f"{number % 100:02}").mkdir(parents=True, exist_ok=True)
        (wide / f"{number % 100:02}/{number}").touch()
    works: dict[str, tuple[Callable[[], object], int]] = {
        "os.stat(str)": (lambda: os.stat(str(path)), _CALLS),
        "os.stat(Path)": (lambda: os.stat(path), _CALLS),
        "os.path.exists": (lambda: os.path.exists(path), _CALLS),
        "os.path.join": (lambda: os.path.join("/a/b", "c"), _CALLS),
        "open and close": (lambda: open(path, encoding="utf-8").close(), _CALLS),
        "os.listdir": (lambda: os.listdir(wide / "00"), _CALLS),
        "str(Path)": (lambda: str(path), _CALLS),
        "Path.exists": (path.exists, _CALLS),
        "glob.glob": (lambda: glob.glob(f"{wide}/0*/1*"), 20),
        "os.walk of 10,000 files": (lambda: sum(len(files) for _, _, files in os.walk(wide)), 5),
    }
    print("\n| call | without | with | more |\n|---|---|---|---|", flush=True)
    for name, (work, number) in works.items():
        best = {}
        for how in ("without", "with"):
            times = []
            for _ in range(15):
                if how == "with":
                    with nbdata.shift():
                        times.append(timeit.timeit(work, number=number, timer=time.process_time))
                else:
                    times.append(timeit.timeit(work, number=number, timer=time.process_time))
            best[how] = min(times) / number * 1e6
        more = best["with"] - best["without"]
        print(f"| {name} | {best['without']:.2f} µs | {best['with']:.2f} µs | {more:+.2f} µs |", flush=True)


def main() -> None:
    """Run the benchmark and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as name:
        folder = Path(name)
        for variable in ("RUNTIME", "STATE"):
            os.environ[f"NBDATA_{variable}_DIR"] = f"{folder}/{variable.lower()}"
        with EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False) as server:
            os.environ.update(server.environment())
            calls(folder)
            copies(server, folder, options.rounds, options.scale)


if __name__ == "__main__":
    main()
