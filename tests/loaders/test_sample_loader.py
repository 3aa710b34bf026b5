"""SampleLoader resumes exactly, with any workers and ranks: each sample of the epoch comes once."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import nbdata
from nbdata.client.agents import stop_all
from nbdata.client.reading.orders import AheadBatches
from nbdata.client.reading.samples import Samples
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, SourceChanged
from nbdata.loaders.pytorch import SampleDataset, SampleLoader, SampleStream
from tests.client.reading.test_samples import FAULTS, often
from tests.faults.proxy import Fault, FaultProxy
from tests.faults.test_lines import proxy
from tests.faults.trainers import FILES, trained
from tests.loaders.test_samples import ALL, checked, keys_of, samples, train
from tests.waiting import PATIENCE, wait_until

__all__ = ["proxy", "samples", "train"]


@given(
    count=st.integers(1, 200),
    runs=st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(0, 10)), min_size=1, max_size=4
    ),
    uneven=st.sampled_from(["keep", "drop", "repeat"]),
)
@pytest.mark.filterwarnings("ignore:nbdata. each epoch leaves out")
@settings(max_examples=200, deadline=None)
def test_however_often_batches_and_ranks_change_each_sample_comes_once(
    count: int, runs: list[tuple[int, int, int]], uneven: str
) -> None:
    seen, start = list[int](), 0
    for number, (batch, ranks, steps) in enumerate(runs):
        last = number == len(runs) - 1
        samplers = [
            AheadBatches(count, batch, shuffle=True, seed=1, rank=rank, world_size=ranks, uneven=uneven)
            for rank in range(ranks)
        ]
        if not last and steps > samplers[0].steps(start):
            continue  # else the epoch would end
        assume(any(sampler.steps() for sampler in samplers))
        for sampler in samplers:
            sampler.set_epoch(3, start)
        dealt = [list(itertools.islice(sampler, None if last else steps)) for sampler in samplers]
        seen += [index for batches in dealt for indices in batches for index in indices]
        start += steps * batch * ranks
    if uneven == "keep":
        assert sorted(seen) == list(range(count))
    elif uneven == "drop":
        assert len(seen) == len(set(seen))
    else:
        assert set(seen) == set(range(count))


@pytest.mark.parametrize(("workers", "then"), [(0, 2), (2, 0), (2, 1)])
@pytest.mark.in_ci("2-1")
def test_it_goes_on_with_another_number_of_workers_and_other_batches(
    samples: Samples, workers: int, then: int
) -> None:
    def loader(batch: int, workers: int) -> SampleLoader:
        return SampleLoader(
            samples, batch, shuffle=True, seed=3, transform=checked, collate_fn=list, num_workers=workers
        )

    whole = keys_of(loader(40, 0))
    first = loader(4, workers)
    seen, batches = list[str](), iter(first)
    for _ in range(3):
        seen += [key for key, _ in next(batches)]
    state = json.loads(json.dumps(first.state_dict()))
    assert (state["epoch"], state["taken"], first.epoch) == (0, 12, 0)
    batches.close()
    second = loader(5, then)
    second.load_state_dict(state)
    second.set_epoch(second.epoch)  # trainers call this before each epoch
    assert len(second) == 8, "of the whole epoch: trainers subtract the steps that were made"
    assert seen + keys_of(second) == whole
    assert second.epoch == 1
    assert sorted(keys_of(second)) == ALL
    assert second.epoch == 2


@pytest.mark.in_ci("options1")
@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}])
def test_a_pass_that_was_left_is_followed_by_the_next_epoch(
    samples: Samples, options: dict[str, Any]
) -> None:
    loader = SampleLoader(samples, 8, shuffle=True, transform=checked, collate_fn=list, **options)
    for _ in loader:
        break
    assert loader.state_dict()["taken"] == 8
    second = keys_of(loader)
    assert second != keys_of(SampleLoader(samples, 8, shuffle=True, transform=checked, collate_fn=list))
    assert sorted(second) == ALL
    loader.set_epoch(0)
    assert loader.epoch == 0
    assert sorted(keys_of(loader)) == ALL


def test_the_state_of_a_last_batch_is_the_next_epoch(samples: Samples) -> None:
    loader = SampleLoader(samples, 16, transform=checked, collate_fn=list)
    states = [loader.state_dict() for _ in loader]
    assert [(state["epoch"], state["taken"]) for state in states] == [(0, 16), (0, 32), (1, 0)]
    again = SampleLoader(samples, 16, transform=checked, collate_fn=list)
    again.load_state_dict(states[-1])
    assert (again.epoch, len(again)) == (1, 3)


def test_a_state_of_something_else_is_refused(samples: Samples) -> None:
    loader = SampleLoader(samples, 4, shuffle=True, seed=1)
    state = loader.state_dict()
    for other, what in (
        (SampleLoader(samples, 4, shuffle=True, seed=2), "another order"),
        (SampleLoader(samples, 4, seed=1), "another order"),
        (SampleLoader(samples[:20], 4, shuffle=True, seed=1), "other samples"),
        (SampleLoader(samples[::-1], 4, shuffle=True, seed=1), "other samples"),
    ):
        with pytest.raises(BadOption, match=what):
            other.load_state_dict(state)
    for wrong in ({}, {**state, "taken": -1}, {**state, "epoch": "1"}, {**state, "version": 2}):
        with pytest.raises(BadOption, match=r"this (state is|is no state)"):
            loader.load_state_dict(wrong)
    with pytest.raises(
        BadOption, match=r"no state of a loader .*got a dict of model, data\)\. Give it the entry 'data'"
    ):
        loader.load_state_dict({"model": {}, "data": state})
    for wrong in ({}, [state], None):
        with pytest.raises(BadOption, match="this is no state of a loader"):
            loader.load_state_dict(wrong)  # type: ignore[arg-type]
    changed = {**state, "samples": "0" * 32, "epoch": 3}
    with pytest.raises(
        BadOption, match=r"objects of these were changed or replaced .*restore them; .*set_epoch\(3\)"
    ) as told:
        loader.load_state_dict(changed)
    assert "the same source and selection" in str(told.value)
    assert "0" * 32 not in str(told.value)
    assert samples.fingerprint not in str(told.value)
    with pytest.raises(BadOption, match=r"no samples: 's3://b/' \(expected nbdata\.samples\('s3://b/'\)"):
        SampleLoader("s3://b/", 64)  # type: ignore[arg-type]
    loader.load_state_dict({**state, "of a later version": 1})
    with pytest.raises(BadOption, match="in_order"):
        SampleLoader(samples, 4, num_workers=2, in_order=False)


class CombinedLoader:
    """As that of Lightning, which loads the states of its loaders."""

    def __init__(self, loader: SampleLoader) -> None:
        self.loader = loader

    def load(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)


def test_lightning_goes_on_in_an_epoch_only_with_steps_of_the_same_size(samples: Samples) -> None:
    def loader(batch_size: int, ranks: int) -> SampleLoader:
        return SampleLoader(samples, batch_size, rank=0, world_size=ranks, uneven="repeat")

    begun = loader(4, 2)
    batches = iter(begun)
    next(batches)
    state = begun.state_dict()
    batches.close()
    for other in (loader(4, 3), loader(5, 2)):
        other.load_state_dict(state)  # into a loop of one's own
        with pytest.raises(BadOption, match=r"another size.*\(.*got 4 for each of 2\)"):
            CombinedLoader(other).load(state)
        CombinedLoader(other).load({**state, "epoch": 1, "taken": 0})
    CombinedLoader(loader(4, 2)).load(state)
    CombinedLoader(loader(2, 4)).load(state)
    with pytest.raises(BadOption, match="as many ranks"):
        CombinedLoader(loader(4, 2)).load({name: value for name, value in state.items() if name != "ranks"})


@pytest.mark.in_ci("2")
@pytest.mark.parametrize("workers", [0, 2])
def test_its_report_adds_up_what_all_workers_have_read(samples: Samples, workers: int) -> None:
    size = sum(len(data) for data in FILES.values())
    options = {"persistent_workers": True} if workers else {}
    loader = SampleLoader(samples, 4, num_workers=workers, **options)
    for passed in (1, 2):
        assert sum(len(batch) for batch in loader) == 40
        report = loader.report
        assert (report.samples, report.bytes) == (40 * passed, size * passed)
        assert 0 < report.waited <= report.seconds
        assert "left out" not in str(report)
    assert "4 samples of each epoch, which fill no step, are left out" in str(
        SampleLoader(samples, 4, rank=0, world_size=3).report
    )
    filled = SampleLoader(samples, 4, rank=0, world_size=3, uneven="repeat")
    assert "8 samples of each epoch come once more, to fill the last step" in str(filled.report)
    samples.close()
    assert sum(len(batch) for batch in loader) == 40
    assert loader.report.samples == 120
    plain = DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn)
    assert [len(batch) for batch in plain] == [4] * 10, (
        "a loader that is made anew of its parts gives the same"
    )
    assert str(report).startswith("80 samples, ")
    assert "samples/s" in str(report)
    del loader


def test_batches_are_collated_as_is_said(samples: Samples) -> None:
    def number(sample: dict[str, Any]) -> int:
        return int(sample["__key__"])

    (batch,) = SampleLoader(samples[:4], 4, transform=number)
    assert isinstance(batch, torch.Tensor)
    assert batch.tolist() == [0, 1, 2, 3]
    (batch,) = SampleLoader(samples[:4], 4)
    assert [sample["__key__"] for sample in batch] == ALL[:4]
    (batch,) = SampleLoader(samples[:4], 4, transform=number, collate_fn=tuple)
    assert batch == (0, 1, 2, 3)


def test_a_plain_sampler_looks_ahead_without_workers(samples: Samples) -> None:
    order = samples.sampler(shuffle=True, seed=2, ahead=12)
    loader = DataLoader(SampleDataset(samples, checked), 4, sampler=order, collate_fn=list)
    batches = iter(loader)
    first = [key for key, _ in next(batches)]
    fetcher = samples._fetcher  # type: ignore[attr-defined]
    wait_until(lambda: sum(s.ahead and not s.left for s in list(fetcher._samples.values())) == 12)
    rest = [key for batch in batches for key, _ in batch]
    assert sorted(first + rest) == ALL
    assert [key for batch in loader for key, _ in batch] != first + rest
    with_workers = DataLoader(
        SampleDataset(samples, checked), 4, sampler=order, collate_fn=list, num_workers=2
    )
    assert sorted(keys_of(with_workers)) == ALL
    ranks = [samples.sampler(rank=rank, world_size=3) for rank in range(3)]
    assert [len(list(rank)) for rank in ranks] == [13, 13, 13]
    assert len(set(itertools.chain(*ranks))) == 39
    with pytest.raises(BadOption, match="make no sense"):
        samples.sampler(rank=3, world_size=3)


def test_a_stream_goes_on_in_its_part_and_nowhere_else(samples: Samples) -> None:
    def stream(rank: int, world_size: int = 2) -> SampleStream:
        return SampleStream(samples, shuffle=True, seed=3, rank=rank, world_size=world_size)

    whole = [sample["__key__"] for sample in stream(1)]
    first = stream(1)
    seen = [sample["__key__"] for sample in itertools.islice(first, 7)]
    state = json.loads(json.dumps(first.state_dict()))
    second = stream(1)
    second.load_state_dict(state)
    assert seen + [sample["__key__"] for sample in second] == whole
    assert sorted(sample["__key__"] for sample in second) != sorted(whole), (
        "the next epoch, of which others come"
    )
    other = stream(1, 3)
    other.load_state_dict(state)
    with pytest.raises(BadOption, match="another number of workers or ranks"):
        next(iter(other))
    ordered = SampleStream(samples, seed=3, rank=1, world_size=2)
    ordered.load_state_dict(state)
    with pytest.raises(BadOption, match="another order"):
        next(iter(ordered))


_SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.long
def test_a_trainer_that_is_killed_again_and_again_sees_each_sample_once(
    seed: int, s3: EmbeddedServer, train: str, tmp_path: Path
) -> None:
    made = trained(train, tmp_path / "state.json", seed=seed, kills=2)
    assert made.kills
    assert made.good, made.line


@pytest.mark.long
@pytest.mark.parametrize("seed", _SEEDS)
def test_a_trainer_with_a_cache_sees_each_sample_once_whoever_is_killed(
    seed: int, s3: EmbeddedServer, train: str, tmp_path: Path
) -> None:
    made = trained(train, tmp_path / "state.json", packing="objects in a cache", seed=seed, kills=2)
    assert made.kills
    assert made.good, made.line
    stop_all(now=True)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.long
def test_ranks_that_train_together_make_equally_many_steps(
    s3: EmbeddedServer, train: str, tmp_path: Path
) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.loaders.train_together", train, str(rank), "2", str(tmp_path / "meet")],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=PATIENCE)[0].splitlines() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert said[0] == said[1]
    steps = [[int(word) for word in line.split()] for line in said[0]]
    assert [len(step) for step in steps] == [12] * 8
    for epoch in (steps[:4], steps[4:]):
        assert sorted(set(itertools.chain(*epoch))) == list(range(40))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
@pytest.mark.in_ci("cut-2")
def test_faults_of_the_line_are_mended_in_a_loader(
    fault: Fault, workers: int, proxy: FaultProxy, train: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault.kind == "stall":
        monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "2")
    with nbdata.samples(train, concurrency=8) as samples:
        tally = proxy.begin(often(fault))
        loader = SampleLoader(
            samples, 3, shuffle=True, transform=checked, collate_fn=list, num_workers=workers
        )
        assert sorted(keys_of(loader)) == ALL
        assert tally.faults


@pytest.mark.long
def test_another_version_reaches_the_batch_that_asked_for_it(
    proxy: FaultProxy, put: Callable[[dict[str, bytes]], str]
) -> None:
    url = put(FILES)
    with nbdata.samples(url, concurrency=8) as samples:
        put({"021.jpg": b"another"})
        loader = SampleLoader(samples, 4, transform=checked, collate_fn=list, num_workers=2)
        batches, got = iter(loader), []
        with pytest.raises(SourceChanged, match=r"021\.jpg"):
            got += [key for batch in batches for key, _ in batch]
        assert loader.state_dict()["taken"] == 20, "what came before it was given out"


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.in_ci("0")
def test_a_field_that_a_sample_lacks_is_told_with_its_key_and_its_fields(
    workers: int, tmp_path: Path
) -> None:
    (tmp_path / "7.jpg").write_bytes(b"x")
    loader = SampleLoader(
        nbdata.samples(tmp_path), transform=lambda sample: sample["png"], num_workers=workers
    )
    with pytest.raises(KeyError, match=r"'png' in the transform of the sample '7', which has the fields jpg"):
        list(loader)
