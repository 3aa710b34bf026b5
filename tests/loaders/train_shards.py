"""A trainer for tests that kill it: it streams shards in several parts, and saves all positions after each sample.

``python -m tests.loaders.train_shards URL STATE PARTS AHEAD`` prints a line after each sample. The number of parts is
PARTS + 1. In a real training each part has its own process; here the parts take turns. AHEAD is in MiB.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import nbdata


def main(url: str, place: str, parts: str, ahead: str) -> None:
    """Read the rest of the epoch."""
    samples = nbdata.samples(url, concurrency=8, window=5, ahead_bytes=int(ahead) << 20)
    count = int(parts) + 1
    saved = Path(place)
    state = json.loads(saved.read_text()) if saved.exists() else {"seen": [], "parts": None}
    streams = [
        samples.stream(shuffle=True, seed=7, part=f"{number}/{count}", resume=state["parts"])
        for number in range(count)
    ]
    left = list(streams)
    while left:
        stream = left.pop(0)
        sample = next(stream, None)
        if sample is not None:
            state["seen"].append([sample["__key__"], sample["jpg"].decode()])
            left.append(stream)
        state["parts"] = [each.state_dict() for each in streams]
        fresh = saved.with_suffix(".new")
        fresh.write_text(json.dumps(state))
        os.replace(fresh, saved)
        print(len(state["seen"]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
