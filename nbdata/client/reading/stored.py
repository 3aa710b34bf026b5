"""The samples of one place in a store, with their index; `nbdata.samples` makes them."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nbdata.client.opened import Opened
from nbdata.client.reading.cached import CachedFetcher, cache_of
from nbdata.client.reading.changed import advising_on_changes
from nbdata.client.reading.overview import READERS
from nbdata.client.reading.recipe import refuse_secrets
from nbdata.client.reading.samples import Samples
from nbdata.client.reading.saved_index import save
from nbdata.client.reading.source import Source
from nbdata.errors import NbdataError
from nbdata.formats.sample_index import SampleIndex
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.fetcher import AHEAD_BYTES, LEAST_WIDTH, WIDTH, Fetcher
from nbdata.reading.loose import Found, known_index
from nbdata.reading.pieces import Content, Piece
from nbdata.reading.timeline import Timeline
from nbdata.redaction import printable, redacted
from nbdata.sizes import counted, format_size
from nbdata.stores.base import ObjectInfo
from nbdata.threads import ForkLock
from nbdata.transfer.sources import folder_part
from nbdata.verbs.samples import SampleSource

__all__ = ["StoredSamples"]


class StoredSamples(Samples):
    """The samples of one source, with their index.

    Parameters
    ----------
    operation : SampleSource
    found : Found
        The index, and the place that its paths are relative to.
    """

    def __init__(self, operation: SampleSource, found: Found) -> None:
        self.operation = operation
        self._index, self._prefix = found.index, found.prefix
        self._begin()

    def _begin(self) -> None:
        self._lock = ForkLock()
        self._workers = 1
        self._fetcher: Fetcher | CachedFetcher | None = None
        self._pid = 0
        self._closing: Callable[[], object] | None = None
        place = folder_part(self.operation.place)
        self._place = redacted(place).rstrip("/") + "/"

    def __getstate__(self) -> dict[str, Any]:
        refuse_secrets(self.operation)
        # In another process the index alone defines the samples.
        return {
            "operation": replace(self.operation, by="sample"),
            "path": self._index.path,
            "fingerprint": self.fingerprint,
            "prefix": self._prefix,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.operation = state["operation"]
        known = known_index(state["path"])
        # The same place may have been indexed anew since, with other numbers for its samples.
        if known is None or known.about["listing"] != state["fingerprint"]:
            raise NbdataError(
                "the index of these samples is gone, or is of others by now",
                path=state["path"],
                remedy="Make them anew with nbdata.samples",
            )
        self._index, self._prefix = known, state["prefix"]
        self._begin()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def sources(self) -> list[Source]:
        return [self]

    @property
    def index(self) -> SampleIndex:
        """The index of the samples."""
        return self._index

    @property
    def counts(self) -> Counts:
        """The counts of what this process has read so far."""
        return self._fetcher.counts if self._fetcher is not None and self._pid == os.getpid() else Counts()

    @property
    def timeline(self) -> Timeline:
        """The times at which this process waited."""
        return (
            self._fetcher.timeline if self._fetcher is not None and self._pid == os.getpid() else Timeline()
        )

    def size(self, number: int) -> int:
        """Return the bytes of a sample, as far as the store gave sizes."""
        return self._index.size(number)

    @property
    def left_out(self) -> tuple[int, list[str]]:
        """The number of files of the source that belong to no sample, and the first of them."""
        return self._index.about["left_out"], self._index.about["left_out_names"]

    @property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Per field, the number of samples that have it, and its bytes."""
        return {name: (count, size) for name, (count, size) in self._index.counts.items()}

    @property
    def fingerprint(self) -> str:
        return str(self._index.about["listing"])

    def key(self, number: int) -> str:
        return self._index.key(self._checked(number))

    def _parts(self, number: int) -> list[tuple[Source, int]]:
        return [(self, number)]

    def _made(self, number: int, parts: list[dict[str, Any]]) -> Any:
        return parts[0]

    def fetch(self, indices: Sequence[int], ahead: Iterable[Sequence[int]] = ()) -> list[Any]:
        # As `Samples.fetch`, whose detour over parts takes up to a tenth of the time of a small sample.
        count = len(self)
        coming = [index for index in itertools.chain.from_iterable(ahead) if 0 <= index < count]
        return self.read(list(map(self._checked, indices)), coming, 0)

    def read(self, numbers: list[int], coming: list[int], keep: int) -> list[dict[str, Any]]:
        """Return samples by their numbers, each as a new dict."""
        with advising_on_changes():
            contents = self._reader().fetch(numbers, coming, keep=keep)
        return [self._sample(number, fields) for number, fields in zip(numbers, contents, strict=True)]

    def _sample(self, number: int, contents: list[Content]) -> dict[str, Any]:
        objects = self._index.objects(number)
        sample: dict[str, Any] = {"__key__": self._index.key(number), "__url__": self._url(objects[0].path)}
        for one, data in zip(objects, contents, strict=True):
            sample[one.field] = data
        return sample

    def _url(self, path: str) -> str:
        return self._place + path

    def _reader(self) -> Fetcher | CachedFetcher:
        """Return the fetcher of this process."""
        with self._lock:
            if self._fetcher is None or self._pid != os.getpid():
                self._fetcher, stop = self._cached() if self.operation.cache is not None else self._straight()
                self._pid = os.getpid()
                self._closing = weakref.finalize(self, _close, self._fetcher, stop, self._pid)
                READERS.add(self)
            return self._fetcher

    def _straight(self) -> tuple[Fetcher, Callable[[], object]]:
        """Make a fetcher to memory, and the function that stops it."""
        opened, operation = Opened(self.operation), self.operation
        fetcher = Fetcher(
            opened.open(folder_part(operation.place)).store,
            opened.control,
            partial(_pieces, self._index, self._prefix),
            verify=operation.verify,
            width=operation.concurrency or max(LEAST_WIDTH, WIDTH // self._workers),
            ahead_bytes=operation.ahead_bytes or AHEAD_BYTES // self._workers,
        )
        return fetcher, opened.control.stop

    def _cached(self) -> tuple[CachedFetcher, Callable[[], object]]:
        """Make a reader through a cache on the disk, and the function that stops it."""
        cache = cache_of(self.operation, self.operation.place)
        return CachedFetcher(cache, partial(_pieces, self._index, self._prefix)), lambda: None

    def save_index(self) -> str:
        """Store the index beside the data, as ``_nbdata-index.….idx``, and return its URL.

        A user without an index of the same source and selection who sets ``refresh="never"`` then uses it, and lists
        nothing. Listings of samples skip such files.

        Raises
        ------
        NbdataError
            If the place is not writable.
        """
        return save(self.operation, self._index)

    def share(self, workers: int) -> None:
        self._workers = max(1, workers)

    def note_epoch(self, epoch: Epoch) -> None:
        if self.operation.cache is not None:
            self._reader().note_epoch(epoch)

    def drop_ahead(self) -> None:
        if self._fetcher is not None and self._pid == os.getpid():
            self._fetcher.drop_ahead()

    def close(self) -> None:
        closing, self._closing = self._closing, None
        if closing is not None:
            closing()
        self._fetcher = None

    def __repr__(self) -> str:
        fields = ", ".join(self._index.fields[:5]) + (", …" if len(self._index.fields) > 5 else "")
        size = format_size(self._index.bytes)
        text = f"{redacted(self.operation.place)}: {fields}"
        return f"<{counted(len(self), 'samples')} of {printable(text)}; {size}>"


def _pieces(index: SampleIndex, prefix: str, number: int) -> list[Piece]:
    """Return the objects of a sample; a function, so that a fetcher keeps no samples alive."""
    return [
        Piece(ObjectInfo(prefix + one.path, one.size, one.etag, one.modified, one.version))
        for one in index.objects(number)
    ]


def _close(fetcher: Fetcher | CachedFetcher, stop: Callable[[], object], pid: int) -> None:
    if os.getpid() == pid:  # a forked child has a copy, whose connections belong to the parent
        fetcher.close()
        stop()
