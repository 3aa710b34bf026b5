"""One process of a training in a framework: ``python -m tests.loaders.frameworks.training WAY FOLDER NOTES``.

It trains for two epochs and writes the numbers of the samples that it got to ``NOTES/EPOCH.RANK``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.utils.data import DataLoader

import nbdata
from nbdata.loaders import webdataset
from nbdata.loaders.pytorch import SampleDataset, SampleLoader, SampleStream

EPOCHS, BATCH = 2, 7


def number(sample: dict[str, Any]) -> int:
    """Return the number of a sample."""
    return int(sample["__key__"])


def note(notes: str, epoch: int, rank: int, numbers: Iterable[int]) -> None:
    """Write what a rank got in an epoch."""
    Path(notes, f"{epoch}.{rank}").write_text(" ".join(map(str, numbers)))


def accelerated(way: str, samples: Any, notes: str) -> None:
    """Train with Accelerate, which deals batches or samples out itself to a loader that it prepares."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    made: dict[str, Callable[[], Any]] = {
        "loader": lambda: SampleLoader(samples, BATCH, shuffle=True, seed=2, transform=number, num_workers=1),
        "sampler": lambda: DataLoader(
            SampleDataset(samples, number), batch_sampler=samples.batch_sampler(BATCH, shuffle=True, seed=2)
        ),
        "stream": lambda: DataLoader(
            SampleStream(samples, number, shuffle=True, rank=0, world_size=1), batch_size=BATCH
        ),
        "stream refused": lambda: DataLoader(SampleStream(samples, number, shuffle=True), batch_size=BATCH),
    }
    loader = accelerator.prepare(made[way]())
    for epoch in range(EPOCHS):
        note(notes, epoch, accelerator.process_index, (one for batch in loader for one in batch.tolist()))
        accelerator.wait_for_everyone()
    dist.destroy_process_group()


def alone(way: str, samples: Any, notes: str) -> None:
    """Train with torch.distributed alone; the loader is made before the process group."""
    made: dict[str, Callable[[], Any]] = {
        "loader": lambda: SampleLoader(samples, 1, shuffle=True, transform=number, uneven="keep"),
        "stream": lambda: DataLoader(
            SampleStream(samples, number, shuffle=True), batch_size=1, num_workers=2
        ),
        "source": lambda: DataLoader(
            webdataset.source(samples, shuffle=True), batch_size=1, collate_fn=first
        ),
    }
    loader = made[way]()
    dist.init_process_group("gloo")
    for epoch in range(EPOCHS):
        note(notes, epoch, dist.get_rank(), [int(batch) for batch in loader])
    dist.destroy_process_group()


def first(batch: list[Any]) -> int:
    """Return the number of the only sample of a batch."""
    return number(batch[0])


def main(way: str, folder: str, notes: str) -> None:
    """Train in one way."""
    samples = nbdata.samples(folder, quiet=True)
    framework, _, kind = way.partition(" ")
    {"accelerate": accelerated, "torchrun": alone}[framework](kind, samples, notes)


if __name__ == "__main__":
    main(*sys.argv[1:])
