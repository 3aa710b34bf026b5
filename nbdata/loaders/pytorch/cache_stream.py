"""A PyTorch data set over `nbdata.cache_stream`, for DataLoaders with any number of workers."""

from __future__ import annotations

import multiprocessing
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed
from torch.utils.data import IterableDataset, get_worker_info

from nbdata.errors import BadOption
from nbdata.operation import slots
from nbdata.protocols import Item
from nbdata.sizes import parse_size
from nbdata.verbs.cache_stream import CacheStream

__all__ = ["CacheStreamDataset"]

# Requests at a time: all workers together, and the least for each.
_REQUESTS, _LEAST = 16, 2
# Most passes whose workers may start at the same time.
_PASSES = 4


class CacheStreamDataset(IterableDataset[Any]):
    """Streams items of a store through a bounded folder, divided among the workers of a DataLoader.

    Each worker, and each rank of a distributed training, gets its own part of each epoch. The parts are disjoint and
    together the whole epoch, in an order that depends only on the seed. The room of `max_size` is divided among the
    workers. Workers may be forked or spawned.

    A pass over the loader is one epoch; the n-th pass is shuffled like the n-th epoch of `nbdata.cache_stream`. All
    ranks must make the same passes. Parts may differ by one item: a distributed training that needs equal numbers drops
    the last.

    Parameters
    ----------
    source : str
        URL or path of a folder.
    load : callable, optional
        Makes the loader's value from an `Item`; called in the worker while the item is on the disk. A generator yields
        several samples per item. None: for files ``(key, bytes)``; for samples a dict of extension to bytes, and
        ``__key__``, as in WebDataset. For folders and shards it is required.
    max_size : int or str, optional
        Bytes, for all workers of this process together (None: half of the free space).
    rank, world_size : int, optional
        None: as in ``torch.distributed``, else 0 of 1.
    shuffle, seed
        As in `nbdata.cache_stream`.
    epoch : int
        The epoch of the first pass; set it with `set_epoch` to continue a training.
    **options
        All other options of `nbdata.cache_stream`, except ``part``, ``epochs``, ``first_epoch`` and ``keep``.

    Examples
    --------
    >>> from nbdata.loaders.pytorch import CacheStreamDataset
    >>> data = CacheStreamDataset("s3://bucket/images", by="sample", max_size="2GB", shuffle=True)
    >>> for batch in torch.utils.data.DataLoader(data, batch_size=32, num_workers=2):  # doctest: +SKIP
    ...     train(batch)
    """

    def __init__(
        self,
        source: str,
        load: Callable[[Item], Any] | None = None,
        *,
        max_size: int | str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        epoch: int = 0,
        **options: Any,
    ) -> None:
        for name in ("part", "epochs", "first_epoch", "keep"):
            if name in options:
                raise BadOption(
                    f"CacheStreamDataset: {name} is not for a loader",
                    remedy="A pass over the loader is one epoch, and its workers are its parts",
                )
        self._max_size = None if max_size is None else parse_size(max_size, option="max_size")
        # Raises an error here rather than in a worker.
        CacheStream(source=source, max_size=self._max_size, **options)
        by = options.get("by", "folder")
        if load is None and by in ("folder", "shard"):
            raise BadOption(
                "CacheStreamDataset: load is missing",
                expected=f"a function that reads the {by} at item.path; what it yields are the samples",
            )
        self._load = load or (_read_file if by == "file" else _read_sample)
        self._source, self._options = source, options
        self._rank, self._world_size = rank, world_size
        self._passes = _Passes(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, from 0."""
        self._passes.set(epoch)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        rank, ranks = self._place()
        operation = CacheStream(
            source=self._source,
            max_size=None if self._max_size is None else self._max_size // workers,
            part=f"{rank * workers + number}/{ranks * workers}",
            first_epoch=self._passes.begin(0 if worker is None else worker.seed - worker.id),
            **{"concurrency": max(_LEAST, _REQUESTS // workers), **self._options},
        )
        for item in slots.stream(operation, True):
            loaded = self._load(item)
            if isinstance(loaded, types.GeneratorType):
                yield from loaded
            else:
                yield loaded

    def _place(self) -> tuple[int, int]:
        together = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = self._rank if self._rank is not None else torch.distributed.get_rank() if together else 0
        ranks = self._world_size
        if ranks is None:
            ranks = torch.distributed.get_world_size() if together else 1
        return rank, ranks


class _Passes:
    """Counts the passes of all workers together, so that the workers of one pass agree on its epoch.

    The workers of one pass have the same base seed, which PyTorch draws anew for each pass. Persistent workers keep
    theirs, and count. The counts are in shared memory, since neither forked nor spawned workers can tell their parent.
    The last few passes are remembered, because those of several loaders may start at once.
    """

    def __init__(self, epoch: int) -> None:
        context = multiprocessing.get_context("spawn")  # its locks can be passed to forked workers too
        self._lock = context.Lock()
        self._next = context.RawArray("q", [epoch, 0])  # epoch and slot of the next pass
        self._known = context.RawArray(
            "q", 3 * _PASSES
        )  # base seed, count and epoch of each; the count starts at 1
        self._count = 0

    def set(self, epoch: int) -> None:
        """Set the epoch of the next pass, even if it has the seed of an earlier one."""
        with self._lock:
            self._next[0] = epoch
            self._known[:] = [0] * len(self._known)

    def begin(self, seed: int) -> int:
        """Return the epoch of the pass that a worker with this base seed starts now."""
        self._count += 1
        with self._lock:
            for at in range(0, len(self._known), 3):
                if (self._known[at], self._known[at + 1]) == (seed, self._count):
                    return int(self._known[at + 2])
            epoch, at = self._next
            self._known[at : at + 3] = [seed, self._count, epoch]
            self._next[:] = [epoch + 1, (at + 3) % len(self._known)]
            return int(epoch)


def _read_file(item: Item) -> tuple[str, bytes]:
    with open(item.path, "rb") as file:
        return item.key, file.read()


def _read_sample(item: Item) -> dict[str, Any]:
    sample: dict[str, Any] = {"__key__": item.key}
    for path in item.files:
        with open(path, "rb") as file:
            sample[path[len(item.path) + 1 :]] = file.read()
    return sample
