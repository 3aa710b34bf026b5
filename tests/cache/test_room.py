"""The room of a cache: it keeps its capacity, never waits forever, and keeps the items that are needed soonest."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.cache.order import NEVER, turns
from nbdata.cache.room import CacheRoom
from nbdata.errors import AccessDenied
from tests.waiting import PATIENCE


class Impatient(CacheRoom):
    """Does not wait for room, because the test itself makes room."""

    def take(self, *args):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("nbdata.cache.room._POLL", 0.0)
            return super().take(*args)


class Disk:
    """Counts the items on the disk."""

    def __init__(self, capacity, ahead=None):
        self.room = Impatient(capacity, self.remove, ahead=ahead)
        self.used = self.most = self.fetched = 0

    def put(self, slot):
        self.used += slot.room
        self.most = max(self.most, self.used)
        self.fetched += 1

    def remove(self, slot):
        self.used -= slot.room


def never():
    raise AssertionError("would wait for ever")


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 10), min_size=1, max_size=12),
    spare=st.integers(0, 40),
    epochs=st.integers(1, 3),
    shuffle=st.booleans(),
    keep=st.booleans(),
    ahead=st.integers(1, 5),
    share=st.none() | st.integers(0, 60),
)
def test_it_never_holds_more_than_its_capacity_and_always_goes_on(
    sizes, spare, epochs, shuffle, keep, ahead, share
):
    disk = Disk(max(sizes) + spare, share)
    waiting = []  # taken in order, and not used yet

    def consume():
        turn, slot = waiting.pop(0)
        disk.room.release(slot, turn.next_use if keep else NEVER)

    for turn in turns(len(sizes), epochs=epochs, shuffle=shuffle):
        slot, new = disk.room.take(
            turn.item, sizes[turn.item], turn.position, lambda: consume() if waiting else never()
        )
        if new:
            disk.put(slot)
        waiting.append((turn, slot))
        assert disk.room.used <= disk.room.capacity
        if len(waiting) > ahead:
            consume()
    while waiting:
        consume()
    assert disk.most <= disk.room.capacity
    assert disk.used == disk.room.used == 0
    if not keep and ahead == 1 and len(sizes) > 2 and not shuffle:
        assert disk.fetched == epochs * len(sizes)


@pytest.mark.parametrize("shuffle", [False, True])
def test_what_is_fetched_ahead_does_not_push_out_what_is_kept(shuffle):
    disk = Disk(80, ahead=20)
    waiting = []

    def consume():  # as late as possible, so everything that fits is fetched ahead
        turn, slot = waiting.pop(0)
        disk.room.release(slot, turn.next_use)

    for turn in turns(100, epochs=4, shuffle=shuffle):
        slot, new = disk.room.take(turn.item, 1, turn.position, lambda: consume() if waiting else never())
        if new:
            disk.put(slot)
        waiting.append((turn, slot))
    assert disk.most <= 80
    assert disk.fetched <= 100 + 3 * 55  # of 100 items some 60 can stay, because 20 of 80 are for readahead


@pytest.mark.parametrize("shuffle", [False, True])
def test_what_fits_stays_for_the_next_epoch(shuffle):
    disk = Disk(50)
    for turn in turns(100, epochs=4, shuffle=shuffle):
        slot, new = disk.room.take(turn.item, 1, turn.position, never)
        if new:
            disk.put(slot)
        disk.room.release(slot, turn.next_use)
    # With the best order of deletions, nearly half of each later epoch comes from the cache.
    assert disk.fetched <= 100 + 3 * 60


def test_an_item_that_is_in_use_is_not_fetched_again():
    room = CacheRoom(10, lambda slot: None)
    first, new = room.take(7, 10, 0, never)
    assert new
    again, new = room.take(7, 10, 1, never)
    assert again is first
    assert not new
    room.release(first)
    assert room.used == 10
    room.release(again)
    assert room.used == 0


def test_who_needs_room_waits_until_it_is_deleted_and_can_be_stopped():
    gone, may_go = threading.Event(), threading.Event()

    def remove(slot):
        may_go.wait(PATIENCE)
        gone.set()

    room = CacheRoom(10, remove)
    slot, _ = room.take(0, 10, 0, never)
    threading.Thread(target=room.release, args=(slot,), daemon=True).start()
    asked = 0

    def pause():
        nonlocal asked
        asked += 1
        assert not gone.is_set() or asked < 50
        may_go.set()

    room.take(1, 10, 1, pause)
    assert gone.is_set()

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        room.take(2, 10, 2, stop)


def test_room_that_cannot_be_freed_is_not_given_away():
    def remove(slot):
        raise AccessDenied("the disk refuses")

    room = CacheRoom(10, remove)
    slot, _ = room.take(0, 10, 0, never)
    room.release(slot)
    with pytest.raises(AccessDenied):
        room.take(1, 10, 1, never)
    assert room.used == 10


def test_an_item_larger_than_the_capacity_is_refused_at_once():
    with pytest.raises(ValueError, match="capacity"):
        CacheRoom(10, lambda slot: None).take(0, 11, 0, never)
