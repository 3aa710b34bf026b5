"""The samples that a mapped pack reads: selected, in its order, with their fields renamed."""

from __future__ import annotations

import abc
import contextlib
import functools
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from nbdata.client.mapping.ordered import Sample
from nbdata.client.opened import Opened
from nbdata.client.reading.changed import advising_on_changes
from nbdata.client.reading.making import make_samples
from nbdata.client.reading.records.packed import PackedSamples
from nbdata.client.reading.records.samples import RecordSamples
from nbdata.client.reading.samples import Samples, Selected
from nbdata.client.reading.shards.samples import ShardSamples
from nbdata.client.reading.stored import StoredSamples
from nbdata.errors import BadOption, NotFound
from nbdata.formats.neighbours import Runs, key_of
from nbdata.formats.permutation import Permutation
from nbdata.reading.choosing import Choice
from nbdata.reading.shards.indexing import refuse_compressed
from nbdata.reading.shards.packing import refuse_own_source, refuse_shuffled_files, samples_of
from nbdata.redaction import redacted
from nbdata.sizes import counted
from nbdata.verbs.ends import End
from nbdata.verbs.pack import Pack

__all__ = ["ChosenSource", "MappedSource"]

# What to do if an object of the source changes.
_AGAIN = "Run the command again: it takes the new version"


_Own = TypeVar("_Own", bound="ChosenSource")


class ChosenSource(abc.ABC):
    """Samples with the fields that are chosen, under their new names and keys; a context manager.

    Parameters
    ----------
    operation : Pack

    Attributes
    ----------
    given : int
        Samples that were handed out.
    renamed : int
        Samples with the same key as the one before.
    """

    def __init__(self, operation: Pack) -> None:
        self._operation, self._choice = operation, Choice(operation)
        self.given = self.renamed = 0

    @abc.abstractmethod
    def _chosen(self) -> Generator[Sample, None, None]:
        """Yield the chosen samples in their order, with all fields and the names of the source."""

    @abc.abstractmethod
    def _left_out(self) -> tuple[int, list[str]]:
        """Return the number of files that belong to no sample, and the first of them."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close what is read."""

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Generator[Sample, None, None]:
        runs, keys = Runs(), self._operation.keys
        with contextlib.closing(self._chosen()) as chosen:
            for sample in chosen:
                own, fields = sample["__key__"], list(sample)[2:]
                key = key_of(own, runs.number(own)) if keys is None else keys % self.given
                self.renamed += keys is None and key != own
                named = self._choice.fields(own, fields)
                _refuse_lost(own, [name for _, name in named])
                self.given += 1
                yield {
                    "__key__": key,
                    "__url__": sample["__url__"],
                    **{name: sample[fields[place]] for place, name in named},
                }

    def notes(self) -> Iterator[str]:
        """Yield notes for the report, after the samples were read."""
        count, names = self._left_out()
        if count:
            yield f"{counted(count, 'files', 'belong')} to no sample, such as {names[0]}"
        yield from self._choice.notes()
        if self.renamed:
            renamed = counted(self.renamed, "samples", "have")
            yield f"{renamed} the key of their neighbour, and are called KEY~2 and so on"


class MappedSource(ChosenSource):
    """The samples of a store or disk, read by this process.

    Parameters
    ----------
    operation : Pack
    end : End
        The options of its source.
    quiet : bool
        Whether to hide the progress of listing the source.

    Raises
    ------
    BadOption
        If ``--select`` cannot be parsed, or compressed shards are to be shuffled or sorted.
    NotFound
        If there are no samples.
    """

    def __init__(self, operation: Pack, end: End, *, quiet: bool) -> None:
        super().__init__(operation)
        self._read = replace(
            samples_of(operation),
            storage_options=end.options or None,
            fs=operation.fs if end.takes_fs else None,
        )
        self._all: Samples = make_samples(self._read, quiet)
        if isinstance(self._all, ShardSamples) and self._in_other_order:
            refuse_compressed(self._all.shards, "Leave --shuffle and --sort out")

    def close(self) -> None:
        self._all.close()

    @property
    def _in_other_order(self) -> bool:
        return self._operation.shuffle or bool(self._operation.sort)

    @property
    def _by_number(self) -> bool:
        """True if samples are read by number; those that follow each other are a stream where that is enough."""
        return isinstance(self._all, StoredSamples) or self._in_other_order

    def refuse_own(self, target: Opened) -> None:
        """BadOption if shards that are being read would be replaced."""
        if isinstance(self._all, ShardSamples):
            opened, found = Opened(self._read), {}
            for place in {shard.place for shard in self._all.shards}:
                found[place] = opened.open(place).store
            shards = ((found[shard.place], shard.key) for shard in self._all.shards)
            op = self._operation
            refuse_own_source(op.names, [target.open(op.names.folder)], shards, op.target)

    # -- how many ---------------------------------------------------------------------------------

    @property
    def known(self) -> tuple[int, int] | None:
        """The number of selected samples and their bytes; None if only reading them shows it."""
        if not self._by_number and "samples" not in self._all.to_dict():
            return None
        numbers = self._numbers()
        return len(numbers), sum(map(self._all.size, numbers))

    @property
    def shards(self) -> tuple[int, int]:
        """The number of shards to read, and their bytes."""
        shards = self._all.shards if isinstance(self._all, ShardSamples) else []
        return len(shards), sum(max(0, shard.size) for shard in shards)

    def _left_out(self) -> tuple[int, list[str]]:
        found = [source.left_out for source in self._all.sources]
        return sum(count for count, _ in found), [name for _, names in found for name in names]

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if (unverified := self._all.report.unverified) and self._operation.verify != "none":
            yield f"{counted(unverified, 'objects')} had no checksum in the store to compare with"

    # -- reading ----------------------------------------------------------------------------------

    def _chosen(self) -> Generator[Sample, None, None]:
        with advising_on_changes(_AGAIN):
            if self._by_number:
                with contextlib.closing(Selected(self._all, self._numbers()).stream()) as items:
                    yield from items
                return
            with contextlib.closing(self._all.stream()) as items:
                yield from self._choice.stream(items)

    def _numbers(self) -> array[int]:
        """Return the numbers of the samples in packing order; 8 bytes each, and for --sort also their keys."""
        samples, operation = self._all, self._operation
        if not len(samples):
            raise NotFound("there are no samples in this source", path=redacted(operation.places()[0]))
        numbers: Sequence[int] = self._chosen_numbers or range(len(samples))
        refuse_shuffled_files(operation, samples.key, numbers)
        order: Iterable[int] = numbers
        if operation.shuffle:
            mixed = Permutation(len(numbers), seed=operation.seed, epoch=0)
            order = (numbers[mixed[position]] for position in range(len(numbers)))
        elif operation.sort:
            order = sorted(numbers, key=samples.key)
        return array("q", order)

    @functools.cached_property
    def _chosen_numbers(self) -> Sequence[int] | None:
        """The numbers of the chosen samples, in the order of the source; None for all."""
        samples = self._all
        return self._choice.numbers(
            len(samples), lambda number: (samples.key(number), _sizes(samples, number))
        )


def _sizes(samples: Samples, number: int) -> dict[str, int]:
    """Return the bytes of each field of a sample."""
    if isinstance(samples, RecordSamples):
        return {name: samples.size(number) for name in samples.fields}
    assert isinstance(samples, (StoredSamples, ShardSamples, PackedSamples))
    members: Any = samples.index.objects if isinstance(samples, StoredSamples) else samples.index.members
    return {one.field: one.size for one in members(number)}


def _refuse_lost(key: str, fields: Sequence[str]) -> None:
    """BadOption if a field would be lost in a Python sample."""
    for name in fields:
        if name.startswith("__"):
            raise BadOption(
                f"the field {name!r} of {key!r} would be lost: names with two underscores are not written",
                remedy="Give it another name with --rename",
            )
