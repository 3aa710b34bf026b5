"""nbdata's samples in pipelines of the webdataset library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import webdataset
from torch.utils.data import DataLoader

import nbdata
from nbdata.loaders.webdataset import source

Put = Callable[[dict[str, bytes]], str]


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
    pipeline = webdataset.DataPipeline(
        source(samples, shuffle=True, seed=1),
        webdataset.decode(),
        webdataset.to_tuple("cls", "txt"),
        webdataset.batched(4),
    )
    loader: Any = DataLoader(pipeline, batch_size=None, num_workers=workers)
    seen = [
        (int(number), text) for numbers, texts in loader for number, text in zip(numbers, texts, strict=True)
    ]
    assert sorted(seen) == [(n, "text") for n in range(30)]
    assert seen != sorted(seen)
    samples.close()
