"""One pass of a DataLoader over the tar shards in a bucket of AIStore, in its own process; prints the cost as JSON.

``python benchmarks/aistore_loader.py WAY GATEWAY BUCKET WORKERS [check]``. Wall and CPU seconds exclude imports. The
digest is the sum of all samples' digests, so the order of the samples does not matter.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shard_ways import cpu, hash_of
from torch.utils.data import DataLoader

_BATCH = 64


def ours(gateway: str, bucket: str, workers: int) -> Iterable[list[dict[str, Any]]]:
    """Read with nbdata, which verifies each shard."""
    import nbdata
    from nbdata.loaders.pytorch import SampleStream

    data = SampleStream(nbdata.samples(f"ais://{bucket}/*.tar", storage_options={"endpoint_url": gateway}))
    return DataLoader(data, batch_size=_BATCH, num_workers=workers, collate_fn=list)


def theirs(gateway: str, bucket: str, workers: int) -> Iterable[list[tuple[str, dict[str, Any]]]]:
    """Read with the data set for shards of AIStore's SDK."""
    from aistore.pytorch import AISShardReader
    from aistore.sdk import Client

    data = AISShardReader(Client(gateway).bucket(bucket))
    return DataLoader(data, batch_size=_BATCH, num_workers=workers, collate_fn=list)


def main() -> None:
    """Run one way."""
    way, gateway, bucket, workers, *check = sys.argv[1:]
    importlib.import_module("nbdata.loaders.pytorch" if way == "nbdata" else "aistore.pytorch")
    total = count = 0
    began, before = time.perf_counter(), cpu()
    for batch in {"nbdata": ours, "SDK": theirs}[way](gateway, bucket, int(workers)):
        count += len(batch)
        for sample in batch if check else ():
            one = sample if isinstance(sample, dict) else {"__key__": sample[0], **sample[1]}
            total += hash_of(one)
    seconds, used = time.perf_counter() - began, cpu() - before
    # This process's own peak: the figure of `getrusage` would start with the memory of the parent process.
    memory = 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    print(json.dumps({"samples": count, "wall": seconds, "cpu": used, "memory": memory, "digest": total}))


if __name__ == "__main__":
    main()
