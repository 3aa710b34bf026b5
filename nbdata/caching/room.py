"""The room of a bounded cache: who may be on the disk, who waits, and who has to go.

Room is taken before the first byte is fetched and given back after the last byte is deleted, so what is on the disk
never exceeds the capacity, at no moment. Which idle item has to go is decided by what is known and caches
usually have to guess: when it is needed again (L. Belady, "A study of replacement algorithms for a virtual-storage
computer", IBM Systems Journal 5(2), 1966).
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

from nbdata.caching.order import NEVER
from nbdata.errors import NbdataError

__all__ = ["CacheRoom", "Slot"]

# Seconds after which who waits for room looks whether it is still wanted.
_POLL = 0.1


class Slot:
    """One item on the disk, or on its way there.

    Attributes
    ----------
    number : int
        Never used twice; its folder is named after it.
    item : int
        Which item.
    room : int
        Bytes of disk, at most.
    pins : int
        How many turns want it or have it; it stays while there is one.
    next_use : int
        The position at which it is needed again.
    """

    __slots__ = ("item", "next_use", "number", "pins", "room")

    def __init__(self, number: int, item: int, room: int) -> None:
        self.number, self.item, self.room = number, item, room
        self.pins, self.next_use = 1, NEVER


class CacheRoom:
    """The slots of one cache; `take` is called by one thread at a time, all else by any.

    Parameters
    ----------
    capacity : int
        Bytes.
    ahead : int, optional
        Bytes that items on their way and in use may take before what is kept for later has to go for them (None: all).
        An item that is needed at once has its room in any case.
    remove : callable
        Deletes what a slot has on the disk. What it raises reaches who takes next: room that is not free must not
        be given away.
    """

    def __init__(self, capacity: int, remove: Callable[[Slot], None], *, ahead: int | None = None) -> None:
        self.capacity = capacity
        self._ahead = capacity if ahead is None else ahead
        self._kept = 0  # bytes of idle slots
        self._remove = remove
        self._changed = threading.Condition()
        self._slots: dict[int, Slot] = {}
        self._idle: set[Slot] = set()
        self._farthest: list[
            tuple[int, int, int, Slot]
        ] = []  # a heap; slots that are no longer idle are skipped
        self._made = 0
        self._broken: NbdataError | None = None
        self.used = 0

    def take(
        self, item: int, room: int, position: int, pause: Callable[[], None] | None = None
    ) -> tuple[Slot, bool] | None:
        """A pinned slot for an item, and whether it is new, so that its bytes have to be fetched.

        Waits until there is room; `pause` is called meanwhile, again and again, and may raise. Without it the answer is
        None where there is none now.

        Parameters
        ----------
        room : int
            Bytes of disk that the item takes at most; not more than the capacity.
        position : int
            Where in the order it is needed: idle items that are needed before it stay while waiting can make room.
        """
        if room > self.capacity:
            raise ValueError(f"{room} bytes are more than the capacity of {self.capacity}")
        while True:
            with self._changed:
                if self._broken is not None:
                    raise self._broken
                slot = self._slots.get(item)
                if slot is not None:
                    slot.pins += 1
                    self._unkeep(slot)
                    return slot, False
                if self.used + room <= self.capacity:
                    slot = Slot(self._made, item, room)
                    self._made += 1
                    self.used += room
                    self._slots[item] = slot
                    return slot, True
                pinned = self.used - self._kept
                victim = self._victim(position) if not pinned or pinned + room <= self._ahead else None
                if victim is None and pause is None:
                    return None
                if victim is None:
                    self._changed.wait(_POLL)
            if victim is not None:
                self._discard(victim)
            elif pause is not None:
                pause()

    def _victim(self, position: int) -> Slot | None:
        """The idle slot that is needed last, unless waiting is better: it is needed first, and others will go."""
        while self._farthest:
            _, _, next_use, slot = self._farthest[0]
            if slot not in self._idle or slot.next_use != next_use:
                heapq.heappop(self._farthest)
                continue
            if next_use < position and len(self._idle) < len(self._slots):
                return None
            heapq.heappop(self._farthest)
            self._unkeep(slot)
            del self._slots[slot.item]
            return slot
        return None

    def release(self, slot: Slot, next_use: int = NEVER) -> None:
        """One turn is over; an item that is not needed again is deleted now."""
        with self._changed:
            slot.pins -= 1
            slot.next_use = next_use
            if slot.pins:
                return
            if next_use < NEVER:
                self._idle.add(slot)
                self._kept += slot.room
                heapq.heappush(self._farthest, (-next_use, slot.number, next_use, slot))
                self._changed.notify_all()
                return
            if self._slots.get(slot.item) is slot:
                del self._slots[slot.item]
        self._discard(slot)

    def _unkeep(self, slot: Slot) -> None:
        if slot in self._idle:
            self._idle.discard(slot)
            self._kept -= slot.room

    def _discard(self, slot: Slot) -> None:
        try:
            self._remove(slot)
        except NbdataError as error:
            with self._changed:
                self._broken = error
                self._changed.notify_all()
            return
        with self._changed:
            self.used -= slot.room
            self._changed.notify_all()
