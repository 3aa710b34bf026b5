"""Compares ``md5check`` with ``md5sum --check``: one big file, several, and many small ones, all in the page cache.

``python benchmarks/md5check.py [ROUNDS]`` prints medians of wall time and CPU time, including children. nbdata runs
inside the command's process (``NBDATA_HOST=inline``), so its start-up time counts, as md5sum's does.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
# Name, number of files, bytes per file.
SETS = (("1 × 2 GiB", 1, 2048 * MIB), ("8 × 256 MiB", 8, 256 * MIB), ("20,000 × 10 KB", 20_000, 10_240))


def make(folder: Path, count: int, size: int) -> None:
    """Write random files into folders of at most 200, with the manifest that md5sum creates for them."""
    block = os.urandom(min(size, MIB))
    for number in range(count):
        path = folder / f"{number // 200:03d}" / f"{number:05d}"
        path.parent.mkdir(exist_ok=True)
        with open(path, "wb") as file:
            file.write(number.to_bytes(8, "big"))
            left = size - 8
            while left:
                left -= file.write(block[:left])
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    with open(folder / "MD5SUMS", "w") as manifest:
        subprocess.run(
            ["xargs", "-0", "md5sum"],
            cwd=folder,
            input="\0".join(names),
            text=True,
            stdout=manifest,
            check=True,
        )


def timed(command: list[str], folder: Path, env: dict[str, str]) -> tuple[float, float]:
    """Run a command and return its wall and CPU seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=folder, env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu


def main() -> None:
    """Measure all data sets in turn."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    nbdata = str(Path(sys.executable).with_name("nbdata"))
    print("| files | nbdata: wall, CPU | md5sum: wall, CPU | ratio: wall, CPU |\n|---|---|---|---|")
    for name, count, size in SETS:
        with tempfile.TemporaryDirectory() as private:
            folder = Path(private, "data")
            folder.mkdir()
            make(folder, count, size)
            env = os.environ | {
                "NBDATA_HOST": "inline",
                "NBDATA_RUNTIME_DIR": private,
                "NBDATA_STATE_DIR": private,
            }
            commands = [[nbdata, "md5check", ".", "--quiet"], ["md5sum", "--check", "--quiet", "MD5SUMS"]]
            times: list[list[tuple[float, float]]] = [[], []]
            for _ in range(rounds):
                for found, command in zip(times, commands, strict=True):
                    found.append(timed(command, folder, env))
            ours, theirs = (
                [statistics.median(column) for column in zip(*found, strict=True)] for found in times
            )
            cells = [f"{wall:.2f} s, {cpu:.2f} s" for wall, cpu in (ours, theirs)]
            ratio = ", ".join(f"{a / b:.2f}" for a, b in zip(ours, theirs, strict=True))
            print(f"| {name} | {' | '.join(cells)} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
