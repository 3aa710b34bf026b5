"""Shuffles shards completely, from store to store: ``make bench-shuffle``; ``ARGS="--bytes 2GB --sample 110000"``.

`nbdata.write_shards` writes the shards, then a separate process packs them again with ``--shuffle``. A proxy in front
of the store counts bytes. The proxy distorts times, so the results are memory and bytes. At the end the new shards are
read; each sample must be there once.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.sizes import format_size, parse_size
from tests.faults.proxy import FaultProxy

# Packs the shards and prints its peak memory. It uses no more parallel requests than the proxy accepts connections.
PROGRAM = """
import nbdata, sys
nbdata.pack(sys.argv[1], sys.argv[2], shuffle=True, seed=1, concurrency=8, quiet=True)
status = open("/proc/self/status").read()
print(1024 * int(status.partition("VmHWM:")[2].split()[0]))
"""
BUCKET = "bench-shuffle"


def main() -> None:
    """Write shards, shuffle them, count bytes, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=parse_size, default=2 * 10**9)
    parser.add_argument("--sample", type=int, default=110_000, help="bytes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nbdata-shuffle-") as folder:
        os.environ["NBDATA_STATE_DIR"] = f"{folder}/state"
        with EmbeddedServer.start(f"{folder}/server", kind="seaweedfs", private=False) as server:
            os.environ.update(server.environment())
            server.create_bucket(BUCKET)
            _shuffle(server, options.bytes, options.sample)


def _shuffle(server: EmbeddedServer, size: int, sample: int) -> None:
    rng, keys, began, used = random.Random(1), {}, time.perf_counter(), os.times()
    with nbdata.write_shards(f"s3://{BUCKET}/in/x-%03d.tar") as shards:
        for number in range(size // sample):
            data = rng.randbytes(sample)
            keys[f"{number:08}"] = zlib.crc32(data)
            shards.write({"__key__": f"{number:08}", "bin": data})
    wall, now = time.perf_counter() - began, os.times()
    cpu = now.user + now.system - used.user - used.system
    total = shards.bytes
    print(
        f"written: {len(keys):,} samples, {format_size(total)} in {wall:.1f} s, {cpu:.1f} s of processor",
        flush=True,
    )
    with FaultProxy(server.url) as proxy:
        tally = proxy.begin()
        environment = {**os.environ, "AWS_ENDPOINT_URL": proxy.url, "NBDATA_HOST": "inline"}
        began = time.perf_counter()
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM, f"s3://{BUCKET}/in/x.json", f"s3://{BUCKET}/out/x-%03d.tar"],
            check=True, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        wall = time.perf_counter() - began
        read, written = sum(tally.down.values()), sum(tally.up.values())
    print(
        f"shuffled in {wall:.0f} s through the proxy; memory {format_size(int(found.stdout))}, "
        f"read {read / total:.2f} and written {written / total:.2f} times the data",
        flush=True,
    )
    order = []
    for one in nbdata.samples(f"s3://{BUCKET}/out/x.json").stream():
        assert keys[one["__key__"]] == zlib.crc32(one["bin"]), one["__key__"]
        order.append(one["__key__"])
    assert sorted(order) == sorted(keys), "each sample must be there once"
    assert order != sorted(order)
    print("each sample is there once, with its bytes")


if __name__ == "__main__":
    main()
