"""Counterparts of ``ffrecord.torch``: data sets that return a whole batch at once, and a loader that skips batches.

They are for existing code. New code needs less: `nbdata.samples` with `nbdata.loaders.pytorch.SampleLoader`.
"""

from __future__ import annotations

import itertools
import operator
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.utils import data as torch_data

from nbdata.client.records.reader import FileReader
from nbdata.client.records.registry import ReaderRegistry
from nbdata.errors import BadOption

__all__ = ["ConcatDataset", "DataLoader", "Dataset", "ReaderRegistry", "Subset"]


class Dataset(torch_data.Dataset[Any], ReaderRegistry):
    """A data set over FFRecord files, whose items are lists of samples: ``dataset[[3, 1, 4]]``.

    Override `process`, which is called once per batch; or ``__getitem__`` and ``__len__``, to read in another way.

    Parameters
    ----------
    fnames : str, os.PathLike, list or tuple
        As in `nbdata.ffrecord.FileReader`.
    check_data : bool, default True

    Attributes
    ----------
    reader : FileReader

    Examples
    --------
    >>> class Images(Dataset):
    ...     def process(self, indices, data):
    ...         return [decoded(one) for one in data]
    >>> loader = DataLoader(Images("train.ffr"), batch_size=64, shuffle=True, num_workers=4)  # doctest: +SKIP
    """

    def __init__(
        self,
        fnames: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        check_data: bool = True,
        **options: Any,
    ) -> None:
        self.reader = FileReader(fnames, check_data, **options)

    def __len__(self) -> int:
        return self.reader.n

    def __getitem__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch.

        Raises
        ------
        BadOption
            If `indices` is not a list or tuple, or an index is out of range.
        """
        asked = _listed(indices)
        return list(self.process(asked, self.reader.read(asked)))

    def process(self, indices: list[int], data: list[Any]) -> Iterable[Any]:
        """Make samples from arrays of bytes; subclasses override it."""
        raise NotImplementedError("write process(self, indices, data), which returns a list of samples")

    def __add__(self, other: Any) -> ConcatDataset:  # type: ignore[override]
        return ConcatDataset([self, other])


class Subset(Dataset):
    """Some samples of a data set, in their own order.

    Parameters
    ----------
    dataset : Dataset
    indices : sequence of int
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch."""
        return list(self.dataset[[self.indices[index] for index in _listed(indices)]])


class ConcatDataset(Dataset):
    """Several data sets, one after the other. Negative indices count from the end.

    Parameters
    ----------
    datasets : iterable of Dataset
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise BadOption("ConcatDataset: there are no data sets", expected="one or more")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch; each data set is asked once."""
        places: dict[int, list[int]] = {}  # positions in the batch, by data set
        own: dict[int, list[int]] = {}
        for place, index in enumerate(_listed(indices)):
            number = index + len(self) if index < 0 else index
            if not 0 <= number < len(self):
                raise BadOption(
                    f"there is no sample {index:,}", expected=f"-{len(self):,} to {len(self) - 1:,}"
                )
            at = bisect_right(self.cumulative_sizes, number)
            places.setdefault(at, []).append(place)
            own.setdefault(at, []).append(number - (self.cumulative_sizes[at - 1] if at else 0))
        found: dict[int, Any] = {}
        for at, numbers in own.items():
            found.update(zip(places[at], self.datasets[at][numbers], strict=True))
        return [found[place] for place in range(len(found))]


def _listed(indices: Any) -> list[int]:
    if not isinstance(indices, (list, tuple)):
        raise BadOption(
            f"a data set over FFRecord files is asked for a list of samples, not for {indices!r}",
            remedy="Write dataset[[index]], or take the DataLoader of nbdata.loaders.ffrecord, which asks for batches",
        )
    return list(map(operator.index, indices))


class _Batches(torch_data.Dataset[Any]):
    """Adapts a data set to PyTorch's loaders, which ask for a batch at once through ``__getitems__``."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[[index]][0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return list(self.dataset[list(indices)])


class _Skipping(torch_data.Sampler[Any]):
    """The batches of another sampler without the first ones, which are drawn but not read."""

    def __init__(self, batches: Any) -> None:
        self.batches, self.skipped = batches, 0

    def __len__(self) -> int:
        return len(self.batches) - self.skipped

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self.batches), self.skipped, None)


class DataLoader(torch_data.DataLoader[Any]):
    """PyTorch's DataLoader for data sets that return a whole batch at once; it can skip batches.

    Parameters
    ----------
    dataset : Dataset
    skippable : bool, default True
        Whether `set_step` may be used.
    **options
        As in ``torch.utils.data.DataLoader``. Workers may be forked or spawned; the default is fork, as in
        ``ffrecord.torch``.

    Examples
    --------
    >>> loader = DataLoader(dataset, batch_size=64, num_workers=4)  # doctest: +SKIP
    >>> loader.set_step(1000)  # doctest: +SKIP
    >>> for batch in loader:  # the 1001st is the first  # doctest: +SKIP
    ...     train(batch)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        *args: Any,
        skippable: bool = True,
        **options: Any,
    ) -> None:
        if batch_sampler is None and batch_size is None:
            raise BadOption("a data set over FFRecord files gives batches", expected="a batch_size")
        if num_workers and not options.get("multiprocessing_context"):
            options["multiprocessing_context"] = "fork"
        if batch_sampler is None:
            if sampler is not None and shuffle:
                raise BadOption("sampler and shuffle exclude each other", remedy="Leave one of them out")
            order = sampler
            if order is None:
                generator = options.get("generator")
                order = (
                    torch_data.RandomSampler(dataset, generator=generator)
                    if shuffle
                    else torch_data.SequentialSampler(dataset)
                )
            batch_sampler = torch_data.BatchSampler(order, int(batch_size or 1), drop_last)
        elif sampler is not None or shuffle or drop_last or batch_size not in (None, 1):
            raise BadOption(
                "batch_sampler excludes batch_size, shuffle, sampler and drop_last", remedy="Leave them out"
            )
        self.skippable = skippable
        self._skipping = _Skipping(batch_sampler)
        if args:
            options.update(zip(("timeout", "worker_init_fn", "multiprocessing_context"), args, strict=False))
        super().__init__(
            _Batches(dataset),
            batch_sampler=self._skipping,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            **options,
        )

    def set_step(self, step: int) -> None:
        """Have each later pass skip that many batches, until it is set to 0 again.

        The sampler still draws their indices. To resume in a shuffled order, restore its generator's state from the
        beginning of the pass.

        Raises
        ------
        BadOption
            If there are fewer batches, or the loader is not skippable.
        """
        if not self.skippable:
            raise BadOption("this loader is not skippable", remedy="Make it with skippable=True")
        count = len(self._skipping.batches)
        if not 0 <= step < max(1, count):
            raise BadOption(f"set_step({step}): there is no such batch", expected=f"0 to {count - 1:,}")
        self._skipping.skipped = step
