"""Ranks of a stream that would make unequal numbers of steps are told beforehand, as far as that is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import nbdata
from nbdata.client.reading.dealers import Batching
from nbdata.client.reading.samples import Samples
from nbdata.client.reading.shards.deal import shares_of
from nbdata.client.reading.shares import Shares, told_of_unequal
from nbdata.ffrecord import FileWriter


@pytest.mark.parametrize(
    ("parts", "ranks", "batching", "told"),
    [
        ([145, 144], 2, Batching(16), "some make 9 steps of this epoch and others 10.*after 9 steps"),
        ([145, 144], 2, Batching(16, drop_last=True), ""),
        ([144, 144], 2, Batching(16), ""),
        ([145, 144], 2, Batching(16, most_steps=9), ""),
        ([145, 144], 2, Batching(16, most_steps=10), "others 10"),
        ([9, 8, 8, 8], 2, Batching(4), "some make 4 steps of this epoch and others 5"),  # two workers each
        ([9, 7, 8, 9], 2, Batching(4), ""),
        ([102, 101], 2, Batching(), "some get 101 samples of this epoch and others 102"),
        ([102, 101], 2, Batching(most_steps=0), ""),
    ],
)
def test_steps_are_compared_as_the_workers_of_a_rank_make_them(
    parts: list[int], ranks: int, batching: Batching, told: str
) -> None:
    said = told_of_unequal(Shares(parts), ranks, batching)
    assert bool(said) == bool(told)
    assert re.search(told, said)


def loose(folder: Path) -> Samples:
    for number in range(23):
        (folder / f"{number:02}.bin").write_bytes(b"x")
    return nbdata.samples(folder, quiet=True)


def records(folder: Path) -> Samples:
    with FileWriter(str(folder / "a.ffr"), 23) as writer:
        for _ in range(23):
            writer.write_one(b"x")
    return nbdata.samples(str(folder / "a.ffr"), quiet=True)


def shards(folder: Path) -> Samples:
    with nbdata.write_shards(str(folder / "a-%06d.tar"), shard_samples=9) as writer:
        for number in range(23):
            writer.write({"__key__": f"{number:02}", "bin": b"x"})
    return nbdata.samples(str(folder / "a.json"), quiet=True)


@pytest.mark.parametrize("made", [loose, records, shards])
def test_the_shares_are_those_of_the_parts_that_are_read(
    made: Callable[[Path], Samples], tmp_path: Path
) -> None:
    with made(tmp_path) as samples:
        for parts in (1, 2, 3, 4, 7):
            order = {"shuffle": True, "seed": parts, "epoch": 2}
            read = [len(list(samples.stream(part=f"{n}/{parts}", **order))) for n in range(parts)]  # type: ignore[arg-type]
            assert samples.shares(parts, **order) == Shares(read)  # type: ignore[arg-type]


def test_shards_of_which_no_index_tells_the_samples_are_counted_themselves(tmp_path: Path) -> None:
    shards(tmp_path)
    with nbdata.samples(str(tmp_path / "a-*.tar"), quiet=True) as samples:
        assert samples.shares(2) == Shares([2, 1], "shards")
        assert samples.shares(6) == Shares([Fraction(1, 2)] * 6, "shards")
        assert len(samples) == 23  # makes the index
        assert samples.shares(2).unit == "samples"
        assert sum(samples.shares(2).of_parts) == 23
    assert told_of_unequal(Shares([2, 1], "shards"), 2, Batching(4)).startswith(
        "nbdata: of 2 ranks, some get 1 shard of"
    )


def test_parts_that_share_a_shard_have_its_samples_in_turn() -> None:
    assert shares_of(4, [1, 0], [7, 4]).of_parts == [2, 4, 2, 3]
