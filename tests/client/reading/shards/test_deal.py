"""Shards are distributed to parts: however often the number of parts changes, each shard is read once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.client.reading.shards.deal import Left, merged, work_of
from nbdata.errors import BadOption


class Epoch:
    """An epoch of shards with these numbers of samples, without any bytes."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.left = sizes, Left()
        self.seen = [0] * len(sizes)

    def run(self, parts: int, open_at_once: int, steps: int) -> None:
        """Run this many steps in each part, then continue with what is left."""
        states = []
        for number in range(parts):
            work = work_of((number, parts), len(self.sizes), self.left)
            assert work.share == (0, 1)
            states.append(self._part(number, parts, work.positions, open_at_once, steps))
        self.left = Left.of(json.loads(json.dumps(merged(states, len(self.sizes)).to_dict())))

    def _part(self, number: int, parts: int, positions: Any, open_at_once: int, steps: int) -> dict[str, Any]:
        at, opened = 0, list[list[int]]()
        while steps:
            while len(opened) < open_at_once and at < len(positions):
                opened.append([positions[at], self.left.begun.get(positions[at], 0)])
                at += 1
            if not opened:
                break
            slot = opened[steps % len(opened)]
            if slot[1] == self.sizes[slot[0]]:
                opened.remove(slot)
                continue
            slot[1] += 1
            self.seen[slot[0]] += 1
            steps -= 1
        common = {"samples": "", "shuffle": True, "seed": 0, "epoch": 0, "window": 1}
        return {
            **common, "part": f"{number}/{parts}", "left": self.left.to_dict(), "next": at, "open": opened,
        }  # fmt: skip


@given(
    sizes=st.lists(st.integers(0, 6), min_size=4, max_size=12),
    runs=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 12)), max_size=5),
)
@settings(max_examples=300, deadline=None)
def test_however_often_parts_change_each_sample_comes_once(
    sizes: list[int], runs: list[tuple[int, int, int]]
) -> None:
    epoch = Epoch(sizes)
    for parts, open_at_once, steps in runs:
        if parts <= len(sizes) - len(epoch.left.done):
            epoch.run(parts, open_at_once, steps)
    epoch.run(1, 2, sum(sizes) + 1)
    assert epoch.seen == sizes
    assert sorted(epoch.left.done) == list(range(len(sizes)))


def test_parts_that_share_a_shard_take_its_samples_in_turn() -> None:
    works = [work_of((number, 5), 2, Left()) for number in range(5)]
    assert [list(work.positions) for work in works] == [[0], [1], [0], [1], [0]]
    assert [work.share for work in works] == [(0, 3), (0, 2), (1, 3), (1, 2), (2, 3)]


def state(part: str, **more: Any) -> dict[str, Any]:
    return {
        "samples": "", "shuffle": False, "seed": 0, "epoch": 0, "window": 1, "part": part, "next": 1, "open": [[0, 1]],
        "left": Left().to_dict(), **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ([], "no states"),
        ([state("0/2")], "not the states of all parts"),
        ([state("0/2"), state("0/2")], "not the states of all parts"),
        ([state("0/2"), state("1/2", epoch=1)], "epoch differs"),
        ([state(f"{n}/9") for n in range(9)], "more parts than there are shards"),
    ],
)
def test_states_that_are_not_all_of_an_epoch_are_refused(states: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        merged(states, 4)
