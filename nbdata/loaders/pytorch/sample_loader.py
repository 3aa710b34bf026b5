"""A DataLoader over samples that counts the samples it has yielded, and can resume there."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info

from nbdata.client.reading.dealers import counts_steps, state_left_by
from nbdata.client.reading.overview import READERS
from nbdata.client.reading.passing import OTHER_SAMPLES, SAME_SAMPLES
from nbdata.client.reading.report import Counts, ReadReport, Timeline
from nbdata.errors import BadOption
from nbdata.loaders.pytorch.ranks import Dealt, Rank, rank_of, refuse_no_rank
from nbdata.loaders.pytorch.samples import SampleDataset, refuse_no_samples
from nbdata.loaders.pytorch.workers import Beginning, are_alive, raise_of, watch

if TYPE_CHECKING:
    from nbdata.client.reading.samples import Samples
    from nbdata.client.reading.source import Source

__all__ = ["SampleLoader"]

# Default batches ahead, per worker, and for a loader without workers.
_AHEAD_OF_WORKER, _AHEAD = 4, 8
_STATE = 1
# The most characters of a wrong value, and the most entries, that an error shows.
_SHOWN, _FEW = 60, 8
_END = object()


class SampleLoader(DataLoader[Any]):
    """A DataLoader that fetches ahead in a shuffled order, and resumes in the middle of an epoch.

    It deals batches of one order, which depends only on the seed and the epoch. It counts *yielded* samples, not those
    that workers have requested. So `state_dict` describes exactly which samples of the epoch are left. Any number of
    workers or ranks may yield them, in batches of any size: each exactly once. Each pass is the next epoch.

    Parameters
    ----------
    samples : Samples
    batch_size : int
        Samples per batch of one rank.
    shuffle : bool
    seed : int
    transform : callable, optional
        Makes an element of a batch from a sample; called in the worker. None: the sample itself.
    rank, world_size : int, optional
        The rank in a distributed training. None: as in ``torch.distributed`` when a pass begins, else as ``torchrun``
        or ``srun`` set it in the environment, else 0 of 1.
    uneven : {"drop", "repeat", "keep"}
        How to treat a last step without a full batch for each rank: leave it out, fill it with samples from the
        beginning of the order, or keep it as it is, so that some ranks may have no such step.
    drop_last : bool
        Whether to leave out a last batch that is not full.
    ahead : int, optional
        Batches that all workers together fetch ahead. None: 4 per worker, 8 without workers.
    collate_fn : callable, optional
        None: PyTorch's ``default_collate`` if there is a `transform`, else a batch is the list of its samples.
    **options
        For ``torch.utils.data.DataLoader``: ``num_workers``, ``persistent_workers``, ``pin_memory``,
        ``multiprocessing_context`` and others.

    Examples
    --------
    >>> loader = SampleLoader(samples, 64, shuffle=True, seed=1, transform=decoded, num_workers=4)  # doctest: +SKIP
    >>> for epoch in range(loader.epoch, 10):  # doctest: +SKIP
    ...     for step, batch in enumerate(loader):
    ...         train(batch)
    ...         if step % 100 == 0:
    ...             torch.save({"model": model.state_dict(), "data": loader.state_dict()}, "last.pt")
    """

    def __init__(
        self,
        samples: Samples,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        seed: int = 0,
        transform: Callable[[Any], Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: str = "drop",
        drop_last: bool = False,
        ahead: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        **options: Any,
    ) -> None:
        refuse_no_samples(samples)
        if not options.get("in_order", True):
            raise BadOption(
                "SampleLoader: in_order=False gives batches that no state can tell", expected="in_order=True"
            )
        if taken := sorted({"batch_sampler", "dataset", "sampler"} & options.keys()):
            raise BadOption(
                f"SampleLoader deals out its own batches: {', '.join(taken)} cannot be given",
                remedy="Use DataLoader(SampleDataset(samples, transform), …) with a sampler of your own",
            )
        if ahead is None:
            ahead = _AHEAD_OF_WORKER * num_workers or _AHEAD
        self.samples = samples
        self._given, self._begun = (rank, world_size), False
        refuse_no_rank(rank, world_size)
        self._rank = Rank(0, 1)  # until it is asked for
        self._order = samples.batch_sampler(
            batch_size, shuffle=shuffle, seed=seed, ahead=ahead, drop_last=drop_last, uneven=uneven
        )
        # The epoch of the running pass, and how many samples of its order were yielded. None: as the next pass begins.
        self._at: tuple[int, int] | None = None
        self._loaded: object = None  # the last state that was loaded
        # Per worker: samples, bytes, objects without a stored checksum, bytes from a cache, bytes fetched to it.
        # Shared by all processes.
        self._tally = torch.zeros(max(1, num_workers), 5, dtype=torch.float64)
        if num_workers:
            self._tally.share_memory_()  # type: ignore[no-untyped-call]
        self._seconds = self._waited = 0.0  # of all passes, without the time between them
        self._timeline = Timeline()
        if collate_fn is None:
            collate_fn = list if transform is None else default_collate
        super().__init__(
            SampleDataset(samples, transform),
            batch_sampler=self._order,
            num_workers=num_workers,
            collate_fn=_Counting(samples, collate_fn, self._tally),
            **options,
        )
        # Lightning would make the loader anew around a sampler of its own. A DataLoader lets nobody set its sampler.
        object.__setattr__(self, "sampler", Dealt(samples, self._order))
        READERS.add(self)

    @property
    def epoch(self) -> int:
        """The epoch of the running pass, else of the next one."""
        return self._place()[0]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass. It starts at its beginning, unless a loaded state is in its middle."""
        self._order.set_epoch(epoch)
        self._at = None

    def _placed(self, *, begins: bool = False) -> Rank:
        """Return the rank, which a process may only learn after the loader was made; later passes ask anew."""
        if begins or not self._begun:
            self._begun = begins or self._begun
            self._rank = rank_of(*self._given)
            self._order.rank, self._order.world_size, _ = self._rank
        return self._rank

    def __len__(self) -> int:
        self._placed()
        return super().__len__()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self._placed(begins=True)
        self._order.refuse_no_step()
        left = state_left_by(sys._getframe(1), self)
        if left is not None and left is not self._loaded:
            self.load_state_dict(left)
        epoch, taken = self._order.epoch, self._order.start
        self._at = (epoch, taken)
        if not are_alive(self._iterator):  # persistent workers, of which one was killed
            self._iterator = None
        batches, done = super().__iter__(), time.monotonic()
        while True:
            asked = time.monotonic()
            try:
                batch = next(batches, _END)
            except Exception as error:
                raise_of(batches, error)
            now = time.monotonic()
            self._timeline.add(self._seconds + asked - done, self._seconds + now - done)
            self._seconds, self._waited = self._seconds + now - done, self._waited + now - asked
            done = now
            if batch is _END:
                break
            taken += self._order.of_step
            self._at = (epoch, taken)
            yield batch
        self._at = None

    def _get_iterator(self) -> Any:
        given = self.worker_init_fn
        self.worker_init_fn = Beginning(given, os.getpid())
        try:
            iterator = super()._get_iterator()
        finally:
            self.worker_init_fn = given
        if threading.current_thread() is not threading.main_thread():
            watch(iterator)
        return iterator

    # -- the position -----------------------------------------------------------------------------

    def _place(self) -> tuple[int, int]:
        self._placed()
        epoch, taken = self._at or (self._order.epoch, self._order.start)
        return (epoch, taken) if self._order.steps(taken) else (epoch + 1, 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the training: small, only numbers and strings. The same for all ranks.

        A batch counts as given out once it is yielded.
        """
        epoch, taken = self._place()
        return {
            "version": _STATE,
            "samples": self.samples.fingerprint,
            "count": len(self.samples),
            "shuffle": self._order.shuffle,
            "seed": self._order.seed,
            "epoch": epoch,
            "taken": taken,
            "batch_size": self._order.batch_size,
            "ranks": self._order.world_size,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next pass resume at the training's position. Workers, ranks and batch size may differ.

        ``len`` of the loader remains that of a whole epoch, from which trainers subtract the steps that were made.

        Raises
        ------
        BadOption
            If the state belongs to other samples, or to another order; or if Lightning loads one of the middle of an
            epoch for steps of another size.
        """
        expected = {**self.state_dict(), "epoch": None, "taken": None}
        if not isinstance(state, dict) or "version" not in state:
            raise _no_state(state)
        got = {name: state.get(name) for name in expected}
        epoch, taken = got["epoch"], got["taken"]
        for name, what in _MEANT.items():
            if got[name] != expected[name]:
                remedy = "Make the loader with the samples, the seed and the shuffle of the saved state"
                if name in ("count", "samples"):
                    remedy += (
                        ". If objects of the source have changed, restore them; or begin the epoch anew: "
                        f"loader.set_epoch({epoch})"
                    )
                by_digest = name == "samples"
                raise BadOption(
                    f"this state is of {what}",
                    expected=SAME_SAMPLES if by_digest else f"{name}={expected[name]!r}",
                    got=OTHER_SAMPLES if by_digest else f"{name}={got[name]!r}",
                    remedy=remedy,
                )
        if not (isinstance(epoch, int) and isinstance(taken, int) and epoch >= 0 and taken >= 0):
            raise BadOption(f"this is no state of a loader: epoch={epoch!r}, taken={taken!r}")
        if taken and counts_steps(sys._getframe(1)):
            self._refuse_other_steps(got["batch_size"], got["ranks"])
        self._order.set_epoch(epoch, taken)
        self._at, self._loaded = None, state

    def _refuse_other_steps(self, batch_size: Any, ranks: Any) -> None:
        """Raise BadOption if the steps that were made have other numbers of samples than those to come."""
        if (batch_size or 0) * (ranks or 0) != self._order.of_step:
            raise BadOption(
                "Lightning counts the steps of an epoch, and those of this state have another size: it would end the "
                "epoch too early or too late",
                expected=f"batches of {self._order.batch_size} for each of {self._order.world_size} ranks",
                got=f"{batch_size} for each of {ranks}",
                remedy="Go on with as many ranks and the same batch size, or from a checkpoint of the end of an epoch. "
                "A loop of your own goes on with any",
            )

    # -- statistics -------------------------------------------------------------------------------

    @property
    def report(self) -> ReadReport:
        """The report of what all workers have read, and how long the training waited for batches."""
        samples, size, unverified, cached, fetched = map(int, self._tally.sum(0).tolist())
        read = Counts(samples, size, self._waited, self._seconds, unverified, cached, fetched)
        report = self.samples.report_of(read, self._timeline)
        rank = self._placed()
        return replace(
            report,
            dropped=self._order.dropped,
            repeated=self._order.repeated,
            crowding=self._crowding(report),
            rank=str(rank) if rank.world_size > 1 else "",
        )

    def _crowding(self, report: ReadReport) -> int:
        limits = [
            getattr(getattr(source, "operation", None), "cache", None) for source in self.samples.sources
        ]
        limit = min((limit for limit in limits if limit), default=0)
        ahead = self._order.ahead * self._order.batch_size * report.bytes // max(1, report.samples)
        return ahead if limit and 2 * ahead > limit and report.hits < report.fetched else 0

    @property
    def sources(self) -> list[Source]:
        """The sources of its samples."""
        return self.samples.sources


# The cause, by the entry in which a state differs.
_MEANT = {
    "version": "another version of nbdata",
    "count": "other samples, or samples were added or deleted since",
    "samples": "other samples, or objects of these were changed or replaced since",
    "shuffle": "another order",
    "seed": "another order",
}


def _no_state(state: object) -> BadOption:
    """Return the error for what is no state, such as the whole checkpoint that contains one."""
    got, remedy = f"{state!r}"[:_SHOWN], None
    if isinstance(state, dict):
        got = "a dict of " + ", ".join(map(str, itertools.islice(state, _FEW))) if state else "an empty dict"
        inner = [name for name, value in state.items() if isinstance(value, dict) and "taken" in value]
        remedy = f"Give it the entry {inner[0]!r} of this dict" if inner else None
    return BadOption(
        "this is no state of a loader", expected="what its state_dict() returned", got=got, remedy=remedy
    )


class _Counting:
    """Makes a batch, and records what its process has read since the last one."""

    def __init__(self, samples: Samples, collate: Callable[[list[Any]], Any], tally: torch.Tensor) -> None:
        self._samples, self._collate, self._tally = samples, collate, tally
        self._noted, self._pid = Counts(), os.getpid()

    def __call__(self, batch: list[Any]) -> Any:
        now, before = Counts.of(source.counts for source in self._samples.sources), self._noted
        if self._pid != os.getpid() or now.samples < before.samples:  # a worker, or samples that were closed
            before, self._pid = Counts(), os.getpid()
        worker = get_worker_info()
        row = self._tally[0 if worker is None else worker.id % len(self._tally)]
        row += torch.tensor(
            [
                now.samples - before.samples,
                now.bytes - before.bytes,
                now.unverified - before.unverified,
                now.cached - before.cached,
                now.fetched - before.fetched,
            ],
            dtype=torch.float64,
        )
        self._noted = now
        return self._collate(batch)
