"""OpenCV over a mount: it opens pictures and films in C, the films by FFmpeg."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from nbdata.demo.server import EmbeddedServer
from tests.files.mounted.conftest import Scene, scene_of

pytestmark = pytest.mark.needs("mount")

FRAMES = 120


def fill(disk: Path) -> None:
    """Make pictures, and a film of one."""
    disk.mkdir()
    chance = np.random.default_rng(4)
    for number in range(12):
        for kind in ("png", "jpg"):
            cv2.imwrite(str(disk / f"{number:02}.{kind}"), chance.integers(0, 255, (200, 300, 3), "uint8"))
    film = cv2.VideoWriter(str(disk / "film.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 25, (320, 240))
    for _ in range(FRAMES):
        film.write(chance.integers(0, 255, (240, 320, 3), "uint8"))
    film.release()


@pytest.fixture(scope="module")
def shown(environment: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A mount of these files."""
    yield from scene_of(environment, tmp_path_factory.mktemp("cv2"), fill)


def test_pictures_are_read(shown: Scene) -> None:
    pictures = sorted(path.name for path in shown.disk.iterdir() if path.suffix != ".avi")
    assert len(pictures) == 24
    for name in pictures:
        assert (cv2.imread(str(shown.folder / name)) == cv2.imread(str(shown.disk / name))).all()
    assert cv2.imread(str(shown.folder / "none.png")) is None


def test_a_film_is_read_forward_and_by_jumps(shown: Scene) -> None:
    there, here = (cv2.VideoCapture(str(folder / "film.avi")) for folder in (shown.folder, shown.disk))
    try:
        assert there.get(cv2.CAP_PROP_FRAME_COUNT) == here.get(cv2.CAP_PROP_FRAME_COUNT) == FRAMES
        for at in (None, None, 100, 7, 60, FRAMES - 1):
            frames = []
            for film in (there, here):
                if at is not None:
                    film.set(cv2.CAP_PROP_POS_FRAMES, at)
                found, frame = film.read()
                assert found
                frames.append(frame)
            assert (frames[0] == frames[1]).all()
    finally:
        there.release()
        here.release()
