"""The room of a bounded cache: which items are on disk, which wait, and which must go.

Room is reserved before the first byte is fetched and released after the last byte is deleted. So the bytes on disk
never exceed the capacity. The idle item that must go is the one whose next use is farthest away. Here the next use is
known; most caches must guess it (L. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
Systems Journal 5(2), 1966).
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

from nbdata.cache.order import NEVER
from nbdata.errors import NbdataError

__all__ = ["CacheRoom", "Slot"]

# Seconds between two checks whether a waiting item is still wanted.
_POLL = 0.1


class Slot:
    """One item that is on disk or being fetched.

    Attributes
    ----------
    number : int
        Its number, never used twice; it names the slot's folder.
    item : int
        The index of the item.
    room : int
        The most bytes of disk.
    pins : int
        How many turns want it or use it. The item stays while there are any.
    next_use : int
        The position of its next use.
    """

    __slots__ = ("item", "next_use", "number", "pins", "room")

    def __init__(self, number: int, item: int, room: int) -> None:
        self.number, self.item, self.room = number, item, room
        self.pins, self.next_use = 1, NEVER


class CacheRoom:
    """The slots of one cache. One thread at a time calls `take`; any thread may call the rest.

    Parameters
    ----------
    capacity : int
        Bytes.
    ahead : int, optional
        Bytes that items being fetched or used may take before items kept for later must go (None: all). An item that is
        needed at once gets its room in any case.
    remove : callable
        Deletes a slot's files. Its error is raised by the next `take`, because room that is not free must not be given
        away.
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
        """Return a pinned slot for an item, and whether it is new, so that its bytes must be fetched.

        Waits until there is room. Meanwhile it calls `pause` repeatedly, which may raise. Without `pause` it does not
        wait: the result is None if there is no room now.

        Parameters
        ----------
        room : int
            The most bytes of disk for the item, at most the capacity.
        position : int
            The position at which it is needed. Idle items that are needed earlier stay while waiting can make room.
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
        """The idle slot with the farthest next use. None if it is needed before the new item, and waiting helps."""
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
        """End one turn. An item that is not needed again is deleted now."""
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
