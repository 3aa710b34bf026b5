"""Shared fixtures: a private state folder, a folder to pack, and buckets to copy between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbdata.engine.unpack.targets import unpacking
from tests.engine.copy.sides import Side, Sides
from tests.engine.unpack.checkpointing import STEP, cut, entries, packed
from tests.engine.unpack.unpacking import look, untar

# Nanoseconds since 1970, with more digits than a float can hold.
_LONG_AGO = 1_500_000_000_123_456_789


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A private state folder for the test; returns its path."""
    folder = str(tmp_path / "state")
    monkeypatch.setenv("NBDATA_STATE_DIR", folder)
    return folder


@pytest.fixture
def content(tmp_path: Path) -> Path:
    """A folder to pack: subfolders, modes, old times, links, an empty file and a file of several blocks."""
    root = tmp_path / "content"
    for number in range(60):
        file = root / f"d{number % 5}" / f"f{number:03d}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(500) + b"some text " * (number * 40))
        file.chmod((0o644, 0o755, 0o600)[number % 3])
    (root / "big.bin").write_bytes(os.urandom(2_500_000))
    (root / "zzz.bin").write_bytes(os.urandom(900_000))
    (root / "d0" / "empty").touch()
    (root / "ünï code").mkdir()
    (root / "ünï code" / "x" / "y").mkdir(parents=True)
    (root / "link").symlink_to("d0/f000.bin")
    (root / "d1" / "up").symlink_to("../d2")
    for name in ("hard1", "d3/hard2"):
        os.link(root / "d0" / "f000.bin", root / name)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(_LONG_AGO + number, _LONG_AGO + number), follow_symlinks=False)
    return root


@pytest.fixture
def side(request: pytest.FixtureRequest) -> Iterator[Sides]:
    """Returns a function that creates a bucket on ``seaweedfs`` or ``moto``."""
    made: list[Side] = []

    def make(kind: str) -> Side:
        made.append(Side(request.getfixturevalue(kind)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a private state folder. The common one of all tests lists unfinished uploads of other tests."""
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let untar_volumes write a checkpoint every 100 KB, without regard to the time."""
    monkeypatch.setattr(unpacking, "EVERY", STEP)
    monkeypatch.setattr(unpacking, "_SHARE", 1)


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, tuple[object, ...]]:
    """The tree that an undisturbed untar_volumes extracts from the archive of `checkpointing`."""
    untar(cut(packed(entries())[0], tmp_path / "whole"), tmp_path / "expected")
    return look(tmp_path / "expected")
