"""The coordinator's own CPU per object of a dealt job, without a store that holds it up.

``python benchmarks/coordinator.py [--few 10000] [--many 100000] [--rounds 3] [--works copy,pull]``. Objects come from a
server that makes them up (`listing.py`). The workers of a copy report all objects as copied at once; those of a pull
fetch them. Each work runs with few and with many objects: the difference is the cost per object, the rest is what a job
costs by itself. Counted is the CPU of this process: plan, dealing and merging, records, names, and Dask's client and
scheduler. Starting the workers is left out. ``--threads`` tells how it spreads over threads, ``--memory`` the peak
memory (RSS) of this process and of the largest worker; with `--rounds 1`, since a peak does not fall.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
from pathlib import Path
from typing import Any

import distributed  # noqa: F401  imported before anything is measured
from cluster import Watched, own_cpu
from listing import ListServer

import nbdata
from nbdata.cluster import performer
from nbdata.cluster.opening import Cluster
from nbdata.engine.job.dealing import MOST, PartReport
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.report import Row
from nbdata.transfer.index import Record

_TICK = os.sysconf("SC_CLK_TCK")


def copied_at_once(_job: Any, _place: Any, data: bytes) -> PartReport:
    """Report all objects of a part as copied. Takes the place of `performer._performed` on workers."""
    _, _, rows = performer.rows_in(data)
    return PartReport(
        rows=[Row(row.path, "copied", row.size, {"verified": True, "by": "store"}) for row in rows],
        records={row.path: Record(row.detail["etag"], row.size, -1, 0, 0) for row in rows},
        files=len(rows),
        bytes=sum(row.size for row in rows),
        verified=len(rows),
        sums={"by_store": len(rows)},
    )


def by_thread() -> dict[str, float]:
    """Return the CPU seconds of this process's threads by their names."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[str, float] = {}
    for task in Path("/proc/self/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        name = names.get(int(task.name), "others").rstrip("0123456789-abcdef")
        found[name] = found.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / _TICK
    return found


def peak() -> int:
    """Return the peak memory of a process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) // 1000


class Coordinator(Watched):
    """Has workers of a copy answer at once, and notes the threads' CPU before the workers end."""

    def __init__(self, *, at_once: bool) -> None:
        super().__init__()
        self._at_once, self.threads = at_once, dict[str, float]()
        self.peak, self.worker_peak = 0, 0

    def __enter__(self) -> Coordinator:
        super().__enter__()
        enter, leave = Cluster.__enter__, Cluster.__exit__

        def entered(cluster: Cluster) -> Cluster:
            opened = enter(cluster)
            if self._at_once:
                opened.client.run(setattr, performer, "_performed", copied_at_once)
            self._began = by_thread()
            return opened

        def left(cluster: Cluster, *error: object) -> None:
            self.threads = {name: cpu - self._began.get(name, 0.0) for name, cpu in by_thread().items()}
            self.peak, self.worker_peak = peak(), max(cluster.client.run(peak).values())
            leave(cluster, *error)

        Cluster.__enter__, Cluster.__exit__ = entered, left  # type: ignore[method-assign]
        return self


def measured(verb: str, objects: int, folder: Path, *, memory: bool) -> tuple[float, dict[str, float]]:
    """Run once with `local:2`; return the CPU seconds of this process without those of the start, and by thread."""
    before = peak()
    target = folder / "out"
    with ListServer(objects, per_folder=1000) as server, Coordinator(at_once=verb == "copy") as watched:
        options: dict[str, Any] = {"endpoint_url": server.url, "key": "k", "secret": "s", "region": "none"}
        cpu = own_cpu()
        if verb == "copy":
            report = nbdata.copy(
                server.place, "s3://bench/none", cluster="local:2", storage_options=options, quiet=True,
            )  # fmt: skip
        else:
            report = nbdata.pull(server.place, target, cluster="local:2", storage_options=options, quiet=True)
        cpu = own_cpu() - cpu - watched.start_cpu
    assert report.files == objects, report
    shutil.rmtree(target, ignore_errors=True)
    if memory:
        told = f"coordinator {watched.peak} MB ({before} MB before), a worker {watched.worker_peak} MB"
        print(f"  {verb} {objects:,}: {told}", flush=True)
    return cpu, watched.threads


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", default="copy,pull")
    parser.add_argument("--most", type=int, default=MOST, help="objects of a part at most")
    parser.add_argument("--threads", action="store_true", help="tell the CPU of each thread, too")
    parser.add_argument("--memory", action="store_true", help="tell the peak memory, too")
    args = parser.parse_args()
    DealtPlan.most = args.most
    os.environ["NBDATA_HOST"] = "inline"
    folder = Path(tempfile.mkdtemp(prefix="nbdata-bench-coordinator-"))
    os.environ["NBDATA_STATE_DIR"] = str(folder / "state")
    print("| work | per object | a job by itself | load |\n|---|---|---|---|", flush=True)
    for verb in args.works.split(","):
        found: dict[int, list[float]] = {args.few: [], args.many: []}
        for _ in range(args.rounds):
            for objects, values in found.items():
                cpu, threads = measured(verb, objects, folder, memory=args.memory)
                values.append(cpu)
                shutil.rmtree(folder / "state", ignore_errors=True)
                if args.threads:
                    told = sorted(threads.items(), key=lambda one: -one[1])
                    each = ", ".join(f"{name} {cpu / objects * 1e6:.0f}" for name, cpu in told if cpu > 0.02)
                    print(f"  {verb} {objects:,}: {cpu:.2f} s; µs per object: {each}", flush=True)
        few, many = (statistics.median(found[objects]) for objects in (args.few, args.many))
        slope = (many - few) / (args.many - args.few)
        load = os.getloadavg()[0]
        print(f"| {verb} | {slope * 1e6:.0f} µs | {few - slope * args.few:.1f} s | {load:.0f} |", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
