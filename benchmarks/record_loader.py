"""PyTorch's DataLoader with 4 workers over FFRecord and over loose files on the disk; for ``make bench-records``.

Epochs are in random order, with batches of 128 bytes objects and persistent workers. The first epoch, which starts the
workers, does not count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

import nbdata
from nbdata.loaders import ffrecord
from nbdata.loaders.pytorch import SampleDataset

BATCH, WORKERS = 128, 4


class _Loose(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Loose files; each one is opened and read."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> bytes:
        with open(self.paths[index], "rb") as file:
            return file.read()


class _Records(ffrecord.Dataset):
    """Records; a batch is read at once."""

    def process(self, indices: list[int], data: list[Any]) -> list[bytes]:
        """Return the records as bytes, as `_Loose` does."""
        return [one.tobytes() for one in data]


def _bytes_of(sample: dict[str, Any]) -> bytes:
    return bytes(sample["bin"])


def loaders(folder: Path) -> dict[str, Iterable[list[bytes]]]:
    """Return the loaders to compare, by name."""
    options: dict[str, Any] = {
        "batch_size": BATCH, "shuffle": True, "num_workers": WORKERS, "collate_fn": list, "persistent_workers": True,
    }  # fmt: skip
    paths = sorted(str(path) for path in (folder / "loose").iterdir())
    samples = SampleDataset(nbdata.samples(f"{folder}/train.ffr/"), _bytes_of)
    return {
        "PyTorch over loose files": DataLoader(_Loose(paths), **options),
        "nbdata.loaders.ffrecord": ffrecord.DataLoader(_Records(str(folder / "train.ffr")), **options),
        "PyTorch over nbdata.samples of FFRecord": DataLoader(samples, **options),
    }


def epochs(
    folder: Path, count: int, rounds: int, before: Callable[[Path], None]
) -> dict[str, tuple[float, float]]:
    """Return the samples per second of each loader, and their ratio to the first loader's; medians over rounds."""
    torch.manual_seed(random.randrange(1 << 30))
    ways = loaders(folder)
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, loader in ways.items():
            before(folder)
            began, seen = time.perf_counter(), 0
            for batch in loader:
                seen += len(batch)
            assert seen == count
            if number:
                took[name].append(time.perf_counter() - began)
    rates = {name: count / sorted(runs)[len(runs) // 2] for name, runs in took.items()}
    first = next(iter(rates.values()))
    return {name: (rate, rate / first) for name, rate in rates.items()}
