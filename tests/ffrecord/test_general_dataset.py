"""GeneralDataset reads splits of this converter and of the original one, and unpickles only on request."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from nbdata.errors import BadArchive, BadOption, NotFound
from nbdata.ffrecord import FileWriter, GeneralDataset


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def made(
    folder: Path, samples: list[bytes], *, stored: str = "", meta: Any = None, split: str = "train"
) -> Path:
    """Write a split as the original converter does; with `stored`, as this converter does."""
    records = folder / "name" / split / "ffrdata"
    records.mkdir(parents=True)
    half = len(samples) // 2
    for number, some in enumerate((samples[:half], samples[half:])):
        with FileWriter(records / f"PART_{number:05}.ffr", len(some)) as writer:
            for sample in some:
                writer.write_one(sample)
    if meta is not None:
        (records.parent / "meta.pkl").write_bytes(pickle.dumps(meta))
    if stored:
        (records.parent / "nbdata.json").write_text(json.dumps({"stored": stored}))
    return folder / "name"


def test_pickles_of_plain_data_of_the_original_converter_are_read_as_they_are(tmp_path: Path) -> None:
    samples = [pickle.dumps({"index": n, "array": np.full(3, n)}) for n in range(10)]
    folder = made(tmp_path, samples, meta={"targets": np.arange(10)})
    dataset = GeneralDataset(folder, "train")
    assert len(dataset) == 10
    assert [one["index"] for one in dataset[[7, 1, 7]]] == [7, 1, 7]
    assert dataset[4]["array"].tolist() == [4, 4, 4]
    assert dataset.meta["targets"][9] == 9


def test_a_transform_is_given_the_index_the_sample_and_the_meta_data(tmp_path: Path) -> None:
    folder = made(tmp_path, [pickle.dumps(n) for n in range(6)], meta=["meta"])
    dataset = GeneralDataset(folder, "train", lambda index, sample, meta: (index, sample, meta[0]))
    assert dataset[[5, 0]] == [(5, 5, "meta"), (0, 0, "meta")]


def test_a_sample_that_would_run_code_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    folder = made(tmp_path, [pickle.dumps(1), pickle.dumps(Touch(tmp_path / "ran"))])
    dataset = GeneralDataset(folder, "train")
    assert dataset[0] == 1
    with pytest.raises(
        BadOption, match=r"sample 1 of split 'train' is a pickle with posix.mkdir.*allow_pickle=True"
    ):
        dataset[1]
    assert not (tmp_path / "ran").exists()
    assert GeneralDataset(folder, "train", allow_pickle=True)[[1]] == [None]
    assert (tmp_path / "ran").exists()


def test_meta_data_that_would_run_code_are_refused_unless_json_lies_beside_them(tmp_path: Path) -> None:
    folder = made(tmp_path, [pickle.dumps(1)], meta=Touch(tmp_path / "ran"))
    with pytest.raises(BadOption, match=r"meta.pkl is a pickle with posix.mkdir"):
        GeneralDataset(folder, "train")
    (folder / "train" / "meta.json").write_text('{"targets": [1]}')
    assert GeneralDataset(folder, "train").meta == {"targets": [1]}
    assert not (tmp_path / "ran").exists()
    GeneralDataset(folder, "train", allow_pickle=True)
    assert (tmp_path / "ran").exists()


def test_stored_bytes_that_look_like_a_pickle_stay_bytes(tmp_path: Path) -> None:
    evil = pickle.dumps(Touch(tmp_path / "ran"))
    for stored in ("bytes", "own"):
        folder = made(tmp_path / stored, [evil, b"x"], stored=stored)
        assert GeneralDataset(folder, "train", allow_pickle=True)[[0, 1]] == [evil, b"x"]
    assert not (tmp_path / "ran").exists()


def test_arrays_of_objects_are_not_unpickled(tmp_path: Path) -> None:
    out = io.BytesIO()
    np.save(out, np.array([Touch(tmp_path / "ran")], object), allow_pickle=True)
    folder = made(tmp_path, [out.getvalue()], stored="npy")
    with pytest.raises(BadArchive, match="sample 0 of split 'train' is no array"):
        GeneralDataset(folder, "train")[0]
    assert not (tmp_path / "ran").exists()


def test_a_function_of_the_caller_makes_samples_of_arrays_of_bytes(tmp_path: Path) -> None:
    folder = made(tmp_path, [b"abc", b"de"], stored="own")
    dataset = GeneralDataset(
        folder, "train", deserialize_sample=lambda data: (type(data).__name__, data.tobytes())
    )
    assert dataset[1] == ("ndarray", b"de")


def test_the_mini_set_and_the_copied_files_are_found(tmp_path: Path) -> None:
    made(tmp_path / "mini", [pickle.dumps("small")])
    folder = made(tmp_path, [pickle.dumps("large")])
    (folder / "files" / "deep").mkdir(parents=True)
    (folder / "files" / "deep" / "a.json").touch()
    assert GeneralDataset(folder, "train", miniset=True)[0] == "small"
    assert GeneralDataset(folder, "train")[0] == "large"
    assert GeneralDataset(folder, "train").list_files() == [folder / "files/deep/a.json"]


def test_it_goes_through_workers_of_a_loader(tmp_path: Path) -> None:
    folder = made(tmp_path, [pickle.dumps(n) for n in range(20)], meta={"targets": list(range(20))})
    dataset = pickle.loads(pickle.dumps(GeneralDataset(folder, "train")))
    loader = DataLoader(dataset, batch_size=6, num_workers=2, collate_fn=list)
    assert [one for batch in loader for one in batch] == list(range(20))


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no converted split 'val'"):
        GeneralDataset(made(tmp_path, [b""]), "val")
    with pytest.raises(BadOption, match="Pull it first"):
        GeneralDataset("s3://bucket/name", "train")
    (tmp_path / "name/train/nbdata.json").write_text('{"stored": "marshal"}')
    with pytest.raises(BadOption, match="how the samples are stored"):
        GeneralDataset(tmp_path / "name", "train")
    (tmp_path / "name/train/nbdata.json").unlink()
    with pytest.raises(BadArchive, match="sample 0"):
        GeneralDataset(tmp_path / "name", "train")[0]
