"""Frameworks that deal the batches or samples of a whole epoch out to the ranks themselves.

Accelerate, transformers and datasets put classes of their own around any sampler or data set, after it was made. What
splits the epoch by itself would lose what the other ranks should get. So it looks at the calls that lead to it.
"""

from __future__ import annotations

import math
import warnings
from types import FrameType
from typing import Any, NamedTuple

from nbdata.errors import BadOption

__all__ = [
    "Batching",
    "Dealer",
    "Skipped",
    "batching_of",
    "counts_steps",
    "dealer_of",
    "deals_samples",
    "refuse_distributed",
    "says_epoch",
    "skipped_by",
    "state_left_by",
    "warn_of_skipped",
    "warn_of_steps",
]

# The most calls between a loader of Accelerate and the sampler below it.
_DEPTH = 16
# The same in a worker, with the calls that have started it.
_DEPTH_OF_WORKER = 48
# The loaders of Accelerate.
_LOADERS = ("DataLoaderDispatcher", "DataLoaderShard")


class Dealer(NamedTuple):
    """A loader of Accelerate that asks for the batches of all ranks.

    Attributes
    ----------
    every : int
        The process gets one of so many batches; the others read the rest.
    ranks : int
        Batches that make a step of all ranks.
    epoch : int or None
        As the loader counts; it does not tell a sampler below its own.
    """

    every: int
    ranks: int
    epoch: int | None


class Skipped(NamedTuple):
    """What a loader of Accelerate reads and drops, to resume.

    Attributes
    ----------
    steps : int
        Steps that it drops.
    size : int
        Samples that a data set gives for one of its batches.
    of_step : int
        Batches that make a step.
    drop_last : bool
        Whether a last batch that is not full is none.
    epoch : int
        As the loader counts.
    """

    steps: int
    size: int
    of_step: int
    drop_last: bool
    epoch: int


class Batching(NamedTuple):
    """How the loader that reads a stream makes steps of its samples.

    Attributes
    ----------
    size : int
        Samples of a batch; 0 if something between the loader and the stream makes the batches.
    drop_last : bool
        Whether a last batch that is not full is none.
    most_steps : float
        Steps after which an epoch ends in any case.
    """

    size: int = 0
    drop_last: bool = False
    most_steps: float = math.inf


def _callers(frame: FrameType | None, depth: int = _DEPTH) -> dict[str, Any]:
    """Return the objects whose methods lead to a call, by the name of their type; of several the innermost."""
    found: dict[str, Any] = {}
    for _ in range(depth):
        if frame is None:
            break
        owner = frame.f_locals.get("self")
        found.setdefault(type(owner).__name__, owner)
        frame = frame.f_back
    return found


def _loader(callers: dict[str, Any]) -> Any:
    return next((callers[name] for name in _LOADERS if name in callers), None)


def dealer_of(frame: FrameType) -> Dealer | None:
    """Return who deals the batches out that a call asks for; None if the caller wants those of its own rank."""
    callers = _callers(frame)
    shard, dispatcher = callers.get("BatchSamplerShard"), callers.get("DataLoaderDispatcher")
    epoch = getattr(_loader(callers), "iteration", None)
    if shard is not None:  # each process draws all batches, and keeps some
        ranks = 1 if getattr(shard, "split_batches", False) else int(getattr(shard, "num_processes", 1))
        return Dealer(ranks, ranks, epoch)
    return None if dispatcher is None else Dealer(1, 1, epoch)  # one process reads for all


def deals_samples(frame: FrameType) -> bool:
    """Return whether a data set's caller deals its samples out to the ranks.

    It may be one of the datasets library, to whose generator the samples belong, after ``split_dataset_by_node``.
    """
    callers = _callers(frame)
    of_datasets = callers.get("IterableDataset")
    return "IterableDatasetShard" in callers or getattr(of_datasets, "_distributed", None) is not None


def skipped_by(frame: FrameType, ranks: int) -> Skipped | None:
    """Return what a loader of Accelerate drops of the data set that it reads; None if nothing.

    A worker that was forked has the calls of its parent above its own; where it is spawned, its parent asks.

    Parameters
    ----------
    ranks : int
        Those among which Accelerate deals.
    """
    loader = _loader(_callers(frame, _DEPTH_OF_WORKER))
    if not getattr(loader, "skip_batches", 0):
        return None
    size, drop_last = int(loader.batch_size or 1), bool(getattr(loader, "drop_last", False))
    found = Skipped(loader.skip_batches, size * ranks, 1, drop_last, getattr(loader, "iteration", 0))
    if type(loader).__name__ == "DataLoaderDispatcher":  # one process reads the batches of all
        return found._replace(size=size, of_step=1 if getattr(loader, "split_batches", False) else ranks)
    return found


def says_epoch(frame: FrameType | None) -> bool:
    """Return whether a call of ``set_epoch`` says an epoch: Accelerate repeats its own count when a pass begins."""
    for _ in range(_DEPTH):
        if frame is None:
            break
        if frame.f_code.co_name == "__iter__" and type(frame.f_locals.get("self")).__name__ in _LOADERS:
            return False
        frame = frame.f_back
    return True


def warn_of_skipped(frame: FrameType, epoch: int) -> None:
    """Warn if Accelerate skips batches of the first epoch, and nobody has said that it is the one to resume.

    Parameters
    ----------
    epoch : int
        Of the sampler, for a loader that counts none.
    """
    callers = _callers(frame)
    loader = _loader(callers)
    steps = getattr(callers.get("SkipBatchSampler"), "skip_batches", 0)
    if not getattr(getattr(loader, "dataset", None), "epoch_said", False):
        warn_of_steps(steps, getattr(loader, "iteration", epoch))


def warn_of_steps(steps: int, epoch: int) -> None:
    """Warn if so many steps of an epoch are skipped that nobody has said, and it is the first one."""
    if steps and not epoch:
        warnings.warn(
            f"nbdata: Accelerate skips {steps} batches of epoch 0, and nobody has said that the training stopped in "
            "this one. In another one samples would be lost and come twice. Write loader.set_epoch(epoch) before "
            "accelerator.skip_first_batches(loader, steps)",
            stacklevel=2,
        )


def batching_of(frame: FrameType) -> Batching:
    """Return how the loader makes batches that asks a stream for samples.

    Lightning says after how many steps an epoch ends, and so does whoever repeats a pipeline of webdataset.
    """
    callers = _callers(frame, _DEPTH_OF_WORKER)
    if any(getattr(owner, "repetitions", 1) != 1 for owner in callers.values()):
        return Batching(most_steps=0)
    limits = getattr(callers.get("CombinedLoader"), "limits", None) or (math.inf,)
    most = max(math.inf if limit is None else limit for limit in limits)
    fetcher: Any = frame.f_locals.get("self")
    if type(fetcher).__name__ != "_IterableDatasetFetcher":
        return Batching(most_steps=most)
    batch = frame.f_locals["possibly_batched_index"]
    return (
        Batching(len(batch), fetcher.drop_last, most)
        if fetcher.auto_collation
        else Batching(1, most_steps=most)
    )


def counts_steps(frame: FrameType) -> bool:
    """Return whether Lightning loads a state: it ends the epoch after as many steps as a whole one has by now."""
    return "CombinedLoader" in _callers(frame)


def state_left_by(frame: FrameType, loader: object) -> dict[str, Any] | None:
    """Return the state of a loader that Lightning has read from a checkpoint and has not loaded; None if there is none.

    Lightning loads states when it makes its loaders. ``trainer.estimated_stepping_batches`` in ``configure_optimizers``
    makes them before the checkpoint is read, and then nobody loads the states.
    """
    fit: Any = _callers(frame).get("_FitLoop")
    states = getattr(fit, "_combined_loader_states_to_load", None)
    if not states or not fit.restarting:
        return None
    # Lightning has a state for each of its loaders that can save one, in their order.
    loaders = [one for one in fit._combined_loader.flattened if hasattr(one, "load_state_dict")]
    return next((state for one, state in zip(loaders, states, strict=True) if one is loader), None)


def refuse_distributed(sampler: object, frame: FrameType) -> None:
    """Raise BadOption if a ``DistributedSampler`` was put around a sampler: it would take its length for indices."""
    owner = frame.f_locals.get("self")
    if any(kind.__name__ == "DistributedSampler" for kind in type(owner).__mro__):
        raise BadOption(
            f"DistributedSampler takes a data set, and {type(sampler).__name__} is none: samples would be lost",
            remedy="Give rank= and world_size= to batch_sampler or sampler, or use SampleLoader, which asks for them",
        )
