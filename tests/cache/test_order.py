"""The order of items: each epoch has all items, parts are disjoint, and each item's next use is predicted right."""

from hypothesis import given
from hypothesis import strategies as st

from nbdata.cache.order import NEVER, turns

_COUNTS, _EPOCHS = st.integers(0, 30), st.integers(1, 4)


@given(_COUNTS, _EPOCHS, st.booleans(), st.integers(0, 5), st.integers(1, 5))
def test_the_parts_are_disjoint_and_together_all_of_every_epoch(count, epochs, shuffle, seed, of):
    for epoch in range(epochs):
        dealt = [
            turn.item
            for number in range(of)
            for turn in turns(count, epochs=epochs, shuffle=shuffle, seed=seed, part=(number, of))
            if turn.epoch == epoch
        ]
        assert sorted(dealt) == list(range(count))


@given(_COUNTS, _EPOCHS, st.booleans(), st.integers(1, 3))
def test_the_next_use_is_when_the_item_comes_in_the_next_epoch(count, epochs, shuffle, of):
    all_turns = list(turns(count, epochs=epochs, shuffle=shuffle, part=(0, of)))
    assert [turn.position for turn in all_turns] == list(range(len(all_turns)))
    at = {(turn.epoch, turn.item): turn.position for turn in all_turns}
    for turn in all_turns:
        assert turn.next_use == at.get((turn.epoch + 1, turn.item), NEVER)


def test_the_seed_decides_the_order_and_each_epoch_has_its_own():
    def order(**options):
        return [turn.item for turn in turns(100, shuffle=True, **options)]

    assert order(seed=1) == order(seed=1)
    assert order(seed=1) != order(seed=2)
    two = order(epochs=2)
    assert two[:100] != two[100:]
    assert order(first=1) == two[100:]


def test_without_a_shuffle_items_come_in_key_order():
    assert [(t.epoch, t.item) for t in turns(2, epochs=2, first=3)] == [(3, 0), (3, 1), (4, 0), (4, 1)]
