"""A rank that trains with samples ends as it should: nothing of nbdata is alive then, and nothing is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbdata.ffrecord import FileWriter
from tests.loaders.test_samples import samples, train
from tests.waiting import PATIENCE

__all__ = ["samples", "train"]

PROGRAM = str(Path(__file__).with_name("rank_ends.py"))


def words_of(*arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        env={**os.environ, "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=20 * PATIENCE, check=False,
    )  # fmt: skip
    return run.stdout


@pytest.fixture
def places(s3: object, train: str, tmp_path: Path) -> tuple[str, str, str]:
    """The URL of samples, FFRecord files and the folder of a cache."""
    with FileWriter(str(tmp_path / "records.ffr"), 40) as writer:
        for number in range(40):
            writer.write_one(b"%d" % number)
    return train, str(tmp_path / "records.ffr"), str(tmp_path / "cache")


@pytest.mark.long
def test_nothing_is_alive_after_the_last_callback(places: tuple[str, str, str]) -> None:
    assert words_of(*places, "1", "") == ""


@pytest.mark.long
def test_two_ranks_end_a_hundred_times(places: tuple[str, str, str]) -> None:
    assert words_of(*places, "2", "100") == ""
