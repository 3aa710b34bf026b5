"""nbdata's counterparts of ffrecord.torch in real loaders with real workers."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler

from nbdata.errors import BadOption
from nbdata.loaders.ffrecord import ConcatDataset, DataLoader, Dataset, Subset
from tests.ffrecord.test_files import write

SAMPLES = [b"%03d" % number for number in range(50)]


class Numbers(Dataset):
    asked = 0

    def process(self, indices: Sequence[int], data: Sequence[Any]) -> list[int]:
        self.asked += 1
        found = [int(bytes(one)) for one in data]
        assert [number % 100 for number in found] == list(indices)
        return found


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    return Numbers(write(tmp_path / "x.ffr", SAMPLES))


@pytest.fixture
def others(tmp_path: Path) -> Numbers:
    return Numbers(write(tmp_path / "y.ffr", [b"%03d" % (100 + number) for number in range(10)]))


def test_a_data_set_is_asked_for_lists(numbers: Numbers) -> None:
    assert len(numbers) == 50
    assert numbers[[3, 1, 3]] == [3, 1, 3]
    assert numbers[(4, 2)] == [4, 2]
    with pytest.raises(BadOption, match="asked for a list"):
        numbers[3]  # type: ignore[index]
    with pytest.raises(NotImplementedError, match="process"):
        Dataset(numbers.reader.fnames)[[0]]


def test_parts_and_sums_of_data_sets(numbers: Numbers, others: Numbers) -> None:
    both = numbers + others
    assert isinstance(both, ConcatDataset)
    assert len(both) == 60
    assert both[[55, 0, -1, 55, 49, 0]] == [105, 0, 109, 105, 49, 0]
    assert (numbers.asked, others.asked) == (1, 1)
    assert Subset(both, [59, 1])[[1, 0, 1]] == [1, 109, 1]
    with pytest.raises(BadOption, match="no sample 60"):
        both[[60]]
    with pytest.raises(BadOption, match="no data sets"):
        ConcatDataset([])


WAYS: list[Any] = [
    (0, {}),
    (2, {}),
    pytest.param(2, {"multiprocessing_context": "spawn", "persistent_workers": True}, marks=pytest.mark.long),
]


def batches(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(("workers", "options"), WAYS, ids=str)
def test_a_loader_gives_what_pytorchs_does(numbers: Numbers, workers: int, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns about a fork beside threads
        wanted = [list(part) for part in itertools.batched(range(50), 7)] if hasattr(itertools, "batched") else [
            list(range(at, min(at + 7, 50))) for at in range(0, 50, 7)
        ]  # fmt: skip
        loader = DataLoader(numbers, 7, num_workers=workers, **options)
        assert batches(loader) == wanted
        loader.set_step(3)
        assert len(loader) == 5
        assert batches(loader) == batches(loader) == wanted[3:]
        loader.set_step(0)
        assert batches(loader) == wanted
        assert batches(DataLoader(numbers, 7, num_workers=workers, drop_last=True, **options)) == wanted[:-1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shuffled_pass_goes_on_where_it_was(numbers: Numbers, workers: int) -> None:
    generator = torch.Generator()
    generator.manual_seed(5)
    begun = generator.get_state()
    loader = DataLoader(numbers, 8, shuffle=True, generator=generator, num_workers=workers)
    whole = batches(loader)
    assert sorted(itertools.chain.from_iterable(whole)) == list(range(50))
    generator.set_state(begun)
    loader.set_step(4)
    assert batches(loader) == whole[4:]


def test_a_batch_is_one_read(numbers: Numbers) -> None:
    batches(DataLoader(numbers, 10))
    assert numbers.asked == 5


def test_options_that_make_no_sense_are_refused(numbers: Numbers) -> None:
    loader = DataLoader(numbers, 10)
    for step in (-1, 5):
        with pytest.raises(BadOption, match="no such batch"):
            loader.set_step(step)
    with pytest.raises(BadOption, match="not skippable"):
        DataLoader(numbers, 10, skippable=False).set_step(1)
    own = BatchSampler(RandomSampler(numbers), 5, False)
    assert len(DataLoader(numbers, batch_sampler=own)) == 10
    with pytest.raises(BadOption, match="excludes batch_size"):
        DataLoader(numbers, 4, batch_sampler=own)
    with pytest.raises(BadOption, match="exclude each other"):
        DataLoader(numbers, 4, shuffle=True, sampler=RandomSampler(numbers))
    with pytest.raises(BadOption, match="gives batches"):
        DataLoader(numbers, None)
