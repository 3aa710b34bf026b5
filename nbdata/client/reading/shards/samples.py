"""The samples in tar shards; `nbdata.samples` makes them."""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import Any

from nbdata.client.opened import Opened
from nbdata.client.reading.cached import CachedFetcher, cache_of
from nbdata.client.reading.changed import advising_on_changes
from nbdata.client.reading.overview import READERS
from nbdata.client.reading.passing import Pass
from nbdata.client.reading.recipe import refuse_secrets
from nbdata.client.reading.samples import Samples
from nbdata.client.reading.saved_index import fetch_of_shards, save_of_shards
from nbdata.client.reading.shards.deal import shares_of
from nbdata.client.reading.shards.stream import Limits, Order, pass_of
from nbdata.client.reading.shares import Shares
from nbdata.client.reading.source import Source
from nbdata.disk import make_folders
from nbdata.formats.sample_index import SampleIndex
from nbdata.formats.shards import LeftOut
from nbdata.operation import slots
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.fetcher import AHEAD_BYTES, LEAST_WIDTH, WIDTH, Fetcher
from nbdata.reading.pieces import Piece, PieceReader
from nbdata.reading.shards.content import Bodies
from nbdata.reading.shards.indexed import IndexedShards
from nbdata.reading.shards.indexing import index_of, index_path, known_index
from nbdata.reading.shards.listing import fingerprint_elsewhere
from nbdata.reading.source_file import SourceFile, fingerprint_of
from nbdata.reading.timeline import Timeline
from nbdata.redaction import printable, redacted
from nbdata.rendering import dim
from nbdata.sizes import counted, format_size
from nbdata.stores.base import Store
from nbdata.threads import ForkLock
from nbdata.verbs.samples import SampleSource

__all__ = ["ShardSamples"]

_NO_INDEX = "not indexed yet: len(samples) and samples[0] read all shards once"
# Most idle `Bodies`, with their connections, that a process keeps for its next passes.
_KEPT = 2


class _Reading:
    """The open stores and the counts of one process."""

    def __init__(self, operation: SampleSource) -> None:
        self.pid = os.getpid()
        self.opened = Opened(operation)
        self.stores: dict[str, Store] = {}  # by place
        self.bodies: list[Bodies] = []  # all that were ever made
        self.idle: list[Bodies] = []
        self.indexed: dict[str, IndexedShards] = {}  # by place
        self.epoch: Epoch | None = None
        self.counts, self.left_out = Counts(), LeftOut()

    def store_of(self, shard: SourceFile) -> Store:
        """Return the store of a shard."""
        found = self.stores.get(shard.place)
        if found is None:
            found = self.stores[shard.place] = self.opened.open(shard.place).store
        return found


class ShardSamples(Samples):
    """The samples in some shards.

    Parameters
    ----------
    operation : SampleSource
    shards : list of SourceFile
    quiet : bool
        Whether to hide the progress of making the index.
    """

    def __init__(self, operation: SampleSource, shards: list[SourceFile], *, quiet: bool = True) -> None:
        self.operation, self._shards, self._quiet = operation, shards, quiet
        self._begin()

    def _begin(self) -> None:
        self._lock, self._indexing = ForkLock(), ForkLock()
        self._workers = 1
        self._reading: _Reading | None = None
        self._fingerprint = fingerprint_of(self._shards)
        # An index from beside the shards may belong to a copy of them at another place.
        taken = self.operation.refresh == "never"
        self._elsewhere = fingerprint_elsewhere(self._shards) if taken else ""
        self._index: SampleIndex | None = None

    def __getstate__(self) -> dict[str, Any]:
        refuse_secrets(self.operation)
        return {
            "operation": self.operation,
            "shards": self._shards,
            "index": None if self._index is None else self._index.path,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.operation, self._shards = state["operation"], state["shards"]
        self._quiet = True
        self._begin()
        if state["index"] is not None:
            self._index = known_index(state["index"], self._fingerprint, self._elsewhere)

    @property
    def shards(self) -> list[SourceFile]:
        """The shards in the order of the source."""
        return list(self._shards)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    # -- streaming ----------------------------------------------------------------------------------

    def stream(
        self,
        *,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        part: str | None = None,
        resume: Any = None,
    ) -> Pass:
        """Yield all samples one after the other, shard by shard, fetched ahead. No index is needed.

        Parameters
        ----------
        shuffle : bool
            Read the shards in a random order that depends only on `seed` and `epoch`. Samples are drawn from a few
            open shards in turn, each with a window (``window`` of `nbdata.samples`).
        seed, epoch : int
        part : str, optional
            ``"I/N"``: every N-th shard of that order, starting with the I-th (from 0); the selection differs from
            epoch to epoch. With more parts than shards, parts that share a shard take its samples in turn.
        resume : dict or sequence of dict, optional
            The result of `Pass.state_dict` for the same part: the pass resumes there, with the same sequence. Or
            the states of all parts of the epoch: then this part, of any number of parts, reads its share of the
            remaining samples.

        Returns
        -------
        Pass
            An iterator with `state_dict` and `close`.

        Raises
        ------
        BadOption
            If `part` is not valid, or `resume` belongs to other shards or another order, or lacks a part.
        BadArchive
            While reading, if a shard is damaged or truncated, or asks for more memory than ``max_sample`` or
            ``max_window`` of `nbdata.samples` allow. Samples before that place were given out.
        ChecksumMismatch
            At the end of a shard, if its bytes are wrong. Its samples were given out, except the last ones.
        SourceChanged
            If a shard was changed or deleted since it was listed.
        """
        reading = self._read()
        bodies = self._take_bodies(reading)

        def ended() -> None:
            bodies.rest()
            if len(reading.idle) < _KEPT and self._reading is reading:
                reading.idle.append(bodies)
            else:
                bodies.close()

        order = Order(shuffle, seed, epoch, self.operation.window)
        try:
            return pass_of(
                self._shards, bodies, order, fingerprint=self._fingerprint, part=part, resume=resume,
                counts=reading.counts, left_out=reading.left_out, verify=bodies.verify,
                limits=Limits(self.operation.max_window, self.operation.max_sample), ended=ended,
            )  # fmt: skip
        except BaseException:
            ended()
            raise

    def shares(self, parts: int, *, shuffle: bool = False, seed: int = 0, epoch: int = 0) -> Shares:
        """Return how much of an epoch each of so many parts of `stream` has: samples, if their numbers are known."""
        order = Order(shuffle, seed, epoch, self.operation.window)
        return shares_of(parts, order.shards(len(self._shards)), self._counts())

    def _counts(self) -> list[int] | None:
        """Return the samples of each shard, if the JSON index that named them or the index of samples tells them."""
        told = [shard.promised.samples if shard.promised else None for shard in self._shards]
        if None not in told:
            return [count for count in told if count is not None]
        index = self._index or self._known()
        if index is None:
            return None
        ends = [
            bisect_right(range(len(index)), number, key=lambda sample: index.members(sample)[0].shard)
            for number in range(-1, len(self._shards))
        ]
        return [end - begin for begin, end in itertools.pairwise(ends)]

    def _read(self) -> _Reading:
        with self._lock:
            if self._reading is None or self._reading.pid != os.getpid():
                self._reading = _Reading(self.operation)
                READERS.add(self)
            return self._reading

    def _take_bodies(self, reading: _Reading) -> Bodies:
        with self._lock:
            if reading.idle:
                return reading.idle.pop()
        width, ahead_bytes = self._bounds()
        bodies = Bodies(
            reading.opened.control, self._shards, reading.store_of,
            verify=self.operation.verify, width=width, ahead_bytes=ahead_bytes,
            cached=self._cached if self.operation.cache is not None else None,
        )  # fmt: skip
        reading.bodies.append(bodies)
        return bodies

    # -- by number ------------------------------------------------------------------------------------

    @property
    def index(self) -> SampleIndex:
        """The index of all samples; made at first use by reading all shards once.

        Raises
        ------
        BadOption
            If a shard is compressed.
        """
        with self._indexing:
            if self._index is None:
                self._index = self._known() if self.operation.refresh != "always" else None
            if self._index is None and self.operation.refresh == "never":
                make_folders(os.path.dirname(self._path()), 0o700)
                self._index = fetch_of_shards(self.operation, self._path(), self._shards)
            if self._index is None:
                self._index = self._built()
            return self._index

    def _path(self) -> str:
        return index_path(self.operation, self._read().opened)

    def _known(self) -> SampleIndex | None:
        return known_index(self._path(), self._fingerprint, self._elsewhere)

    def save_index(self) -> str:
        """Store the index beside the shards, as ``_nbdata-index.….idx``, and return its URL; makes it first if needed.

        A user without an index of the same shards who sets ``refresh="never"`` then uses it, and does not read the
        shards. This also works for a copy of the shards with the same names and ETags.

        Raises
        ------
        BadOption
            If a shard is compressed.
        NbdataError
            If the place is not writable.
        """
        return save_of_shards(self.operation, self.index)

    def _built(self) -> SampleIndex:
        reading, display = self._read(), slots.display()
        bodies = self._take_bodies(reading)

        def told(text: str) -> None:
            if not self._quiet:
                display.tell(f"{self.operation.verb}: {text}")

        try:
            return index_of(
                reading.opened.context,
                self._path(),
                self._shards,
                bodies,
                fingerprint=self._fingerprint,
                progress=told,
            )
        finally:
            display.tell("")
            bodies.close()

    def __len__(self) -> int:
        return len(self.index)

    def key(self, number: int) -> str:
        return self.index.key(self._checked(number))

    def size(self, number: int) -> int:
        """Return the bytes of a sample."""
        return self.index.size(number)

    def _parts(self, number: int) -> list[tuple[Source, int]]:
        return [(self, number)]

    def _made(self, number: int, parts: list[dict[str, Any]]) -> Any:
        return parts[0]

    def read(self, numbers: list[int], coming: list[int], keep: int) -> list[dict[str, Any]]:
        """Return samples by their numbers, each as a new dict."""
        wanted, ahead = self._by_store(numbers), self._by_store(coming)
        got: dict[int, dict[str, Any]] = {}
        with advising_on_changes():
            for source, own in wanted.items():
                got.update(zip(own, source.read(own, ahead.get(source, []), keep), strict=True))
        return [dict(got[number]) for number in numbers]

    def _by_store(self, numbers: list[int]) -> dict[IndexedShards, list[int]]:
        index, reading = self.index, self._read()
        found: dict[IndexedShards, list[int]] = {}
        for number in numbers:
            place = self._shards[index.members(number)[0].shard].place
            source = reading.indexed.get(place)
            if source is None:
                source = reading.indexed[place] = self._indexed(reading, index, place)
                if reading.epoch is not None:
                    source.note_epoch(reading.epoch)
            found.setdefault(source, []).append(number)
        return found

    def _indexed(self, reading: _Reading, index: SampleIndex, place: str) -> IndexedShards:
        store = reading.opened.open(place).store
        width, ahead_bytes = self._bounds()

        def fetcher_of(pieces: Callable[[int], list[Piece]]) -> PieceReader:
            if self.operation.cache is not None:
                return CachedFetcher(cache_of(self.operation, place), pieces)
            return Fetcher(
                store, reading.opened.control, pieces, verify="none", width=width, ahead_bytes=ahead_bytes
            )

        return IndexedShards(index, self._shards, fetcher_of, self.operation.verify)

    def _cached(self, shard: SourceFile, pieces: Callable[[int], list[Piece]]) -> PieceReader:
        """Return a reader of a shard, and of the others at its place, through the cache."""
        return CachedFetcher(cache_of(self.operation, shard.place), pieces)

    def _bounds(self) -> tuple[int, int]:
        """Return the most requests at a time, and the most bytes fetched ahead."""
        operation = self.operation
        return (
            operation.concurrency or max(LEAST_WIDTH, WIDTH // self._workers),
            operation.ahead_bytes or AHEAD_BYTES // self._workers,
        )

    # -- statistics -----------------------------------------------------------------------------------

    @property
    def sources(self) -> list[Source]:
        return [self]

    def _mine(self) -> _Reading | None:
        """Return the open stores of this process."""
        reading = self._reading
        return reading if reading is not None and reading.pid == os.getpid() else None

    @property
    def counts(self) -> Counts:
        """The counts of what this process has read so far."""
        reading = self._mine()
        if reading is None:
            return Counts()
        read = Counts.of(bodies.counts for bodies in reading.bodies)
        streamed = replace(reading.counts, waited=read.waited, cached=read.cached, fetched=read.fetched)
        return Counts.of([streamed, *(source.counts for source in reading.indexed.values())])

    @property
    def timeline(self) -> Timeline:
        """The times at which this process waited."""
        reading = self._mine()
        found = [] if reading is None else [
            *(source.timeline for source in reading.indexed.values()),
            *(bodies.timeline for bodies in reading.bodies),
        ]  # fmt: skip
        return max(found, key=lambda timeline: len(timeline.waited), default=Timeline())

    @property
    def left_out(self) -> tuple[int, list[str]]:
        """The number of members read so far that belong to no sample, and the first of them."""
        if self._index is not None:
            return self._index.about["left_out"], self._index.about["left_out_names"]
        reading = self._mine()
        return (0, []) if reading is None else (reading.left_out.count, list(reading.left_out.names))

    @property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Per field, the number of samples that have it, and its bytes."""
        return {name: (count, size) for name, (count, size) in self.index.counts.items()}

    def share(self, workers: int) -> None:
        self._workers = max(1, workers)

    def note_epoch(self, epoch: Epoch) -> None:
        if self.operation.cache is not None:
            reading = self._read()
            reading.epoch = epoch
            for source in reading.indexed.values():
                source.note_epoch(epoch)

    def drop_ahead(self) -> None:
        reading = self._mine()
        for source in () if reading is None else reading.indexed.values():
            source.drop_ahead()

    def close(self) -> None:
        reading, self._reading = self._mine(), None
        if reading is not None:
            reading.opened.control.stop()
            for bodies in reading.bodies:
                bodies.close()
            for source in reading.indexed.values():
                source.close()

    def text(self) -> str:
        """Describe the samples in a few lines; for shards without an index, only their number and size."""
        return super().text() if self._has_index() else f"{self!r}\n  {_NO_INDEX}"

    def to_dict(self) -> dict[str, Any]:
        """Describe the samples as data."""
        told = {"shards": len(self._shards), "shard_bytes": self._bytes()}
        return {**told, **super().to_dict()} if self._has_index() else told

    def _repr_html_(self) -> str:
        if self._has_index():
            return super()._repr_html_()
        return f"<div><b>{escape(repr(self))}</b></div>" + dim(escape(_NO_INDEX))

    def _has_index(self) -> bool:
        if self._index is None and self.operation.refresh != "always":
            self._index = self._known()
        return self._index is not None

    def _bytes(self) -> int:
        return sum(max(0, shard.size) for shard in self._shards)

    def __repr__(self) -> str:
        places = self.operation.sources
        told = printable(redacted(places[0])) + (f" and {len(places) - 1:,} more" if len(places) > 1 else "")
        shards = f"{counted(len(self._shards), 'shards')} of {told}: {format_size(self._bytes())}"
        return (
            f"<{shards}>" if self._index is None else f"<{counted(len(self._index), 'samples')} in {shards}>"
        )
