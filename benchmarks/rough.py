"""Rough figures beside s5cmd and tar: whole processes in turn on one server, medians, outputs compared.

Run with ``make bench`` (some minutes). The CPU seconds of the agent are counted too. The state of the machine is half
of such a figure: read the ratios.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nbdata.client.agents import stop_all
from nbdata.client.launch import connect
from nbdata.demo.server import EmbeddedServer

BIN = Path(sys.executable).parent


@dataclass
class Run:
    """Wall and CPU seconds of one run."""

    wall: float
    cpu: float


def agent_cpu() -> float:
    """CPU seconds that the agent has used so far."""
    with connect() as connection:
        pid = connection.ask({"do": "hello"})["pid"]
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def timed(command: list[str], *, agent: bool = False, shell: str = "") -> Run:
    """Run a command to its end; its own CPU, its children's, and if asked the agent's."""
    before = agent_cpu() if agent else 0.0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run(["bash", "-c", shell] if shell else command, check=True, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - began
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return Run(wall, cpu + (agent_cpu() - before if agent else 0.0))


def same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files, byte for byte."""
    compared = filecmp.dircmp(one, other)
    if compared.left_only or compared.right_only or compared.funny_files:
        return False
    _, wrong, errors = filecmp.cmpfiles(one, other, compared.common_files, shallow=False)
    return not wrong and not errors and all(same(one / n, other / n) for n in compared.common_dirs)


def row(name: str, rounds: int, ours: Callable[[int], Run], peer: Callable[[int], Run]) -> None:
    """Measure in turn and print one line of the table."""
    pairs = [(ours(n), peer(n)) for n in range(rounds)]
    wall = [statistics.median(r.wall for r in side) for side in zip(*pairs, strict=True)]
    cpu = [statistics.median(r.cpu for r in side) for side in zip(*pairs, strict=True)]
    print(
        f"| {name} | {wall[0]:.2f} s, {cpu[0]:.2f} s | {wall[1]:.2f} s, {cpu[1]:.2f} s "
        f"| {wall[0] / wall[1]:.2f}, {cpu[0] / cpu[1]:.2f} |",
        flush=True,
    )


def transfers(work: Path, rounds: int) -> None:
    """Pull and push beside s5cmd."""
    with EmbeddedServer.start(work / "server", kind="seaweedfs") as server:
        os.environ.update(server.environment(), S3_ENDPOINT_URL=server.url)
        server.create_bucket("bench")
        nbdata, s5cmd = str(BIN / "nbdata"), str(BIN / "s5cmd")
        for name, count, size in (("5,000 × 10 KB", 5000, 10_000), ("8 × 128 MiB", 8, 128 << 20)):
            source = work / f"source-{count}"
            source.mkdir()
            for number in range(count):
                (source / f"{number:05d}").write_bytes(random.randbytes(size))
            url = f"s3://bench/{count}"
            subprocess.run(
                [s5cmd, "cp", f"{source}/*", f"{url}/source/"], check=True, stdout=subprocess.DEVNULL
            )

            def pull(n: int, *, url: str = url, source: Path = source) -> Run:
                run = timed([nbdata, "pull", f"{url}/source/", str(work / f"ours{n}"), "-q"], agent=True)
                assert same(source, work / f"ours{n}")
                shutil.rmtree(work / f"ours{n}")
                return run

            def peer_pull(n: int, *, url: str = url, source: Path = source) -> Run:
                run = timed([s5cmd, "cp", f"{url}/source/*", f"{work / f'peer{n}'}/"])
                assert same(source, work / f"peer{n}")
                shutil.rmtree(work / f"peer{n}")
                return run

            def push(n: int, *, url: str = url, source: Path = source) -> Run:
                return timed([nbdata, "push", str(source), f"{url}/ours{n}/", "-q"], agent=True)

            def peer_push(n: int, *, url: str = url, source: Path = source) -> Run:
                return timed([s5cmd, "cp", f"{source}/*", f"{url}/peer{n}/"])

            row(f"pull {name}", rounds, pull, peer_pull)
            row(f"push {name}", rounds, push, peer_push)
            shutil.rmtree(source)


def extraction(work: Path, rounds: int) -> None:
    """20,000 files of about 20 KB from 9 gz volumes, in 100 folders, beside ``cat | tar xz``."""
    volumes = work / "volumes"
    volumes.mkdir()
    source = work / "members"
    for number in range(20_000):
        path = source / f"{number % 100:02d}" / f"{number:05d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.randbytes(12_000) + bytes(8_000))
    with tarfile.open(work / "all.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(source, arcname=".")
    size = -(-(work / "all.tar.gz").stat().st_size // 9)
    with (work / "all.tar.gz").open("rb") as file:
        for number in range(9):
            (volumes / f"all.tar.gz.{number:02d}").write_bytes(file.read(size))
    (work / "all.tar.gz").unlink()

    def ours(n: int) -> Run:
        run = timed(
            [str(BIN / "nbdata"), "untar_volumes", str(volumes), str(work / f"ours{n}"), "-q"], agent=True
        )
        assert same(source, work / f"ours{n}")
        shutil.rmtree(work / f"ours{n}")
        return run

    def peer(n: int) -> Run:
        out = work / f"peer{n}"
        out.mkdir()
        run = timed([], shell=f"cat '{volumes}'/all.tar.gz.* | tar xz -C '{out}'")
        shutil.rmtree(out)
        return run

    row("extract 20,000 × 20 KB, 9 gz volumes (beside cat and tar xz)", rounds, ours, peer)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as folder:
        for name in ("run", "state"):
            os.environ[f"NBDATA_{'RUNTIME' if name == 'run' else 'STATE'}_DIR"] = f"{folder}/{name}"
        print(
            "| work | nbdata: wall, CPU | s5cmd or tar: wall, CPU | ratio: wall, CPU |\n|---|---|---|---|",
            flush=True,
        )
        try:
            transfers(Path(folder), rounds)
            extraction(Path(folder), rounds)
        finally:
            stop_all(now=True)


if __name__ == "__main__":
    main()
