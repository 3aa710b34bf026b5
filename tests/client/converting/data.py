"""Data sets for the tests, as modules DATASET.py, and a function that runs a conversion."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.waiting import PATIENCE

NBDATA = str(Path(sys.executable).with_name("nbdata"))

PLAIN = """
import numpy as np

class Numbers:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        assert 0 <= index < self.count
        return {"index": index, "array": np.full(100, index, "<i4")}

    def get_meta(self):
        return {"targets": np.arange(self.count, dtype="i4"), "classes": ["a", "b"]}

def get_datasets(folder):
    return [(Numbers(50), "train"), (Numbers(7), "val")]
"""

BYTES = """
class Bytes:
    def __init__(self, name, count):
        self.name, self.count = name, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index

    def serialize_sample(self, sample):
        return f"{self.name} {sample}".encode().ljust(1000, b".")

def get_datasets(folder):
    return [(Bytes("train", 30), "train"), (Bytes("val", 10), "val")]
"""


def module(folder: Path, text: str, name: str = "dataset.py") -> Path:
    """Write a DATASET.py."""
    path = folder / name
    path.write_text(textwrap.dedent(text))
    (folder / "in").mkdir(exist_ok=True)
    return path


def convert(*words: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``nbdata convert …`` in a terminal."""
    return subprocess.run(
        [NBDATA, "convert", *map(str, words)], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip


def tree(folder: Path) -> list[str]:
    """Return the paths of all files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
