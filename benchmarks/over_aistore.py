"""Measures nbdata over AIStore beside its own SDK, and beside s5cmd through the S3 door: ``make bench-aistore``.

Against the server of the tests that stands in for AIStore (`tests.servers.aistore`), since AIStore itself was not at
hand. That server is Python and takes most of the time of small objects, so the CPU time of the clients says more than
the seconds there. Tools run in turn, as whole processes; what they deliver is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from measure import BIN, Run, machine_cpu, process_cpu, same, timed

import nbdata

sys.path.append(str(Path(__file__).parents[1]))
from tests.servers.aistore.cluster import Cluster, cluster

LOADER = Path(__file__).with_name("aistore_loader.py")
# Objects and their size, and shards, samples in each and bytes of a sample.
PULLS = {"pull 20,000 × 10 KB": (20_000, 10_000), "pull 8 × 128 MiB": (8, 128 << 20)}
SHARDS = {"shards of 2 KB": (16, 5000, 2_000), "shards of 110 KB": (16, 600, 110_000)}
# What a user of the SDK writes: `object.get` in threads, to files.
SDK = """
import pathlib, sys
from concurrent.futures import ThreadPoolExecutor
from aistore.sdk import Client
url, bucket, target = sys.argv[1:]
found = Client(url, max_pool_size=16).bucket(bucket)
def get(name):
    path = pathlib.Path(target, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.writelines(found.object(name).get_reader(chunk_size=1 << 20))
with ThreadPoolExecutor(16) as pool:
    list(pool.map(get, [entry.name for entry in found.list_objects_iter()]))
"""


class Bench:
    """A cluster, and a folder for data.

    Parameters
    ----------
    scale : float
        A share of the objects and samples.
    """

    def __init__(self, work: Path, running: Cluster, rounds: int, scale: float) -> None:
        self.work, self.running, self.rounds, self.scale = work, running, rounds, scale
        self.servers = [one.pid for one in (running.gateway, *running.nodes)]

    def pull(self, name: str, number: int) -> None:
        """Compare pulls of a bucket."""
        count, size = PULLS[name]
        bucket, source, target = f"data{number}", self.work / "source", self.work / "target"
        self.running.create_bucket(bucket)
        source.mkdir()
        for at in range(max(1, round(count * self.scale))):
            (source / f"{at:05}").write_bytes(random.randbytes(size))
        nbdata.push(source, f"ais://{bucket}/", quiet=True)
        door = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"{self.running.url}/s3",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
        }
        commands: dict[str, tuple[list[str], Mapping[str, str]]] = {
            "nbdata": ([sys.executable, "-m", "nbdata", "pull", f"ais://{bucket}/", str(target)], os.environ),
            "SDK, 16 threads": (
                [sys.executable, "-c", SDK, self.running.url, bucket, str(target)],
                os.environ,
            ),
            "s5cmd, S3 door": (
                [
                    str(BIN / "s5cmd"),
                    "--endpoint-url",
                    door["AWS_ENDPOINT_URL"],
                    "cp",
                    f"s3://{bucket}/*",
                    f"{target}/",
                ],
                door,
            ),
        }

        def run(tool: str) -> Run:
            command, env = commands[tool]
            os.sync()
            run = timed(command, servers=self.servers, env=env)
            assert same(source, target)
            shutil.rmtree(target)
            return run

        self._row(name, [*commands], run)
        shutil.rmtree(source)

    def shards(self, name: str, workers: int, number: int) -> None:
        """Compare one pass of a DataLoader over tar shards."""
        import webdataset

        warnings.simplefilter("ignore")
        shards, samples, size = SHARDS[name]
        bucket, source = f"shards{number}", self.work / "source"
        self.running.create_bucket(bucket)
        source.mkdir()
        samples = max(1, round(samples * self.scale))
        with webdataset.ShardWriter(str(source / "x-%06d.tar"), maxcount=samples, verbose=0) as writer:
            for at in range(shards * samples):
                writer.write(
                    {"__key__": f"{at:06}", "jpg": random.randbytes(size), "cls": str(at % 10).encode()}
                )
        nbdata.push(source, f"ais://{bucket}/", quiet=True)
        shutil.rmtree(source)

        def read(tool: str, *check: str) -> dict[str, Any]:
            command = [sys.executable, str(LOADER), tool, self.running.url, bucket, str(workers), *check]
            found: dict[str, Any] = json.loads(
                subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            )
            return found

        def run(tool: str) -> Run:
            serving, machine, mine, began = self._serving(), machine_cpu(), os.times(), time.monotonic()
            told = read(tool)
            seconds, serving, now = time.monotonic() - began, self._serving() - serving, os.times()
            own = serving + sum(now[:4]) - sum(mine[:4])
            others = max(0.0, machine_cpu() - machine - own) / seconds
            return Run(told["wall"], told["cpu"], serving, told["memory"], others)

        delivered = {
            tool: (told["samples"], told["digest"])
            for tool in ("nbdata", "SDK")
            for told in [read(tool, "check")]
        }
        assert delivered["nbdata"] == delivered["SDK"], delivered
        self._row(f"{name}, {workers} workers", ["nbdata", "SDK"], run)

    def _serving(self) -> float:
        return sum(map(process_cpu, self.servers))

    def _row(self, name: str, tools: list[str], run: Callable[[str], Run]) -> None:
        """Run tools in turn, and print a line for each."""
        runs: dict[str, list[Run]] = {tool: [] for tool in tools}
        for number in range(self.rounds):
            for tool in tools[number % len(tools) :] + tools[: number % len(tools)]:
                runs[tool].append(run(tool))
        first = runs[tools[0]]
        for tool, each in runs.items():
            wall, cpu, server, others = (
                statistics.median(getattr(one, part) for one in each)
                for part in ("wall", "cpu", "server", "others")
            )
            walls, cpus = (
                statistics.median(
                    getattr(one, part) / getattr(ours, part) for one, ours in zip(each, first, strict=True)
                )
                for part in ("wall", "cpu")
            )
            print(
                f"{name}: {tool:16} {wall:7.2f} s ({walls:5.2f} × nbdata)   CPU {cpu:6.2f} s ({cpus:5.2f} ×)   "
                f"server {server:6.2f} s   {max(one.memory for one in each) / 1e6:5.0f} MB   others {others:.1f}",
                flush=True,
            )


def main() -> None:
    """Run the rows and print a line for each tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the objects and samples")
    parser.add_argument("--only", default="", help="the rows whose names contain this")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="nbdata-aistore-"))
    try:
        for variable in ("NBDATA_RUNTIME_DIR", "NBDATA_STATE_DIR"):
            os.environ[variable] = str(work / variable)
        os.environ["NBDATA_HOST"] = "inline"
        print(f"load {os.getloadavg()[0]:.1f}, scale {options.scale}, {options.rounds} rounds", flush=True)
        for number, name in enumerate([*PULLS, *((one, workers) for one in SHARDS for workers in (0, 2))]):
            if options.only not in str(name):
                continue
            # Each row has a new cluster, so that the disk holds the data of one alone.
            with cluster(work / f"cluster{number}") as running:
                os.environ["AIS_ENDPOINT"] = running.url
                bench = Bench(work, running, options.rounds, options.scale)
                if isinstance(name, str):
                    bench.pull(name, number)
                else:
                    bench.shards(*name, number)
            shutil.rmtree(work / f"cluster{number}")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
