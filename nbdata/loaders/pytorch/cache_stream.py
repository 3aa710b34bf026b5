"""A PyTorch data set over `nbdata.cache_stream`, for DataLoaders with any number of workers."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from nbdata.errors import BadOption
from nbdata.loaders.pytorch.ranks import Passes, Ranked
from nbdata.operation import slots
from nbdata.protocols import Item
from nbdata.sizes import parse_size
from nbdata.verbs.cache_stream import CacheStream

__all__ = ["CacheStreamDataset"]

# Requests at a time: all workers together, and the least for each.
_REQUESTS, _LEAST = 16, 2


class CacheStreamDataset(Ranked, IterableDataset[Any]):
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
        None: as in ``torch.distributed`` when a pass begins, else as in RANK and WORLD_SIZE, else 0 of 1.
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
        super().__init__(rank, world_size)
        self._passes = Passes(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, from 0."""
        self._passes.set(epoch)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        rank, ranks, _ = self._rank()
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


def _read_file(item: Item) -> tuple[str, bytes]:
    with open(item.path, "rb") as file:
        return item.key, file.read()


def _read_sample(item: Item) -> dict[str, Any]:
    sample: dict[str, Any] = {"__key__": item.key}
    for path in item.files:
        with open(path, "rb") as file:
            sample[path[len(item.path) + 1 :]] = file.read()
    return sample
