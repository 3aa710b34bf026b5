"""An empty folder in a bucket, with `nbdata.shift` on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.files import FileSystem
from nbdata.files.shifted import active


@pytest.fixture
def bucket_url(moto: EmbeddedServer, moto_bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket of moto, to which the environment leads."""
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{moto_bucket}"


@pytest.fixture
def unshifted(bucket_url: str) -> Iterator[str]:
    """The URL of a folder where nothing is, with the shift off at the beginning and at the end."""
    yield f"{bucket_url}/{secrets.token_hex(6)}"
    assert not active, "a test left the shift on"
    FileSystem.clear_instance_cache()


@pytest.fixture
def folder(unshifted: str) -> Iterator[str]:
    """The same with the shift on."""
    with nbdata.shift():
        yield unshifted
