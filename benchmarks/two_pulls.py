"""Tests two large pulls below one limit: by default, 3 GB each below a folder limited to 5 GB.

``python benchmarks/two_pulls.py [--size 3GB] [--limit 5GB] [--folder DIR]``. The second pull must be refused before it
transfers a byte, both while the first one runs and after it has ended. After a cleanup of the first pull, the second
one must succeed. `tests/space/` does the same with 30 MB. This test needs twice the size on the disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from nbdata.sizes import format_size, parse_size
from nbdata.space.ledger import Ledger

NBDATA = str(Path(sys.executable).with_name("nbdata"))
OBJECTS = 12


def fill(server: EmbeddedServer, size: int, folder: Path) -> str:
    """Create a bucket with this many bytes and return its URL."""
    server.create_bucket("data")
    folder.mkdir()
    for number in range(OBJECTS):
        with open(folder / f"{number:02d}", "wb") as file:
            for at in range(0, size // OBJECTS, 16 << 20):
                file.write(os.urandom(min(16 << 20, size // OBJECTS - at)))
        well("push", f"{folder}/", "s3://data/", "--delete-source")
    return "s3://data/"


def nbdata(*words: str) -> subprocess.Popen[str]:
    """Start a command in its own process."""
    return subprocess.Popen([NBDATA, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def refused(url: str, target: Path) -> str:
    """Run a pull that must be refused and leave nothing; return its message."""
    began = time.monotonic()
    process = nbdata("pull", url, str(target))
    said = process.communicate()[0].strip()
    assert process.returncode == 1, said
    assert "not enough space" in said, said
    assert not target.exists()
    return f"{said.splitlines()[-1]}   [{time.monotonic() - began:.1f} s]"


def well(*words: str) -> str:
    """Run a command that must succeed; return the first line of its output."""
    process = nbdata(*words)
    said = process.communicate()[0].strip()
    assert process.returncode == 0, said
    return said.splitlines()[0]


def main() -> None:
    """Run the pulls and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="3GB")
    parser.add_argument("--limit", default="5GB")
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    size = parse_size(options.size)
    with tempfile.TemporaryDirectory(prefix="nbdata-two-", dir=options.folder) as name:
        for variable, folder in (("NBDATA_RUNTIME_DIR", "run"), ("NBDATA_STATE_DIR", "state")):
            os.environ[variable] = f"{name}/{folder}"
        room = Path(name) / "room"
        room.mkdir()
        with EmbeddedServer.start(Path(name) / "store", kind="seaweedfs", private=False) as server:
            os.environ.update(server.environment())
            url = fill(server, size, Path(name) / "source")
            print(f"{OBJECTS} objects, {format_size(size)}; limit {options.limit} on {room}")
            print(well("quota", str(room), "--limit", options.limit))
            first = nbdata("pull", url, str(room / "first"))
            while not any(one.reserved for one in Ledger().room(str(room), {})) and first.poll() is None:
                time.sleep(0.02)
            assert first.poll() is None, first.communicate()[0]
            print(f"while the first runs:  {refused(url, room / 'second')}")
            said = first.communicate()[0].strip()
            assert first.returncode == 0, said
            print(f"the first:             {said.splitlines()[0]}")
            print(f"when it has ended:     {refused(url, room / 'second')}")
            print(f"cleaned up:            {well('cleanup', str(room / 'first'), '--all')}")
            print(f"the second:            {well('pull', url, str(room / 'second'))}")
        stop_all(now=True)


if __name__ == "__main__":
    main()
