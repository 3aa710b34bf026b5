"""What samples with and without names in FFRecord files share: reading records in blocks of neighbours, and streams."""

from __future__ import annotations

import abc
import itertools
import os
import time
import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nbdata.client.reading.changed import advising_on_changes
from nbdata.client.reading.epochs import epoch_of_stream, telling
from nbdata.client.reading.orders import AheadBatches, part_of
from nbdata.client.reading.overview import READERS
from nbdata.client.reading.passing import Pass, given_of
from nbdata.client.reading.recipe import refuse_secrets
from nbdata.client.reading.records.opened import Headers, StoredPlan, StoredRecords, headers_of
from nbdata.client.reading.samples import Samples
from nbdata.client.reading.shares import Shares
from nbdata.client.reading.source import Source
from nbdata.errors import ChecksumMismatch
from nbdata.formats.block_order import BlockOrder
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.pieces import Content
from nbdata.reading.records.local import LocalRecords
from nbdata.reading.records.runs import is_ascending, stretches
from nbdata.reading.source_file import SourceFile
from nbdata.reading.timeline import Timeline
from nbdata.threads import ForkLock
from nbdata.verbs.samples import SampleSource

__all__ = ["Chunk", "OfRecords"]

# Bytes of neighbouring samples that a stream in order reads at once, and the most samples; of 1, 2, 4 and 8 MiB a store
# at hand gave 30, 40, 52 and 58 thousand samples of 10 KB a second, and one 20 ms away 30, 36, 42 and 48.
_IN_ORDER, _MOST_SAMPLES = 4 << 20, 4096
# Bytes of neighbours that stay together in a shuffled stream: it decides the order.
_BLOCK = 1 << 20
# How many such reads a stream knows ahead, and the most bytes of them; at least one.
_KNOWN_AHEAD, _AHEAD_BYTES = 16, 32 << 20
# Most bytes of samples that are shuffled together; `window` may set fewer.
_WINDOW = 32 << 20
# Most bytes of one read: a block or window of samples far over the mean size is read in parts.
_MOST_BYTES = 64 << 20
_STATE = 1


class Chunk(NamedTuple):
    """Some samples that are read at once.

    Attributes
    ----------
    numbers : sequence of int
        As they are asked for.
    ranges : list of (int, int)
        Each of them once, as stretches of consecutive ones.
    records : list of int
        Their records, in the order of `ranges`.
    plan : StoredPlan or None
        How they are read from a store; None on the disk.
    """

    numbers: Sequence[int]
    ranges: list[tuple[int, int]]
    records: list[int]
    plan: StoredPlan | None


class OfRecords(Samples):
    """Samples that are records of FFRecord files.

    Parameters
    ----------
    operation : SampleSource
    files : list of SourceFile
    headers : LocalRecords or Headers
    """

    def __init__(
        self, operation: SampleSource, files: list[SourceFile], headers: LocalRecords | Headers
    ) -> None:
        self.operation, self._files = operation, files
        self._begin()
        self._use(headers)

    def _begin(self) -> None:
        self._lock = ForkLock()
        self._workers = 1
        self._stored: StoredRecords | None = None
        self._closing: weakref.finalize[Any, Any] | None = None
        self._coming: dict[tuple[int, ...], Chunk] = {}  # the announced batches
        self._counted = Counts()
        self._timeline, self._pid, self._began = Timeline(), os.getpid(), 0.0

    def _use(self, headers: LocalRecords | Headers) -> None:
        self._heads = headers.heads
        self._local = headers if isinstance(headers, LocalRecords) else None
        self._headers_fingerprint = self._heads.fingerprint

    def __getstate__(self) -> dict[str, Any]:
        refuse_secrets(self.operation)
        return {"operation": self.operation, "files": self._files, "fingerprint": self._headers_fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.operation, self._files = state["operation"], state["files"]
        self._begin()
        self._use(headers_of(self.operation, self._files, check=False, fingerprint=state["fingerprint"]))

    @property
    def files(self) -> list[SourceFile]:
        """The files in their order."""
        return list(self._files)

    # -- what a subclass says -------------------------------------------------------------------------

    @abc.abstractmethod
    def _records(self, ranges: Iterable[tuple[int, int]]) -> list[int]:
        """Return the records of stretches of consecutive samples, one sample after the other."""

    @abc.abstractmethod
    def _made_of(
        self, ranges: Iterable[tuple[int, int]], contents: Sequence[Content]
    ) -> list[dict[str, Any]]:
        """Make the samples of some stretches of their records."""

    def _deserialize(self, samples: list[dict[str, Any]]) -> None:
        """Make the values of samples; one that was asked for twice is there twice, for values may be changed."""

    @abc.abstractmethod
    def _bytes(self, first: int, end: int) -> int:
        """Return the bytes of consecutive samples."""

    def _told(self, error: ChecksumMismatch, chunk: Chunk) -> ChecksumMismatch:
        """Return the error of a record as that of its sample."""
        del chunk
        return error

    def _parts(self, number: int) -> list[tuple[Source, int]]:
        return [(self, number)]

    def _made(self, number: int, parts: list[dict[str, Any]]) -> Any:
        return parts[0]

    def size(self, number: int) -> int:
        """Return the bytes of a sample."""
        number = self._checked(number)
        return self._bytes(number, number + 1)

    # -- reading --------------------------------------------------------------------------------------

    def fetch(self, indices: Sequence[int], ahead: Iterable[Sequence[int]] = ()) -> list[Any]:
        # As `Samples.fetch`, but keeps batches together, so that neighbours in one are read as one range.
        checked, known, coming = self._checked, self._coming, dict[tuple[int, ...], Chunk]()
        for batch in ahead if self._local is None else ():
            numbers = tuple(map(checked, batch))
            coming[numbers] = known.get(numbers) or self._chunk(numbers)
        self._coming = coming
        asked = tuple(map(checked, indices))
        return self._read(known.get(asked) or self._chunk(asked), list(coming.values()))

    def read(self, numbers: list[int], coming: list[int], keep: int) -> list[dict[str, Any]]:
        """Return samples by their numbers, each as a new dict."""
        ahead = [self._chunk(coming, apart=True)] if coming and self._local is None else []
        return self._read(self._chunk(numbers, apart=True), ahead, keep)

    def _chunk(self, numbers: Sequence[int], *, apart: bool = False) -> Chunk:
        """Prepare to read samples at once; `apart`: so that any of them is found again if it was fetched ahead."""
        apart = apart and self._local is None
        if apart:
            ranges = [(number, number + 1) for number in dict.fromkeys(numbers)]
        else:
            ranges = stretches(numbers if is_ascending(numbers) else sorted(set(numbers)))
        records = self._records(ranges)
        plan = None
        if self._local is None:
            plan = self._reading().plan([self._records([one]) for one in ranges] if apart else [records])
        return Chunk(numbers, ranges, records, plan)

    def _read(self, chunk: Chunk, coming: Sequence[Chunk], keep: int = 0) -> list[dict[str, Any]]:
        began = time.monotonic()
        contents: Sequence[Content]
        try:
            if chunk.plan is None:
                assert self._local is not None
                contents = self._local.read(chunk.records)
            else:
                ahead = [one.plan for one in coming if one.plan is not None]
                with advising_on_changes():
                    contents = self._reading().read(chunk.plan, ahead, keep=keep)
        except ChecksumMismatch as error:
            raise self._told(error, chunk) from None
        self._count(len(chunk.numbers), sum(map(len, contents)), began)
        made = self._made_of(chunk.ranges, contents)
        numbers = chunk.numbers
        if not is_ascending(numbers):
            order = itertools.chain.from_iterable(range(first, end) for first, end in chunk.ranges)
            of_number = dict(zip(order, made, strict=True))
            if len(of_number) == len(numbers):
                made = [of_number[number] for number in numbers]
            else:
                made = [dict(of_number[number]) for number in numbers]
        self._deserialize(made)
        return made

    def _count(self, samples: int, size: int, began: float) -> None:
        now = time.monotonic()
        with self._lock:
            if self._pid != os.getpid():
                self._counted, self._timeline, self._pid, self._began = Counts(), Timeline(), os.getpid(), 0.0
            if not self._began:
                self._began = began
                READERS.add(self)
            self._counted.samples += samples
            self._counted.bytes += size
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
        resume : dict or sequence of dict, optional
            The result of `Pass.state_dict` for the same part: the pass resumes there. A list may also have the states
            of the other parts.

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
            "version": _STATE,
            "samples": self.fingerprint,
            "shuffle": shuffle,
            "seed": seed,
            "epoch": epoch,
            "window": self.operation.window,
            "part": part or "0/1",
        }
        given = 0
        if resume is not None:
            given = given_of(resume, about)
        mean = max(1, self._bytes(0, len(self)) // max(1, len(self)))
        if not shuffle:
            begin, end = len(self) * number // parts, len(self) * (number + 1) // parts
            some = max(1, min(_IN_ORDER // mean, _MOST_SAMPLES))
            chunks: Iterable[Sequence[int]] = (
                range(at, min(at + some, end)) for at in range(begin + given, end, some)
            )
            return self._passing(chunks, some * mean, about, given)
        window = min(self.operation.window, max(1, _WINDOW // mean))
        block = min(max(1, _BLOCK // mean), window)
        order = BlockOrder(
            len(self), seed=seed, epoch=epoch, block=block, window=window, part=(number, parts)
        )
        return self._passing(_windows(order, given), window * mean, about, given)

    def shares(self, parts: int, *, shuffle: bool = False, seed: int = 0, epoch: int = 0) -> Shares:
        """Return how many samples of an epoch each of so many parts of `stream` has."""
        ends = [len(self) * number // parts for number in range(parts + 1)]
        return Shares([end - begin for begin, end in itertools.pairwise(ends)])

    def _passing(self, chunks: Iterable[Sequence[int]], size: int, about: dict[str, Any], given: int) -> Pass:
        """Make a pass that reads chunk by chunk, each of about `size` bytes, after `given` earlier samples."""
        known_ahead = max(1, min(_KNOWN_AHEAD, _AHEAD_BYTES // size)) if self._local is None else 0
        epoch = epoch_of_stream(about, whole=not given)

        def items() -> Generator[Any, None, None]:
            nonlocal given
            prepared = (self._chunk(some) for chunk in chunks for some in self._bounded(chunk))
            try:
                for chunk, ahead in telling(self.sources, epoch, AheadBatches.over(prepared, known_ahead)):
                    for sample in self._read(chunk, ahead):
                        given += 1
                        yield sample
            finally:  # the loop may have ended early
                self.drop_ahead()

        return Pass(items(), lambda: {**about, "given": given})

    def _bounded(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """Divide samples that are read at once, if they have too many bytes."""
        ordered = numbers if is_ascending(numbers) else sorted(numbers)
        if sum(self._bytes(first, end) for first, end in stretches(ordered)) <= _MOST_BYTES:
            yield numbers
            return
        begin = size = 0
        for at, number in enumerate(numbers):
            own = self.size(number)
            if size + own > _MOST_BYTES and at > begin:
                yield numbers[begin:at]
                begin, size = at, 0
            size += own
        yield numbers[begin:]

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
    @abc.abstractmethod
    def left_out(self) -> tuple[int, list[str]]:
        """The number of files that belong to no sample, and the first of them."""

    @property
    @abc.abstractmethod
    def fields(self) -> dict[str, tuple[int, int]]:
        """Per field, the number of samples that have it, and its bytes."""

    def share(self, workers: int) -> None:
        self._workers = max(1, workers)

    def note_epoch(self, epoch: Epoch) -> None:
        if self._local is None and self.operation.cache is not None:
            self._reading().note_epoch(epoch)

    def drop_ahead(self) -> None:
        self._coming = {}
        if self._stored is not None and self._stored.pid == os.getpid():
            self._stored.drop_ahead()

    def close(self) -> None:
        closing, self._closing, self._stored = self._closing, None, None
        if closing is not None:
            closing()


def _windows(order: BlockOrder, given: int) -> Iterator[list[int]]:
    """Yield the numbers of an order, one window at a time, after the first `given`."""
    first = given - given % order.window
    for begin in range(first, len(order), order.window):
        end = min(begin + order.window, len(order))
        yield list(itertools.islice(map(order.__getitem__, range(begin, end)), max(0, given - begin), None))
