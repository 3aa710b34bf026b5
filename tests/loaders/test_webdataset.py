"""nbdata's samples in pipelines of the webdataset library, in both of its interfaces."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset as wds
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset

import nbdata
from nbdata.errors import BadOption
from nbdata.loaders.webdataset import Source, source
from tests.waiting import PATIENCE

Put = Callable[[dict[str, bytes]], str]


def picture(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 3), (number, 0, 0)).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def samples(tmp_path: Path) -> Any:
    """30 samples in shards of three."""
    with nbdata.write_shards(tmp_path / "x-%02d.tar", shard_size="7KB") as shards:
        for number in range(30):
            shards.write(
                {"__key__": f"{number:02}", "png": picture(number), "json": {"n": number}, "bin": bytes(1000)}
            )
    with nbdata.samples(tmp_path / "x-*.tar") as found:
        assert len(found) == 30
        yield found


def numbers(items: Any) -> list[int]:
    """The numbers of the samples, which are tuples whose last element is the JSON."""
    return [int(item[-1]["n"]) for item in items]


@pytest.mark.in_ci("False-0", "True-0")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_each_sample_comes_once_decoded_by_the_library(put: Put, workers: int, packed: bool) -> None:
    url = put(
        {
            f"in/{n:02}.{name}": text
            for n in range(30)
            for name, text in (("cls", b"%d" % n), ("txt", b"text"))
        }
    )
    if packed:
        nbdata.pack(f"{url}in/", f"{url}out/x-%d.tar", shard_count=4, quiet=True)
    samples = nbdata.samples(f"{url}out/x-*.tar" if packed else f"{url}in/")
    fluid = source(samples, shuffle=True, seed=1).shuffle(10).decode().to_tuple("cls", "txt").batched(4)
    pipeline = wds.DataPipeline(
        source(samples, shuffle=True, seed=1),
        wds.decode(),
        wds.to_tuple("cls", "txt"),
        wds.batched(4),
    )
    made: Any = [
        DataLoader(pipeline, batch_size=None, num_workers=workers),
        wds.WebLoader(fluid, batch_size=None, num_workers=workers),
    ]
    for loader in made:
        seen = [
            (int(number), text)
            for numbers, texts in loader
            for number, text in zip(numbers, texts, strict=True)
        ]
        assert sorted(seen) == [(n, "text") for n in range(30)]
        assert seen != sorted(seen)
    samples.close()


def halved(item: Any) -> Any:
    """Return a picture as an array that is half as wide, and its JSON."""
    image, about = item
    return np.asarray(image)[:, ::2], about


def test_the_examples_of_the_library_run_with_another_first_line(samples: Any) -> None:
    dataset = source(samples).shuffle(10).decode("pil").to_tuple("png", "json")
    assert isinstance(dataset, IterableDataset)
    image, about = next(iter(dataset))
    assert image.getpixel((0, 0)) == (about["n"], 0, 0)
    assert sorted(numbers(dataset.map(halved))) == [*range(30)]

    pipeline = wds.DataPipeline(
        source(samples),
        wds.shuffle(10),
        wds.decode("pil"),
        wds.to_tuple("png", "json"),
        wds.map(halved),
        wds.batched(16),
    )
    batches = list(pipeline)
    assert [batch[0].shape for batch in batches] == [(16, 3, 2, 3), (14, 3, 2, 3)]
    assert sorted(about["n"] for batch in batches for about in batch[1]) == [*range(30)]

    loader = wds.WebLoader(source(samples).decode("rgb").to_tuple("png", "json").batched(5), batch_size=None)
    assert sorted(numbers(loader.unbatched().shuffle(20).batched(6).unbatched())) == [*range(30)]
    with source(samples).select(lambda sample: sample["__key__"] < "05").decode().to_tuple("json") as few:
        assert sorted(numbers(few)) == [*range(5)]
    mixed = wds.RandomMix([source(samples[:4]).decode(), source(samples[4:9]).decode()], longest=True)
    assert sorted(int(sample["json"]["n"]) for sample in mixed) == [*range(9)]
    assert len(source(samples).with_length(30, silent=True)) == 30
    unpickled = pickle.loads(pickle.dumps(dataset.map(halved)))
    assert sorted(numbers(unpickled)) == [*range(30)]


def test_ranks_and_workers_get_each_sample_once(samples: Any) -> None:
    got: list[int] = []
    for rank in range(2):
        stages = source(samples, shuffle=True, rank=rank, world_size=2).decode().to_tuple("json").batched(4)
        got += numbers(wds.WebLoader(stages, batch_size=None, num_workers=2).unbatched())
    assert sorted(got) == [*range(30)]


def test_a_repeated_pipeline_returns_each_sample_as_often_if_a_worker_is_slow(samples: Any) -> None:
    fast = multiprocessing.get_context("fork").Event()

    def held(worker: int) -> None:
        if worker == 1:
            assert fast.wait(PATIENCE)

    def counted(item: Any, seen: Counter[int] = Counter()) -> Any:  # noqa: B006  # of this process
        seen[item[-1]["n"]] += 1
        if max(seen.values()) >= 5:
            fast.set()
        return item

    stages = source(samples, shuffle=True).decode().to_tuple("json").map(counted).batched(64).repeat(10)
    loader = wds.WebLoader(
        stages, batch_size=None, num_workers=2, prefetch_factor=8, worker_init_fn=held,
        multiprocessing_context="fork",
    )  # fmt: skip
    assert Counter(numbers(loader.unbatched())) == dict.fromkeys(range(30), 10)


def test_an_epoch_of_so_many_samples_has_another_order_each_time(samples: Any) -> None:
    dataset = source(samples, shuffle=True).decode().to_tuple("json").with_epoch(40)
    first, second = numbers(dataset), numbers(dataset)
    assert len(first) == len(second) == 40
    assert first[:30] != second[:30]
    assert sorted(first[:30]) == sorted(second[:30]) == [*range(30)]


@pytest.mark.parametrize("stage", [wds.split_by_node, wds.split_by_worker])
def test_a_stage_that_would_split_the_samples_once_more_is_refused(samples: Any, stage: Any) -> None:
    with pytest.raises(BadOption, match=f"{stage.__name__}: .* already split"):
        source(samples).compose(stage)


def test_a_pipeline_resumes_where_it_was(samples: Any) -> None:
    def made() -> Source:
        return source(samples, shuffle=True, seed=3).decode().to_tuple("json").map(tuple)

    begun = made()
    items = iter(begun)
    before = numbers(next(items) for _ in range(11))
    resumed = made()
    resumed.load_state_dict(begun.state_dict())
    assert resumed.epoch == 0
    assert before + numbers(resumed) == numbers(made())
    resumed.set_epoch(7)
    assert resumed.epoch == 7


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(
    "add",
    [
        lambda data: data.shuffle(10),
        lambda data: data.batched(4),
        lambda data: data.slice(10),
        lambda data: data.compose(sorted),
        lambda data: data.repeat(2),
    ],
)
def test_a_pipeline_that_holds_samples_back_has_no_position(samples: Any, add: Any) -> None:
    dataset = add(source(samples).decode())
    for ask in (dataset.state_dict, lambda: dataset.load_state_dict({})):
        with pytest.raises(BadOption, match=r"position of this pipeline is not known: .*shuffle=True"):
            ask()


def test_importing_nbdata_does_not_import_webdataset() -> None:
    code = (
        "import sys, nbdata, nbdata.loaders; nbdata.samples, nbdata.decode; "
        "assert 'webdataset' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
