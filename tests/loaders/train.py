"""A trainer that saves where it is after each batch, in one file with what it has seen; somebody kills it.

``python -m tests.loaders.train URL STATE WORKERS BATCH`` prints a line after each batch.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import nbdata
from nbdata.loaders.pytorch import SampleLoader


def main(url: str, place: str, workers: str, batch: str, **options: Any) -> None:
    """Go through the rest of the first epoch."""
    loader = SampleLoader(
        nbdata.samples(url, concurrency=8, **options),
        int(batch),
        shuffle=True,
        seed=7,
        transform=None,
        num_workers=int(workers),
    )
    saved = Path(place)
    state = json.loads(saved.read_text()) if saved.exists() else {"seen": []}
    if "data" in state:
        loader.load_state_dict(state["data"])
    if loader.epoch:
        return
    for samples in loader:
        state["seen"] += [[sample["__key__"], sample["jpg"].decode()] for sample in samples]
        state["data"] = loader.state_dict()
        fresh = saved.with_suffix(".new")
        fresh.write_text(json.dumps(state))
        os.replace(fresh, saved)
        print(len(state["seen"]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
