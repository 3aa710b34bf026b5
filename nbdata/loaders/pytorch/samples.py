"""PyTorch data sets over `nbdata.samples`: map-style for any sampler, and a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from nbdata.errors import BadOption

if TYPE_CHECKING:
    from nbdata.client.reading.samples import Samples

__all__ = ["SampleDataset", "SampleStream"]


class SampleDataset(Dataset[Any]):
    """A map-style data set: each batch is fetched at once, by the worker that makes it.

    With a ``batch_sampler`` of `Samples.batch_sampler` each worker also fetches the batches that it gets next. Under
    any other sampler, ``Subset``, ``ConcatDataset`` or ``DistributedSampler`` it works as other data sets do.

    Parameters
    ----------
    samples : Samples
    transform : callable, optional
        Makes of a sample what the loader gets; called in the worker. None: the dict itself, for which the loader needs
        ``collate_fn=list``.

    Examples
    --------
    >>> data = SampleDataset(nbdata.samples("s3://bucket/images/"), transform=decoded)  # doctest: +SKIP
    >>> loader = DataLoader(data, num_workers=2, batch_sampler=data.samples.batch_sampler(64, shuffle=True))
    ... # doctest: +SKIP
    """

    def __init__(self, samples: Samples, transform: Callable[[Any], Any] | None = None) -> None:
        self.samples, self.transform = samples, transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        self._workers()
        return self._made(self.samples[int(index)])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """What a DataLoader calls with the indices of a batch."""
        coming: list[list[int]] = getattr(indices, "ahead", [])
        step = self._workers()
        # Batches are dealt to the workers in turn.
        return [self._made(sample) for sample in self.samples.fetch(indices, coming[step - 1 :: step])]

    def _workers(self) -> int:
        """How many workers the loader has; this one takes its share of the connections."""
        worker = get_worker_info()
        if worker is None:
            return 1
        self.samples.share(worker.num_workers)
        return worker.num_workers

    def _made(self, sample: Any) -> Any:
        return sample if self.transform is None else self.transform(sample)

    def __repr__(self) -> str:
        return f"SampleDataset({self.samples!r})"


class SampleStream(IterableDataset[Any]):
    """An iterable data set: every worker of every rank streams its own part of each epoch, fetched ahead.

    The parts are disjoint, and together all of the epoch, in an order that depends on the seed and the epoch alone.
    Parts may differ by one sample: a distributed training that needs equal numbers drops the last, or uses
    `SampleDataset`.

    Parameters
    ----------
    samples : Samples
    transform : callable, optional
        As of `SampleDataset`.
    shuffle : bool
    seed, epoch : int
        Call `set_epoch` before each pass, in the parent process.
    rank, world_size : int, optional
        None: what ``torch.distributed`` says, else 0 of 1.
    """

    def __init__(
        self,
        samples: Samples,
        transform: Callable[[Any], Any] | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.samples, self.transform = samples, transform
        self.shuffle, self.seed, self.epoch = shuffle, seed, epoch
        found_rank, found_size = _place()
        self._rank = found_rank if rank is None else rank
        self._world_size = found_size if world_size is None else world_size
        if not 0 <= self._rank < self._world_size:
            raise BadOption(f"rank={self._rank} of {self._world_size}: there is no such rank")

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass; workers that persist do not hear of it."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if worker is not None:
            self.samples.share(workers)
        part = f"{self._rank * workers + number}/{self._world_size * workers}"
        for sample in self.samples.stream(shuffle=self.shuffle, seed=self.seed, epoch=self.epoch, part=part):
            yield sample if self.transform is None else self.transform(sample)


def _place() -> tuple[int, int]:
    """The rank of this process, and how many there are."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
