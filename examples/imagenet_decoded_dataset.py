"""The same data set as imagenet_dataset.py, with images decoded once: several times as large, and no decoding later.

The shorter side becomes 256 pixels, as most training code would have it::

    nbdata convert examples/imagenet_decoded_dataset.py /data/imagenet /data/converted/decoded --store npy

A sample is an array of uint8, height × width × 3.
"""

from __future__ import annotations

from pathlib import Path

import imagenet_dataset  # lies beside this file
import numpy as np
from PIL import Image

SHORTER = 256


class DecodedFolder(imagenet_dataset.ImageFolder):
    """Images as arrays."""

    def __getitem__(self, index: int) -> np.ndarray:
        with Image.open(self.paths[index]) as image:
            factor = SHORTER / min(image.size)
            image.draft(
                "RGB", tuple(round(side * factor) for side in image.size)
            )  # the decoder makes it smaller
            plain = image.convert("RGB")
        return np.asarray(
            plain.resize([max(1, round(side * SHORTER / min(plain.size))) for side in plain.size])
        )


def get_datasets(folder: Path) -> list[tuple[DecodedFolder, str]]:
    """The splits that there are."""
    return [(DecodedFolder(folder / split), split) for split in ("train", "val") if (folder / split).is_dir()]
