"""pack of chosen and sorted samples after SIGKILL: the same command makes the missing shards, and only those."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

import nbdata
from tests.engine.pack.shards import WHOLE, Shelf, shelf, tar_of
from tests.waiting import PATIENCE

__all__ = ["shelf"]

# Packs, and is killed once so many shards have their names and their records.
_KILLED = """
import json, os, signal, sys
import nbdata
from nbdata.engine.pack import perform

source, target, after, options = json.loads(sys.argv[1])
done, made = perform._Packing._done, []

def killed(self, *args, **more):
    done(self, *args, **more)
    made.append(args[0])
    if len(made) == after:
        os.kill(os.getpid(), signal.SIGKILL)

perform._Packing._done = killed
nbdata.pack(source, target, quiet=True, concurrency=1, **options)
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "chosen": {"fields": "cls,jpg", "rename": "cls=label", "slice": "3:50", "keys": "new/%04d"},
    "sorted": {"sort": "cls"},
    "some shards": {"shard_slice": "::2"},
    "damaged": {"on_error": "report"},
    "records": {"sort": "cls", "keys": "%03d", "fields": "jpg,cls"},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.in_ci("store-some shards", "disk-records", 1)
def test_after_a_kill_only_missing_shards_are_made(shelf: Shelf, name: str) -> None:
    options, end = {"shard_samples": 8, **OPTIONS[name]}, "ffr" if name == "records" else "tar"
    places = shelf.shards()
    if name == "damaged":
        whole = shelf.read("")["in-1.tar"]
        shelf.put({"in-1.tar": whole[: len(whole) // 2]})
    nbdata.pack(places, f"{shelf.root}whole/x-%06d.{end}", quiet=True, **options)
    target = f"{shelf.root}out/x-%06d.{end}"
    words = [sys.executable, "-c", _KILLED, json.dumps([places, target, 2, options])]
    killed = subprocess.run(words, capture_output=True, check=False, timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()

    def made(below: str) -> dict[str, bytes]:
        return {name: data for name, data in shelf.read(below).items() if name.endswith(f".{end}")}

    wanted, left = made("whole/"), made("out/")
    assert 2 <= len(left) < len(wanted)
    assert all(wanted[name] == data for name, data in left.items())
    again = nbdata.pack(places, target, quiet=True, **options)
    assert again.counts["unchanged"] >= 2
    assert again.counts["unchanged"] + again.counts["packed"] == len(wanted)
    assert made("out/") == wanted


_SENT = """
import itertools, os, signal, sys
import nbdata
from nbdata.client.shard_writer import ShardWriter

write, count = ShardWriter.write, itertools.count(1)

def killed(self, sample):
    write(self, sample)
    if next(count) == 20:
        os.kill(os.getpid(), signal.SIGKILL)

ShardWriter.write = killed
nbdata.pack("/dev/stdin", sys.argv[1], shard_samples=8, quiet=True)
"""


@pytest.mark.in_ci("store")
def test_after_a_kill_of_a_stream_whole_shards_are_there_and_it_starts_over(shelf: Shelf) -> None:
    target, data = f"{shelf.root}out/x-%06d.tar", tar_of(WHOLE)
    words = [sys.executable, "-c", _SENT, target]
    killed = subprocess.run(words, input=data, capture_output=True, check=False, timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert [name for name in shelf.read("out/") if name.endswith(".tar")] in (
        ["x-000000.tar"],
        ["x-000000.tar", "x-000001.tar"],
    )
    line = [sys.executable, "-m", "nbdata", "pack", "-", target, "--shard-samples", "8"]
    again = subprocess.run(line, input=data, capture_output=True, check=False, timeout=PATIENCE)
    assert (again.returncode, b"--overwrite always" in again.stderr) == (2, True)
    over = subprocess.run(
        [*line, "--overwrite", "always"], input=data, capture_output=True, check=False, timeout=PATIENCE
    )
    assert over.returncode == 0, over.stderr.decode()
    assert list(shelf.samples("out/")) == list(WHOLE.items())
