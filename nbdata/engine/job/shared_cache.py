"""Gives processes access to the cache that a job keeps for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nbdata.cache.cached_objects import Wanted
from nbdata.cache.contents import MOST_ANNOUNCED, CacheContents
from nbdata.cache.kept_folder import room_of_object
from nbdata.cache.kept_names import is_name
from nbdata.engine.job.task import Task
from nbdata.errors import Cancelled, NotEnoughSpace, NotFound
from nbdata.protocols import Acquired, Epoch
from nbdata.stores.objects import ObjectInfo

__all__ = ["Consumer", "OpenCache", "SharedCache"]

# Seconds between two checks that a job without an open cache, or a consumer that waits for objects, is still alive.
_LOOK = 0.2
# Most characters in the name of a loop or an epoch.
_LONGEST_NAME = 200


class OpenCache(NamedTuple):
    """A cache that is ready for use.

    Attributes
    ----------
    contents : CacheContents
    folder : str
        The folder of its objects.
    identity : tuple of int
        The folder's device and inode.
    block : int
        Bytes per block of its disk.
    """

    contents: CacheContents
    folder: str
    identity: tuple[int, int]
    block: int


class SharedCache:
    """Connects one job with the processes that use its cache; many threads may use it.

    Attributes
    ----------
    read, fetched : int
        Bytes that all processes have read, and bytes that had to be fetched for them.
    """

    def __init__(self, control: Task) -> None:
        self._control = control
        self._changed = threading.Condition()
        self._cache: OpenCache | None = None
        self._consumers: set[str] = set()
        self._left = time.monotonic()
        self._over = False
        self.read = self.fetched = 0

    def opened(self, cache: OpenCache) -> None:
        """Note that the job's cache is ready."""
        with self._changed:
            self._cache, self._left = cache, time.monotonic()
            self._changed.notify_all()

    def join(self, name: str) -> Consumer:
        """Start to use the cache, as soon as it is open.

        Raises
        ------
        NbdataError
            The error that ended the job; NotFound if it just ended: then start another one.
        """
        with self._changed:
            while self._cache is None and not self._over:
                self._changed.wait(_LOOK)
            ended = self._cache.contents.ended if self._cache is not None else None
            if self._cache is not None and not self._over and ended is None:
                self._consumers.add(name)
                return Consumer(name, self._cache, self)
        if isinstance(ended, NotEnoughSpace):  # the job waits for room
            raise ended
        self._control.wait_end(_ENDING)
        if ended is None and self._control.error is not None:
            raise self._control.error
        raise NotFound("this cache has just been closed")

    def leave(self, name: str) -> None:
        """End a process's use of the cache."""
        with self._changed:
            if name in self._consumers:
                self._consumers.discard(name)
                self._left = time.monotonic()

    def count(self, *, read: int = 0, fetched: int = 0) -> None:
        """Count bytes that a process has read, and bytes that had to be fetched for it."""
        with self._changed:
            self.read += read
            self.fetched += fetched

    @property
    def hit_rate(self) -> float | None:
        """The share of the bytes read that did not have to be fetched; None if nothing was read."""
        return max(0.0, 1 - self.fetched / self.read) if self.read else None

    @property
    def consumers(self) -> int:
        """The number of processes that use the cache."""
        return len(self._consumers)

    def end_if_idle(self, seconds: float) -> bool:
        """End the job if no process has used it for that long; return True if it ends."""
        with self._changed:
            if not self._consumers and time.monotonic() - self._left >= seconds:
                self._over = True
            return self._over

    def end_if_left_paused(self, seconds: float) -> bool:
        """Cancel the job if it is paused and no process has used it for so long; return whether it was."""
        if self._control.snapshot().state != "PAUSED" or not self.end_if_idle(seconds):
            return False
        self._control.cancel("it was paused, and no process used it any more")
        return True

    def end(self) -> None:
        """End with the job, and release all references to the engine."""
        with self._changed:
            self._over, self._cache = True, None
            self._changed.notify_all()


# Seconds that a job may take to end after its work is over.
_ENDING = 10.0


class Consumer:
    """One process's use of a cache, as a `nbdata.protocols.Cache`; for one thread at a time."""

    def __init__(self, name: str, opened: OpenCache, cache: SharedCache) -> None:
        self._name, self._contents, self._block, self._cache = name, opened.contents, opened.block, cache
        self.folder, self.identity = opened.folder, opened.identity
        self._announced: dict[str, Wanted] = {}  # and not acquired; at most MOST_ANNOUNCED

    def announce(self, objects: Sequence[tuple[Any, ...]]) -> None:
        """See `nbdata.protocols.Cache`; ValueError if the items are not objects."""
        wanted = [self._wanted(*one) for one in objects]
        if len(self._announced) + len(wanted) > MOST_ANNOUNCED:
            self.forget()
        self._announced.update((one.name, one) for one in wanted)
        self._contents.announce(self._name, wanted)

    def _wanted(self, name: Any, key: Any, size: Any, etag: Any, modified: Any, version: Any) -> Wanted:
        if not is_name(name) or not isinstance(key, str) or not isinstance(size, int) or size < 0:
            raise ValueError(f"{key!r} of {size!r} bytes is no object")
        return Wanted(name, room_of_object(size, self._block), ObjectInfo(key, size, etag, modified, version))

    def forget(self) -> None:
        """See `nbdata.protocols.Cache`."""
        self._announced.clear()
        self._contents.unannounce(self._name)

    def acquire(self, names: Sequence[str], living: Callable[[], bool] = lambda: True) -> Acquired:
        """See `nbdata.protocols.Cache`; KeyError for a name not announced, Cancelled if the asking process died."""
        self.release()
        wanted = [self._announced.pop(name) for name in dict.fromkeys(names)]
        self._contents.acquire(self._name, self._name, wanted)
        sizes = {one.name: one.of.size for one in wanted}
        while (failed := self._contents.wait(self._name, _LOOK)) is None:
            if not living():
                raise Cancelled("the process that asked for it is gone")
        fetched = sum(sizes[name] for name in self._contents.fetched_for(self._name))
        self._cache.count(fetched=fetched)
        return Acquired(failed, fetched)

    def release(self, read: int = 0) -> None:
        """See `nbdata.protocols.Cache`."""
        self._contents.release(self._name)
        self._cache.count(read=read)

    def note_epoch(self, epoch: Epoch) -> None:
        """See `nbdata.protocols.Cache`; ValueError if it is no epoch."""
        names, flags = epoch[:2], epoch[2:]
        if not all(isinstance(name, str) and len(name) <= _LONGEST_NAME for name in names):
            raise ValueError(f"{names!r} name no epoch")
        if not all(isinstance(flag, bool) for flag in flags):
            raise ValueError(f"{flags!r} are no flags of an epoch")
        self._contents.note_epoch(self._name, epoch)

    def close(self) -> None:
        """Release all objects, and end the use of the cache."""
        self._contents.end(self._name)
        self._cache.leave(self._name)
