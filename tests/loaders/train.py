"""A trainer for tests that kill it: after each batch it saves its position and the seen samples in one file.

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
    """Read the rest of the first epoch."""
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
