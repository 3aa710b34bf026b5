"""One rank of a distributed training over gloo: a model in DDP, with batches of a SampleLoader.

``python -m tests.loaders.train_together URL RANK RANKS FILE`` prints the keys of all ranks after each step.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import nbdata
from nbdata.loaders.pytorch import SampleLoader


def numbered(sample: dict[str, bytes | str]) -> tuple[int, torch.Tensor]:
    """Return a sample as a number and a tensor."""
    return int(sample["__key__"]), torch.ones(4) * len(sample["jpg"])


def main(url: str, rank: str, ranks: str, place: str) -> None:
    """Train for two epochs."""
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=int(rank), world_size=int(ranks))
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    loader = SampleLoader(
        nbdata.samples(url, concurrency=8),
        6,
        shuffle=True,
        seed=1,
        transform=numbered,
        num_workers=1,
        uneven="repeat",
    )
    for _ in range(2):
        for numbers, features in loader:
            optimizer.zero_grad()
            model(features).sum().backward()
            optimizer.step()
            every = [torch.zeros_like(numbers) for _ in range(int(ranks))]
            dist.all_gather(every, numbers)
            print(*(number for one in every for number in one.tolist()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
