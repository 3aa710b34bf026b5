"""A folder of a bucket that is mounted, and the same on the disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.files.mounted.mounts import Mounted
from tests.conftest import client_of
from tests.faults.proxy import FaultProxy


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


def scene_of(server: EmbeddedServer, folder: Path, fill: Callable[[Path], None] = fill) -> Iterator[Scene]:
    """Yield a mount of a new bucket that has the files which `fill` makes."""
    name, client = f"mount-{secrets.token_hex(4)}", client_of(server)
    client.create_bucket(Bucket=name)
    disk = folder / "disk"
    fill(disk)
    url = f"s3://{name}/data"
    nbdata.push(str(disk), f"{url}/", quiet=True)
    with nbdata.mount(url, str(folder / "mount")) as mount:
        yield Scene(mount, url, disk)
    client.delete_bucket(Bucket=name)  # SeaweedFS limits the number of volumes
    client.close()


@pytest.fixture(scope="module")
def environment(seaweedfs: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """SeaweedFS as the store for ``s3://``, for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in seaweedfs.environment().items():
            patch.setenv(name, value)
        yield seaweedfs


@pytest.fixture(scope="module")
def scene(environment: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A mount for tests that only read."""
    yield from scene_of(environment, tmp_path_factory.mktemp("scene"))


@pytest.fixture
def own_scene(environment: EmbeddedServer, tmp_path: Path) -> Iterator[Scene]:
    """A mount for one test, which may end it."""
    yield from scene_of(environment, tmp_path)


@pytest.fixture
def proxy(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """SeaweedFS behind a proxy that spoils what it carries, for mounts that give up soon."""
    monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "1")
    with FaultProxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy
