"""The contents of a cache that many consumers share: which objects are waited for, held, or must go.

A consumer *announces* the objects that it will need, in its order. It *acquires* those that it needs now, all by one
lease, and *releases* the lease when it has read them. `nbdata.cache.cached_objects` has the
states of an object.

Room is reserved before an object comes and is free after it is gone, so the capacity is never exceeded. Objects in a
lease stay. Of the others, unannounced ones go first, in the order of `nbdata.cache.eviction`; then those announced
last. An announced object never goes for one that is only announced, too.

Leases get their room in the order of the requests, each for all its objects at once. No holder of a lease waits for
another lease. So each lease is filled at some time, however small the cache is.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from nbdata.cache.cached_objects import CachedObject, Lease, State, Wanted
from nbdata.cache.eviction import EvictionOrder
from nbdata.errors import BadOption, Cancelled, NbdataError
from nbdata.protocols import Epoch
from nbdata.sizes import counted, format_size

__all__ = ["MOST_ANNOUNCED", "CacheContents"]

#: The most objects that a consumer may have announced but not acquired. Further ones are not fetched ahead.
MOST_ANNOUNCED = 100_000
# The heap may have this many outdated entries more than twice the number of objects.
_STALE = 1024


# Stands for a lease that another thread has already released.
_RELEASED = Lease(None, [])


@dataclass(slots=True)
class _Ahead:
    """The objects that one consumer has announced but not acquired."""

    objects: dict[str, CachedObject] = field(default_factory=dict)
    unfetched: deque[CachedObject] = field(
        default_factory=deque
    )  # in its order; some may have come otherwise


class CacheContents:
    """The objects of one cache; safe to use from many threads.

    Parameters
    ----------
    capacity : int
        Bytes of disk.
    remove : callable
        Deletes the file of a name. All waiting consumers get its error, because room that is not free must not be given
        away.

    Attributes
    ----------
    used : int
        Bytes of room that are reserved.
    fetched : int
        The number of objects fetched, for leases or announcements.
    """

    def __init__(self, capacity: int, remove: Callable[[str], None]) -> None:
        self.capacity = capacity
        self.used = self.fetched = 0
        self._remove = remove
        self._changed = threading.Condition()
        self._objects: dict[str, CachedObject] = {}
        self._pinned = 0  # room of all objects in leases
        self._queue: deque[Lease] = deque()  # leases without room yet
        self._leases: dict[Hashable, Lease] = {}
        self._demanded: deque[CachedObject] = deque()  # absent objects of leases
        self._announced: dict[Hashable, _Ahead] = {}
        self._turns = deque[Hashable]()  # consumers with announcements
        self._numbers = itertools.count()
        self._unwanted = EvictionOrder()  # idle and unannounced
        self._latest: list[tuple[int, int, CachedObject]] = []  # heap of idle, announced objects, or outdated
        self._error: NbdataError | None = None

    def there(self, wanted: Wanted, *, proven: bool = True) -> None:
        """Add an object that was found on disk. If it is not `proven`, `next` returns it when it is wanted."""
        state = State.WHOLE if proven else State.UNPROVEN
        with self._changed:
            kept = self._objects[wanted.name] = CachedObject(wanted, state)
            self.used += wanted.room
            self._keep(kept)

    # -- for consumers ----------------------------------------------------------------------------

    def note_epoch(self, consumer: Hashable, epoch: Epoch) -> None:
        """Note that the consumer's loop begins an epoch, or that it is over."""
        with self._changed:
            self._unwanted.note_epoch(consumer, epoch)

    def announce(self, consumer: Hashable, wanted: Iterable[Wanted]) -> None:
        """Announce the consumer's next objects, after those announced before."""
        with self._changed:
            self._unwanted.touch(consumer)
            ahead = self._announced.get(consumer)
            if ahead is None:
                ahead = self._announced[consumer] = _Ahead()
                self._turns.append(consumer)
            for one in wanted:
                if len(ahead.unfetched) >= MOST_ANNOUNCED or len(ahead.objects) >= MOST_ANNOUNCED:
                    break
                if one.name in ahead.objects:
                    continue
                cached = ahead.objects[one.name] = self._object(one)
                cached.announced[consumer] = next(self._numbers)
                ahead.unfetched.append(cached)
                self._keep(cached)
            self._changed.notify_all()

    def unannounce(self, consumer: Hashable) -> None:
        """Withdraw all announcements of a consumer."""
        with self._changed:
            ahead = self._announced.get(consumer)
            if ahead is None:
                return
            for cached in list(ahead.objects.values()):
                self._unannounced(cached, consumer)
            del self._announced[consumer]
            self._turns.remove(consumer)
            self._changed.notify_all()

    def acquire(self, lease: Hashable, consumer: Hashable, wanted: Iterable[Wanted]) -> None:
        """Request objects, all by one lease. Use `wait` to wait for them.

        Raises
        ------
        BadOption
            If they are together larger than the cache.
        """
        asked = Lease(consumer, list({one.name: one for one in wanted}.values()))
        room = sum(one.room for one in asked.wanted)
        if room > self.capacity:
            one = getattr(asked.wanted[0].of, "key", asked.wanted[0].name)
            what = (
                f"{one} takes"
                if len(asked.wanted) == 1
                else f"{counted(len(asked.wanted), 'objects')} together take"
            )
            raise BadOption(
                f"{what} {format_size(room)} on the disk",
                expected=f"at most {format_size(self.capacity)}, which the cache can hold",
                remedy="Give it a larger cache=",
            )
        with self._changed:
            if lease in self._leases:
                raise ValueError(f"there is a lease {lease!r}")
            self._leases[lease] = asked
            self._queue.append(asked)
            self._admit()
            self._changed.notify_all()

    def wait(self, lease: Hashable, timeout: float | None = None) -> dict[str, NbdataError] | None:
        """Wait until all objects of a lease are there. Returns the errors of failed ones by name; None after `timeout`.

        Raises
        ------
        NbdataError
            If the cache has ended; Cancelled if the lease was released meanwhile.
        """
        with self._changed:
            asked = self._leases.get(lease, _RELEASED)
            done = self._changed.wait_for(
                lambda: (
                    self._error
                    or self._leases.get(lease) is not asked
                    or (asked.admitted and not asked.missing)
                ),
                timeout,
            )
            if self._error is not None:
                raise self._error
            if self._leases.get(lease) is not asked:
                raise Cancelled("no process holds these objects any more")
            return asked.errors if done else None

    def fetched_for(self, lease: Hashable) -> list[str]:
        """The objects that were fetched for this lease. The others were there, or had come for another lease."""
        with self._changed:
            return self._leases.get(lease, _RELEASED).fetched

    def release(self, lease: Hashable) -> None:
        """End a lease: its objects were read, or are not needed any more."""
        with self._changed:
            asked = self._leases.pop(lease, None)
            if asked is None:
                return
            if not asked.admitted:
                self._queue.remove(asked)
            for one in asked.wanted:
                cached = self._objects.get(one.name)
                if cached is None:
                    continue
                if asked in cached.leases:
                    cached.leases.remove(asked)
                    if not cached.leases:
                        self._pinned -= cached.wanted.room
                self._keep(cached)
            self._admit()
            self._changed.notify_all()

    def end(self, consumer: Hashable) -> None:
        """Release all leases and announcements of a consumer that is gone."""
        with self._changed:
            for lease in [name for name, asked in self._leases.items() if asked.consumer == consumer]:
                self.release(lease)
            self.unannounce(consumer)
            self._unwanted.leave(consumer)

    def close(self, error: NbdataError) -> None:
        """End the cache: no more objects come, and waiting consumers get the error. Only the first error counts."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    @property
    def ended(self) -> NbdataError | None:
        """The error that ended the cache; None while it works."""
        return self._error

    # -- for the fetcher --------------------------------------------------------------------------

    def next(self, timeout: float) -> Wanted | None:
        """Reserve room for the next object and return it. None without work, or room, for `timeout` seconds."""
        while True:
            victim: CachedObject | None = None
            with self._changed:
                if self._error is not None:
                    raise self._error
                chosen, victim = self._choose()
                if chosen is not None:
                    return chosen.wanted
                if victim is None and not self._changed.wait_for(self._may_choose, timeout):
                    return None
            if victim is not None:
                self._delete(victim)

    def committed(self, name: str, *, fetched: bool = True) -> None:
        """Mark an object as complete on disk; it was not `fetched` if it was there and is proven now."""
        with self._changed:
            cached = self._objects[name]
            cached.state = State.WHOLE
            cached.fresh = fetched
            self.fetched += fetched
            for asked in cached.leases:
                asked.missing.discard(name)
                self._got(asked, cached)
            self._keep(cached)
            self._changed.notify_all()

    def failed(self, name: str, error: NbdataError) -> None:
        """Mark an object as failed. Nothing of it is on disk."""
        with self._changed:
            cached = self._objects[name]
            cached.state = State.ABSENT
            self.used -= cached.wanted.room
            if cached.leases:
                self._pinned -= cached.wanted.room
            for asked in cached.leases:
                asked.missing.discard(name)
                asked.errors[name] = error
            cached.leases.clear()
            for consumer in list(cached.announced):  # otherwise it would be fetched in vain again and again
                self._unannounced(cached, consumer)
            self._forget(cached)
            self._admit()
            self._changed.notify_all()

    # -- under the lock ---------------------------------------------------------------------------

    def _object(self, wanted: Wanted) -> CachedObject:
        cached = self._objects.get(wanted.name)
        if cached is None:
            cached = self._objects[wanted.name] = CachedObject(wanted)
        elif cached.wanted.of is None:  # the origin of an object found on disk was unknown
            cached.wanted = cached.wanted._replace(of=wanted.of)
        return cached

    def _forget(self, cached: CachedObject) -> None:
        if cached.forgotten and self._objects.get(cached.wanted.name) is cached:
            del self._objects[cached.wanted.name]

    def _unannounced(self, cached: CachedObject, consumer: Hashable) -> None:
        if cached.announced.pop(consumer, None) is not None:
            if not cached.announced:
                cached.announced = {}  # a new dict, since the old one would keep its memory
            del self._announced[consumer].objects[cached.wanted.name]
            self._keep(cached)

    def _keep(self, cached: CachedObject) -> None:
        """Update whether an object is among those that may go, or drop its entry."""
        name = cached.wanted.name
        self._unwanted.discard(name)
        if cached.idle and cached.announced:
            number = min(cached.announced.values())
            heapq.heappush(self._latest, (-number, next(self._numbers), cached))
            if len(self._latest) > 2 * len(self._objects) + _STALE:
                self._latest = [one for one in self._latest if self._may_go_late(one)]
                heapq.heapify(self._latest)
        elif cached.idle:
            cached.wanted = cached.wanted._replace(of=None)  # the next request has it again
            self._unwanted.add(name)
        else:
            self._forget(cached)

    def _admit(self) -> None:
        """Admit the first leases in the queue, while there is room."""
        while self._queue:
            asked = self._queue[0]
            objects = [self._object(one) for one in asked.wanted]
            more = sum(cached.wanted.room for cached in objects if not cached.leases)
            if self._pinned + more > self.capacity:
                return
            self._queue.popleft()
            asked.admitted = True
            self._pinned += more
            for cached in objects:
                cached.leases.append(asked)
                self._unannounced(cached, asked.consumer)
                self._unwanted.use(asked.consumer, cached.wanted.name)
                if cached.state is State.WHOLE:
                    self._got(asked, cached)
                else:
                    asked.missing.add(cached.wanted.name)
                if cached.to_come:  # one being deleted is demanded once it is gone
                    self._demanded.append(cached)

    def _got(self, asked: Lease, cached: CachedObject) -> None:
        """Count an object as fetched for the first lease that gets it."""
        if cached.fresh:
            cached.fresh = False
            asked.fetched.append(cached.wanted.name)

    def _may_choose(self) -> bool:
        return self._error is not None or self._choosable()

    def _choosable(self) -> bool:
        """Whether `_choose` would find something."""
        demanded = self._first_demanded()
        if demanded is not None:
            return self._fits(demanded) or self._victim(take=False, announced=True) is not None
        announced = self._first_announced()
        if announced is None:
            return False
        return self._fits(announced) or self._victim(take=False, announced=False) is not None

    def _choose(self) -> tuple[CachedObject | None, CachedObject | None]:
        """Return the next object to fetch, or otherwise the object that must go for it."""
        chosen = self._first_demanded()
        demanded = chosen is not None
        if chosen is None:
            chosen = self._first_announced()
        if chosen is None:
            return None, None
        if not self._fits(chosen):
            return None, self._victim(take=True, announced=demanded)
        if demanded:
            self._demanded.popleft()
        else:
            self._turns.rotate(-1)
        if chosen.state is State.ABSENT:
            self.used += chosen.wanted.room
        chosen.state = State.COMING
        self._unwanted.discard(chosen.wanted.name)
        return chosen, None

    def _fits(self, cached: CachedObject) -> bool:
        return cached.state is State.UNPROVEN or self.used + cached.wanted.room <= self.capacity

    def _first_demanded(self) -> CachedObject | None:
        while self._demanded:
            cached = self._demanded[0]
            if cached.to_come and cached.leases:
                return cached
            self._demanded.popleft()  # it came otherwise, or is not needed any more
        return None

    def _first_announced(self) -> CachedObject | None:
        """The first unfetched announced object of the consumer whose turn it is."""
        for _ in range(len(self._turns)):
            consumer = self._turns[0]
            coming = self._announced[consumer].unfetched
            while coming and not self._to_come(coming[0], consumer):
                coming.popleft()
            if coming:
                return coming[0]
            self._turns.rotate(-1)
        return None

    def _to_come(self, cached: CachedObject, consumer: Hashable) -> bool:
        """Whether an announced object must still be fetched. One that can never fit is skipped."""
        wanted = cached.to_come and consumer in cached.announced
        return wanted and cached.wanted.room <= self.capacity

    def _victim(self, *, take: bool, announced: bool) -> CachedObject | None:
        """Return an idle object that may go."""
        name = self._unwanted.victim()
        cached = None if name is None else self._objects[name]
        if cached is None and announced:
            while self._latest:
                if self._may_go_late(self._latest[0]):
                    cached = self._latest[0][2]
                    break
                heapq.heappop(self._latest)
        if cached is not None and take:
            self._unwanted.discard(cached.wanted.name)
            cached.state = State.GOING
        return cached

    def _may_go_late(self, one: tuple[int, int, CachedObject]) -> bool:
        """Whether an entry of the heap is still current."""
        number, _, cached = one
        return cached.idle and bool(cached.announced) and min(cached.announced.values()) == -number

    def _delete(self, victim: CachedObject) -> None:
        try:
            self._remove(victim.wanted.name)
        except NbdataError as error:
            self.close(error)
            raise
        with self._changed:
            victim.state = State.ABSENT
            self.used -= victim.wanted.room
            if victim.leases:
                self._demanded.append(victim)
            self._forget(victim)
            self._changed.notify_all()
