"""Compares ``nbdata.samples(…, cache=…)`` with direct reads, files on the disk, and a home-made s5cmd sampler.

Run with ``make bench-cached-loaders``. Whole DataLoaders run in turn, each in its own process; the figures are medians
over the rounds. The data that each way delivers is compared by checksum. The agent's CPU seconds are reported beside
the client's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import BIN, process_cpu

from nbdata.client.agents import stop_all
from nbdata.client.launch import connect
from nbdata.demo.server import EmbeddedServer

SAMPLES, SIZES = 2000, (100_000, 10_000)
WAYS = Path(__file__).with_name("loader_ways.py")
NAMES = {
    "straight": "straight to memory",
    "first": "through the cache, first epoch",
    "second": "through the cache, second epoch",
    "local": "the same files on the disk",
    "tenth": "staged ahead, bounded to a tenth of the data",
    "partial": "through a cache of 40 % of the data, batches of 16, epochs 2 and 3",
    "s5cmd": "s5cmd sampler, 500 a call",
    "shards-second": "shards through the cache, second epoch",
    "shards-local": "the same shards on the disk",
}


def main() -> None:
    """Print the table; or, if a way is named, read one epoch in that way and print its cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--source")
    parser.add_argument("--cache")
    parser.add_argument("--folder")
    options = parser.parse_args()
    if options.way:
        print(json.dumps(epoch(options.way, options.source, options.cache, options.folder)))
        return
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as place:
        folder = Path(place)
        os.environ.update(NBDATA_RUNTIME_DIR=place + "/run", NBDATA_STATE_DIR=place + "/state")
        with EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False) as server:
            os.environ.update(server.environment(), S3_ENDPOINT_URL=server.url)
            try:
                compare(folder, server, options.rounds)
            finally:
                stop_all(now=True)


def epoch(way: str, source: str, cache: str | None, folder: str | None) -> dict[str, object]:
    """Read one epoch (`partial`: the second and third) with a DataLoader of two workers; shards are streamed."""
    from torch.utils.data import DataLoader

    import nbdata
    from nbdata.loaders.pytorch import SampleLoader, SampleStream

    samples = nbdata.samples(source, cache=cache, cache_dir=folder or None, refresh="never", quiet=True)
    began, cpu = time.monotonic(), os.times()
    if way.startswith("shards"):
        loader = DataLoader(
            SampleStream(samples, shuffle=True), batch_size=64, num_workers=2, collate_fn=list
        )
    else:
        # Eight batches ahead of 64 are a quarter of these few samples: more of the cache than of larger data.
        size = 16 if way == "partial" else 64
        loader = SampleLoader(samples, size, shuffle=True, seed=1, num_workers=2)
    epochs, before = 1, None
    if way == "partial":
        for _ in loader:
            pass
        epochs, before, began, cpu = 2, loader.report, time.monotonic(), os.times()
    digests = {
        sample["__key__"]: hashlib.md5(sample["jpg"] + sample["cls"]).digest()
        for _ in range(epochs)
        for batch in loader
        for sample in batch
    }
    wall, now = time.monotonic() - began, os.times()
    digest = hashlib.sha256(b"".join(digests[key] for key in sorted(digests))).hexdigest()
    told = {
        "wall": wall, "cpu": sum(now[:4]) - sum(cpu[:4]), "samples": epochs * len(digests), "digest": digest,
    }  # fmt: skip
    if before is not None:
        hits, fetched = loader.report.hits - before.hits, loader.report.fetched - before.fetched
        told["hits"] = hits / (hits + fetched)
    return told


def compare(folder: Path, server: EmbeddedServer, rounds: int) -> None:
    """Run all ways and print the table."""
    import nbdata

    server.create_bucket("bench")
    local, shards, data = folder / "local", folder / "shards", SAMPLES * sum(SIZES)
    local.mkdir()
    digest = hashlib.sha256()
    with nbdata.write_shards(str(shards / "x-%06d.tar"), shard_size="22MB") as writer:
        for number in range(SAMPLES):
            jpg, cls = (random.randbytes(size) for size in SIZES)
            digest.update(hashlib.md5(jpg + cls).digest())
            (local / f"{number:05}.jpg").write_bytes(jpg)
            (local / f"{number:05}.cls").write_bytes(cls)
            writer.write({"__key__": f"{number:05}", "jpg": jpg, "cls": cls})
    for name in ("local", "shards"):
        command = [str(BIN / "s5cmd"), "cp", f"{folder / name}/*", f"s3://bench/{name}/"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    sources = {
        "straight": "s3://bench/local/", "first": "s3://bench/local/", "second": "s3://bench/local/",
        "tenth": "s3://bench/local/", "partial": "s3://bench/local/", "local": f"{local}/", "shards-second": "s3://bench/shards/x-*.tar",
        "shards-local": f"{shards}/x-*.tar",
    }  # fmt: skip
    found: dict[str, list[dict[str, float]]] = {way: [] for way in NAMES}
    for number in range(rounds):
        for way in NAMES:
            if way == "s5cmd":
                if not number:
                    found[way].append(_sampler())
                continue
            cache = folder / f"cache-{way.replace('second', 'first')}"
            if way in ("first", "tenth", "partial"):  # each run starts with an empty cache
                stop_all(now=True)
                shutil.rmtree(cache, ignore_errors=True)
            options = [] if "local" in way or way == "straight" else [
                "--cache", str({"tenth": data // 10, "partial": 2 * data // 5}.get(way, 2 * data)),
                "--folder", str(cache),
            ]  # fmt: skip
            if way == "shards-second" and not number:
                _run(way, sources[way], options)
            told = _run(way, sources[way], options)
            assert told["digest"] == digest.hexdigest(), f"{way} gave other bytes"
            found[way].append(told)
    print(
        "| way | samples/s | a sample, CPU of the client | CPU of the agent | hits |\n|---|---|---|---|---|"
    )
    for way, runs in found.items():
        rate = statistics.median(run["samples"] / run["wall"] for run in runs)
        client, agent = (
            statistics.median(1e3 * run[name] / run["samples"] for run in runs) for name in ("cpu", "agent")
        )
        hits = f"{statistics.median(run['hits'] for run in runs):.0%}" if "hits" in runs[0] else ""
        print(f"| {NAMES[way]} | {rate:,.0f} | {client:.2f} ms | {agent:.2f} ms | {hits} |")
    for one, other in (
        ("second", "local"), ("first", "straight"), ("tenth", "s5cmd"), ("shards-second", "shards-local"),
    ):  # fmt: skip
        pairs = zip(found[one], found[other] * rounds, strict=False)
        ratio = statistics.median((a["samples"] / a["wall"]) / (b["samples"] / b["wall"]) for a, b in pairs)
        print(f"{NAMES[one]}: {ratio:.2f} × {NAMES[other]}")


def _run(way: str, source: str, options: list[str]) -> dict[str, float]:
    os.sync()
    with connect() as connection:
        agent = int(connection.ask({"do": "hello"})["pid"])
    before = process_cpu(agent)
    command = [sys.executable, __file__, way, "--source", source, *options]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {**json.loads(said.splitlines()[-1]), "agent": process_cpu(agent) - before}


def _sampler() -> dict[str, float]:
    command = [
        sys.executable,
        str(WAYS),
        "s5cmd-sampler",
        "--url",
        "s3://bench/local/",
        "--count",
        str(SAMPLES),
    ]
    command += ["--batch", "64", "--workers", "0", "--step", "0", "--ahead", "8", "--take", "1000"]
    said = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    )
    return {"wall": said["wall"], "cpu": said["cpu"], "samples": said["samples"], "agent": 0.0}


if __name__ == "__main__":
    main()
