"""What leaves a cache first, by the epochs that loops tell: the rule by example, and beside a plain model of it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from nbdata.cache import eviction
from nbdata.cache.eviction import EvictionOrder
from nbdata.protocols import Epoch


def begin(order: EvictionOrder, loop: str, number: int, *, whole: bool = True) -> None:
    order.note_epoch(f"of {loop}", Epoch(loop, str(number), whole))


def over(order: EvictionOrder, loop: str, number: int) -> None:
    order.note_epoch(f"of {loop}", Epoch(loop, str(number), over=True))


def use(order: EvictionOrder, loop: str, names: str) -> None:
    for name in names:
        order.use(f"of {loop}", name)
        order.add(name)


def epoch(order: EvictionOrder, loop: str, number: int, names: str) -> None:
    begin(order, loop, number)
    use(order, loop, names)
    over(order, loop, number)


def found(names: str) -> EvictionOrder:
    """An order of objects that were there at the start, the oldest first."""
    order = EvictionOrder()
    for name in names:
        order.add(name)
    return order


def going(order: EvictionOrder) -> str:
    """All objects as they would go, if nothing else came."""
    names = ""
    while (name := order.victim()) is not None:
        order.discard(name)
        names += name
    assert not len(order)
    return names


def test_while_nobody_tells_epochs_the_least_recently_used_goes_first():
    order = found("abc")
    order.use("somebody", "a")
    order.add("a")
    assert going(order) == "bca"


def test_what_the_loop_has_used_in_its_epoch_goes_first_and_what_it_still_needs_last():
    order = found("")
    epoch(order, "A", 0, "abcde")
    begin(order, "A", 1)
    use(order, "A", "ca")
    assert going(order) == "caedb"


def test_what_was_found_after_a_restart_is_kept_for_the_epoch_that_needs_it():
    order = found("abcd")
    begin(order, "A", 0)
    use(order, "A", "xb")
    assert going(order) == "xbdca"


def test_what_was_found_after_a_restart_and_no_whole_epoch_used_goes_first():
    order = found("opab")
    epoch(order, "A", 0, "abc")
    begin(order, "A", 1)
    use(order, "A", "c")
    assert going(order) == "opcba"


def test_an_epoch_that_was_resumed_or_interrupted_proves_nothing_stale():
    for whole, ends in ((False, True), (True, False)):
        order = found("ab")
        begin(order, "A", 0, whole=whole)
        use(order, "A", "c")
        if ends:
            over(order, "A", 0)
        begin(order, "A", 1)
        use(order, "A", "c")
        assert going(order) == "cba"


def test_an_epoch_of_which_one_process_knows_only_the_rest_proves_nothing_stale():
    order = found("ab")
    begin(order, "A", 0)
    order.note_epoch("another process", Epoch("A", "0", whole=False))
    use(order, "A", "c")
    over(order, "A", 0)
    begin(order, "A", 1)
    assert going(order) == "cba"


def test_all_processes_of_a_loop_tell_the_same_epoch():
    order = found("")
    epoch(order, "A", 0, "abc")
    begin(order, "A", 1)
    use(order, "A", "a")
    order.note_epoch("another", Epoch("A", "1"))
    order.use("another", "c")
    order.add("c")
    order.note_epoch("another", Epoch("A", "1", over=True))
    begin(order, "A", 2)
    order.note_epoch("another", Epoch("A", "1", over=True))  # late
    use(order, "A", "c")
    assert going(order) == "bca"


def test_what_every_loop_has_used_goes_before_what_only_one_has_used():
    order = found("")
    for loop in "AB":
        begin(order, loop, 0)
    use(order, "A", "abcd")
    use(order, "B", "ab")
    assert going(order) == "abdc"


def test_what_a_loop_has_not_used_in_its_last_epoch_is_not_kept_for_it():
    order = found("")
    epoch(order, "A", 0, "abcd")
    epoch(order, "B", 0, "xy")
    begin(order, "B", 1)
    begin(order, "A", 1)
    use(order, "A", "b")
    use(order, "B", "x")
    use(order, "A", "c")
    assert going(order) == "bxcyda"


def test_a_loop_that_is_slower_keeps_what_it_uses():
    order = found("")
    epoch(order, "slow", 0, "abc")
    begin(order, "slow", 1)
    for number in range(4):
        begin(order, "fast", number)
        use(order, "fast", "x")
        use(order, "slow", "a")
        use(order, "fast", "y")
        over(order, "fast", number)
    begin(order, "fast", 4)
    assert going(order) == "ayxcb"


def test_what_a_loop_used_that_has_ended_is_stale_after_a_whole_epoch_without_it():
    order = found("")
    epoch(order, "A", 0, "abc")
    begin(order, "A", 1)
    use(order, "A", "a")
    order.leave("of A")  # or nobody closes it
    begin(order, "B", 0)
    use(order, "B", "xy")
    assert order.victim() == "x"
    over(order, "B", 0)
    begin(order, "B", 1)
    use(order, "B", "x")
    assert going(order) == "bcaxy"


def test_a_loop_that_works_again_counts_again():
    order = found("")
    epoch(order, "training", 0, "abcd")
    begin(order, "training", 1)
    use(order, "training", "a")
    epoch(order, "validation", 0, "v")
    assert order.victim() == "b"
    order.touch("of training")
    use(order, "training", "b")
    assert going(order) == "abvdc"


def test_when_nobody_is_left_who_tells_epochs_the_least_recently_used_goes_first():
    order = found("")
    begin(order, "A", 0)
    use(order, "A", "abc")
    order.leave("of A")
    assert going(order) == "abc"


def test_no_more_loops_are_remembered_than_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(eviction, "MOST_LOOPS", 3)
    order = found("")
    for number in range(9):
        begin(order, f"loop {number}", 0)
        use(order, f"loop {number}", "a")
    assert len(order._loops) == 3
    assert {id(loop) for loop in order._loop_of.values()} == {id(loop) for loop in order._loops.values()}


OBJECTS = "abcdefgh"
LOOPS = {"one": "A", "two": "A", "three": "B", "four": None}  # of each consumer


class Orders(RuleBasedStateMachine):
    """The rule in plain lists and sets: all that was used by whom, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.order = EvictionOrder()
        self.now = 0
        self.idle: dict[str, int] = {}
        self.unneeded: list[str] = []  # in the order of their last use
        self.loops: dict[str, dict] = {}
        self.of: dict[str, str] = {}

    def tick(self) -> int:
        self.now += 1
        return self.now

    @rule(consumer=st.sampled_from(sorted(LOOPS)), whole=st.booleans(), number=st.integers(0, 3))
    def begin(self, consumer, whole, number):
        name = LOOPS[consumer]
        if name is None:
            return
        self.order.note_epoch(consumer, Epoch(name, str(number), whole))
        loop = self.loops.setdefault(name, {"epoch": None, "had": None, "passed": 0})
        if loop["epoch"] != number:
            loop.update(epoch=number, began=self.tick(), used=set(), whole=whole)
        loop["whole"] &= whole
        loop["last"] = self.tick()
        self.of[consumer] = name

    @rule(consumer=st.sampled_from(sorted(LOOPS)))
    def over(self, consumer):
        name = self.of.pop(consumer, None)
        if name is None:
            return
        loop = self.loops[name]
        self.order.note_epoch(consumer, Epoch(name, str(loop["epoch"]), over=True))
        if loop["whole"]:
            loop.update(whole=False, passed=loop["began"], had=loop["used"], used=set())

    @rule(consumer=st.sampled_from(sorted(LOOPS)), names=st.text(OBJECTS, min_size=1, max_size=4))
    def use(self, consumer, names):
        for name in names:
            self.order.use(consumer, name)
            if consumer in self.of:
                self.loops[self.of[consumer]]["used"].add(name)
                self.loops[self.of[consumer]]["last"] = self.tick()
        for name in names:
            self.add(name)

    def add(self, name):
        self.order.add(name)
        self.idle.pop(name, None)
        self.idle[name] = self.tick()
        self.unneeded = [one for one in self.unneeded if one != name]
        if self.loops and not self.needed(name):
            self.unneeded.append(name)

    @rule(consumer=st.sampled_from(sorted(LOOPS)))
    def leave(self, consumer):
        self.of.pop(consumer, None)
        self.order.leave(consumer)

    @rule()
    def evict(self):
        name = self.order.victim()
        if name is not None:
            self.order.discard(name)
            del self.idle[name]
            self.unneeded = [one for one in self.unneeded if one != name]

    def working(self):
        latest = max((loop["passed"] for loop in self.loops.values()), default=0)
        return [loop for loop in self.loops.values() if loop["last"] >= latest]

    def needed(self, name):
        return any(
            name not in loop["used"] and (loop["had"] is None or name in loop["had"])
            for loop in self.working()
        )

    @invariant()
    def the_right_one_goes(self):
        assert len(self.order) == len(self.idle)
        expected = None
        if self.idle:
            oldest, latest = next(iter(self.idle)), list(self.idle)[-1]
            stale = all(loop["passed"] > self.idle[oldest] for loop in self.working())
            if stale or not self.of:
                expected = oldest
            else:
                while self.unneeded and self.needed(self.unneeded[0]):  # a loop has begun an epoch since
                    self.unneeded.pop(0)
                expected = (self.unneeded or [latest])[0]
        assert self.order.victim() == expected


@pytest.mark.long
def test_whatever_loops_do_it_goes_by_the_rule():
    run_state_machine_as_test(
        Orders, settings=settings(max_examples=200, stateful_step_count=50, deadline=None)
    )
