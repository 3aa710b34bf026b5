"""A `Samples` object works as a random access source of grain without an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grain
import pytest

import nbdata
from nbdata.client.reading.samples import Samples

FILES = {f"{n:03}.{name}": f"{name} {n}".encode() * (n + 1) for n in range(40) for name in ("jpg", "cls")}
ALL = [f"{n:03}" for n in range(40)]


@pytest.fixture
def samples(put: Callable[[dict[str, bytes]], str]) -> Iterator[Samples]:
    with nbdata.samples(put(FILES), concurrency=8) as found:
        yield found


def test_it_is_shuffled_mapped_batched_and_resumed(samples: Samples) -> None:
    def made() -> grain.DatasetIterator[list[str]]:
        data = grain.MapDataset.source(samples).shuffle(seed=1).map(lambda sample: sample["__key__"])
        return iter(data.batch(8, batch_fn=list).to_iter_dataset())

    batches = made()
    first = [next(batches), next(batches)]
    state = batches.get_state()
    rest = list(batches)
    assert sorted(key for batch in first + rest for key in batch) == ALL
    again = made()
    again.set_state(state)
    assert list(again) == rest


def test_worker_processes_read_it(samples: Samples) -> None:
    loader = grain.DataLoader(
        data_source=samples,
        sampler=grain.samplers.IndexSampler(len(samples), shuffle=True, seed=3, num_epochs=1),
        operations=[],
        worker_count=2,
    )
    assert sorted(sample["__key__"] for sample in loader) == ALL


def test_its_repr_is_the_same_in_each_process(samples: Samples) -> None:
    place = samples.sources[0]
    assert repr(samples) == repr(nbdata.samples(place.operation.source))  # type: ignore[attr-defined]
