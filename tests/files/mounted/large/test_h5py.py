"""h5py over a mount: its library, in C, opens and reads the file by itself."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np
import pytest

from nbdata.demo.server import EmbeddedServer
from tests.files.mounted.conftest import Scene, scene_of

pytestmark = pytest.mark.needs("mount")

ROWS = 20_000


def fill(disk: Path) -> None:
    """Make a file with an array in chunks, one in a piece, and many groups."""
    disk.mkdir()
    chance = np.random.default_rng(4)
    with h5py.File(disk / "a.h5", "w") as file:
        file.create_dataset(
            "chunks", data=chance.integers(0, 99, (ROWS, 64), "int32"), chunks=(500, 64), compression="gzip"
        )
        file.create_dataset("whole", data=chance.random((ROWS, 32)))
        for number in range(300):
            file.create_group(f"groups/{number:03}").attrs["name"] = secrets.token_hex(50)


@pytest.fixture(scope="module")
def shown(environment: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A mount of this file."""
    yield from scene_of(environment, tmp_path_factory.mktemp("h5py"), fill)


def test_arrays_and_attributes_are_read_in_any_order(shown: Scene) -> None:
    with h5py.File(shown.folder / "a.h5") as there, h5py.File(shown.disk / "a.h5") as here:
        for name in ("chunks", "whole"):
            for rows in (slice(10_000, 10_100), slice(None, 10), slice(-7, None), slice(3, None, 1999)):
                assert (there[name][rows] == here[name][rows]).all()
            assert (there[name][:] == here[name][:]).all()
        for group in here["groups"]:
            assert there[f"groups/{group}"].attrs["name"] == here[f"groups/{group}"].attrs["name"]


def _rows(path: Path, start: int) -> bytes:
    with h5py.File(path) as file:
        return bytes(file["chunks"][start : start + 1000].tobytes())


def test_processes_read_one_file_at_a_time(shown: Scene) -> None:
    starts = range(0, ROWS, 1000)
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        there = list(pool.map(_rows, [shown.folder / "a.h5"] * len(starts), starts))
    assert there == [_rows(shown.disk / "a.h5", start) for start in starts]


def test_nothing_is_written(shown: Scene) -> None:
    with pytest.raises(OSError, match="Read-only"):
        h5py.File(shown.folder / "a.h5", "r+")
