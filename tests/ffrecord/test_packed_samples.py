"""Packed folders as a source of samples, on the disk and in a store."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import nbdata
from nbdata.client.reading.samples import Samples
from nbdata.errors import BadOption, ChecksumMismatch, NotFound
from nbdata.ffrecord import pack_folder
from nbdata.loaders.pytorch import SampleDataset
from tests.ffrecord.test_files import made

FILES = {
    **{f"n{n % 2}/{n:03}.jpg": bytes([n]) * (500 + n) for n in range(20)},
    **{f"n{n % 2}/{n:03}.cls": str(n).encode() for n in range(20)},
    "n0/empty.txt": b"",
    "LICENSE": b"?",
}
KEYS = sorted(f"n{n % 2}/{n:03}" for n in range(20))


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    for name, data in FILES.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    pack_folder(tmp_path / "folder", tmp_path / "x.ffr")
    if request.param == "disk":
        return f"{tmp_path}/x.ffr"
    put: Callable[[dict[str, bytes]], str] = request.getfixturevalue("put")
    return put({"x.ffr": (tmp_path / "x.ffr").read_bytes()}) + "x.ffr"


def test_files_of_a_packed_folder_form_the_same_samples_as_loose_files(place: str, tmp_path: Path) -> None:
    with nbdata.samples(place) as samples, nbdata.samples(f"{tmp_path}/folder/") as loose:
        assert list(samples.keys) == list(loose.keys) == sorted([*KEYS, "n0/empty"])
        assert samples[3] == {**loose[3], "__url__": place}
        assert [set(sample) for sample in samples.fetch([10, 0, 10])] == [
            {"__key__", "__url__", "txt"}, {"__key__", "__url__", "cls", "jpg"}, {"__key__", "__url__", "txt"},
        ]  # fmt: skip
        assert "packed folder" in repr(samples)
        assert samples.report.left_out == 1
        assert set(samples.to_dict()["fields"]) == {"jpg", "cls", "txt"}
        streamed = [sample["__key__"] for sample in samples.stream(shuffle=True, seed=1)]
        assert streamed != list(samples.keys)
        assert sorted(streamed) == list(samples.keys)
        with pytest.raises(BadOption, match="needs no index"):
            samples.save_index()  # type: ignore[attr-defined]


def key_of(sample: dict[str, bytes]) -> str:
    assert sample["jpg"] == FILES[f"{sample['__key__']}.jpg"]  # type: ignore[str-bytes-safe]
    return str(sample["__key__"])


def test_they_are_chosen_by_name_and_read_by_workers(place: str) -> None:
    with nbdata.samples(place, include="*/*.jpg") as samples:
        again: Samples = pickle.loads(pickle.dumps(samples))
        assert list(again.keys) == KEYS
        again.close()
        loader = DataLoader(
            SampleDataset(samples, key_of), 3, num_workers=2, collate_fn=list, multiprocessing_context="fork"
        )
        assert list(itertools.chain.from_iterable(loader)) == KEYS
    with nbdata.samples(place, by="file") as samples:
        assert len(samples) == len(FILES)
    with pytest.raises(NotFound, match="belongs to a sample"):
        nbdata.samples(place, include="LICENSE")


def test_a_wrong_byte_is_found(tmp_path: Path) -> None:
    for name, data in FILES.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    pack_folder(tmp_path / "folder", tmp_path / "x.ffr")
    whole = bytearray((tmp_path / "x.ffr").read_bytes())
    whole[whole.index(FILES["n1/007.jpg"])] ^= 1
    (tmp_path / "x.ffr").write_bytes(whole)
    with nbdata.samples(f"{tmp_path}/x.ffr") as samples:
        with pytest.raises(ChecksumMismatch):
            samples[list(samples.keys).index("n1/007")]
        assert len(samples.fetch(range(10))) == 10
    whole[-1] ^= 1
    (tmp_path / "x.ffr").write_bytes(whole)
    with pytest.raises(ChecksumMismatch):
        nbdata.samples(f"{tmp_path}/x.ffr")


def test_a_last_sample_that_is_none_of_names_is_a_sample(tmp_path: Path) -> None:
    (tmp_path / "x.ffr").write_bytes(made([b"one", b"piouhjgbr"]))
    with nbdata.samples(f"{tmp_path}/x.ffr") as samples:
        assert [sample["bin"] for sample in samples] == [b"one", b"piouhjgbr"]
