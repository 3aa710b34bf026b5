"""Measures pulls from AIStore beside its own SDK: ``make bench-aistore``.

Against the server of the tests that stands in for AIStore (`tests.servers.aistore`), since AIStore itself was not at
hand. That server is Python and takes most of the time, so the CPU time of the client says more than the seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from measure import Run, same, timed

import nbdata

sys.path.append(str(Path(__file__).parents[1]))
from tests.servers.aistore.cluster import cluster

DATA = {"20,000 × 10 KB": (20_000, 10_000), "8 × 128 MiB": (8, 128 << 20)}
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


def main() -> None:
    """Run the rows and print a line for each tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the objects")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="nbdata-aistore-"))
    try:
        for variable in ("NBDATA_RUNTIME_DIR", "NBDATA_STATE_DIR"):
            os.environ[variable] = str(work / variable)
        os.environ["NBDATA_HOST"] = "inline"
        with cluster(work / "cluster") as running:
            os.environ["AIS_ENDPOINT"] = running.url
            for number, (name, (count, size)) in enumerate(DATA.items()):
                bucket, source = f"data{number}", work / f"source{number}"
                running.create_bucket(bucket)
                source.mkdir()
                for at in range(max(1, int(count * options.scale))):
                    (source / f"{at:05}").write_bytes(random.randbytes(size))
                nbdata.push(source, f"ais://{bucket}/", quiet=True)
                row(name, bucket, source, work, running.url, options.rounds)
                shutil.rmtree(source)
    finally:
        shutil.rmtree(work)


def row(name: str, bucket: str, source: Path, work: Path, url: str, rounds: int) -> None:
    """Run the tools in turn."""
    target = work / "target"
    commands = {
        "nbdata": [sys.executable, "-m", "nbdata", "pull", f"ais://{bucket}/", str(target)],
        "SDK, 16 threads": [sys.executable, "-c", SDK, url, bucket, str(target)],
    }
    runs: dict[str, list[Run]] = {tool: [] for tool in commands}
    for number in range(rounds):
        tools = list(commands)
        for tool in tools[number % 2 :] + tools[: number % 2]:
            os.sync()
            runs[tool].append(timed(commands[tool]))
            assert same(source, target)
            shutil.rmtree(target)
    for tool, each in runs.items():
        wall, cpu = (statistics.median(getattr(run, part) for run in each) for part in ("wall", "cpu"))
        memory = max(run.memory for run in each)
        print(f"{name}: {tool:16} {wall:7.2f} s   CPU {cpu:6.2f} s   {memory / 1e6:5.0f} MB", flush=True)


if __name__ == "__main__":
    main()
