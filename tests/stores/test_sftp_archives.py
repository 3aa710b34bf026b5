"""Volumes on an SSH server are unpacked into a store, with nothing on the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.engine.unpack.test_untar_several import content, tree
from tests.engine.unpack.test_untar_to_store import stored
from tests.engine.unpack.unpacking import pack
from tests.stores.ssh_server import PASSWORD, SshServer

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "served").mkdir()
    with SshServer(tmp_path / "served") as running:
        running.known_hosts(tmp_path / "home")
        yield running


def test_volumes_behind_sftp_become_objects_and_are_deleted(
    tmp_path: Path, server: SshServer, s3: EmbeddedServer, bucket: str
) -> None:
    made = content(tmp_path, "made")
    pack(made, server.folder / "v", "a.tar.gz", volume=30_000)
    options = {"storage_options": {"password": PASSWORD}, "quiet": True}
    report = nbdata.untar_volumes(f"{server.url}v/", f"s3://{bucket}/out/", **options)
    assert stored(s3, bucket, "out/") == tree(made)
    assert report.counts == {"extracted": 30}
    again = nbdata.untar_volumes(f"{server.url}v/", f"s3://{bucket}/out/", **options)
    assert again.counts.get("extracted", 0) == 0
    assert stored(s3, bucket, "out/") == tree(made)
    nbdata.untar_volumes(f"{server.url}v/", f"s3://{bucket}/out/", delete_volumes=True, **options)
    assert not list((server.folder / "v").iterdir())
