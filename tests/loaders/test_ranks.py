"""Who trains, and in which epoch: read when a pass begins, whatever made the loader and its workers."""

from __future__ import annotations

import itertools
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from nbdata.client.reading.samples import Samples
from nbdata.errors import BadOption
from nbdata.loaders import webdataset
from nbdata.loaders.pytorch import SampleLoader, SampleStream
from nbdata.loaders.pytorch.ranks import Rank, rank_of
from tests.loaders.test_samples import ALL, samples, train

__all__ = ["samples", "train"]

KEYS = sorted(ALL)


def keys(passed: Iterable[Any]) -> list[str]:
    return [sample["__key__"] for sample in passed]


MADE: dict[str, Callable[[Samples], Iterable[Any]]] = {
    "loader": lambda samples: SampleLoader(samples, 1, shuffle=True, collate_fn=lambda batch: batch[0]),
    "stream": lambda samples: SampleStream(samples, shuffle=True),
    "stream in workers": lambda samples: DataLoader(
        SampleStream(samples, shuffle=True), batch_size=None, num_workers=2, multiprocessing_context="fork"
    ),
    "stream in spawned workers": lambda samples: DataLoader(
        SampleStream(samples, shuffle=True), batch_size=None, num_workers=1, multiprocessing_context="spawn"
    ),
    "source": lambda samples: webdataset.source(samples, shuffle=True),
}


@pytest.mark.in_ci("loader", "stream in workers")
@pytest.mark.parametrize("made", MADE)
def test_ranks_that_are_known_only_after_the_loader_was_made_share_the_samples(
    samples: Samples, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaders = [MADE[made](samples) for _ in range(2)]
    monkeypatch.setenv("WORLD_SIZE", "2")
    read = []
    for rank, loader in enumerate(loaders):
        monkeypatch.setenv("RANK", str(rank))
        read.append(keys(loader))
    assert sorted(read[0] + read[1]) == KEYS
    assert abs(len(read[0]) - len(read[1])) <= 1


def test_the_length_and_the_report_of_a_loader_are_those_of_its_rank(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = SampleLoader(samples, 1)
    assert len(loader) == len(samples)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert len(loader) == len(samples) // 2
    assert "for rank 1 of 2 (RANK and WORLD_SIZE)" in str(loader.report)
    assert len(list(loader)) == len(samples) // 2
    monkeypatch.delenv("WORLD_SIZE")  # a training that is over has no ranks any more; the report is of before
    assert "for rank 1 of 2" in str(loader.report)


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, Rank(0, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Rank(0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "3"}, Rank(2, 3, "RANK and WORLD_SIZE")),
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"},
            Rank(1, 4, "SLURM_PROCID and SLURM_STEP_NUM_TASKS"),
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
            Rank(0, 1),
        ),  # a job for several, and a process alone in it
    ],
)
def test_the_environment_tells_the_rank(
    variables: dict[str, str], rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_of(None, None) == rank
    assert rank_of(0, 1) == Rank(0, 1)


@pytest.mark.parametrize("rank", [None, "", "x", "²", "-1", "2"])
def test_several_ranks_of_which_this_is_none_are_an_error(
    rank: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    with pytest.raises(BadOption, match="rank"):
        rank_of(None, None)


@pytest.mark.in_ci("2-False-fork")
@pytest.mark.parametrize("way", ["fork", "spawn"])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_each_pass_of_a_stream_is_the_next_epoch_whatever_the_workers(
    samples: Samples, workers: int, persistent: bool, way: str
) -> None:
    def passes(stream: SampleStream, **options: Any) -> list[list[str]]:
        loader = DataLoader(stream, batch_size=None, **options)
        return [keys(loader) for _ in range(3)]

    options: dict[str, Any] = {"num_workers": workers}
    if workers:
        options |= {"persistent_workers": persistent, "multiprocessing_context": way}
    read = passes(SampleStream(samples, shuffle=True, seed=4), **options)
    assert [sorted(one) for one in read] == [KEYS] * 3
    assert len({tuple(one) for one in read}) == 3
    later = SampleStream(samples, shuffle=True, seed=4)
    later.set_epoch(1)
    assert passes(later, **options)[:2] == read[1:]


def test_a_loader_that_leaves_out_much_says_so_once(samples: Samples) -> None:
    loader = SampleLoader(samples, len(samples) // 2 + 1, drop_last=True)
    with pytest.warns(UserWarning, match=r"leaves out \d+ of \d+ samples, which fill no step"):
        list(loader)
    list(loader)


def test_a_loader_without_a_step_is_an_error(samples: Samples) -> None:
    loader = SampleLoader(samples, len(samples), rank=0, world_size=2)
    with pytest.raises(BadOption, match=r"fill no step: a batch of \d+ for each of 2 ranks"):
        len(loader)
    with pytest.raises(BadOption, match="fill no step"):
        next(iter(loader))


def test_a_stream_under_accelerate_says_what_to_write(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = types.ModuleType("accelerate.state")
    state.PartialState = types.SimpleNamespace(_shared_state={"num_processes": 2})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "accelerate.state", state)
    with pytest.raises(BadOption, match="rank=0, world_size=1"):
        next(iter(SampleStream(samples)))
    assert sorted(keys(SampleStream(samples, rank=0, world_size=1))) == KEYS
    state.PartialState._shared_state.clear()
    assert sorted(keys(SampleStream(samples))) == KEYS


@pytest.mark.parametrize("name", ["batch_sampler", "sampler", "dataset"])
def test_a_loader_takes_no_order_of_somebody_else(samples: Samples, name: str) -> None:
    with pytest.raises(BadOption, match=f"{name} cannot be given"):
        SampleLoader(samples, 4, **{name: [1]})


def test_trainers_see_that_a_loader_gives_each_rank_its_part(samples: Samples) -> None:
    assert isinstance(SampleLoader(samples, 4).sampler, DistributedSampler)


@pytest.mark.parametrize("made", [Samples.batch_sampler, Samples.sampler])
def test_a_distributed_sampler_around_a_sampler_is_refused(samples: Samples, made: Any) -> None:
    order = made(samples, 4) if made is Samples.batch_sampler else made(samples)
    with pytest.raises(BadOption, match="rank= and world_size="):
        DistributedSampler(order, 2, 0)


class IterableDatasetShard:
    """As that of Accelerate and transformers: every N-th sample of a data set."""

    def __init__(self, data: Iterable[Any], ranks: int, rank: int) -> None:
        self.data, self.ranks, self.rank = data, ranks, rank

    def __iter__(self) -> Iterator[Any]:
        yield from itertools.islice(self.data, self.rank, None, self.ranks)


def test_a_stream_whose_samples_are_dealt_out_gives_those_of_all_ranks(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    read = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        read += keys(IterableDatasetShard(SampleStream(samples), 2, rank))
    assert sorted(read) == KEYS


class DataLoaderShard:
    """As that of Accelerate: it reads the batches before the one at which it resumes, and drops them."""

    batch_size, iteration = 4, 0

    def __init__(self, data: SampleStream, skip_batches: int, **options: Any) -> None:
        self.loader = DataLoader(data, self.batch_size, collate_fn=list, **options)
        self.data, self.skip_batches = data, skip_batches

    def __iter__(self) -> Iterator[Any]:
        self.data.set_epoch(self.iteration)
        batches = iter(self.loader)
        yield from itertools.chain(*itertools.islice(batches, self.skip_batches, None))


def said_to_be_of(epoch: int, samples: Samples) -> SampleStream:
    stream = SampleStream(samples)
    stream.set_epoch(epoch)
    return stream


def test_a_loader_that_resumes_behind_the_end_of_an_epoch_is_told(samples: Samples) -> None:
    assert keys(DataLoaderShard(said_to_be_of(0, samples), 9)) == KEYS[36:]
    assert keys(DataLoaderShard(said_to_be_of(0, samples), 10)) == []
    with pytest.raises(BadOption, match=r"skips 11 batches to resume.*has 10.*SampleDataset"):
        keys(DataLoaderShard(said_to_be_of(0, samples), 11))


@pytest.mark.in_ci("fork")
@pytest.mark.parametrize("way", ["none", "fork", "spawn"])
def test_a_stream_of_unequal_steps_in_a_process_group_says_so_once(
    samples: Samples,
    way: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {} if way == "none" else {"num_workers": 2, "multiprocessing_context": way}

    def told(count: int = 21, rank: int = 0, *, drop_last: bool = False) -> int:
        stream = SampleStream(samples[:count], rank=rank, world_size=2)
        loader = DataLoader(stream, 5, collate_fn=list, drop_last=drop_last, **options)
        for _ in range(2):
            list(loader)
        return capfd.readouterr().err.count("of 2 ranks, some make 2 steps of this epoch and others 3")

    monkeypatch.setenv("PYTHONWARNINGS", "always")  # for workers that are spawned
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda said, *_: os.write(2, str(said).encode()))
        assert not told(), "ranks that wait for nobody"
        torch.distributed.init_process_group("gloo", f"file://{tmp_path}/meet", rank=0, world_size=1)
        try:
            assert told() == 1
            assert not told(rank=1), "one rank says it for all"
            assert not told(drop_last=True)
        finally:
            torch.distributed.destroy_process_group()


@pytest.mark.in_ci("2")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_skips_batches_of_an_epoch_that_nobody_has_said_with_a_warning(
    samples: Samples, workers: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda said, *_: os.write(2, str(said).encode()))
        keys(DataLoaderShard(said_to_be_of(0, samples), 2, **options))
        assert capfd.readouterr().err == ""
        keys(DataLoaderShard(SampleStream(samples), 2, **options))
        assert capfd.readouterr().err.count("skips 2 batches of epoch 0") == 1


@pytest.mark.long
@pytest.mark.in_ci("fork")
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_loader_whose_workers_resume_behind_the_end_of_an_epoch_is_told(samples: Samples, way: str) -> None:
    def resumed(batches: int) -> list[str]:
        stream = said_to_be_of(0, samples[:34])  # twice 17 samples, which make 5 batches
        return keys(DataLoaderShard(stream, batches, num_workers=2, multiprocessing_context=way))

    assert len(resumed(8)) == 2
    assert resumed(10) == []
    with pytest.raises(BadOption, match=r"skips 11 batches to resume.*has 10"):
        resumed(11)
