"""Sequences of samples: by number, in a shuffled order, as windows, selected, or concatenated."""

from __future__ import annotations

import abc
import hashlib
import itertools
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, overload

from nbdata.client.reading import overview
from nbdata.client.reading.epochs import epoch_of_stream, telling
from nbdata.client.reading.keys import Keys, number_of
from nbdata.client.reading.orders import AheadBatches, AheadIndices, positions_of
from nbdata.client.reading.passing import Pass, given_of
from nbdata.client.reading.report import ReadReport
from nbdata.client.reading.shares import Shares
from nbdata.client.reading.source import Source
from nbdata.errors import BadOption
from nbdata.reading.counts import Counts
from nbdata.reading.timeline import Timeline
from nbdata.sizes import counted

__all__ = ["Samples"]

# Samples that `stream` requests at a time, how many it knows ahead, and bytes that it requests at a time.
_CHUNK, _KNOWN_AHEAD, _CHUNK_BYTES = 16, 256, 4 << 20
_STATE = 1


class Samples(abc.ABC):
    """A sequence of samples. Cheap to pickle; each process opens the store itself.

    A sample is a dict of extension to ``bytes``, with ``__key__`` (without extension, relative to the source) and
    ``__url__`` (of its first object).

    Examples
    --------
    >>> samples = nbdata.samples("s3://bucket/images/")  # doctest: +SKIP
    >>> samples[0]["jpg"]  # doctest: +SKIP
    >>> batch = samples.fetch([3, 14, 15])  # doctest: +SKIP
    """

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def _parts(self, number: int) -> list[tuple[Source, int]]:
        """Return the parts of an item: the source and number of each."""

    @abc.abstractmethod
    def _made(self, number: int, parts: list[dict[str, Any]]) -> Any:
        """Make an item from its parts."""

    @abc.abstractmethod
    def key(self, number: int) -> str:
        """Return the key of an item; for a window, the key of its first sample."""

    @property
    @abc.abstractmethod
    def sources(self) -> list[Source]:
        """The sources of the items."""

    @property
    @abc.abstractmethod
    def fingerprint(self) -> str:
        """A digest that is equal only for the same samples in the same order with the same ETags."""

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Samples: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return the sample at an index, or the samples of a slice."""
        if isinstance(index, slice):
            return Selected(self, array("q", range(len(self))[index]))
        return self.fetch([index])[0]

    def __iter__(self) -> Iterator[Any]:
        return self.stream()

    def fetch(self, indices: Sequence[int], ahead: Iterable[Sequence[int]] = ()) -> list[Any]:
        """Return several samples at once: the fast way.

        Parameters
        ----------
        indices : sequence of int
            From 0; negative ones count from the end. Each may come more than once.
        ahead : iterable of sequence of int, optional
            The indices of the next calls, soonest first. They are fetched while these samples are used, up to
            ``ahead_bytes``. If none are given, or the next call asks for others, only time is lost.

        Returns
        -------
        list
            The samples in the order of `indices`.

        Raises
        ------
        IndexError
            If an index is out of range.
        SourceChanged
            If an object was changed or deleted since it was indexed.
        NbdataError
            If a sample cannot be read. Others can still be fetched.
        """
        asked = [self._checked(index) for index in indices]
        items = [self._parts(number) for number in asked]
        wanted: dict[Source, list[int]] = {}
        for source, number in itertools.chain.from_iterable(items):
            wanted.setdefault(source, []).append(number)
        coming: dict[Source, list[int]] = {}
        for index in itertools.chain.from_iterable(ahead):
            for source, number in self._parts(self._checked(index)):
                coming.setdefault(source, []).append(number)
        got = {
            source: iter(source.read(numbers, coming.get(source, []), self._overlap))
            for source, numbers in wanted.items()
        }
        return [
            self._made(number, [next(got[source]) for source, _ in parts])
            for number, parts in zip(asked, items, strict=True)
        ]

    #: Samples that an item may share with the next one.
    _overlap = 0

    def _checked(self, index: int) -> int:
        if index.__class__ is not int:
            index = number_of(index)
        count = len(self)
        number = index + count if index < 0 else index
        if not 0 <= number < count:
            raise IndexError(f"sample {index} of {count:,}: there is none")
        return number

    @property
    def keys(self) -> Sequence[str]:
        """The keys of all samples in their order; each is read from the index when it is used.

        ``samples[samples.keys.index(KEY)]`` is the sample with a key.
        """
        return Keys(self)

    def stream(
        self,
        *,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        part: str | None = None,
        resume: Any = None,
    ) -> Pass:
        """Yield all samples one after the other, fetched ahead.

        Parameters
        ----------
        shuffle : bool
            Use a random order that depends only on `seed` and `epoch`.
        seed, epoch : int
        part : str, optional
            ``"I/N"``: only every N-th sample of that order, starting with the I-th (from 0).
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
        order = positions_of(len(self), shuffle=shuffle, seed=seed, epoch=epoch, part=part)
        about = {
            "version": _STATE, "samples": self.fingerprint, "shuffle": shuffle, "seed": seed, "epoch": epoch,
            "part": part or "0/1",
        }  # fmt: skip
        given = 0
        if resume is not None:
            given = given_of(resume, about)
        some = range(0, len(self), max(1, len(self) // _CHUNK))
        at_once = max(1, min(_CHUNK, _CHUNK_BYTES // max([1, *map(self.size, some)])))
        rest = itertools.islice(order, given, None)
        chunks = (list(chunk) for chunk in iter(lambda: tuple(itertools.islice(rest, at_once)), ()))
        return self._passed(chunks, _KNOWN_AHEAD // at_once, about, given)

    def shares(self, parts: int, *, shuffle: bool = False, seed: int = 0, epoch: int = 0) -> Shares:
        """Return how much of an epoch each of so many parts of `stream` has."""
        del shuffle, seed, epoch
        whole, rest = divmod(len(self), parts)
        return Shares([whole + (number < rest) for number in range(parts)])

    def _passed(
        self, chunks: Iterable[list[int]], known_ahead: int, about: dict[str, Any], given: int
    ) -> Pass:
        """Make a pass that fetches chunk by chunk, with `known_ahead` of them ahead, after `given` earlier samples."""

        steps = AheadBatches.over(chunks, known_ahead)
        epoch = epoch_of_stream(about, whole=not given)

        def items() -> Generator[Any, None, None]:
            nonlocal given
            try:
                for chunk, ahead in telling(self.sources, epoch, steps):
                    for sample in self.fetch(chunk, ahead):
                        given += 1
                        yield sample
            finally:  # the loop may have ended early
                for source in self.sources:
                    source.drop_ahead()

        return Pass(items(), lambda: {**about, "given": given})

    # -- derived sequences ------------------------------------------------------------------------

    def windows(self, size: int, stride: int = 1, *, within: str | None = None) -> Samples:
        """Return windows of neighbouring samples, such as frames of a video: each item is a list of `size` samples.

        A sample shared by two windows of a batch, or with the next batch, is fetched once. BadOption if there is no
        window.

        Parameters
        ----------
        size : int
        stride : int
            Distance between the first samples of two successive windows.
        within : str, optional
            A regular expression. All samples of a window have the same match in their keys (its first group, or
            all); samples without a match are in no window. None: all samples of a window lie in one folder.
        """
        if size < 1 or stride < 1:
            raise BadOption(f"windows({size}, {stride}): both must be 1 or more")
        return Windows(self, size, _window_starts(self, size, stride, within))

    def select(self, predicate: Callable[[str], object]) -> Samples:
        """Return the samples whose key satisfies `predicate`, in the same order."""
        if not callable(predicate):
            raise BadOption(
                f"select: {predicate!r} is no function",
                expected='one of the key: lambda key: key.startswith("a/")',
            )
        return Selected(self, array("q", (n for n in range(len(self)) if predicate(self.key(n)))))

    def __add__(self, other: Samples) -> Samples:
        """Return these samples followed by those of another source."""
        if not isinstance(other, Samples):
            return NotImplemented
        return Concatenated([self, other])

    def batch_sampler(
        self,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        ahead: int = 8,
        drop_last: bool = False,
        uneven: str = "drop",
    ) -> AheadBatches:
        """Return batches of indices that carry the coming ones: the ``batch_sampler=`` of a DataLoader.

        See `nbdata.client.reading.orders.AheadBatches`.
        """
        return AheadBatches(
            len(self), batch_size, shuffle=shuffle, seed=seed, rank=rank or 0, world_size=world_size or 1,
            ahead=ahead, drop_last=drop_last, uneven=uneven,
        )  # fmt: skip

    def sampler(
        self,
        *,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        ahead: int = 256,
    ) -> AheadIndices:
        """Return indices that know the coming ones: the ``sampler=`` of a DataLoader without workers.

        See `nbdata.client.reading.orders.AheadIndices`.
        """
        return AheadIndices(
            len(self), shuffle=shuffle, seed=seed, rank=rank or 0, world_size=world_size or 1, ahead=ahead
        )

    # -- statistics -------------------------------------------------------------------------------

    @property
    def report(self) -> ReadReport:
        """The statistics of this process's reading so far; ``print`` shows them as a sentence."""
        sources = self.sources
        longest = max((source.timeline for source in sources), key=lambda timeline: len(timeline.waited))
        return self.report_of(Counts.of(source.counts for source in sources), longest)

    def report_of(self, counts: Counts, timeline: Timeline) -> ReadReport:
        """Make the report of counts from elsewhere, such as from the workers of a loader."""
        left_out = [source.left_out for source in self.sources]
        names = tuple(itertools.chain.from_iterable(names for _, names in left_out))
        return ReadReport(
            counts.samples, counts.bytes, counts.seconds, counts.waited, counts.unverified,
            sum(count for count, _ in left_out), names, timeline,
            max(0, counts.cached - counts.fetched), counts.fetched,
        )  # fmt: skip

    def share(self, workers: int) -> None:
        """Announce how many processes read these samples at the same time; for the workers of a loader.

        Each then takes its share of the connections and of the bytes fetched ahead, unless the caller of
        `nbdata.samples` has set them. Call it before reading the first sample.
        """
        for source in self.sources:
            source.share(workers)

    def close(self) -> None:
        """Stop all work, and release connections and the thread; a later read starts afresh."""
        for source in self.sources:
            source.close()

    def __enter__(self) -> Samples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def size(self, number: int) -> int:
        """Return the bytes of an item, as far as the store gave sizes."""
        return sum(source.size(own) for source, own in self._parts(self._checked(number)))

    def text(self) -> str:
        """Describe the samples in a few lines; a notebook shows the first ones too."""
        return overview.text(self)

    def to_dict(self) -> dict[str, Any]:
        """Describe the samples as data."""
        return overview.to_dict(self)

    def _repr_html_(self) -> str:
        return overview.html(self)

    def __repr__(self) -> str:
        return f"<{len(self):,} {self._what}>"

    _what = "samples"


class Selected(Samples):
    """Some samples of a sequence, in their own order."""

    def __init__(self, of: Samples, numbers: array[int]) -> None:
        self._of, self._numbers = of, numbers
        self._overlap = of._overlap

    def __len__(self) -> int:
        return len(self._numbers)

    def key(self, number: int) -> str:
        return self._of.key(self._numbers[self._checked(number)])

    def _parts(self, number: int) -> list[tuple[Source, int]]:
        return self._of._parts(self._numbers[number])

    def _made(self, number: int, parts: list[dict[str, Any]]) -> Any:
        return self._of._made(self._numbers[number], parts)

    @property
    def sources(self) -> list[Source]:
        return self._of.sources

    @property
    def fingerprint(self) -> str:
        return _digest("selected", self._of.fingerprint, self._numbers.tobytes())

    def __repr__(self) -> str:
        return f"<{len(self):,} of {self._of!r}>"


class Concatenated(Samples):
    """Several sequences, one after the other."""

    def __init__(self, members: list[Samples]) -> None:
        self._members = members
        self._ends = list(itertools.accumulate(map(len, members)))
        self._overlap = max(member._overlap for member in members)

    def __len__(self) -> int:
        return self._ends[-1]

    def _member(self, number: int) -> tuple[Samples, int]:
        at = bisect_right(self._ends, number)
        return self._members[at], number - (self._ends[at - 1] if at else 0)

    def key(self, number: int) -> str:
        member, own = self._member(self._checked(number))
        return member.key(own)

    def _parts(self, number: int) -> list[tuple[Source, int]]:
        member, own = self._member(number)
        return member._parts(own)

    def _made(self, number: int, parts: list[dict[str, Any]]) -> Any:
        member, own = self._member(number)
        return member._made(own, parts)

    @property
    def sources(self) -> list[Source]:
        return list(dict.fromkeys(source for member in self._members for source in member.sources))

    @property
    def fingerprint(self) -> str:
        return _digest("concatenated", *(member.fingerprint for member in self._members))

    def __repr__(self) -> str:
        return " + ".join(map(repr, self._members))


class Windows(Samples):
    """Windows of neighbouring samples."""

    _what = "windows"

    def __init__(self, of: Samples, size: int, starts: array[int]) -> None:
        self._of, self._size, self._starts = of, size, starts
        self._overlap = size

    def __len__(self) -> int:
        return len(self._starts)

    def key(self, number: int) -> str:
        return self._of.key(self._starts[self._checked(number)])

    def _parts(self, number: int) -> list[tuple[Source, int]]:
        start = self._starts[number]
        return [part for at in range(start, start + self._size) for part in self._of._parts(at)]

    def _made(self, number: int, parts: list[dict[str, Any]]) -> Any:
        return parts

    @property
    def sources(self) -> list[Source]:
        return self._of.sources

    @property
    def fingerprint(self) -> str:
        return _digest("windows", self._of.fingerprint, str(self._size), self._starts.tobytes())

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'windows')} of {self._size} of {self._of!r}>"


def _window_starts(samples: Samples, size: int, stride: int, within: str | None) -> array[int]:
    """Return the first samples of the windows: in each run of samples of one group, every `stride`-th."""
    try:
        pattern = re.compile(r"^(?:(.*)/)?" if within is None else within, re.DOTALL)
    except re.error as error:
        raise BadOption(f"windows: within={within!r} is no regular expression ({error})") from None

    def group(number: int) -> str | None:
        match = pattern.search(samples.key(number))
        if match is None:
            return None
        return match[1] or "" if pattern.groups else match[0]

    starts, at, longest = array("q"), 0, 0
    for group_of_run, run in itertools.groupby(map(group, range(len(samples)))):
        count = sum(1 for _ in run)
        if group_of_run is not None:
            longest = max(longest, count)
            starts.extend(range(at, at + count - size + 1, stride))
        at += count
    if not starts:
        raise BadOption(
            f"windows({size}): nowhere are there {counted(size, 'neighbours')} that belong together",
            got=f"at most {longest:,}",
            remedy="Take smaller windows, or say with within=REGEX what belongs together",
        )
    return starts


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
