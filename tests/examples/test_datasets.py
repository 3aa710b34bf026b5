"""The examples of DATASET.py, run on small artificial data, and the result read back."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nbdata.ffrecord import FileReader, GeneralDataset
from tests.waiting import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"
NBDATA = str(Path(sys.executable).with_name("nbdata"))


def picture(path: Path, number: int, size: tuple[int, int] = (300, 280)) -> bytes:
    """Write a JPEG file and return its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shade = np.linspace(0, 200, size[0] * size[1] * 3).reshape(size[1], size[0], 3) + number
    Image.fromarray(shade.astype(np.uint8)).save(path, "JPEG")
    return path.read_bytes()


def convert(folder: Path, *words: str) -> None:
    done = subprocess.run(
        [NBDATA, "convert", *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def imagenet(tmp_path: Path) -> dict[str, list[bytes]]:
    """Two splits with a folder for each class; returns the files of each split in order."""
    return {
        split: [
            picture(tmp_path / "imagenet" / split / name / f"{name}_{n}.JPEG", 10 * number + n)
            for number, name in enumerate(("n01440764", "n01443537", "n01484850"))
            for n in range(count)
        ]
        for split, count in (("train", 4), ("val", 1))
    }


def test_the_images_of_an_imagenet_like_data_set_are_stored_as_they_are(
    tmp_path: Path, imagenet: dict[str, list[bytes]]
) -> None:
    convert(
        tmp_path,
        f"{EXAMPLES}/imagenet_dataset.py",
        "imagenet",
        "out",
        "--store",
        "bytes",
        "--file-size",
        "20k",
    )
    for split, files in imagenet.items():
        dataset = GeneralDataset(tmp_path / "out", split)
        assert dataset[list(range(len(files)))] == files
        assert [
            bytes(data) for data in FileReader(tmp_path / "out" / split / "ffrdata").read(range(len(files)))
        ] == files
        assert dataset.meta["targets"].tolist() == sorted(dataset.meta["targets"].tolist())
        assert dataset.meta["class_to_idx"]["n01484850"] == 2
    assert json.loads((tmp_path / "out/train/meta.json").read_text())["classes"][0] == "n01440764"
    assert len(list((tmp_path / "out/train/ffrdata").iterdir())) > 1


def test_decoded_once_they_are_arrays(tmp_path: Path, imagenet: dict[str, list[bytes]]) -> None:
    convert(tmp_path, f"{EXAMPLES}/imagenet_decoded_dataset.py", "imagenet", "out", "--store", "npy")
    dataset = GeneralDataset(
        tmp_path / "out", "train", lambda index, image, meta: (image, int(meta["targets"][index]))
    )
    image, target = dataset[7]
    assert image.dtype == np.uint8
    assert sorted(image.shape) == [3, 256, 274]
    assert target == 1
    with Image.open(io.BytesIO(imagenet["train"][7])) as encoded:
        expected = np.asarray(encoded.resize((274, 256)), int)
    assert abs(image.astype(int) - expected).mean() < 3


def test_a_coco_like_data_set_has_its_annotations_beside_each_image(tmp_path: Path) -> None:
    root = tmp_path / "coco"
    for split, count in (("train", 5), ("val", 2)):
        ids = [100 - 7 * n for n in range(count)]
        said = {
            "images": [{"id": one, "file_name": f"{one:012}.jpg", "width": 30, "height": 20} for one in ids],
            "annotations": [{"id": n, "image_id": one, "category_id": 1, "bbox": [1.0, 2.0, 3.5, 4.0]} for n, one in
                            enumerate([*ids, ids[0]])],
            "categories": [{"id": 1, "name": "cat"}],
        }  # fmt: skip
        (root / "annotations").mkdir(parents=True, exist_ok=True)
        (root / f"annotations/instances_{split}2017.json").write_text(json.dumps(said))
        for one in ids:
            picture(root / f"{split}2017/{one:012}.jpg", one, (30, 20))
    convert(tmp_path, f"{EXAMPLES}/coco_dataset.py", "coco", "out", "--store", "bytes")
    dataset = GeneralDataset(tmp_path / "out", "train")
    assert len(dataset) == 5
    for number, image in enumerate(dataset.meta["images"]):
        assert dataset[number] == (root / "train2017" / image["file_name"]).read_bytes()
        assert {one["image_id"] for one in dataset.meta["annotations"][number]} == {image["id"]}
    assert [len(found) for found in dataset.meta["annotations"]] == [1, 1, 1, 1, 2]
    assert [path.name for path in dataset.list_files()] == [
        "instances_train2017.json",
        "instances_val2017.json",
    ]
