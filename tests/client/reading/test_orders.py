"""Batches in one global order: each sample comes once with any number of ranks, and readahead knows the next ones."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pytest

from nbdata.client.reading.orders import AheadBatches, AheadIndices, Batch, positions_of
from nbdata.errors import BadOption

pytestmark = pytest.mark.filterwarnings("ignore:nbdata. each epoch leaves out")


def of_ranks(count: int, size: int, ranks: int, **options: object) -> list[list[list[int]]]:
    return [
        [list(b) for b in AheadBatches(count, size, rank=r, world_size=ranks, shuffle=True, **options)]  # type: ignore[arg-type]
        for r in range(ranks)
    ]


def test_the_batches_of_an_epoch_have_each_sample_once_in_an_order_that_no_rank_changes() -> None:
    (alone,) = of_ranks(96, 8, 1)
    four = of_ranks(96, 2, 4)
    assert sorted(chain(*alone)) == list(range(96))
    assert [list(chain(*step)) for step in zip(*four, strict=True)] == alone


def test_the_length_is_of_a_whole_epoch_also_before_a_pass_that_resumes_in_its_middle() -> None:
    batches = AheadBatches(1488, 16)
    batches.set_epoch(0, start=464)
    assert len(batches) == 93
    assert len(list(batches)) == 64
    assert len(batches) == 93


@pytest.mark.parametrize(
    ("uneven", "steps", "seen"),
    [("drop", [3, 3, 3], 90), ("repeat", [4, 4, 4], 100), ("keep", [4, 3, 3], 100)],
)
def test_samples_that_do_not_fill_a_step_of_all_ranks_are_handled_as_documented(
    uneven: str, steps: list[int], seen: int
) -> None:
    ranks = of_ranks(100, 10, 3, uneven=uneven)
    assert [len(batches) for batches in ranks] == steps
    assert [len(AheadBatches(100, 10, rank=r, world_size=3, uneven=uneven)) for r in range(3)] == steps
    assert len({index for batches in ranks for batch in batches for index in batch}) == seen
    if uneven == "repeat":
        assert all(len(batch) == 10 for batches in ranks for batch in batches)


def test_the_last_batch_may_be_short_or_left_out() -> None:
    assert [len(b) for b in AheadBatches(10, 4)] == [4, 4, 2]
    assert [len(b) for b in AheadBatches(10, 4, drop_last=True)] == [4, 4]


def test_each_batch_knows_the_batches_that_come_next() -> None:
    batches = list(AheadBatches(10, 2, ahead=2))
    assert batches[0] == [0, 1]
    assert batches[0].ahead == [[2, 3], [4, 5]]
    assert batches[3].ahead == [[8, 9]]
    assert batches[4].ahead == []
    sent = pickle.loads(pickle.dumps(batches[0]))
    assert (sent, sent.ahead, type(sent)) == ([0, 1], [[2, 3], [4, 5]], Batch)
    assert sent.epoch == batches[0].epoch
    assert [batch.last for batch in batches] == [False, False, False, False, True]


def test_each_pass_has_an_epoch_of_its_own_and_says_whether_it_is_whole() -> None:
    for sampler in (AheadBatches(10, 4, ahead=0), AheadIndices(10, ahead=0)):
        first, second = ({dealt.epoch for dealt in sampler} for _ in range(2))  # type: ignore[attr-defined]
        (one,), (other,) = first, second
        assert one.loop == other.loop
        assert one.name != other.name
        assert one.whole
        assert [dealt.last for dealt in sampler].count(True) == 1  # type: ignore[attr-defined]
    sampler = AheadBatches(10, 4)
    sampler.set_epoch(0, 4)
    assert [(batch.epoch.whole, batch.last) for batch in sampler if batch.epoch] == [
        (False, False),
        (False, True),
    ]


def test_each_pass_is_the_next_epoch() -> None:
    sampler = AheadBatches(50, 10, shuffle=True, seed=4)
    first, second = [list(map(list, sampler)) for _ in range(2)]
    assert first != second
    sampler.set_epoch(0)
    assert list(map(list, sampler)) == first


def test_parts_are_disjoint_and_together_all() -> None:
    parts = [list(positions_of(101, shuffle=True, seed=1, epoch=2, part=f"{n}/3")) for n in range(3)]
    assert sorted(chain(*parts)) == list(range(101))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("part", ["3/3", "x", "1", "-1/2"])
def test_a_part_that_makes_no_sense_is_told(part: str) -> None:
    with pytest.raises(BadOption, match="is not a part"):
        positions_of(5, part=part)


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 0}, {"batch_size": 1, "rank": 2, "world_size": 2}, {"batch_size": 1, "uneven": "x"}],
)
def test_options_that_make_no_sense_are_told(options: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        AheadBatches(5, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("uneven", ["drop", "repeat", "keep"])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 5, 12, 20, 23])
def test_the_samples_that_no_rank_gets_are_counted(
    uneven: str, drop_last: bool, ranks: int, count: int
) -> None:
    of = [
        AheadBatches(count, 4, rank=n, world_size=ranks, uneven=uneven, drop_last=drop_last)
        for n in range(ranks)
    ]
    if count and not any(rank.steps() for rank in of):
        assert {rank.dropped for rank in of} == {count}
        for rank in of:
            with pytest.raises(BadOption, match="fill no step"):
                next(iter(rank))
            with pytest.raises(BadOption, match="fill no step"):
                len(rank)
        return
    given = {index for rank in of for batch in rank for index in batch}
    assert {rank.dropped for rank in of} == {count - len(given)}


def test_a_loader_that_saves_the_state_of_a_sampler_resumes_its_epoch() -> None:
    order = AheadBatches(20, 3, shuffle=True, seed=5)
    epochs = [[list(batch) for batch in order] for _ in range(3)]
    for epoch in range(2):
        for drawn in range(len(epochs[0]) + 1):
            saved = AheadBatches(20, 3, shuffle=True, seed=5)
            saved.set_epoch(epoch)
            begun = iter(saved)
            assert [list(batch) for batch in itertools.islice(begun, drawn)] == epochs[epoch][:drawn]
            other = AheadBatches(20, 3, shuffle=True, seed=5)
            other.load_state_dict(json.loads(json.dumps(saved.state_dict())))
            rest = epochs[epoch][drawn:] or epochs[epoch + 1]
            iter(other)  # loaders make an iterator that they do not use
            assert [list(batch) for batch in other] == rest


def test_single_indices_resume_with_other_ranks() -> None:
    whole = [int(index) for index in AheadIndices(20, shuffle=True, seed=2)]
    begun = AheadIndices(20, shuffle=True, seed=2, rank=1, world_size=2)
    assert [int(index) for index in itertools.islice(begun, 3)] == whole[1:6:2]
    ranks = [AheadIndices(20, shuffle=True, seed=2, rank=rank, world_size=3) for rank in range(3)]
    for rank in ranks:
        rank.load_state_dict(begun.state_dict())
    assert [int(index) for step in zip(*ranks, strict=True) for index in step] == whole[6:18]


@pytest.mark.parametrize(
    "state",
    [
        *(None, {}, {"version": 1}, {"seed": 6}, {"count": 21}),
        *({"shuffle": False}, {"epoch": "1"}, {"taken": -1}, {"version": 2}),
    ],
)  # fmt: skip
def test_a_state_of_another_sampler_is_refused(state: object) -> None:
    order = AheadBatches(20, 3, shuffle=True, seed=5)
    if isinstance(state, dict) and len(state) == 1 and state != {"version": 1}:
        state = {**order.state_dict(), **state}
    with pytest.raises(BadOption, match="state"):
        order.load_state_dict(state)  # type: ignore[arg-type]


class BatchSampler:
    """As that of PyTorch, around a sampler of indices."""

    def __init__(self, sampler: AheadIndices, batch_size: int) -> None:
        self.sampler, self.batch_size = sampler, batch_size

    def __len__(self) -> int:
        return sum(1 for _ in range(0, len(self.sampler), self.batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            yield batch


class DataLoaderShard:
    """As that of Accelerate: it knows the epoch, and tells no sampler below its own."""

    def __init__(self, sampler: Iterable[list[int]], iteration: int) -> None:
        self.sampler, self.iteration = sampler, iteration

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.sampler


class BatchSamplerShard:
    """As that of Accelerate: every N-th batch, and the length of that."""

    def __init__(
        self, batches: AheadBatches | BatchSampler, ranks: int, rank: int, *, split: bool = False
    ) -> None:
        self.batch_sampler, self.num_processes, self.rank, self.split_batches = batches, ranks, rank, split

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[int]]:
        for number, batch in enumerate(self.batch_sampler):
            if self.split_batches or number % self.num_processes == self.rank:
                yield batch


def test_an_owner_that_deals_batches_out_itself_gets_those_of_all_ranks() -> None:
    alone = [list(batch) for batch in AheadBatches(50, 4, shuffle=True, seed=1)]
    shards = [
        BatchSamplerShard(AheadBatches(50, 4, shuffle=True, seed=1, rank=rank, world_size=2), 2, rank)
        for rank in range(2)
    ]
    assert [len(shard) for shard in shards] == [13, 13]
    for epoch in range(2):
        dealt = [list(shard) for shard in shards]
        assert sorted(chain(*chain(*dealt))) == list(range(50))
        if not epoch:
            assert [list(batch) for batch in dealt[0]] == alone[::2]
            for batches in dealt:
                ahead = [batch.ahead for batch in batches if isinstance(batch, Batch)]
                assert ahead[0][:3] == [list(batch) for batch in batches[1:4]], "those that this process gets"
                assert [batch.last for batch in batches if isinstance(batch, Batch)][-1]
    whole = BatchSamplerShard(AheadBatches(50, 4, shuffle=True, seed=1, world_size=2), 2, 0, split=True)
    assert [list(batch) for batch in whole] == alone


def test_an_owner_that_deals_indices_out_itself_gets_those_of_all_ranks() -> None:
    shards = [
        BatchSamplerShard(BatchSampler(AheadIndices(50, shuffle=True, rank=rank, world_size=2), 4), 2, rank)
        for rank in range(2)
    ]
    assert [len(shard) for shard in shards] == [13, 13]
    assert sorted(chain(*chain(*map(list, shards)))) == list(range(50))


def test_a_loader_that_deals_batches_out_says_the_epoch() -> None:
    order = AheadBatches(50, 4, shuffle=True)
    loader = DataLoaderShard(BatchSamplerShard(order, 2, 0), 3)  # as after a restart
    assert list(loader) == [batch for batch, _ in zip(order.batches(3), range(13), strict=True)][::2]


class SkipBatchSampler:
    """As that of Accelerate: it drops the first batches."""

    def __init__(self, batches: Iterable[list[int]], skip_batches: int) -> None:
        self.batch_sampler, self.skip_batches = batches, skip_batches

    def __iter__(self) -> Iterator[list[int]]:
        yield from itertools.islice(self.batch_sampler, self.skip_batches, None)


@pytest.mark.parametrize("kind", [AheadBatches, AheadIndices])
def test_batches_of_an_epoch_that_nobody_has_said_are_skipped_with_a_warning(kind: type) -> None:
    def skipped(said: int | None, steps: int = 2, iteration: int = 0) -> None:
        order: Any = AheadBatches(50, 4) if kind is AheadBatches else AheadIndices(50)
        if said is not None:
            order.set_epoch(said)
        batches = order if kind is AheadBatches else BatchSampler(order, 4)
        list(DataLoaderShard(SkipBatchSampler(batches, steps), iteration))

    with pytest.warns(UserWarning, match=r"skips 2 batches of epoch 0.*loader\.set_epoch\(epoch\)"):
        skipped(None)
    skipped(0)
    skipped(1, iteration=1)
    skipped(None, iteration=1)
    skipped(None, steps=0)


def test_an_owner_that_would_drop_all_batches_is_told_what_to_do() -> None:
    shard = BatchSamplerShard(AheadBatches(50, 40, drop_last=True), 2, 0)
    for use in (len, list):
        with pytest.raises(
            BadOption, match=r"fill no step: a batch of 40 for each of 2 ranks.*drop_last=False"
        ):
            use(shard)


def test_fewer_indices_than_ranks_are_an_error() -> None:
    with pytest.raises(BadOption, match="2 samples for 3 ranks"):
        len(AheadIndices(2, world_size=3))


def test_what_is_no_number_of_samples_is_told_with_what_to_use() -> None:
    with pytest.raises(BadOption, match="use SampleLoader"):
        AheadBatches([3, 1, 2], batch_size=2)  # type: ignore[arg-type]
