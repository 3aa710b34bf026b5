"""An ImageNet-like data set for ``nbdata convert``: a folder for each class, images as they are (encoded).

INPUT/train/CLASS/*.JPEG and INPUT/val/CLASS/*.JPEG become NAME/train and NAME/val::

    nbdata convert examples/imagenet_dataset.py /data/imagenet /data/converted/imagenet --store bytes

Read them with ``nbdata.ffrecord.GeneralDataset("/data/converted/imagenet", "train")``: a sample is the bytes of an
image file, and ``dataset.meta["targets"][i]`` its class.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

IMAGES = (".jpeg", ".jpg", ".png", ".webp")


class ImageFolder:
    """The images below a folder that has a folder for each class."""

    def __init__(self, folder: Path) -> None:
        self.classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        self.paths: list[Path] = []
        self.targets: list[int] = []
        for number, name in enumerate(self.classes):
            found = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in IMAGES)
            self.paths += found
            self.targets += [number] * len(found)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> bytes:
        return self.paths[index].read_bytes()

    def get_meta(self) -> dict[str, object]:
        """The original converter's meta data of ImageNet."""
        return {
            "classes": self.classes,
            "class_to_idx": {name: number for number, name in enumerate(self.classes)},
            "targets": np.array(self.targets, np.int32),
        }


def get_datasets(folder: Path) -> list[tuple[ImageFolder, str]]:
    """The splits that there are."""
    return [(ImageFolder(folder / split), split) for split in ("train", "val") if (folder / split).is_dir()]
