"""Rows are cut into parts: each row once and in order, few rows a part, smaller parts at the end."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from nbdata.cluster.cutting import Cutter, cost
from nbdata.engine.job.dealing import MOST
from nbdata.report import Row

SIZES = st.lists(st.integers(-1, 1 << 32), max_size=300)


def rows_of(sizes: list[int]) -> list[Row]:
    return [Row(f"f{number}", "fetch", size, {}) for number, size in enumerate(sizes)]


def parts_of(rows: list[Row], places: int, seconds: float) -> list[list[Row]]:
    cutter = Cutter(iter(rows), len(rows), sum(max(0, row.size) for row in rows))
    parts = []
    while part := cutter.part(places):
        parts.append(part)
        cutter.measured(sum(map(cost, part)), seconds)
    assert not cutter
    return parts


@given(SIZES, st.integers(0, 50), st.floats(0, 100))
def test_each_row_is_in_one_part_and_in_order(sizes: list[int], places: int, seconds: float) -> None:
    rows = rows_of(sizes)
    parts = parts_of(rows, places, seconds)
    assert list(itertools.chain(*parts)) == rows
    assert all(parts)


def test_parts_are_bounded_however_fast_the_workers_are() -> None:
    parts = parts_of(rows_of([0] * 50_000), 1, 0.0001)
    assert max(map(len, parts)) == MOST


def test_a_large_object_is_a_part_of_its_own() -> None:
    parts = parts_of(rows_of([1, 1, 10 << 30, 1, 1]), 2, 1.0)
    assert [row.size for row in next(part for part in parts if any(row.size > 1 for row in part))] == [
        10 << 30
    ]


def test_parts_become_smaller_at_the_end() -> None:
    rows = rows_of([1 << 20] * 5_000)
    cutter = Cutter(iter(rows), len(rows), len(rows) << 20)
    lengths = []
    while part := cutter.part(4):
        lengths.append(len(part))
        cutter.measured(sum(map(cost, part)), sum(map(cost, part)) / (100 << 20))
    middle = lengths[len(lengths) // 2]
    assert lengths[-1] < middle / 4
