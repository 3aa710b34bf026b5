"""The FFRecord files of a source, opened by this process: on the disk, or in stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from nbdata.client.opened import Opened
from nbdata.client.reading.cached import CachedFetcher, cache_of
from nbdata.errors import SourceChanged
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.fetcher import AHEAD_BYTES, LEAST_WIDTH, WIDTH, Fetcher
from nbdata.reading.pieces import Content, Piece, PieceReader
from nbdata.reading.records.files import files_of
from nbdata.reading.records.heads import Heads
from nbdata.reading.records.local import LocalFile, LocalRecords
from nbdata.reading.records.remote import Plan, RemoteRecords, fetch_heads, heads_path, kept_heads
from nbdata.reading.source_file import SourceFile, sliced
from nbdata.reading.timeline import Timeline
from nbdata.stores.base import Store
from nbdata.verbs.samples import SampleSource

__all__ = ["Headers", "StoredPlan", "StoredRecords", "headers_of", "listed"]


class Headers(Protocol):
    """The result of `headers_of` for stores."""

    heads: Heads


class _Kept:
    """Headers of files in stores."""

    def __init__(self, heads: Heads) -> None:
        self.heads = heads


def headers_of(
    operation: SampleSource, files: Sequence[SourceFile], *, check: bool = True, fingerprint: str = ""
) -> LocalRecords | Headers:
    """Return the headers of files; for files on the disk, together with their reader.

    Parameters
    ----------
    check : bool
        Whether headers on the disk are compared with their CRC-32. Headers from stores always are, when fetched.
    fingerprint : str
        The fingerprint of `Heads`, if known: SourceChanged if it differs.
    """
    found: LocalRecords | Headers
    if all(file.is_local for file in files):
        found = LocalRecords(
            [LocalFile("/" + file.key) for file in files], compare=operation.verify != "none"
        )
        if check:
            found.heads.check()
    else:
        opened = Opened(operation)
        stores: dict[str, Store] = {}
        for file in files:
            if file.place not in stores:
                stores[file.place] = opened.open(file.place).store

        def store_of(file: SourceFile) -> Store:
            return stores[file.place]

        path = heads_path(opened.context, files, store_of)
        kept = None if operation.refresh == "always" and not fingerprint else kept_heads(path, files)
        try:
            found = _Kept(kept or fetch_heads(opened.control, files, store_of, path, opened.context))
        finally:
            opened.control.stop()
    if fingerprint and found.heads.fingerprint != fingerprint:
        raise SourceChanged(
            "these FFRecord files are others than those that were opened before",
            path=files[0].url,
            remedy="Open them anew",
        )
    return found


def listed(operation: SampleSource) -> list[SourceFile]:
    """Return the files of a source."""
    opened = Opened(operation)
    try:
        return sliced(operation, files_of(opened, operation.sources))
    finally:
        opened.control.stop()


class StoredPlan(NamedTuple):
    """How some samples are read.

    Attributes
    ----------
    numbers : list of int
        The samples, in the order requested.
    places : dict of str to Plan
        The ranges at each place.
    """

    numbers: list[int]
    places: dict[str, Plan]


class StoredRecords:
    """Reads samples of files in stores; belongs to one process.

    Parameters
    ----------
    operation : SampleSource
    files : sequence of SourceFile
    heads : Heads
    workers : int
        Number of processes that share the default connections and bytes.
    """

    def __init__(
        self, operation: SampleSource, files: Sequence[SourceFile], heads: Heads, workers: int = 1
    ) -> None:
        self.pid = os.getpid()
        self._operation, self._files, self._heads = operation, files, heads
        self._opened = Opened(operation)
        self._width = operation.concurrency or max(LEAST_WIDTH, WIDTH // workers)
        self._ahead_bytes = operation.ahead_bytes or AHEAD_BYTES // workers
        self._places = list(dict.fromkeys(file.place for file in files))
        self._of: dict[str, RemoteRecords] = {}  # by place
        self._epoch: Epoch | None = None

    def plan(self, groups: Iterable[Sequence[int]]) -> StoredPlan:
        """Plan the reading of groups of samples; see `RemoteRecords.plan`."""
        if len(self._places) == 1:
            place = self._places[0]
            plan = self._records(place).plan(groups)
            return StoredPlan(plan.numbers, {place: plan})
        numbers, of_place = list[int](), dict[str, list[list[int]]]()
        for group in groups:
            numbers += group
            own: dict[str, list[int]] = {}
            for number in group:
                own.setdefault(self._files[self._heads.find(number)[0]].place, []).append(number)
            for place, some in own.items():
                of_place.setdefault(place, []).append(some)
        return StoredPlan(
            numbers, {place: self._records(place).plan(some) for place, some in of_place.items()}
        )

    def read(self, plan: StoredPlan, coming: Sequence[StoredPlan] = (), *, keep: int = 0) -> list[Content]:
        """See `RemoteRecords.read`."""
        got: dict[int, Content] = {}
        for place, own in plan.places.items():
            ahead = [one.places[place] for one in coming if place in one.places]
            found = self._records(place).read(own, ahead, keep=keep)
            if len(plan.places) == 1:
                return found
            got.update(zip(own.numbers, found, strict=True))
        return [got[number] for number in plan.numbers]

    def _records(self, place: str) -> RemoteRecords:
        records = self._of.get(place)
        if records is None:
            store, control = self._opened.open(place).store, self._opened.control

            def fetcher_of(pieces: Callable[[int], list[Piece]]) -> PieceReader:
                if self._operation.cache is not None:
                    return CachedFetcher(cache_of(self._operation, place), pieces)
                return Fetcher(
                    store, control, pieces, verify="none", width=self._width, ahead_bytes=self._ahead_bytes
                )

            compare = self._operation.verify != "none"
            records = self._of[place] = RemoteRecords(self._heads, self._files, fetcher_of, compare=compare)
            if self._epoch is not None:
                records.note_epoch(self._epoch)
        return records

    @property
    def counts(self) -> Counts:
        """Counts of what was read: samples, and bytes as ranges contain them."""
        return Counts.of(records.counts for records in self._of.values())

    @property
    def timeline(self) -> Timeline:
        """The times at which the process waited for bytes."""
        found = [records.timeline for records in self._of.values()]
        return max(found, key=lambda timeline: len(timeline.waited), default=Timeline())

    def note_epoch(self, epoch: Epoch) -> None:
        """See `PieceReader.note_epoch`."""
        self._epoch = epoch
        for records in self._of.values():
            records.note_epoch(epoch)

    def drop_ahead(self) -> None:
        """Drop the samples that were fetched ahead."""
        for records in self._of.values():
            records.drop_ahead()

    def close(self) -> None:
        """Stop all work in progress."""
        if os.getpid() != self.pid:  # a forked child has a copy, whose connections belong to the parent
            return
        for records in self._of.values():
            records.close()
        self._opened.control.stop()
