"""Shuffled orders contain each number once, differ for each epoch, and never change between versions."""

from __future__ import annotations

from collections import Counter

import pytest

from nbdata.formats.permutation import Permutation


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 17, 64, 65, 1000])
def test_each_number_comes_once(count: int) -> None:
    assert sorted(Permutation(count, seed=3, epoch=1)) == list(range(count))


def test_it_depends_on_seed_and_epoch_alone() -> None:
    assert list(Permutation(10, seed=1, epoch=0)) == [7, 1, 0, 2, 3, 9, 8, 5, 4, 6]
    orders = {tuple(Permutation(100, seed=seed, epoch=epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_all_orders_are_about_equally_frequent() -> None:
    counts = Counter(tuple(Permutation(4, seed=seed, epoch=0)) for seed in range(4800))
    assert len(counts) == 24
    assert min(counts.values()) > 130
    assert max(counts.values()) < 270


def test_a_million_takes_no_memory() -> None:
    order = Permutation(1_000_000_000, seed=1, epoch=0)
    assert len({order[position] for position in range(1000)}) == 1000
    with pytest.raises(IndexError):
        order[1_000_000_000]
