"""The rank of a process in a distributed training, and the number of the pass that a worker makes."""

from __future__ import annotations

import fcntl
import multiprocessing.reduction
import os
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch.distributed
from torch.utils.data.distributed import DistributedSampler

from nbdata.client.reading.dealers import deals_samples
from nbdata.client.reading.orders import AheadBatches
from nbdata.errors import BadOption
from nbdata.threads import ForkLock

__all__ = ["Dealt", "Passes", "Rank", "Ranked", "dealt_by_accelerate", "rank_of", "refuse_no_rank"]

# Variables with the rank and the number of ranks, by what sets them. SLURM's are those of a step that srun started:
# those of the job are also there where one process runs alone.
_ENVIRONMENT = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))
# Most loaders whose workers may be in a pass at the same time, and the numbers that are kept of each.
_LOADERS, _NUMBERS = 4, 4


class Rank(NamedTuple):
    """The part of a training that a process has.

    Attributes
    ----------
    rank, world_size : int
    said_by : str
        What says so; empty for a process alone.
    """

    rank: int
    world_size: int
    said_by: str = ""

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size} ({self.said_by})"


def rank_of(rank: int | None, world_size: int | None) -> Rank:
    """Return the rank of this process as it is now.

    None: as in the process group of ``torch.distributed``, else as ``torchrun`` or ``srun`` set it in the environment,
    else 0 of 1.

    Raises
    ------
    BadOption
        If the rank is out of range, or the environment tells the number of ranks and not which one this is.
    """
    found = Rank(rank or 0, world_size or 1, "as given") if None not in (rank, world_size) else _found()
    found = found._replace(
        rank=found.rank if rank is None else rank,
        world_size=found.world_size if world_size is None else world_size,
    )
    if not 0 <= found.rank < found.world_size:
        raise BadOption(f"rank={found.rank} of {found.world_size}: there is no such rank")
    return found if found.world_size > 1 else Rank(0, 1)


def refuse_no_rank(rank: int | None, world_size: int | None) -> None:
    """Raise BadOption if what was given is no rank: where a loader is made, rather than in its worker.

    Who trains is asked only when a pass begins: Lightning says the number of ranks before it says which one this is.
    """
    if rank is not None and world_size is not None:
        rank_of(rank, world_size)


def _found() -> Rank:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Rank(torch.distributed.get_rank(), torch.distributed.get_world_size(), "torch.distributed")
    for name, count in _ENVIRONMENT:
        ranks = os.environ.get(count, "")
        if not ranks.isascii() or not ranks.isdigit() or int(ranks) < 2:
            continue
        own = os.environ.get(name, "")
        if not own.isascii() or not own.isdigit():
            raise BadOption(
                f"{count}={ranks} says that several ranks train, and nothing says which one this is",
                remedy=f"Set {name}, call init_process_group first, or give rank= and world_size=. With Lightning, "
                "ask for the length in configure_optimizers, when it has made the group",
            )
        return Rank(int(own), int(ranks), f"{name} and {count}")
    return Rank(0, 1)


class Ranked:
    """A data set that gives its part of the samples to each rank, as it is when a pass begins.

    Workers that are spawned get the rank of their parent, which alone may have a process group.
    """

    def __init__(self, rank: int | None, world_size: int | None) -> None:
        self._given: tuple[int | None, int | None] = rank, world_size
        self._in_group = False  # as the parent of a spawned worker saw it
        refuse_no_rank(rank, world_size)

    def _rank(self) -> Rank:
        if deals_samples(sys._getframe(1)):
            return Rank(0, 1)
        dealing = dealt_by_accelerate()
        if dealing > 1 and self._given == (None, None):
            raise BadOption(
                f"Accelerate deals samples out to {dealing} processes, and this data set would split them once more",
                remedy="For accelerator.prepare or the Trainer of transformers give rank=0, world_size=1; without them "
                "rank=accelerator.process_index, world_size=accelerator.num_processes",
            )
        return rank_of(*self._given)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_given": tuple(self._rank())[:2], "_in_group": self._together()}

    def _together(self) -> bool:
        """Return whether the ranks are in a process group, in which they may wait for each other."""
        return self._in_group or (torch.distributed.is_available() and torch.distributed.is_initialized())


def dealt_by_accelerate() -> int:
    """Return the number of processes among which Accelerate deals; 0 if the training does not use it."""
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    known: dict[str, Any] = getattr(state, "_shared_state", {})
    return int(known.get("num_processes", 0))


class Dealt(DistributedSampler[Any]):
    """Shows trainers that a loader gives each rank its own part: Lightning asks for the type. It has no indices."""

    def __init__(self, samples: Any, order: AheadBatches) -> None:
        super().__init__(samples, num_replicas=1, rank=0)
        self._order = order

    def set_epoch(self, epoch: int) -> None:
        """Have a new loader begin in the epoch of its trainer; later it counts its own."""
        self._order.follow_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class _FileLock:
    """A lock for the threads of the processes that have a file open.

    The locks that multiprocessing passes to spawned workers start a program, which imports from the working folder.
    """

    def __init__(self, fd: int) -> None:
        self._fd, self._threads = fd, ForkLock()
        weakref.finalize(self, os.close, fd)

    def __enter__(self) -> None:
        self._threads.acquire()
        fcntl.lockf(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN)
        self._threads.release()

    def __reduce__(self) -> tuple[Callable[[Any], _FileLock], tuple[Any]]:
        return _passed, (multiprocessing.reduction.DupFd(self._fd),)


def _new_lock() -> _FileLock:
    fd, path = tempfile.mkstemp(prefix="nbdata-")
    os.unlink(path)
    return _FileLock(fd)


def _passed(fd: Any) -> _FileLock:
    """Return the lock in a spawned worker."""
    return _FileLock(fd.detach())


class Passes:
    """Counts the passes of all workers together, so that the workers of one pass agree on its epoch.

    The workers of one pass have the same base seed, which PyTorch draws anew for each pass. Persistent workers, and
    pipelines that repeat, keep theirs and count. The counts are in shared memory, since neither forked nor spawned
    workers can tell their parent. Runs of passes with the same seed and successive epochs are remembered, because one
    worker may be many passes ahead of another. There are a few, for several loaders at once. A copy counts by itself.
    """

    def __init__(self, epoch: int) -> None:
        context = multiprocessing.get_context("spawn")  # its arrays can be passed to forked workers too
        self._lock = _new_lock()
        # Epoch of the next pass, place of the next run, and whether `once` was called.
        self._next = context.RawArray("q", [epoch, 0, 0])
        # Of each run: the base seed, the first and the last count (from 1), and the epoch of the first.
        self._known = context.RawArray("q", _LOADERS * _NUMBERS)
        # Of the pass that ends: base seed and epoch, how many workers are at its end, and the batches that they made.
        self._ended = context.RawArray("q", 4)
        self._count = 0

    def __reduce__(self) -> tuple[Callable[..., Passes], tuple[Any, ...]]:
        if multiprocessing.context.get_spawning_popen() is None:
            return Passes, (self.next,)
        return _shared, (self._lock, self._next, self._known, self._ended)

    @property
    def next(self) -> int:
        """The epoch of the next pass."""
        return int(self._next[0])

    def set(self, epoch: int) -> None:
        """Set the epoch of the next pass, even if it has the seed of an earlier one."""
        with self._lock:
            self._next[0] = epoch
            self._known[:] = [0] * len(self._known)

    def begin(self, seed: int, epoch: int | None = None) -> int:
        """Return the epoch of the pass that a worker with this base seed starts now.

        Parameters
        ----------
        epoch : int, optional
            The epoch in which it resumes; the next pass is the one after that.
        """
        self._count += 1
        with self._lock:
            following, at, _ = self._next
            begun = following if epoch is None else epoch
            for run in range(0, len(self._known), _NUMBERS):
                known, first, last, first_epoch = self._known[run : run + _NUMBERS]
                own = first_epoch + self._count - first
                if known == seed and first <= self._count <= last:
                    return int(own) if epoch is None else epoch
                if known == seed and self._count == last + 1 and own == begun:
                    self._known[run + 2] = self._count
                    self._next[0] = begun + 1
                    return int(begun)
            self._known[at : at + _NUMBERS] = [seed, self._count, self._count, begun]
            self._next[:2] = [begun + 1, (at + _NUMBERS) % len(self._known)]
            return int(begun)

    def once(self) -> bool:
        """Return whether this is the first call of all workers together."""
        with self._lock:
            called, self._next[2] = self._next[2], 1
        return not called

    def end(self, seed: int, epoch: int, workers: int, batches: int) -> int | None:
        """Note that a worker has made so many batches of a pass; return those of all when it is the last of them."""
        with self._lock:
            if self._ended[:2] != [seed, epoch]:
                self._ended[:] = [seed, epoch, 0, 0]
            self._ended[2] += 1
            self._ended[3] += batches
            return int(self._ended[3]) if self._ended[2] == workers else None


def _shared(lock: Any, following: Any, known: Any, ended: Any) -> Passes:
    """Return the counter of a spawned worker, which shares that of its parent."""
    made = Passes.__new__(Passes)
    made._lock, made._next, made._known, made._ended, made._count = lock, following, known, ended, 0
    return made
