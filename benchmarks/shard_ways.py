"""One way to read samples from shards, or to make shards, in its own process; prints the cost as JSON.

``python benchmarks/shard_ways.py WAY --shards URL …``. Wall and CPU seconds exclude imports. The digest is the sum of
all samples' digests, so the order of the samples does not matter.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from measure import BIN

import nbdata

Sample = dict[str, Any]


def cpu() -> float:
    """CPU seconds of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def ours(place: str, verify: str, **options: Any) -> Iterable[Sample]:
    """Stream the samples with nbdata."""
    samples = nbdata.samples(place, verify=verify)
    return loaded(samples, **options) if options else samples.stream()


def theirs(place: str, pipe: str, workers: int = 0) -> Iterable[Sample]:
    """Stream the samples with the webdataset library, which reads stores through the output of a command."""
    import webdataset

    warnings.simplefilter("ignore")
    if place.startswith("s3://"):
        listed = subprocess.run(
            [BIN / "s5cmd", "ls", place], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        names = sorted(line.split()[-1] for line in listed.splitlines())
        urls = [f"pipe:{BIN}/{pipe} {place.rpartition('/')[0]}/{name}" for name in names]
    else:
        urls = sorted(glob.glob(place))
    data = webdataset.WebDataset(urls, shardshuffle=False)
    if not workers:
        return data
    from torch.utils.data import DataLoader

    return (
        one
        for batch in DataLoader(data, batch_size=64, num_workers=workers, collate_fn=list)
        for one in batch
    )


def loaded(samples: Any, workers: int) -> Iterator[Sample]:
    """Pass samples through a DataLoader."""
    from torch.utils.data import DataLoader

    from nbdata.loaders.pytorch import SampleStream

    for batch in DataLoader(SampleStream(samples), batch_size=64, num_workers=workers, collate_fn=list):
        yield from batch


def by_index(place: str, verify: str) -> Iterator[Sample]:
    """Read random batches of 64 samples by number."""
    samples = nbdata.samples(place, verify=verify)
    order = list(range(len(samples)))
    random.Random(1).shuffle(order)
    batches = [order[at : at + 64] for at in range(0, len(order), 64)]
    for number, batch in enumerate(batches):
        yield from samples.fetch(batch, ahead=batches[number + 1 : number + 3])


def one_by_one(place: str) -> Iterator[Sample]:
    """Read the same batches with botocore, by one ranged GET per sample in turn.

    The offsets are known beforehand.
    """
    import botocore.session

    samples: Any = nbdata.samples(place)
    client = botocore.session.Session().create_client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    order = list(range(len(samples)))
    random.Random(1).shuffle(order)
    for number in order:
        members = samples.index.members(number)
        shard, start = samples.shards[members[0].shard], members[0].offset
        end = members[-1].offset + members[-1].size
        bucket = place.split("/")[2]
        got = client.get_object(Bucket=bucket, Key=shard.key, Range=f"bytes={start}-{end - 1}")["Body"].read()
        fields = {one.field: got[one.offset - start : one.offset - start + one.size] for one in members}
        yield {"__key__": samples.key(number), **fields}
    client.close()


WAYS = {
    "nbdata": lambda place: ours(place, "none"),
    "nbdata-verified": lambda place: ours(place, "auto"),
    "webdataset": lambda place: theirs(place, "s5cmd cat"),
    "webdataset-rclone": lambda place: theirs(place, "rclone --config /dev/null cat"),
    "nbdata-2-workers": lambda place: ours(place, "none", workers=2),
    "webdataset-2-workers": lambda place: theirs(place, "s5cmd cat", workers=2),
    "nbdata-by-number": lambda place: by_index(place, "none"),
    "boto-by-range": one_by_one,
}


def main() -> None:
    """Read all samples and print the cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--shards", required=True)
    parser.add_argument("--check", action="store_true", help="tell a digest of all samples, too")
    options = parser.parse_args()
    if "webdataset" in options.way:
        import webdataset  # noqa: F401
    else:
        import nbdata.client.reading.making
    if "workers" in options.way:
        import torch.utils.data  # noqa: F401
    if "by" in options.way:
        len(nbdata.samples(options.shards))  # the index exists from now on
    total = count = 0
    began, before = time.perf_counter(), cpu()
    for sample in WAYS[options.way](options.shards):
        count += 1
        if options.check:
            total += hash_of(sample)
    seconds, used = time.perf_counter() - began, cpu() - before
    # This process's own peak: the figure of `getrusage` would start with the memory of the parent process.
    memory = 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    print(json.dumps({"samples": count, "wall": seconds, "cpu": used, "memory": memory, "digest": total}))
    sys.stdout.flush()


def hash_of(sample: Sample) -> int:
    """Return a digest of a sample's key and fields."""
    said = hashlib.md5(sample["__key__"].encode())
    for name in sorted(name for name in sample if not name.startswith("__")):
        said.update(sample[name])
    return int.from_bytes(said.digest()[:6], "big")


if __name__ == "__main__":
    main()
