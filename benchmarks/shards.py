"""Compares `nbdata` on tar shards with the webdataset library, with one ranged GET per sample, and with s5cmd and tar.

Run with ``make bench-shards``; ``ARGS="--only '2 KB'"`` selects rows. Ways run in turn as whole processes
(`shard_ways.py`); the figures are medians. The data that the ways deliver is compared once beforehand. webdataset's
ShardWriter writes the shards. Client and server share the machine's cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from line import Line
from measure import BIN, machine_cpu, process_cpu

from nbdata.demo.server import EmbeddedServer

WAYS = Path(__file__).with_name("shard_ways.py")
NAMES = {
    "nbdata": "nbdata, verify none",
    "nbdata-verified": "nbdata",
    "webdataset": "webdataset",
    "webdataset-rclone": "webdataset, pipe:rclone cat",
    "nbdata-2-workers": "nbdata, verify none",
    "webdataset-2-workers": "webdataset",
    "nbdata-by-number": "nbdata, verify none",
    "boto-by-range": "boto, a ranged GET a sample",
    "pack": "nbdata pack",
    "s5cmd": "s5cmd cp, tar, s5cmd cp",
}
BUCKET = "bench-shards"
#: Options of packs of shards into others, by way; the first one has none.
CHOICES: dict[str, dict[str, Any]] = {
    "shards": {},
    "--shard-samples": {"shard_samples": 2000},
    "--fields --rename": {"fields": "jpg,cls", "rename": "cls=label"},
    "--keys": {"keys": "%08d"},
    "--slice": {"slice": "0:"},
    "--on-error report": {"on_error": "report"},
    "--sort": {"sort": True},
    "--sort cls": {"sort": "cls"},
}
NAMES |= {way: "nbdata pack" + f" {way}" * (way != "shards") for way in CHOICES}


@dataclass
class Run:
    """The cost of one run: items, wall seconds, CPU seconds of the client and the server, and bytes of memory."""

    samples: int
    wall: float
    cpu: float
    memory: int
    server: float
    others: float
    digest: int = 0


class Bench:
    """A server and a folder, both with shards."""

    def __init__(self, folder: Path, server: EmbeddedServer, options: argparse.Namespace) -> None:
        self.folder, self.server, self.rounds, self.only = folder, server, options.rounds, options.only
        self.line: Line | None = None
        self.samples = round(40_000 * options.scale)  # of the shards of 2 KB
        server.create_bucket(BUCKET)

    def put(self, name: str, count: int, shards: int, sizes: tuple[int, int]) -> None:
        """Write shards into the folder and the store."""
        import webdataset

        warnings.simplefilter("ignore")
        (self.folder / name).mkdir()
        pattern = str(self.folder / name / "x-%06d.tar")
        with webdataset.ShardWriter(pattern, maxcount=-(-count // shards), verbose=0) as writer:
            for number in range(count):
                fields = {
                    field: random.randbytes(size) for field, size in zip(("jpg", "cls"), sizes, strict=True)
                }
                writer.write({"__key__": f"{number:06}", **fields})
        self._s5cmd("cp", f"{self.folder}/{name}/*", f"s3://{BUCKET}/{name}/")

    def put_objects(self, count: int, size: int) -> None:
        """Create loose objects in the store, two per sample."""
        source = self.folder / "loose"
        source.mkdir()
        for number in range(count // 2):
            for field in ("jpg", "cls"):
                (source / f"{number:06}.{field}").write_bytes(random.randbytes(size))
        self._s5cmd("cp", f"{source}/*", f"s3://{BUCKET}/loose/")
        for file in source.iterdir():
            file.unlink()

    def _s5cmd(self, *words: str) -> None:
        subprocess.run([str(BIN / "s5cmd"), *words], check=True, stdout=subprocess.DEVNULL)

    def _measured(self, work: Any) -> Run:
        os.sync()
        serving, machine, mine, began = self._serving(), machine_cpu(), os.times(), time.monotonic()
        told = work()
        seconds = time.monotonic() - began
        serving, machine, now = self._serving() - serving, machine_cpu() - machine, os.times()
        own = serving + sum(now[:4]) - sum(mine[:4])
        return Run(**told, server=serving, others=max(0.0, machine - own) / seconds)

    def _serving(self) -> float:
        line = process_cpu(self.line.process.pid) if self.line is not None else 0.0
        return process_cpu(self.server.pid) + line

    def read(self, way: str, place: str, *, check: bool = False) -> Run:
        """Run one way to read, in its own process."""
        command = [sys.executable, str(WAYS), way, "--shards", place, *(["--check"] if check else [])]

        def work() -> Any:
            return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)

        return self._measured(work)

    def pack(self, way: str, number: int) -> Run:
        """Pack loose objects or shards into shards in the store, by nbdata or by way of the disk."""
        url, target = f"s3://{BUCKET}/loose/", f"s3://{BUCKET}/{way.replace(' ', '')}-{number}"
        options: dict[str, Any] = {"shard_size": "1GB"}
        if way in CHOICES:
            url, options = f"s3://{BUCKET}/2KB/*.tar", {"shard_size": "64MB", **CHOICES[way]}

        def work() -> Any:
            began, used = time.perf_counter(), os.times()
            if way != "s5cmd":
                program = (
                    "import nbdata, sys\n"
                    f"nbdata.pack(sys.argv[1], sys.argv[2], quiet=True, **{options!r})\n"
                    "status = open('/proc/self/status').read()\n"
                    "print(1024 * int(status.partition('VmHWM:')[2].split()[0]))"
                )
                command = [sys.executable, "-c", program, url, f"{target}/x-%06d.tar"]
                inline = {**os.environ, "NBDATA_HOST": "inline"}
                out = subprocess.run(
                    command, check=True, stdout=subprocess.PIPE, text=True, env=inline
                ).stdout
                memory = int(out)
            else:
                with tempfile.TemporaryDirectory(dir=self.folder) as work_folder:
                    self._s5cmd("cp", f"{url}*", f"{work_folder}/in/")
                    command = [
                        "tar",
                        "--sort=name",
                        "-cf",
                        f"{work_folder}/x.tar",
                        "-C",
                        f"{work_folder}/in",
                        ".",
                    ]
                    subprocess.run(command, check=True)
                    self._s5cmd("cp", f"{work_folder}/x.tar", f"{target}/x.tar")
                memory = 0
            now = os.times()
            cpu = now.children_user + now.children_system - used.children_user - used.children_system
            return {
                "samples": self.samples if way in CHOICES else 20_000,
                "wall": time.perf_counter() - began,
                "cpu": cpu,
                "memory": memory,
                "digest": 0,
            }

        return self._measured(work)

    def compare(self, name: str, ways: tuple[str, ...], place: str, *, slow: bool = False) -> None:
        """Run each way in turn and print a line for each. Slow ways run once and are not compared again."""
        if self.only not in name:
            return
        if place and not slow:
            found = {way: (run := self.read(way, place, check=True)).digest + run.samples for way in ways}
            assert len(set(found.values())) == 1, f"{name}: other samples: {found}"
        runs: dict[str, list[Run]] = {way: [] for way in ways}
        for number in range(1 if slow else self.rounds):
            for way in ways:
                runs[way].append(self.read(way, place) if place else self.pack(way, number))
        first = runs[ways[0]]
        for way in ways:
            mine = runs[way]
            rate = statistics.median(run.samples / run.wall for run in mine)
            ratio = statistics.median(one.wall / ours.wall for ours, one in zip(first, mine, strict=True))
            share = statistics.median(ours.cpu / one.cpu for ours, one in zip(first, mine, strict=True))
            client, serving = (
                1e3 * statistics.median(getattr(run, one) / run.samples for run in mine)
                for one in ("cpu", "server")
            )
            memory = statistics.median(run.memory for run in mine) / 1e6
            others = statistics.median(run.others for run in mine)
            print(
                f"| {name} | {NAMES[way]} | {rate:,.0f} | {ratio:.2f} | {client:.3f} ms | {share:.2f} "
                f"| {serving:.3f} ms | {f'{memory:.0f} MB' if memory else '–'} | {others:.2f} |",
                flush=True,
            )


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only rows whose name has this in it")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the samples, for a short run")
    options = parser.parse_args()
    os.environ["GOMEMLIMIT"] = "2GiB"  # without it, SeaweedFS took up to 20 GB
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as name:
        folder = Path(name)
        for variable in ("RUNTIME", "STATE"):
            os.environ[f"NBDATA_{variable}_DIR"] = f"{folder}/{variable.lower()}"
        with EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False) as server:
            os.environ.update(server.environment(), S3_ENDPOINT_URL=server.url)
            bench = Bench(folder, server, options)
            bench.put("110KB", round(4000 * options.scale), 10, (100_000, 10_000))
            bench.put("2KB", bench.samples, 20, (1_800, 200))
            print(
                "| work | way | samples/s | nbdata's over it | CPU a sample, client | nbdata's share of it "
                "| CPU a sample, server | memory | cores that others used |\n" + "|---" * 9 + "|",
                flush=True,
            )
            read = ("nbdata", "nbdata-verified", "webdataset")
            for size in ("110 KB", "2 KB"):
                shards = f"{size.replace(' ', '')}/*.tar"
                there = f"s3://{BUCKET}/{shards}"
                bench.compare(f"local, {size}", read, f"{folder}/{shards}")
                bench.compare(f"S3, {size}", read, there)
                bench.compare(f"S3, {size}, 2 workers", ("nbdata-2-workers", "webdataset-2-workers"), there)
            by_number, there = ("nbdata-by-number", "boto-by-range"), f"s3://{BUCKET}/110KB/*.tar"
            bench.compare("S3, 110 KB, batches of 64 by number", by_number, there)
            with Line(server.url, 10, 0) as bench.line:
                os.environ.update(AWS_ENDPOINT_URL=bench.line.url, S3_ENDPOINT_URL=bench.line.url)
                bench.compare("20 ms away, batches of 64 by number", by_number, there, slow=True)
            bench.line = None
            os.environ.update(server.environment(), S3_ENDPOINT_URL=server.url)
            if options.only in (name := "pack shards of 2 KB into others"):
                bench.pack("shards", -1)  # makes the index, which all have then
                bench.compare(name, tuple(CHOICES), "")
            if options.only in "pack":
                bench.put_objects(20_000, 10_000)
                bench.compare("pack 20,000 objects of 10 KB", ("pack", "s5cmd"), "")


if __name__ == "__main__":
    main()
