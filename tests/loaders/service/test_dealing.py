"""However consumers come, use, die and come again: no batch is lost, and nobody has one that another one has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nbdata.loaders.service.batches import Encoded
from nbdata.loaders.service.dealing import Batch, Consumer, Pass

COUNT = 12
MOVES = st.lists(
    st.tuples(st.sampled_from(["make", "use", "die", "again"]), st.integers(0, 2), st.integers(0, 3)),
    max_size=60,
)


class Scene:
    """A pass with three consumers, of which some are connected."""

    def __init__(self, mode: str) -> None:
        self.now = Pass(1, mode)
        self.now.running = True
        self.there: dict[int, Consumer] = {}
        self.used: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def connect(self, who: int, holds: list[int], following: int | None) -> list[int]:
        consumer = Consumer(str(who), "", b"", 3, asks=True)
        theirs = self.now.rejoin(consumer, holds, following)
        self.there[who] = consumer
        return theirs

    def make(self) -> None:
        if self.now.made < COUNT:
            number = self.now.made
            self.now.add(Batch(number, Encoded(b"", [], 10 + number), {"at": number}))

    def use(self, who: int, many: int) -> None:
        if who not in self.there:
            self.connect(who, [], None)
        consumer = self.there[who]
        list(self.now.deal(consumer))
        some = list(consumer.out)[: many + 1]
        self.used[who] += some
        self.now.acknowledge(consumer, some, self.there.values())

    def die(self, who: int) -> list[int]:
        if who not in self.there:
            return []
        consumer = self.there.pop(who)
        held = list(consumer.out)
        self.now.gone(consumer, self.there.values())
        return held

    def look(self) -> None:
        now = self.now
        assert now.held == sum(batch.content.size for batch in now.batches.values())
        if now.mode == "share":
            out = [number for one in self.there.values() for number in one.out]
            assert len(out) == len(set(out))
            ready = set(now._ready)
            assert not ready & set(out)
            assert ready | set(out) == now.batches.keys(), "each is somewhere"
            assert now.batches.keys() | {n for n in now.done if n < now.made} >= set(
                range(now.lowest, now.made)
            )
        first, done = now.position()
        assert all(number >= first for number in done)


@given(moves=MOVES)
def test_share_loses_nothing_and_gives_a_batch_to_one_at_a_time(moves: list[tuple[str, int, int]]) -> None:
    scene = Scene("share")
    for move, who, many in moves:
        if move == "make":
            scene.make()
        elif move == "use":
            scene.use(who, many)
        else:
            held = scene.die(who)
            if move == "again" and held:
                assert scene.connect(who, held, None) == [], "nobody else was given them meanwhile"
        scene.look()
    while scene.now.made < COUNT:
        scene.make()
    scene.now.whole = True
    for _ in range(COUNT):
        for who in range(3):
            scene.use(who, 3)
    used = sorted(number for numbers in scene.used.values() for number in numbers)
    assert used == list(range(COUNT))
    assert scene.now.ended(scene.there.values())
    assert scene.now.held == 0


@given(moves=MOVES)
def test_broadcast_gives_all_who_stay_the_same(moves: list[tuple[str, int, int]]) -> None:
    scene = Scene("broadcast")
    scene.connect(0, [], None)
    for move, who, many in moves:
        if move == "make":
            scene.make()
        elif move == "use":
            scene.use(who, many)
        elif who:  # the first one stays
            scene.die(who)
        scene.look()
    while scene.now.made < COUNT:
        scene.make()
    scene.now.whole = True
    for _ in range(COUNT):
        for who in list(scene.there):
            scene.use(who, 3)
    assert scene.used[0] == list(range(COUNT))
    assert scene.now.ended(scene.there.values())
    assert not scene.now.batches


def made(mode: str, absent: dict[str, list[int]]) -> Pass:
    now = Pass(1, mode, absent=absent)
    now.running = True
    for number in range(5):
        now.add(Batch(number, Encoded(b"", [], 1), None))
    return now


def test_what_a_consumer_had_before_a_restart_waits_for_it() -> None:
    now = made("share", {"back": [0, 2], "gone": [3]})
    other, back = Consumer("other", "", b"", 9, asks=True), Consumer("back", "", b"", 9, asks=True)
    assert now.out([]) == {"back": [0, 2], "gone": [3]}
    now.join(other)
    assert [batch.number for batch in now.deal(other)] == [1, 4]
    assert now.rejoin(back, [2], None) == []
    assert list(back.out) == [2]
    assert now.out([other, back]) == {"other": [1, 4], "back": [2], "gone": [3]}
    assert [batch.number for batch in now.deal(other)] == [0], "it has never arrived"
    now.release_all([other, back])
    assert [batch.number for batch in now.deal(other)] == [3]


def test_a_broadcast_keeps_what_a_consumer_may_not_have_had_before_a_restart() -> None:
    now = made("broadcast", {"back": [1]})
    now.whole = True
    other, back = Consumer("other", "", b"", 9, asks=True), Consumer("back", "", b"", 9, asks=True)
    now.join(other)
    now.acknowledge(other, [batch.number for batch in now.deal(other)], [other])
    assert now.out([other]) == {"back": [1], "other": [5]}
    other.ended = 1
    assert not now.ended([other])
    now.rejoin(back, [1], 2)
    assert [batch.number for batch in now.deal(back)] == [2, 3, 4]
    now.acknowledge(back, [1, 2, 3, 4], [other, back])
    back.ended = 1
    assert now.ended([other, back])
