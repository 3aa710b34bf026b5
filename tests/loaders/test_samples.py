"""Samples in real DataLoaders with real workers: each sample once, with the right bytes, and nothing left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler

import nbdata
from nbdata.client.reading.samples import Samples
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, SourceChanged
from nbdata.loaders.pytorch import SampleDataset, SampleStream
from tests.conftest import client_of
from tests.faults.trainers import FILES
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def train(seaweedfs: EmbeddedServer) -> Iterator[str]:
    """The URL of a bucket with all files."""
    seaweedfs.create_bucket("train")
    client = client_of(seaweedfs)
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda file: client.put_object(Bucket="train", Key=file[0], Body=file[1]), FILES.items())
        )
    yield "s3://train/"
    client.delete_bucket(Bucket="train")
    client.close()


@pytest.fixture
def samples(s3: EmbeddedServer, train: str) -> Iterator[Samples]:
    found = nbdata.samples(train, concurrency=8)
    yield found
    found.close()


def checked(sample: dict[str, Any]) -> tuple[str, int]:
    """Check a sample's bytes; return its key and the process that read it."""
    key = sample["__key__"]
    assert {"jpg": FILES[f"{key}.jpg"], "cls": FILES[f"{key}.cls"]}.items() <= sample.items()
    return key, os.getpid()


def keys_of(loader: Any) -> list[str]:
    return [key for batch in loader for key, _ in batch]


ALL = [f"{n:03}" for n in range(40)]
WAYS: list[tuple[int, dict[str, Any]]] = [
    (0, {}),
    (2, {"multiprocessing_context": "fork"}),
    (2, {"multiprocessing_context": "fork", "persistent_workers": True}),
    (2, {"multiprocessing_context": "spawn", "persistent_workers": True}),
    (2, {"multiprocessing_context": "forkserver"}),
]


@pytest.mark.parametrize(("workers", "options"), WAYS, ids=str)
@pytest.mark.in_ci("2-{'multiprocessing_context': 'fork'*")
def test_a_loader_that_looks_ahead_gives_each_sample_once_in_an_order_of_the_epoch(
    samples: Samples, workers: int, options: dict[str, Any]
) -> None:
    samples[0]  # the parent uses its connections before it forks
    batches = samples.batch_sampler(3, shuffle=True, seed=5, ahead=6)
    wanted = [[samples.key(n) for batch in batches.batches(epoch) for n in batch] for epoch in range(2)]
    loader = DataLoader(
        SampleDataset(samples, checked),
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=list,
        **options,
    )
    passes = [keys_of(loader), keys_of(loader)]
    assert passes == wanted
    assert sorted(passes[0]) == ALL
    assert passes[0] != passes[1]
    del loader


@pytest.mark.in_ci("2")
@pytest.mark.parametrize("workers", [0, 2])
def test_other_samplers_and_data_sets_work_as_with_any_data_set(samples: Samples, workers: int) -> None:
    data = SampleDataset(samples, checked)
    ways = [
        DataLoader(data, batch_size=7, shuffle=True, num_workers=workers, collate_fn=list),
        DataLoader(ConcatDataset([Subset(data, range(20)), Subset(data, range(20, 40))]), 7, collate_fn=list),
        DataLoader(data, batch_size=None, num_workers=workers, collate_fn=lambda one: [one]),
    ]
    for loader in ways:
        assert sorted(keys_of(loader)) == ALL
    of_ranks = [
        keys_of(DataLoader(data, 4, sampler=DistributedSampler(data, 2, rank), collate_fn=list))
        for rank in range(2)
    ]
    assert sorted(of_ranks[0] + of_ranks[1]) == ALL


def test_workers_share_connections_and_bytes_that_nobody_has_set(s3: EmbeddedServer, train: str) -> None:
    def shares(options: dict[str, Any]) -> set[tuple[int, int]]:
        samples = nbdata.samples(train, **options)

        def share(_sample: object) -> tuple[int, int]:
            fetcher = samples._fetcher  # type: ignore[attr-defined]
            return fetcher._width, fetcher._ahead_bytes

        loader = DataLoader(
            SampleDataset(samples, share),
            batch_size=10,
            num_workers=2,
            collate_fn=list,
            multiprocessing_context="fork",
        )
        return {one for batch in loader for one in batch}

    assert shares({}) == {(32, 128 << 20)}
    assert shares({"concurrency": 5, "ahead_bytes": 1000}) == {(5, 1000)}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_split_among_workers_and_ranks(samples: Samples, workers: int) -> None:
    parts = []
    for rank in range(2):
        stream = SampleStream(samples, checked, shuffle=True, seed=3, rank=rank, world_size=2)
        parts.append(keys_of(DataLoader(stream, batch_size=4, num_workers=workers, collate_fn=list)))
    assert sorted(parts[0] + parts[1]) == ALL
    with pytest.raises(BadOption, match="no such rank"):
        SampleStream(samples, rank=2, world_size=2)


def test_persistent_workers_whose_pass_was_left_early_go_on_with_the_same_epoch(samples: Samples) -> None:
    some = samples[:21]
    stream = SampleStream(some, checked, shuffle=True, seed=3)
    loader = DataLoader(
        stream, batch_size=1, num_workers=2, persistent_workers=True, prefetch_factor=11, collate_fn=list
    )
    iter(loader)  # the second worker comes to the end of its ten samples, the first one has eleven
    first, second = keys_of(loader), keys_of(loader)
    assert sorted(first) == sorted(second) == sorted(some.keys)
    assert first != second


def test_a_loader_that_is_left_early_leaves_nothing(samples: Samples) -> None:
    loader = DataLoader(
        SampleDataset(samples),
        batch_sampler=samples.batch_sampler(4, ahead=8),
        num_workers=2,
        collate_fn=list,
    )
    batches = iter(loader)
    next(batches)
    workers = batches._workers  # type: ignore[attr-defined]
    batches._shutdown_workers()  # type: ignore[attr-defined]
    assert wait_until(lambda: not any(worker.is_alive() for worker in workers))
    samples.close()
    assert wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("samples")])


def test_a_sample_that_is_gone_ends_the_loader_with_its_name(s3: EmbeddedServer, bucket: str) -> None:
    client = client_of(s3)
    for n in range(4):
        client.put_object(Bucket=bucket, Key=f"{n}.jpg", Body=b"x")
    samples = nbdata.samples(f"s3://{bucket}/", concurrency=8)
    client.delete_object(Bucket=bucket, Key="2.jpg")
    client.close()
    loader = DataLoader(
        SampleDataset(samples), batch_sampler=samples.batch_sampler(1), num_workers=1, collate_fn=list
    )
    batches = iter(loader)
    assert [next(batches)[0]["jpg"], next(batches)[0]["jpg"]] == [b"x", b"x"]
    with pytest.raises(SourceChanged, match=r"2\.jpg"):
        next(batches)
    assert next(batches)[0]["__key__"] == "3"
