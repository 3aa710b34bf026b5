"""PyTorch data sets over `nbdata.samples`: map-style for any sampler, and a stream."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from nbdata.client.reading.dealers import (
    Batching,
    Skipped,
    batching_of,
    says_epoch,
    skipped_by,
    warn_of_steps,
)
from nbdata.client.reading.shares import told_of_unequal
from nbdata.errors import BadOption
from nbdata.loaders.pytorch.ranks import Passes, Ranked, dealt_by_accelerate

if TYPE_CHECKING:
    from nbdata.client.reading.passing import Pass
    from nbdata.client.reading.samples import Samples
    from nbdata.protocols import Epoch

__all__ = ["SampleDataset", "SampleStream", "refuse_no_samples"]

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
        self.epoch_said = False

    def set_epoch(self, epoch: int) -> None:
        """Note that somebody says the epoch, which a sampler knows: Accelerate may tell the data set alone."""
        del epoch
        self.epoch_said = self.epoch_said or says_epoch(sys._getframe(1))

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
        ours = epoch._replace(loop=f"{self.samples.fingerprint} {epoch.loop}")
        for source in self.samples.sources:
            source.note_epoch(ours)

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


class SampleStream(Ranked, IterableDataset[Any]):
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
        Each pass is the next epoch, with its own order, whatever the workers.
    rank, world_size : int, optional
        None: as in ``torch.distributed`` when a pass begins, else as ``torchrun`` or ``srun`` set it in the
        environment, else 0 of 1.
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
        super().__init__(rank, world_size)
        self.samples, self.transform = samples, transform
        self.shuffle, self.seed = shuffle, seed
        self._passes = Passes(epoch)
        self._pass: Pass | None = None
        self._begun: int | None = None  # the epoch of the running pass
        self._resumed: dict[str, Any] | None = None
        self._skipped: Skipped | None = None  # as the parent of a spawned worker saw it
        self._epoch_said = False

    def __getstate__(self) -> dict[str, Any]:
        skipped = skipped_by(sys._getframe(1), max(1, dealt_by_accelerate()))
        # A pass ends with its process.
        return {**super().__getstate__(), "_pass": None, "_begun": None, "_skipped": skipped}

    @property
    def epoch(self) -> int:
        """The epoch of the running pass of this process, else of the next one."""
        return self._passes.next if self._begun is None else self._begun

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self._passes.set(epoch)
        self._epoch_said = self._epoch_said or says_epoch(sys._getframe(1))

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if worker is not None:
            self.samples.share(workers)
        rank, ranks, _ = self._rank()
        skipped = skipped_by(sys._getframe(1), max(1, dealt_by_accelerate())) or self._skipped
        if skipped is not None and not number and not self._epoch_said:
            warn_of_steps(skipped.steps, skipped.epoch)
        resumed, self._resumed = self._resumed, None
        at = None if resumed is None else resumed["epoch"]
        seed = 0 if worker is None else worker.seed - worker.id
        epoch = self._passes.begin(seed, at)
        self._begun = epoch
        if ranks > 1 and resumed is None and not rank and not number and self._together():
            self._warn_of_unequal_steps(ranks, workers, epoch, batching_of(sys._getframe(1)))
        self._pass = self.samples.stream(
            shuffle=self.shuffle,
            seed=self.seed,
            epoch=epoch,
            part=f"{rank * workers + number}/{ranks * workers}",
            resume=None if resumed is None else resumed["pass"],
        )
        given = 0
        for sample in self._pass:
            given += 1
            yield sample if self.transform is None else _transformed(self.transform, sample)
        self._pass = self._begun = None
        if skipped is not None:
            batches = given // skipped.size if skipped.drop_last else -(-given // skipped.size)
            _refuse_skipped(skipped, self._passes.end(seed, epoch, workers, batches))

    def _warn_of_unequal_steps(self, ranks: int, workers: int, epoch: int, batching: Batching) -> None:
        """Warn once if some ranks make fewer steps than others, which would wait for them."""
        shares = self.samples.shares(ranks * workers, shuffle=self.shuffle, seed=self.seed, epoch=epoch)
        if (warning := told_of_unequal(shares, ranks, batching)) and self._passes.once():
            warnings.warn(warning, stacklevel=3)

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
        self._resumed, self._pass, self._begun = state, None, state["epoch"]


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


def _refuse_skipped(skipped: Skipped, batches: int | None) -> None:
    """Raise BadOption if a loader wants to resume behind the end of an epoch, once the last worker is there.

    The Trainer of transformers does so after the first one: to it, the epochs of a stream are one, without a length. It
    would train with the beginning of the next epoch again.

    Parameters
    ----------
    batches : int or None
        Those of the epoch; None if other workers still make some.
    """
    if batches is not None and (steps := -(-batches // skipped.of_step)) < skipped.steps:
        raise BadOption(
            f"Accelerate skips {skipped.steps} batches to resume, and an epoch of this stream has {steps}",
            remedy="Train with SampleDataset(samples, transform), whose epochs have a length, or SampleLoader",
        )


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
