"""Reads samples through a cache on the disk, which a job keeps for all processes that read them.

`CachedFetcher` acts as a `Fetcher`. It announces the samples of the coming batches, so that their objects are fetched
to the disk meanwhile. It acquires the objects of its own batch, and reads their files.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from nbdata.cache.contents import MOST_ANNOUNCED
from nbdata.cache.kept_folder import KeptFolder
from nbdata.cache.kept_names import name_of
from nbdata.client.opened import resolved
from nbdata.disk import disk_error
from nbdata.ending import at_end
from nbdata.errors import AgentUnavailable, BadOption, Cancelled, NbdataError, NotFound
from nbdata.operation import slots
from nbdata.origins import origin_of
from nbdata.protocols import Cache, Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.pieces import Content, Piece
from nbdata.reading.timeline import Timeline
from nbdata.sizes import format_size
from nbdata.stores.base import ObjectInfo
from nbdata.threads import ForkLock
from nbdata.transfer.sources import folder_part
from nbdata.verbs.options import Connecting, Fetching, Verifying
from nbdata.verbs.sample_cache import SampleCache
from nbdata.verbs.samples import SampleSource

__all__ = ["CachedFetcher", "cache_of", "refuse_too_little"]

# Most objects that are held at a time, and the divisor of the cache for their bytes: several processes hold some.
_HELD, _SHARE = 2000, 8
# Bytes of disk that the file of an object may take beyond its size.
_BLOCK = 4096
# How often to ask anew for a cache that just ended, and for one whose agent was killed.
_TRIES, _AGENTS = 50, 3
_PAUSE = 0.1

_T = TypeVar("_T")


def cache_of(samples: SampleSource, place: str) -> SampleCache:
    """Return the cache operation for a place, with the options of the caller of `nbdata.samples`."""
    options = samples.options_in(Verifying, Fetching, Connecting)
    options["storage_options"] = resolved(samples.storage_options)
    source = folder_part(place)
    return SampleCache(
        source=source,
        cache_dir=samples.cache_dir or ".",
        max_size=samples.cache or 0,
        led=origin_of(source) not in samples.origins(),
        **options,
    )


def refuse_too_little(samples: SampleSource) -> None:
    """Raise BadOption if a cache could not even hold its own records, before anything is listed."""
    least = KeptFolder.overhead_of(_BLOCK)
    if samples.cache is not None and samples.cache <= least:
        raise BadOption(
            f"--cache: {format_size(samples.cache)} is too little",
            expected=f"more than {format_size(least)}, which the records of a cache take",
        )


class _Part(NamedTuple):
    """A piece of a sample in the cache: some bytes of the file of its object."""

    name: str
    info: ObjectInfo
    start: int
    end: int

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies the part among all others."""
        return self.name, self.start, self.end


class CachedFetcher:
    """Reads the samples of one index through a cache; many threads may use it, and take turns.

    Parameters
    ----------
    operation : SampleCache
        The operation of the cache.
    pieces : callable
        Returns the pieces of a sample by its number. Objects come to the cache whole, even if a sample is a range.
    """

    def __init__(self, operation: SampleCache, pieces: Callable[[int], Sequence[Piece]]) -> None:
        self._operation, self._pieces = operation, pieces
        self._lock = ForkLock()
        self._cache: Cache | None = None
        self._folder: _Folder | None = None
        self._known: dict[int, list[_Part]] = {}  # of this batch and the announced ones
        self._announced: dict[str, ObjectInfo] = {}
        self._coming: dict[str, ObjectInfo] = {}  # the objects of the coming batches
        self._epoch: Epoch | None = None
        self._epoch_told = False
        self._began: float | None = None
        self._closed = False
        self.timeline = Timeline()
        self.counts = Counts()
        at_end(self, CachedFetcher.close)

    def fetch(
        self, numbers: Sequence[int], ahead: Iterable[int] = (), *, keep: int = 0
    ) -> list[list[Content]]:
        """See `nbdata.reading.fetcher.Fetcher.fetch`; ignores `keep`, since the cache keeps the objects anyway."""
        del keep
        began = time.monotonic()
        coming = list(dict.fromkeys(ahead))
        with self._lock:
            if self._closed:
                raise Cancelled("these samples were closed")
            self._know(numbers, coming)
            contents: dict[tuple[str, int, int], Content] = {}
            parts = list({part.key: part for number in numbers for part in self._known[number]}.values())
            self._again_without_agent(lambda: self._announce(coming, parts))
            for some in self._portions(parts):
                got = self._again_without_agent(lambda some=some: self._held(some))  # type: ignore[misc]
                if isinstance(got, NbdataError):
                    raise got
                contents.update(got)
            samples = [[contents[part.key] for part in self._known[number]] for number in numbers]
            self._count(samples, began)
        return samples

    def _know(self, numbers: Sequence[int], coming: list[int]) -> None:
        known = self._known
        self._known = {}
        for number in (*numbers, *coming):
            if number not in self._known:
                self._known[number] = known.get(number) or [_part(piece) for piece in self._pieces(number)]

    def _again_without_agent(self, work: Callable[[], _T]) -> _T:
        """Do some work with the agent; if the agent is killed, do it again with the next one."""
        for left in reversed(range(_AGENTS)):
            try:
                return work()
            except AgentUnavailable:
                self._let_go()
                if not left:
                    raise
            except BaseException:  # the cache has ended; or Ctrl-C, and an answer is still on its way
                self._let_go()
                raise
        raise AssertionError("the last try has raised")

    def _used(self) -> Cache:
        """Return the use of the cache; starts it if needed."""
        left = _TRIES
        while (cache := self._cache) is None and not self._closed:
            left -= 1
            job = slots.host().submit(self._operation, background=True)
            try:
                self._cache = job.use_cache()
            except NotFound:  # the cache has just ended
                if not left:
                    raise
                time.sleep(_PAUSE)
        if cache is None or self._closed:  # closed by another thread
            raise Cancelled("these samples were closed")
        return cache

    def _opened(self, cache: Cache) -> _Folder:
        """Return the folder of the cache; opens it if needed."""
        if self._folder is None or self._folder.of is not cache:
            self._folder = _Folder(cache)
        return self._folder

    def _announce(self, coming: list[int], parts: list[_Part]) -> None:
        """Announce the coming samples that were not announced yet, and the current ones, which are acquired by name."""
        cache = self._used()
        self._tell_epoch(cache)
        wanted = {part.name: part.info for part in parts}
        self._coming = ahead = {part.name: part.info for number in coming for part in self._known[number]}
        if any(name not in ahead and name not in wanted for name in self._announced):
            cache.forget()  # the loop has another order than announced
            self._announced.clear()
        self._tell({**wanted, **ahead}, MOST_ANNOUNCED - _HELD)

    def _tell(self, objects: dict[str, ObjectInfo], most: int = MOST_ANNOUNCED) -> None:
        room = max(0, most - len(self._announced))  # the rest is announced later
        unsaid = ((name, info) for name, info in objects.items() if name not in self._announced)
        new = dict(itertools.islice(unsaid, room))
        if new:
            self._used().announce([(name, *info[:5]) for name, info in new.items()])
            self._announced |= new

    def _portions(self, parts: list[_Part]) -> Iterator[list[_Part]]:
        """Divide parts into portions to hold at a time: processes share the cache, and a batch may exceed it."""
        most = self._operation.max_size // _SHARE
        some: dict[str, list[_Part]] = {}  # by object
        size = 0
        for part in parts:
            if part.name not in some:
                more = part.info.size + _BLOCK
                if some and (len(some) == _HELD or size + more > most):
                    yield [one for held in some.values() for one in held]
                    some, size = {}, 0
                size += more
            some.setdefault(part.name, []).append(part)
        if some:
            yield [one for held in some.values() for one in held]

    def _held(self, parts: list[_Part]) -> dict[tuple[str, int, int], Content] | NbdataError:
        """Read the bytes of parts while holding their objects in the cache; or return the error of a missing one."""
        wanted = {part.name: part.info for part in parts}
        self._tell(wanted)  # again, in case of a new agent
        cache = self._used()
        for name in wanted:
            del self._announced[name]
        acquired = cache.acquire(list(wanted))
        self.counts.fetched += acquired.fetched
        read = 0
        try:
            # A shard that the next batches read from, too, must not be free to go in between.
            self._tell({name: info for name, info in wanted.items() if name in self._coming})
            for error in acquired.failed.values():
                return error
            folder = self._opened(cache)
            got: dict[tuple[str, int, int], Content] = {part.key: folder.read(part) for part in parts}
            read = sum(map(len, got.values()))
            self.counts.cached += read
            return got
        except NbdataError:
            cache.acquire([])  # recheck: after an agent's end, the next one may have removed it
            raise
        finally:
            cache.release(read)

    def _count(self, samples: list[list[Content]], began: float) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = began
        self.counts.samples += len(samples)
        self.counts.waited += now - began
        self.counts.seconds = now - self._began
        self.counts.bytes += sum(len(data) for sample in samples for data in sample)
        self.timeline.add(began - self._began, now - self._began)

    def note_epoch(self, epoch: Epoch) -> None:
        """Tell the cache that the loop begins an epoch, with the next batch, or that it is over."""
        with self._lock:
            if not epoch.over:
                self._epoch, self._epoch_told = epoch, False
            elif self._cache is not None and self._epoch_told:
                self._epoch = None
                try:
                    self._cache.note_epoch(epoch)
                except AgentUnavailable:
                    self._let_go()

    def _tell_epoch(self, cache: Cache) -> None:
        if self._epoch is not None and not self._epoch_told:
            cache.note_epoch(self._epoch)
            # If the agent ends, the next one sees only the rest of the epoch.
            self._epoch, self._epoch_told = self._epoch._replace(whole=False), True

    def drop_ahead(self) -> None:
        """Withdraw all announcements, unless a call of `fetch` runs, which replaces them; objects in the cache stay.

        It never waits: the garbage collector may end a forgotten pass in the middle of a `fetch` of the same thread.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._cache is not None and self._announced:
                try:
                    self._cache.forget()
                except AgentUnavailable:
                    self._let_go()
                self._announced.clear()
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the use of the cache; a thread that waits for it gets an error."""
        self._closed = True
        self._hang_up()

    def _let_go(self) -> None:
        self._announced.clear()
        self._hang_up()

    def _hang_up(self) -> None:
        cache, self._cache, self._folder = self._cache, None, None
        self._epoch_told = False
        if cache is not None:
            cache.close()


def _part(piece: Piece) -> _Part:
    size = piece.info.size
    if size < 0:
        raise BadOption(
            "the store does not say the size of this object, and room for it must be reserved before it is fetched",
            path=piece.info.key,
            remedy="Leave cache= out",
        )
    return _Part(name_of(piece.info), piece.info, piece.start, size if piece.end is None else piece.end)


class _Folder:
    """The open folder of a cache: the owner of the folder around it may exchange its name meanwhile."""

    def __init__(self, cache: Cache) -> None:
        self.of, self._path, self._fd = cache, cache.folder, -1
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            status = os.fstat(self._fd)
        except OSError as error:
            raise disk_error(error, self._path) from error
        if (status.st_dev, status.st_ino) != cache.identity:
            raise NbdataError(
                "the folder of the cache was exchanged by somebody else",
                path=self._path,
                expected="the folder that the cache fills",
                got="another one",
                remedy="Put the cache into a folder of your own",
            )

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if self._fd >= 0:
            _close(self._fd)

    def read(self, part: _Part) -> bytes:
        """Read some bytes of a file in the cache."""
        size = part.end - part.start
        try:
            fd = os.open(part.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                length = os.fstat(fd).st_size
                data = os.pread(fd, size, part.start)
                while 0 < len(data) < size and (
                    more := os.pread(fd, size - len(data), part.start + len(data))
                ):
                    data += more
            finally:
                os.close(fd)
        except OSError as error:
            raise _spoilt(f"{self._path}/{part.name}", part.info, str(error)) from error
        if length != part.info.size or len(data) != size:
            raise _spoilt(f"{self._path}/{part.name}", part.info, f"{length:,} bytes")
        return data


def _spoilt(path: str, info: ObjectInfo, got: str) -> NbdataError:
    return NbdataError(
        f"another process has changed the file of {info.key} in the cache",
        path=path,
        expected=f"{info.size:,} bytes",
        got=got,
        remedy="Delete that folder when no process uses it; its objects are then fetched anew",
    )
