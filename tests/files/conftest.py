"""A file system of nbdata over each store that takes files, with an empty folder in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.files import FileSystem
from tests.conformance.conftest import az_store
from tests.faults.proxy import FaultProxy
from tests.stores.emulators import azure, google

#: The stores; SeaweedFS is left out where a test asks whether a folder is gone: there it stays a while.
KINDS = ("moto", "gs", "az", "local", "memory")


class Home(NamedTuple):
    """A file system, and the path of an empty folder in it."""

    files: FileSystem
    path: str
    kind: str = "seaweedfs"


@pytest.fixture(scope="session")
def azure_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Azurite with a container named ``bucket``, for the whole session."""
    with azure(tmp_path_factory.mktemp("azure")) as port:
        store = az_store({**_azure_options(port), "bucket": "bucket"})
        store._send("PUT", "", {"restype": "container"}, body=b"", ok=(201,)).read()
        yield port


def _azure_options(port: int) -> dict[str, Any]:
    endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
    return {"connection_string": f"UseDevelopmentStorage=true;BlobEndpoint={endpoint}"}


@pytest.fixture(scope="session")
def google_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """gcp-storage-emulator, for the whole session."""
    with google(tmp_path_factory.mktemp("google")) as port:
        yield port


@pytest.fixture(scope="session")
def moto_bucket(moto: EmbeddedServer) -> str:
    """A bucket of moto, which has no folders but those in names."""
    moto.create_bucket("files")
    return "files"


def home_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Return an empty folder in a store of this kind."""
    name = secrets.token_hex(6)
    if kind == "local":
        folder = tmp_path / "store"
        folder.mkdir()
        return Home(nbdata.filesystem(str(folder)), str(folder), kind)
    if kind == "memory":
        return Home(nbdata.filesystem("memory://"), name, kind)
    if kind == "gs":
        endpoint = f"http://127.0.0.1:{request.getfixturevalue('google_port')}"
        return Home(nbdata.filesystem("gs://", endpoint_url=endpoint, token="anon"), f"bucket/{name}", kind)
    if kind == "az":
        options = _azure_options(request.getfixturevalue("azure_port"))
        return Home(nbdata.filesystem("az://", **options), f"bucket/{name}", kind)
    bucket = request.getfixturevalue("moto_bucket")
    options = request.getfixturevalue("moto").storage_options()
    return Home(nbdata.filesystem("s3://", **options), f"{bucket}/{name}", kind)


@pytest.fixture(
    params=[pytest.param(k, marks=pytest.mark.needs("azurite")) if k == "az" else k for k in KINDS]
)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """Each store in turn."""
    yield home_of(request.param, request, tmp_path)
    FileSystem.clear_instance_cache()


@pytest.fixture
def s3_home(bucket: str) -> Iterator[Home]:
    """A bucket of SeaweedFS, which the environment leads to."""
    yield Home(nbdata.filesystem("s3://"), bucket)
    FileSystem.clear_instance_cache()


@pytest.fixture
def proxy(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """SeaweedFS behind a proxy that spoils what it carries."""
    with FaultProxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy
