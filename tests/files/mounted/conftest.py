"""A folder of a bucket that is mounted, and the same on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import nbdata
from nbdata.files.mounted.mounts import Mounted


class Scene(NamedTuple):
    """A mount, the URL that is mounted, and a folder of the disk with the same files."""

    mount: Mounted
    url: str
    disk: Path

    @property
    def folder(self) -> Path:
        """The folder that it is mounted at."""
        return Path(self.mount.folder)


def fill(disk: Path) -> None:
    """Make the files."""
    (disk / "many").mkdir(parents=True)
    for number in range(300):
        (disk / f"many/{number:04}.bin").write_bytes(os.urandom(3000 + number))
    (disk / "deep/er/st").mkdir(parents=True)
    (disk / "deep/er/st/ünï [x].txt").write_text("deep")
    (disk / "big.bin").write_bytes(os.urandom(9_000_001))
    (disk / "empty").write_bytes(b"")


@pytest.fixture
def scene(bucket: str, tmp_path: Path) -> Iterator[Scene]:
    """The mount of a bucket of SeaweedFS."""
    disk = tmp_path / "disk"
    fill(disk)
    url = f"s3://{bucket}/data"
    nbdata.push(str(disk), f"{url}/", quiet=True)
    with nbdata.mount(url, str(tmp_path / "mount")) as mount:
        yield Scene(mount, url, disk)
