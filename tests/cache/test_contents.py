"""A cache with many consumers: whatever consumers and fetches do, its room, leases and contents stay right."""

from __future__ import annotations

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nbdata.cache.cached_objects import Wanted
from nbdata.cache.contents import CacheContents
from nbdata.errors import BadOption, Cancelled, NbdataError, NotFound
from nbdata.protocols import Epoch
from tests.waiting import PATIENCE

ROOMS = {f"object-{n}": 1 + n % 4 for n in range(14)}
NAMES = st.lists(st.sampled_from(sorted(ROOMS)), min_size=1, max_size=5, unique=True)
CONSUMERS = st.sampled_from(["A", "B", "C"])


def wanted(*names: str) -> list[Wanted]:
    return [Wanted(name, ROOMS[name], None) for name in names]


def test_what_is_larger_than_the_cache_is_not_fetched_ahead_and_nothing_goes_for_it():
    cache = CacheContents(3, lambda name: pytest.fail("it went in vain"))
    cache.there(Wanted("there", 2, None))
    cache.announce("A", [Wanted("large", 4, None), Wanted("small", 1, None)])
    chosen = cache.next(0)
    assert chosen is not None
    assert chosen.name == "small"


def test_a_waiter_is_told_when_another_thread_releases_its_lease():
    cache = CacheContents(3, lambda name: None)
    cache.acquire("lease", "A", [Wanted("a", 1, None)])
    threading.Timer(0.05, cache.end, ["A"]).start()
    with pytest.raises(Cancelled):
        cache.wait("lease", PATIENCE)


class Caches(RuleBasedStateMachine):
    """Models the disk as `self.disk`: maps each name to True if it is complete."""

    @initialize(capacity=st.integers(4, 20), found=NAMES)
    def begin(self, capacity, found):
        self.disk: dict[str, bool] = {}
        self.leases: dict[int, tuple[str, list[str]]] = {}
        self.failed: dict[int, set[str]] = {}
        self.count = 0
        self.cache = CacheContents(capacity, self.remove)
        for name in found:
            if sum(ROOMS[one] for one in self.disk) + ROOMS[name] <= capacity:
                self.disk[name] = True
                self.cache.there(wanted(name)[0])

    def remove(self, name):
        assert self.disk[name], "what is on its way was removed"
        assert not self.held(name), "what a lease holds was removed"
        objects = self.cache._objects
        if objects[name].announced:
            free = [one for one, found in objects.items() if found.idle and not found.announced]
            assert not free, "what was announced went before what was not"
        del self.disk[name]

    def held(self, name):
        return any(name in names and self.has(lease) for lease, (_, names) in self.leases.items())

    def has(self, lease):
        """True if a lease is filled."""
        return self.cache.wait(lease, 0) is not None

    @rule(consumer=CONSUMERS, names=NAMES)
    def announce(self, consumer, names):
        self.cache.announce(consumer, wanted(*names))

    @rule(consumer=CONSUMERS)
    def unannounce(self, consumer):
        self.cache.unannounce(consumer)

    @rule(consumer=CONSUMERS, names=NAMES)
    def acquire(self, consumer, names):
        self.count += 1
        if sum(ROOMS[name] for name in names) > self.cache.capacity:
            with pytest.raises(BadOption):
                self.cache.acquire(self.count, consumer, wanted(*names))
            return
        self.cache.acquire(self.count, consumer, wanted(*names))
        self.leases[self.count] = consumer, names

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data):
        lease = data.draw(st.sampled_from(sorted(self.leases)))
        del self.leases[lease]
        self.cache.release(lease)

    @rule(
        consumer=CONSUMERS,
        loop=st.sampled_from("xy"),
        number=st.integers(0, 3),
        whole=st.booleans(),
        over=st.booleans(),
    )
    def tell_an_epoch(self, consumer, loop, number, whole, over):
        self.cache.note_epoch(consumer, Epoch(loop, str(number), whole, over))

    @rule(consumer=CONSUMERS)
    def die(self, consumer):
        self.leases = {n: held for n, held in self.leases.items() if held[0] != consumer}
        self.cache.end(consumer)

    @rule()
    def fetch(self):
        chosen = self.cache.next(0)
        if chosen is not None:
            assert chosen.name not in self.disk
            self.disk[chosen.name] = False

    @precondition(lambda self: not all(self.disk.values()))
    @rule(data=st.data(), well=st.booleans())
    def land(self, data, well):
        name = data.draw(st.sampled_from(sorted(name for name, whole in self.disk.items() if not whole)))
        self.end_fetch(name, well=well)

    def end_fetch(self, name, *, well):
        if well:
            self.disk[name] = True
            self.cache.committed(name)
        else:
            del self.disk[name]
            self.cache.failed(name, NotFound("it is gone", path=name))

    @rule()
    def all_leases_are_filled_at_some_time(self):
        while self.leases:
            for name in [name for name, whole in self.disk.items() if not whole]:
                self.end_fetch(name, well=True)
            while (chosen := self.cache.next(0)) is not None:
                self.disk[chosen.name] = False
                self.end_fetch(chosen.name, well=True)
            filled = [lease for lease in self.leases if self.has(lease)]
            assert filled, "nobody can go on"
            for lease in filled:
                _, names = self.leases.pop(lease)
                errors = self.cache.wait(lease, 0)
                assert all(self.disk.get(name) or name in errors for name in names)
                self.cache.release(lease)

    @invariant()
    def what_is_on_the_disk_has_room(self):
        taken = sum(ROOMS[name] for name in self.disk)
        assert taken == self.cache.used <= self.cache.capacity

    @invariant()
    def what_filled_leases_hold_is_there(self):
        for lease, (_, names) in self.leases.items():
            errors = self.cache.wait(lease, 0)
            if errors is not None:
                assert all(self.disk.get(name) or name in errors for name in names)

    def teardown(self):
        if not hasattr(self, "cache"):
            return
        for consumer in "ABC":
            self.cache.end(consumer)
        for name in [name for name, whole in self.disk.items() if not whole]:
            self.end_fetch(name, well=True)
        assert self.cache.next(0) is None
        assert set(self.cache._objects) == set(self.disk), "something is remembered that is not there"
        assert set(self.cache._unwanted._idle) == set(self.disk), "something could never go, or twice"


def test_whatever_consumers_and_fetches_do_the_cache_stays_correct():
    run_state_machine_as_test(
        Caches, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )


def cache_with(*names: str, capacity: int) -> tuple[CacheContents, list[str]]:
    """Return a cache with these objects, oldest first, and the list of objects that it removes."""
    removed: list[str] = []
    cache = CacheContents(capacity, removed.append)
    for name in names:
        cache.there(Wanted(name, 1, None))
    return cache, removed


def one(name: str) -> list[Wanted]:
    return [Wanted(name, 1, None)]


def test_the_least_recently_used_goes_first():
    cache, removed = cache_with("a", "b", "c", capacity=3)
    cache.acquire(1, "A", one("a"))
    cache.release(1)
    cache.acquire(2, "A", one("d"))
    assert cache.next(0).name == "d"
    assert removed == ["b"]


def test_what_a_loop_still_needs_in_its_epoch_stays_and_the_most_recent_goes():
    cache, removed = cache_with("a", "b", "c", capacity=3)
    cache.note_epoch("A", Epoch("loop", "0"))
    for number, name in enumerate("cdea"):
        cache.announce("A", one(name))
        cache.acquire(number, "A", one(name))
        chosen = cache.next(0)
        if chosen is not None:
            cache.committed(chosen.name)
        assert cache.wait(number, 0) == {}
        cache.release(number)
    assert removed == ["c", "d"]


def test_what_was_announced_goes_last_and_of_it_what_comes_last():
    cache, removed = cache_with("a", "b", "c", capacity=3)
    cache.announce("A", one("a") + one("b"))
    for number, name in enumerate("def"):
        cache.acquire(number, "B", one(name))
        assert cache.next(0).name == name
        cache.committed(name)
    assert removed == ["c", "b", "a"]


def test_what_is_only_announced_removes_nothing_that_is_announced():
    cache, removed = cache_with("a", "b", capacity=2)
    cache.announce("A", one("a") + one("b") + one("c"))
    assert cache.next(0) is None
    assert removed == []


def test_what_is_needed_now_comes_before_what_was_announced():
    cache, _ = cache_with(capacity=9)
    cache.announce("A", one("a"))
    cache.acquire(1, "B", one("b"))
    assert [cache.next(0).name, cache.next(0).name] == ["b", "a"]


def test_consumers_take_turns_in_what_comes_ahead():
    cache, _ = cache_with(capacity=9)
    cache.announce("A", one("a") + one("b"))
    cache.announce("B", one("c") + one("d"))
    assert [cache.next(0).name for _ in range(4)] == ["a", "c", "b", "d"]


def test_what_is_left_of_old_announcements_is_bounded():
    cache, _ = cache_with("a", "b", capacity=2)
    for number in range(5000):
        cache.announce("A", one("a"))
        cache.acquire(number, "A", one("a"))
        cache.release(number)
    assert len(cache._latest) < 1100
    assert not cache._announced["A"].objects
    cache.next(0)
    assert not cache._announced["A"].unfetched


def test_a_waiter_is_told_of_a_removal_that_fails():
    def remove(name: str) -> None:
        raise NbdataError("it cannot be removed", path=name)

    cache = CacheContents(1, remove)
    cache.there(Wanted("a", 1, None))
    cache.acquire(1, "A", one("b"))
    with pytest.raises(NbdataError, match="cannot be removed"):
        cache.next(0)
    with pytest.raises(NbdataError, match="cannot be removed"):
        cache.wait(1)


def test_a_new_lease_wakes_the_thread_that_waits_for_something_to_fetch():
    cache, _ = cache_with(capacity=1)
    found = []
    waiting = threading.Thread(target=lambda: found.append(cache.next(PATIENCE)))
    waiting.start()
    cache.acquire(1, "A", one("a"))
    waiting.join(PATIENCE)
    assert found[0].name == "a"


def test_a_later_lease_holds_no_room_that_an_earlier_one_needs():
    cache, removed = cache_with("c", capacity=2)
    cache.acquire(1, "A", one("a") + one("b"))
    cache.acquire(2, "B", one("c") + one("d"))
    for name in "ab":
        assert cache.next(0).name == name
        cache.committed(name)
    assert removed == ["c"]
    assert cache.wait(1, 0) == {}
    cache.release(1)
    for name in "cd":
        assert cache.next(0).name == name
        cache.committed(name)
    assert cache.wait(2, 0) == {}
