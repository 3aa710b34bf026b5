"""Reads samples through a cache on the disk, which a job keeps for all processes that read them.

`StagedFetcher` stands where a `Fetcher` would: it announces the samples of the coming batches, so that their objects
are brought to the disk meanwhile, acquires those of its own batch, and reads their files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from nbdata.caching.kept_folder import name_of
from nbdata.errors import AgentUnavailable, BadOption, Cancelled, NbdataError, NotFound
from nbdata.operation import slots
from nbdata.protocols import Staging
from nbdata.reading.counts import Counts
from nbdata.reading.pieces import Content, Piece
from nbdata.reading.timeline import Timeline
from nbdata.stores.base import ObjectInfo
from nbdata.threads import ForkLock
from nbdata.verbs.sample_cache import SampleCache

__all__ = ["StagedFetcher"]

# Objects that are held at a time, and their bytes as a share of the cache: several processes hold some.
_HELD, _SHARE = 2000, 8
# Bytes of disk that the file of an object may take more than it has.
_BLOCK = 4096
# How often a cache is asked for anew that came to its end just then, and how often one whose agent was killed.
_TRIES, _AGENTS = 50, 3
_PAUSE = 0.1

_T = TypeVar("_T")


class _Object(NamedTuple):
    """An object of a sample, by the name of its file in the cache."""

    name: str
    info: ObjectInfo


class StagedFetcher:
    """Reads the samples of one index through a cache; safe to use from many threads, which take turns.

    Parameters
    ----------
    operation : SampleCache
        Which cache.
    pieces : callable
        What a sample is made of, by its number: whole objects.
    """

    def __init__(self, operation: SampleCache, pieces: Callable[[int], Sequence[Piece]]) -> None:
        self._operation, self._pieces = operation, pieces
        self._lock = ForkLock()
        self._staging: Staging | None = None
        self._known: dict[int, list[_Object]] = {}  # of this batch and those that are announced
        self._announced: dict[str, ObjectInfo] = {}
        self._began: float | None = None
        self._closed = False
        self.timeline = Timeline()
        self.counts = Counts()

    def fetch(
        self, numbers: Sequence[int], ahead: Iterable[int] = (), *, keep: int = 0
    ) -> list[list[Content]]:
        """As `nbdata.reading.fetcher.Fetcher.fetch`; what is there stays in the cache anyway."""
        del keep
        began = time.monotonic()
        coming = list(dict.fromkeys(ahead))
        with self._lock:
            if self._closed:
                raise Cancelled("these samples were closed")
            self._know(numbers, coming)
            contents: dict[str, Content] = {}
            wanted = {one.name: one.info for number in numbers for one in self._known[number]}
            self._again_without_agent(lambda: self._announce(coming, wanted))
            for some in self._portions(wanted):
                contents.update(self._again_without_agent(lambda some=some: self._held(some)))  # type: ignore[misc]
            samples = [[contents[one.name] for one in self._known[number]] for number in numbers]
            self._count(samples, began)
        return samples

    def _know(self, numbers: Sequence[int], coming: list[int]) -> None:
        known = self._known
        self._known = {}
        for number in (*numbers, *coming):
            if number not in self._known:
                self._known[number] = known.get(number) or [_object(piece) for piece in self._pieces(number)]

    def _again_without_agent(self, work: Callable[[], _T]) -> _T:
        """Do something with the agent; should it be killed, with the one that is started then."""
        for left in reversed(range(_AGENTS)):
            try:
                return work()
            except AgentUnavailable:
                self._let_go()
                if not left:
                    raise
        raise AssertionError("the last try has raised")

    def _used(self) -> Staging:
        """The cache, begun if it is not."""
        for left in reversed(range(_TRIES)):
            if self._staging is not None:
                break
            job = slots.host().submit(self._operation, background=True)
            try:
                self._staging = job.stage()
            except NotFound:  # it came to its end just then
                if not left:
                    raise
                time.sleep(_PAUSE)
        assert self._staging is not None
        return self._staging

    def _announce(self, coming: list[int], wanted: dict[str, ObjectInfo]) -> None:
        """Say what comes next, as far as that was not said; and what is needed now, which is acquired by its name."""
        staging = self._used()
        ahead = {one.name: one.info for number in coming for one in self._known[number]}
        if any(name not in ahead and name not in wanted for name in self._announced):
            staging.forget()  # the loop has another order than it said
            self._announced.clear()
        self._tell({**wanted, **ahead})

    def _tell(self, objects: dict[str, ObjectInfo]) -> None:
        new = {name: info for name, info in objects.items() if name not in self._announced}
        if new:
            self._used().announce([(name, *info[:5]) for name, info in new.items()])
            self._announced |= new

    def _portions(self, wanted: dict[str, ObjectInfo]) -> Iterator[dict[str, ObjectInfo]]:
        """What is held at a time: many processes share the cache, and a batch may be larger than it."""
        most = self._operation.max_size // _SHARE
        some: dict[str, ObjectInfo] = {}
        size = 0
        for name, info in wanted.items():
            if some and (len(some) == _HELD or size + info.size + _BLOCK > most):
                yield some
                some, size = {}, 0
            some[name] = info
            size += info.size + _BLOCK
        if some:
            yield some

    def _held(self, wanted: dict[str, ObjectInfo]) -> dict[str, Content]:
        """The bytes of objects, which are held in the cache meanwhile."""
        self._tell(wanted)  # again, to another agent
        staging = self._used()
        for name in wanted:
            del self._announced[name]
        failed = staging.acquire(list(wanted))
        try:
            for error in failed.values():
                raise error
            return {name: _read(f"{staging.folder}/{name}", info) for name, info in wanted.items()}
        finally:
            staging.release()

    def _count(self, samples: list[list[Content]], began: float) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = began
        self.counts.samples += len(samples)
        self.counts.waited += now - began
        self.counts.seconds = now - self._began
        self.counts.bytes += sum(len(data) for sample in samples for data in sample)
        self.timeline.add(began - self._began, now - self._began)

    def drop_ahead(self) -> None:
        """Announce nothing any more; what is there stays."""
        with self._lock:
            if self._staging is not None and self._announced:
                try:
                    self._staging.forget()
                except AgentUnavailable:
                    self._let_go()
                self._announced.clear()

    def close(self) -> None:
        """Use the cache no more."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        staging, self._staging = self._staging, None
        self._announced.clear()
        if staging is not None:
            staging.close()


def _object(piece: Piece) -> _Object:
    if piece.size < 0:
        raise BadOption(
            "the store does not say the size of this object, and room for it must be reserved before it is fetched",
            path=piece.info.key,
            remedy="Leave cache= out",
        )
    return _Object(name_of(piece.info), piece.info)


def _read(path: str, info: ObjectInfo) -> bytes:
    """A file of the cache."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, info.size + 1)
            while 0 < len(data) < info.size and (more := os.read(fd, info.size + 1 - len(data))):
                data += more
        finally:
            os.close(fd)
    except OSError as error:
        raise _spoilt(path, info, str(error)) from error
    if len(data) != info.size:
        raise _spoilt(path, info, f"{len(data):,} bytes")
    return data


def _spoilt(path: str, info: ObjectInfo, got: str) -> NbdataError:
    return NbdataError(
        f"somebody has changed the file of {info.key} in the cache",
        path=path,
        expected=f"{info.size:,} bytes",
        got=got,
        remedy="Delete that folder when nobody uses it; its objects are then fetched anew",
    )
