"""One process of a training in a framework: ``python -m tests.loaders.frameworks.training WAY FOLDER NOTES``.

It trains for two epochs and writes the numbers of the samples that it got to ``NOTES/EPOCH.RANK``.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.utils.data import DataLoader

import nbdata
from nbdata.loaders import webdataset
from nbdata.loaders.pytorch import SampleDataset, SampleLoader, SampleStream

EPOCHS, BATCH, SKIPPED = 2, 7, 4


def number(sample: dict[str, Any]) -> int:
    """Return the number of a sample."""
    return int(sample["__key__"])


def note(notes: str, epoch: int, rank: int, numbers: Iterable[int]) -> None:
    """Write what a rank got in an epoch; a resumed training adds to it."""
    with Path(notes, f"{epoch}.{rank}").open("a") as file:
        file.write("".join(f"{one} " for one in numbers))


def accelerated(way: str, samples: Any, notes: str) -> None:
    """Train with Accelerate, which deals batches or samples out itself to a loader that it prepares."""
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.data_loader import IterableDatasetShard

    kind, _, how = way.partition(" ")
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches={"dispatched": True}.get(how))
    )
    rank, ranks = accelerator.process_index, accelerator.num_processes
    of_rank = {"rank": rank, "world_size": ranks} if how == "split" else {}
    data = SampleDataset(samples, number)
    made: dict[str, Callable[[], Any]] = {
        "loader": lambda: SampleLoader(samples, BATCH, shuffle=True, seed=2, transform=number, num_workers=1),
        "batches": lambda: DataLoader(
            data, batch_sampler=samples.batch_sampler(BATCH, shuffle=True, seed=2, **of_rank)
        ),
        "indices": lambda: DataLoader(data, BATCH, sampler=samples.sampler(shuffle=True, seed=2, **of_rank)),
        "stream": lambda: DataLoader(
            SampleStream(samples, number, shuffle=True, rank=0, world_size=1), batch_size=BATCH
        ),
        "shard": lambda: DataLoader(
            IterableDatasetShard(SampleStream(samples, number, shuffle=True), BATCH, False, ranks, rank),
            BATCH,
        ),
        "refused": lambda: DataLoader(SampleStream(samples, number, shuffle=True), batch_size=BATCH),
        "few": lambda: DataLoader(
            data, batch_sampler=samples.batch_sampler(150, shuffle=True, drop_last=True)
        ),
    }
    loader = made[kind]() if kind == "shard" else accelerator.prepare(made[kind]())
    if how == "resumed":  # in the middle of the second epoch, by a new program
        note(notes, 0, rank, batches(loader))
        note(notes, 1, rank, batches(itertools.islice(loader, SKIPPED)))
        loader = accelerator.prepare(made[kind]())
        loader.set_epoch(1)
        note(notes, 1, rank, batches(accelerator.skip_first_batches(loader, SKIPPED)))
        accelerator.wait_for_everyone()
        dist.destroy_process_group()
        return
    if how == "skipped":  # as in "resumed", with what a user says of the epoch: nothing, 0, 1
        for number_of_run, said in enumerate((None, 0, 1)):
            loader = accelerator.prepare(made[kind]())
            if said is not None:
                loader.set_epoch(said)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                for _ in accelerator.skip_first_batches(loader, SKIPPED):
                    pass
            note(notes, number_of_run, rank, [sum("nobody has said" in str(one.message) for one in told)])
        accelerator.wait_for_everyone()
        dist.destroy_process_group()
        return
    for epoch in range(EPOCHS):
        note(notes, epoch, rank, batches(loader))
        accelerator.wait_for_everyone()
    dist.destroy_process_group()


def batches(loader: Iterable[Any]) -> Iterator[int]:
    """Yield the numbers of all batches."""
    return (one for batch in loader for one in batch.tolist())


def alone(way: str, samples: Any, notes: str) -> None:
    """Train with torch.distributed alone; the loader is made before the process group, or later."""
    kind, _, how = way.partition(" ")
    workers = 2 if how == "in workers" else 0
    made: dict[str, Callable[[], Any]] = {
        "loader": lambda: SampleLoader(
            samples, 1, shuffle=True, transform=number, uneven="keep", num_workers=workers
        ),
        "stream": lambda: DataLoader(
            SampleStream(samples, number, shuffle=True), batch_size=1, num_workers=2
        ),
        "source": lambda: DataLoader(
            webdataset.source(samples, shuffle=True), batch_size=1, collate_fn=first
        ),
    }
    loader = None if how == "later" else made[kind]()
    dist.init_process_group("gloo")
    if loader is None:
        loader = made[kind]()
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
