"""PyTorch data sets over `nbdata.samples`: map-style for any sampler, and a stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from nbdata.errors import BadOption

if TYPE_CHECKING:
    from nbdata.client.reading.passing import Pass
    from nbdata.client.reading.samples import Samples
    from nbdata.protocols import Epoch

__all__ = ["SampleDataset", "SampleStream", "place_of", "refuse_no_samples"]

# The most characters of a wrong value that an error shows.
_SHOWN = 200


class SampleDataset(Dataset[Any]):
    """A map-style data set: the worker that makes a batch fetches it at once.

    With a ``batch_sampler`` of `Samples.batch_sampler`, each worker also fetches the batches that it gets next. With
    any other sampler, ``Subset``, ``ConcatDataset`` or ``DistributedSampler``, it acts as an ordinary data set.

    Parameters
    ----------
    samples : Samples
    transform : callable, optional
        Makes the loader's value from a sample; called in the worker. None: the dict itself, for which the loader needs
        ``collate_fn=list``.

    Examples
    --------
    >>> data = SampleDataset(nbdata.samples("s3://bucket/images/"), transform=decoded)  # doctest: +SKIP
    >>> loader = DataLoader(data, num_workers=2, batch_sampler=data.samples.batch_sampler(64, shuffle=True))
    ... # doctest: +SKIP
    """

    def __init__(self, samples: Samples, transform: Callable[[Any], Any] | None = None) -> None:
        refuse_no_samples(samples)
        self.samples, self.transform = samples, transform
        self._epoch: Epoch | None = None  # the last one that was told

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        self._workers()
        return self._made(self.samples[int(index)])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch; a DataLoader calls it with the batch's indices."""
        step = self._workers()
        coming: list[list[int]] = getattr(indices, "ahead", [])[step - 1 :: step]  # batches are dealt in turn
        if indices and (window := getattr(indices[-1], "coming", None)) is not None:
            coming = [list(window)]
        dealt: Any = indices if hasattr(indices, "epoch") else indices[-1] if indices else None
        epoch: Epoch | None = getattr(dealt, "epoch", None)
        if epoch is not None and epoch != self._epoch:
            self._epoch = epoch
            self._note(epoch)
        samples = self.samples.fetch(indices, coming)
        if epoch is not None and dealt.last:
            self._note(epoch._replace(over=True))
        return [self._made(sample) for sample in samples]

    def _note(self, epoch: Epoch) -> None:
        """Tell the sampler's epoch, which may be of any samples, as one of these."""
        told = epoch._replace(loop=f"{self.samples.fingerprint} {epoch.loop}")
        for source in self.samples.sources:
            source.note_epoch(told)

    def _workers(self) -> int:
        """Return the loader's number of workers; this one takes its share of the connections."""
        worker = get_worker_info()
        if worker is None:
            return 1
        self.samples.share(worker.num_workers)
        return worker.num_workers

    def _made(self, sample: Any) -> Any:
        return sample if self.transform is None else _transformed(self.transform, sample)

    def __repr__(self) -> str:
        return f"SampleDataset({self.samples!r})"


class SampleStream(IterableDataset[Any]):
    """An iterable data set: every worker of every rank streams its own part of each epoch, fetched ahead.

    The parts are disjoint and together the whole epoch, in an order that depends only on the seed and the epoch. They
    may have different lengths: parts of loose objects and FFRecord files differ by at most one sample, but a part of
    tar shards is whole shards, so its ranks differ by the samples of one or more shards. A distributed training needs
    equally many steps of all ranks: use `SampleLoader`, which deals them evenly.

    Parameters
    ----------
    samples : Samples
    transform : callable, optional
        As in `SampleDataset`.
    shuffle : bool
    seed, epoch : int
        A process that has finished its part continues with the next epoch; so do persistent workers whose pass was
        left early. Workers that are not persistent start anew for each pass: call `set_epoch` before it, in the parent
        process.
    rank, world_size : int, optional
        None: as in ``torch.distributed``, else 0 of 1.
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
        refuse_no_samples(samples)
        self.samples, self.transform = samples, transform
        self.shuffle, self.seed, self.epoch = shuffle, seed, epoch
        self._rank, self._world_size = place_of(rank, world_size)
        self._pass: Pass | None = None
        self._begun_in = 0  # the process of the last pass
        self._resumed: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pass": None}  # it ends with its process

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass; persistent workers do not learn of it."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if worker is not None:
            self.samples.share(workers)
        self._part = f"{self._rank * workers + number}/{self._world_size * workers}"
        resumed, self._resumed = self._resumed, None
        left = self._pass is not None and self._begun_in == os.getpid()
        if worker is not None and left and resumed is None:
            self.epoch += 1  # other workers may have finished their parts of that epoch
        self._begun_in = os.getpid()
        self._pass = self.samples.stream(
            shuffle=self.shuffle, seed=self.seed, epoch=self.epoch, part=self._part, resume=resumed
        )
        for sample in self._pass:
            yield sample if self.transform is None else _transformed(self.transform, sample)
        self._pass = None
        self.epoch += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the process's position in its part; for loaders that save each worker's state, like torchdata's."""
        return {"epoch": self.epoch, "pass": None if self._pass is None else self._pass.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next pass of this process resume at that position.

        Raises
        ------
        BadOption
            When the pass starts: if the state belongs to other samples, to another order, or to another number of
            workers or ranks.
        """
        self.epoch, self._resumed = state["epoch"], state["pass"]


def _transformed(transform: Callable[[Any], Any], sample: Any) -> Any:
    """Return what the transform makes; a KeyError says which sample lacks the field, and which fields it has."""
    try:
        return transform(sample)
    except KeyError as error:
        if not isinstance(sample, dict) or error.args[:1] == () or error.args[0] in sample:
            raise
        fields = ", ".join(name for name in sample if not str(name).startswith("__"))
        raise KeyError(
            f"{error.args[0]!r} in the transform of the sample {sample.get('__key__')!r}, which has the fields {fields}"
        ) from error


def refuse_no_samples(samples: object) -> None:
    """BadOption if these are no samples, but their URL, for example."""
    if not callable(getattr(samples, "fetch", None)):
        shown = repr(samples)[:_SHOWN]
        raise BadOption(
            f"these are no samples: {shown}",
            expected=f"nbdata.samples({shown})"
            if isinstance(samples, str)
            else "the result of nbdata.samples(…)",
        )


def place_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank of this process and the number of ranks; None: as in ``torch.distributed``, else 0 of 1.

    Raises
    ------
    BadOption
        If the rank is out of range.
    """
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if rank is None:
        rank = torch.distributed.get_rank() if distributed else 0
    if world_size is None:
        world_size = torch.distributed.get_world_size() if distributed else 1
    if not 0 <= rank < world_size:
        raise BadOption(f"rank={rank} of {world_size}: there is no such rank")
    return rank, world_size
