"""TensorFlow's tf.data reads samples, and folders of a cache; ``make test-tensorflow`` installs TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import nbdata
from nbdata.client.reading.samples import Samples
from nbdata.errors import BadOption
from nbdata.loaders.tensorflow import dataset

FILES = {f"{n:03}.{name}": f"{name} {n}".encode() * (n + 1) for n in range(40) for name in ("jpg", "cls")}
ALL = [f"{n:03}" for n in range(40)]
Put = Callable[[dict[str, bytes]], str]


@pytest.fixture
def samples(put: Put) -> Iterator[Samples]:
    with nbdata.samples(put(FILES), concurrency=8) as found:
        yield found


def checked(element: dict[str, Any]) -> str:
    """Check an element's bytes and return its key."""
    key = element["__key__"].decode()
    assert (element["jpg"], element["cls"]) == (FILES[f"{key}.jpg"], FILES[f"{key}.cls"])
    return key


def test_each_pass_is_an_epoch_of_its_own(samples: Samples) -> None:
    data = dataset(samples, shuffle=True, seed=1)
    passes = [list(map(checked, data.as_numpy_iterator())) for _ in range(2)]
    assert [sorted(one) for one in passes] == [ALL, ALL]
    assert passes[0] != passes[1]
    assert passes[0] == [sample["__key__"] for sample in samples.stream(shuffle=True, seed=1)]
    batches = list(dataset(samples).map(lambda s: tf.strings.length(s["jpg"])).batch(16).prefetch(2))
    assert [len(batch) for batch in batches] == [16, 16, 8]
    parts = [list(map(checked, dataset(samples, part=f"{n}/2").as_numpy_iterator())) for n in range(2)]
    assert sorted(itertools.chain(*parts)) == ALL


def test_a_transform_says_what_it_gives(samples: Samples) -> None:
    signature = (tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.string))
    data = dataset(samples, signature, transform=lambda sample: (int(sample["__key__"]), sample["jpg"]))
    got = {int(number): jpg.numpy() for number, jpg in data}
    assert got == {n: FILES[f"{n:03}.jpg"] for n in range(40)}
    windows = dataset(
        samples.windows(4),
        tf.TensorSpec((4,), tf.string),
        transform=lambda frames: [f["cls"] for f in frames],
    )
    assert len(list(windows)) == 37
    for wrong in (
        lambda: dataset(samples, transform=dict),
        lambda: dataset(samples.windows(2)),
        lambda: dataset([1, 2]),
        lambda: dataset([1, 2], transform=int),
    ):
        with pytest.raises(BadOption):
            wrong()


def test_a_sample_with_other_fields_is_named(put: Put) -> None:
    with (
        nbdata.samples(put({**FILES, "030.txt": b"more"}), concurrency=8) as samples,
        pytest.raises(
            Exception, match=r"the sample '030' has other fields than the first one.*cls, jpg, txt"
        ),
    ):
        list(dataset(samples))


def test_what_fails_reaches_the_training(put: Put, s3: Any, bucket: str) -> None:
    url = put(FILES)
    with nbdata.samples(url, concurrency=8) as samples:
        put({"020.jpg": b"another"})
        with pytest.raises(Exception, match=r"020\.jpg"):
            list(dataset(samples))


def test_folders_of_a_cache_are_read_while_they_are_there(put: Put, tmp_path: Path) -> None:
    url = put({f"v{n}/{m}.txt": f"{n}-{m}".encode() for n in range(6) for m in range(3)})
    stream = nbdata.cache_stream(
        url, cache_dir=str(tmp_path / "cache"), max_size="1MB", by="folder", quiet=True
    )

    def read(item: Any) -> list[bytes]:
        return sorted(file.read_bytes() for file in Path(item.path).rglob("*.txt"))

    data = dataset(stream, tf.TensorSpec((3,), tf.string), transform=read)
    got = sorted(list(texts.numpy()) for texts in data.prefetch(4))
    assert got == [[f"{n}-{m}".encode() for m in range(3)] for n in range(6)]
