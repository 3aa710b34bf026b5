"""Ends mounts in folders whose owner has exchanged a folder above: nothing else ends in their place."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import NbdataError
from nbdata.files.mounted import mounts
from nbdata.space.mounts import Note, end_mount, is_mounted
from tests.agent.rig import tmpfs
from tests.files.mounted.conftest import Scene
from tests.waiting import wait_until

pytestmark = [pytest.mark.needs("fuse"), pytest.mark.needs("mounts")]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Path]:
    """A disk that somebody else has mounted."""
    with tmpfs(tmp_path / "other/data", size="1M") as folder:
        yield folder


@pytest.mark.parametrize("way", ["name", "above", "none"])
@pytest.mark.parametrize("lazy", [True, False])
def test_a_mount_to_which_a_link_leads_stays(other: Path, tmp_path: Path, way: str, lazy: bool) -> None:
    folder = tmp_path / "project/data"
    if way == "name":
        folder.parent.mkdir()
        folder.symlink_to(other)
    elif way == "above":
        folder.parent.symlink_to(other.parent)
    else:
        folder = other
    failed = end_mount(str(folder), lazy=lazy)
    assert failed == (
        "there is a link on the way to it now" if way == "above" else "no mount of nbdata is there"
    )
    assert os.path.ismount(other)


def test_a_mount_ends_where_it_was_moved_and_not_what_has_its_path_now(
    scene: Scene, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "_ENDING", 0.1)
    mount = nbdata.mount(scene.url, str(tmp_path / "project/data"))
    (note,) = [one for one in Note.all() if one.folder == mount.folder]
    (tmp_path / "project").rename(tmp_path / "moved")
    (tmp_path / "project").symlink_to(other.parent)
    with pytest.raises(NbdataError, match="it stays: there is a link on the way"):
        mount.unmount()
    assert is_mounted(str(tmp_path / "moved/data"))
    os.kill(note.process, signal.SIGTERM)
    wait_until(lambda: not note.lives)
    assert os.path.ismount(other)
    assert not is_mounted(str(tmp_path / "moved/data"))
    mount.unmount()  # does nothing by now
    assert os.path.ismount(other)
