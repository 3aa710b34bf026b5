"""What --cluster local:2 costs beside one process: seconds, CPU of all processes, and the coordinator's CPU per object.

``python benchmarks/cluster.py [--files 20000] [--size 10240] [--rounds 3] [--works copy,pull,md5check]``; it needs some
gigabytes of disk. Each round does the same work both ways, one after the other. `copy` and `pull` have SeaweedFS.
`md5check` hashes `--large` objects of `--large-size` in a store that makes them up (`listing.py`), so the server is not
the limit. Starting the workers is counted apart, and importing Dask not at all. CPU is that of nbdata's processes,
without the server's. The coordinator's CPU is that of its process and includes the plan, Dask's client and its
scheduler, which `local` runs in the same process. Ratios are medians of those of each round.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed  # noqa: F401  imported before anything is measured
from listing import ListServer

import nbdata
from nbdata.cluster.opening import Cluster
from nbdata.demo.server import EmbeddedServer

_TICK = os.sysconf("SC_CLK_TCK")


class Watched:
    """Notes when the workers of a job had started, and the CPU that they took until the job had no more work."""

    def __init__(self) -> None:
        self.started, self.start_cpu, self.workers = 0.0, 0.0, 0.0

    def __enter__(self) -> Watched:
        self._before, watched = (Cluster.__enter__, Cluster.__exit__), self
        enter, leave = self._before
        pids: list[int] = []
        base = 0.0

        def entered(cluster: Cluster) -> Cluster:
            nonlocal base
            cpu = own_cpu()
            opened = enter(cluster)
            pids.extend(opened.client.run(os.getpid).values())
            base = cpu_of(pids)
            watched.start_cpu = own_cpu() - cpu
            watched.started = time.perf_counter()
            return opened

        def left(cluster: Cluster, *error: object) -> None:
            watched.workers = cpu_of(pids) - base
            leave(cluster, *error)

        Cluster.__enter__, Cluster.__exit__ = entered, left  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Cluster.__enter__, Cluster.__exit__ = self._before  # type: ignore[method-assign]


def cpu_of(pids: list[int]) -> float:
    """Return the CPU seconds of processes that live."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / _TICK
    return total


def own_cpu() -> float:
    """Return the CPU seconds of this process."""
    times = os.times()
    return times.user + times.system


def measured(
    work: Callable[[str | None], nbdata.Report], cluster: str | None, files: int
) -> dict[str, float]:
    """Run once; return seconds and CPU."""
    with Watched() as watched:
        cpu, began = own_cpu(), time.perf_counter()
        report = work(cluster)
        ended = time.perf_counter()
    assert report.files == files, report
    own = own_cpu() - cpu - watched.start_cpu
    start = watched.started - began if watched.started else 0.0
    return {
        "seconds": ended - began - start,
        "start": start,
        "own": own,
        "workers": watched.workers,
        "total": own + watched.workers,
    }


Work = Callable[[str | None], nbdata.Report]


@contextlib.contextmanager
def small_objects(files: int, size: int, folder: Path) -> Iterator[dict[str, Work]]:
    """Give the works on small objects in SeaweedFS."""
    with EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False) as server:
        os.environ |= server.environment()
        server.create_bucket("cluster")
        source = folder / "source"
        for number in range(files):
            path = source / f"{number % 100:02}" / f"{number:06}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size))
        nbdata.push(str(source), "s3://cluster/in/", quiet=True)
        counter = itertools.count()

        def copy(cluster: str | None) -> nbdata.Report:
            target = f"s3://cluster/out{next(counter)}/"
            return nbdata.copy("s3://cluster/in/", target, cluster=cluster, quiet=True)

        def pull(cluster: str | None) -> nbdata.Report:
            target = folder / f"out{next(counter)}"
            report = nbdata.pull("s3://cluster/in/", str(target), cluster=cluster, quiet=True)
            shutil.rmtree(target)
            return report

        yield {"copy": copy, "pull": pull}


@contextlib.contextmanager
def large_objects(files: int, size: int, _: Path) -> Iterator[dict[str, Work]]:
    """Give the works on large objects that a server makes up."""
    with ListServer(files, size=size) as server:
        options: dict[str, Any] = {"endpoint_url": server.url, "key": "k", "secret": "s", "region": "none"}

        def md5check(cluster: str | None) -> nbdata.Report:
            return nbdata.md5check(
                server.place, against=server.place, cluster=cluster, storage_options=options, quiet=True
            )

        yield {"md5check": md5check}


def compare(name: str, work: Work, files: int, rounds: int) -> None:
    """Measure a work both ways, one after the other in each round; print the lines of the table."""
    found: dict[str | None, list[dict[str, float]]] = {None: [], "local:2": []}
    for _ in range(rounds):
        for cluster, values in found.items():
            values.append(measured(work, cluster, files))
    for cluster, values in found.items():
        mid = {key: statistics.median(one[key] for one in values) for key in values[0]}
        print(
            f"| {name} | {cluster or 'none'} | {mid['seconds']:.1f} s | {mid['total']:.1f} s | "
            f"{mid['workers']:.1f} s | {mid['own'] / files * 1e6:.0f} µs | {mid['start']:.1f} s |",
            flush=True,
        )
    for key in ("seconds", "total"):
        ratios = sorted(two[key] / one[key] for one, two in zip(*found.values(), strict=True))
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"  {name}, {key}: local:2 has {statistics.median(ratios):.2f} × ({each})", flush=True)
    print(f"  load {os.getloadavg()[0]:.0f}", flush=True)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=10_240)
    parser.add_argument("--large", type=int, default=64)
    parser.add_argument("--large-size", type=int, default=64 << 20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", default="copy,pull,md5check")
    args = parser.parse_args()
    asked = args.works.split(",")
    os.environ["NBDATA_HOST"] = "inline"
    folder = Path(tempfile.mkdtemp(prefix="nbdata-bench-cluster-"))
    os.environ["NBDATA_STATE_DIR"] = str(folder / "state")
    print(f"{args.rounds} rounds, medians\n")
    print(
        "| work | cluster | seconds | CPU of all | of the workers | of the coordinator per object | start |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for names, places, files, size in (
        (("copy", "pull"), small_objects, args.files, args.size),
        (("md5check",), large_objects, args.large, args.large_size),
    ):
        if not {*names} & {*asked}:
            continue
        with places(files, size, folder) as works:
            for name in names:
                if name in asked:
                    compare(f"{name} of {files:,} × {size:,} bytes", works[name], files, args.rounds)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
