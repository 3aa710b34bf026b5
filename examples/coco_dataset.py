"""A COCO-like data set for ``nbdata convert``: images as they are, annotations as meta data and as copied files.

INPUT has train2017/, val2017/ and annotations/instances_train2017.json, …_val2017.json::

    nbdata convert examples/coco_dataset.py /data/coco /data/converted/coco --store bytes

``dataset.meta["annotations"][i]`` are the annotations of sample i, ``dataset.meta["images"][i]`` is what COCO says of
the image. NAME/files/annotations holds the original files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class CocoImages:
    """The images that an annotation file names, in the order of their ids."""

    def __init__(self, folder: Path, annotations: Path) -> None:
        said = json.loads(annotations.read_text())
        self.folder = folder
        self.categories: list[dict[str, Any]] = said["categories"]
        self.images: list[dict[str, Any]] = sorted(said["images"], key=lambda image: image["id"])
        self.annotations: dict[int, list[dict[str, Any]]] = {image["id"]: [] for image in self.images}
        for one in said["annotations"]:
            self.annotations[one["image_id"]].append(one)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> bytes:
        return (self.folder / self.images[index]["file_name"]).read_bytes()

    def get_meta(self) -> dict[str, Any]:
        """Plain data: it can be read without unpickling."""
        return {
            "categories": self.categories,
            "images": self.images,
            "annotations": [self.annotations[image["id"]] for image in self.images],
        }


def get_datasets(folder: Path) -> list[tuple[CocoImages, str]]:
    """The splits that there are."""
    found = []
    for split in ("train", "val"):
        annotations = folder / "annotations" / f"instances_{split}2017.json"
        if annotations.exists():
            found.append((CocoImages(folder / f"{split}2017", annotations), split))
    return found


def get_files_or_dirs() -> list[tuple[str, None]]:
    """What is copied beside the samples."""
    return [("annotations", None)]
