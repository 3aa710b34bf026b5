"""The samples in FFRecord files; `nbdata.samples` makes them."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from nbdata.client.reading.orders import part_of
from nbdata.client.reading.overview import READERS
from nbdata.client.reading.passing import Pass, refuse_other
from nbdata.client.reading.recipe import refuse_secrets
from nbdata.client.reading.records.opened import Headers, StoredRecords, headers_of
from nbdata.client.reading.samples import Samples
from nbdata.client.reading.source import Source
from nbdata.errors import BadOption
from nbdata.formats.block_order import BlockOrder
from nbdata.reading.counts import Counts
from nbdata.reading.pieces import Content
from nbdata.reading.records.files import RecordFile, key_of_record
from nbdata.reading.records.local import LocalRecords
from nbdata.reading.timeline import Timeline
from nbdata.redaction import redacted
from nbdata.sizes import counted, format_size
from nbdata.threads import ForkLock
from nbdata.verbs.samples import SampleSource

__all__ = ["RecordSamples"]

# The only field of a sample.
_FIELD = "bin"
# Bytes of neighbouring samples that a stream reads at once, and how many such reads it knows ahead.
_BLOCK, _KNOWN_AHEAD = 1 << 20, 16
# Most bytes of samples that are shuffled together; `window` may set fewer.
_WINDOW = 32 << 20
_STATE = 1


class RecordSamples(Samples):
    """The samples of some FFRecord files.

    The key is the file's name and the sample's number in it, as ``PART_00003/00000017``; the only field is ``bin``.

    Parameters
    ----------
    operation : SampleSource
    files : list of RecordFile
    headers : LocalRecords or Headers
    """

    def __init__(
        self, operation: SampleSource, files: list[RecordFile], headers: LocalRecords | Headers
    ) -> None:
        self.operation, self._files = operation, files
        self._begin()
        self._use(headers)

    def _begin(self) -> None:
        self._lock = ForkLock()
        self._workers = 1
        self._stored: StoredRecords | None = None
        self._closing: weakref.finalize[Any, Any] | None = None
        self._counted = Counts()
        self._timeline, self._pid, self._began = Timeline(), os.getpid(), 0.0

    def _use(self, headers: LocalRecords | Headers) -> None:
        self._heads = headers.heads
        self._local = headers if isinstance(headers, LocalRecords) else None
        self._fingerprint = self._heads.fingerprint

    def __getstate__(self) -> dict[str, Any]:
        refuse_secrets(self.operation)
        return {"operation": self.operation, "files": self._files, "fingerprint": self._fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.operation, self._files = state["operation"], state["files"]
        self._begin()
        self._use(headers_of(self.operation, self._files, check=False, fingerprint=state["fingerprint"]))

    @property
    def files(self) -> list[RecordFile]:
        """The files in their order."""
        return list(self._files)

    def __len__(self) -> int:
        return self._heads.count

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def key(self, number: int) -> str:
        file, own = self._heads.find(self._checked(number))
        return key_of_record(self._files[file], own)

    def size(self, number: int) -> int:
        """Return the bytes of a sample."""
        return self._heads.size(number)

    def _parts(self, number: int) -> list[tuple[Source, int]]:
        return [(self, number)]

    def _made(self, number: int, parts: list[dict[str, Any]]) -> Any:
        return parts[0]

    # -- reading --------------------------------------------------------------------------------------

    def fetch(self, indices: Sequence[int], ahead: Iterable[Sequence[int]] = ()) -> list[Any]:
        # As `Samples.fetch`, but keeps batches together, so that neighbours in one are read as one range.
        checked = self._checked
        coming = [] if self._local is not None else [[checked(index) for index in batch] for batch in ahead]
        return self._read(list(map(checked, indices)), coming)

    def read(self, numbers: list[int], coming: list[int], keep: int) -> list[dict[str, Any]]:
        """Return samples by their numbers, each as a new dict."""
        return self._read(numbers, [coming], keep=keep, join=False)

    def _read(
        self, numbers: list[int], coming: list[list[int]], *, keep: int = 0, join: bool = True
    ) -> list[dict[str, Any]]:
        began = time.monotonic()
        contents: Sequence[Content] = (
            self._local.read(numbers)
            if self._local is not None
            else self._reading().read(numbers, coming, keep=keep, join=join)
        )
        self._count(contents, began)
        find, files, deserialize = self._heads.find, self._files, self.operation.deserialize
        found: list[dict[str, Any]] = []
        for number, data in zip(numbers, contents, strict=True):
            file, own = find(number)
            one = files[file]
            sample = {"__key__": key_of_record(one, own), "__url__": one.url}
            made = data if deserialize is None else deserialize(data)
            found.append({**sample, **made} if isinstance(made, dict) else {**sample, _FIELD: made})
        return found

    def _count(self, contents: Sequence[Content], began: float) -> None:
        now = time.monotonic()
        with self._lock:
            if self._pid != os.getpid():
                self._counted, self._timeline, self._pid, self._began = Counts(), Timeline(), os.getpid(), 0.0
            if not self._began:
                self._began = began
                READERS.add(self)
            self._counted.samples += len(contents)
            self._counted.bytes += sum(map(len, contents))
            self._counted.waited += now - began
            self._counted.seconds = now - self._began
            self._timeline.add(began - self._began, now - self._began)

    def _reading(self) -> StoredRecords:
        with self._lock:
            if self._stored is None or self._stored.pid != os.getpid():
                self._stored = StoredRecords(self.operation, self._files, self._heads, self._workers)
                self._closing = weakref.finalize(self, self._stored.close)
            return self._stored

    # -- streaming ------------------------------------------------------------------------------------

    def stream(
        self,
        *,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        part: str | None = None,
        resume: Any = None,
    ) -> Pass:
        """Yield all samples one after the other, in an order that allows neighbours to be read together.

        Parameters
        ----------
        shuffle : bool
            Shuffle blocks of neighbours of about 1 MiB in a random order that depends only on `seed` and `epoch`,
            and samples within a window (``window`` of `nbdata.samples`, at most 32 MiB of samples). For an order in
            which any sample may follow any other, use `batch_sampler` or ``SampleLoader``.
        seed, epoch : int
        part : str, optional
            ``"I/N"``: the I-th of N runs of that order, from 0; their lengths differ by at most one.
        resume : dict, optional
            The result of `Pass.state_dict` for the same part: the pass resumes there.

        Returns
        -------
        Pass
            An iterator with `state_dict` and `close`.

        Raises
        ------
        BadOption
            If `part` is not valid, or `resume` belongs to other samples, another order or another part.
        """
        number, parts = part_of(part)
        about = {
            "version": _STATE, "samples": self.fingerprint, "shuffle": shuffle, "seed": seed, "epoch": epoch,
            "window": self.operation.window, "part": part or "0/1",
        }  # fmt: skip
        given = 0
        if resume is not None:
            refuse_other(resume, about)
            given = int(resume["given"])
        mean = max(1, self._heads.bytes // max(1, len(self)))
        block = max(1, _BLOCK // mean)
        if not shuffle:
            begin, end = len(self) * number // parts, len(self) * (number + 1) // parts
            chunks = (
                list(range(at, min(at + block, end)))
                for at in range(begin + given, end, block)
            )  # fmt: skip
            return self._passed(chunks, _KNOWN_AHEAD, about, given)
        window = min(self.operation.window, max(1, _WINDOW // mean))
        order = BlockOrder(
            len(self), seed=seed, epoch=epoch, block=min(block, window), window=window, part=(number, parts)
        )
        return self._passed(_windows(order, given), 1, about, given)

    # -- statistics -----------------------------------------------------------------------------------

    @property
    def sources(self) -> list[Source]:
        return [self]

    @property
    def counts(self) -> Counts:
        """The counts of what this process has read so far."""
        if self._pid != os.getpid():
            return Counts()
        read = Counts() if self._stored is None else self._stored.counts
        return replace(self._counted, cached=read.cached, fetched=read.fetched)

    @property
    def timeline(self) -> Timeline:
        """The times at which this process waited."""
        return self._timeline if self._pid == os.getpid() else Timeline()

    @property
    def left_out(self) -> tuple[int, list[str]]:
        """Empty: all samples belong to the files."""
        return 0, []

    @property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Per field, the number of samples that have it, and its bytes."""
        return {_FIELD: (len(self), self._heads.bytes)}

    def save_index(self) -> str:
        """Raise BadOption: FFRecord files are their own index."""
        raise BadOption("FFRecord files need no index: their headers say where each sample lies")

    def share(self, workers: int) -> None:
        self._workers = max(1, workers)

    def drop_ahead(self) -> None:
        if self._stored is not None and self._stored.pid == os.getpid():
            self._stored.drop_ahead()

    def close(self) -> None:
        closing, self._closing, self._stored = self._closing, None, None
        if closing is not None:
            closing()

    def __repr__(self) -> str:
        places = self.operation.sources
        told = redacted(places[0]) + (f" and {len(places) - 1:,} more" if len(places) > 1 else "")
        files = f"{len(self._files):,} FFRecord file{'s' * (len(self._files) != 1)}"
        return f"<{counted(len(self), 'samples')} in {files} of {told}: {format_size(self._heads.bytes)}>"


def _windows(order: BlockOrder, given: int) -> Iterator[list[int]]:
    """Yield the numbers of an order, one window at a time, after the first `given`."""
    first = given - given % order.window
    for begin in range(first, len(order), order.window):
        end = min(begin + order.window, len(order))
        yield list(itertools.islice(map(order.__getitem__, range(begin, end)), max(0, given - begin), None))
