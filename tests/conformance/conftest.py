"""The stores under test in the conformance suite; every test gets its own prefix."""

from __future__ import annotations

import io
import itertools
import os
import secrets
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nbdata.demo.server import EmbeddedServer
from nbdata.operation import Context
from nbdata.stores.az.config import az_config
from nbdata.stores.az.store import AzStore
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.fsspec_store import FsspecStore
from nbdata.stores.local import LocalStore
from nbdata.stores.resolve import open_place
from nbdata.stores.s3.config import s3_config
from nbdata.stores.s3.store import S3Store
from tests.servers.aistore.cluster import Cluster
from tests.stores.emulators import azure, google
from tests.stores.folder_server import folder_server
from tests.stores.ssh_server import PASSWORD, SshServer

KINDS = ("local", "memory", "moto", "seaweedfs", "ais-s3", "s3fs", "gs", "az", "ais", "sftp")
READ_ONLY = ("http", "zip")
S3 = ("moto", "seaweedfs", "ais-s3")
PARTS = (*S3, "az", "ais")
REMOTE = (*S3, "s3fs", "gs", "az", "ais")


@dataclass
class Place:
    """A store under test. `prefix` ends with a slash, and has no objects at first."""

    kind: str
    store: Store
    prefix: str
    server: EmbeddedServer | None = None
    options: dict[str, Any] = field(default_factory=dict)

    folder: Path | None = None  # folder that a read-only store serves

    def put(self, key: str, data: bytes) -> ObjectInfo:
        if self.folder is not None:
            behind = LocalStore().write(f"{self.folder}/{key}".lstrip("/"), io.BytesIO(data), len(data))
            return behind._replace(key=self.prefix + key)
        return self.store.write(self.prefix + key, io.BytesIO(data), len(data))

    def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        match: ObjectInfo | None = None,
        piece: int = 1 << 16,
    ) -> bytes:
        body = self.store.read(self.prefix + key, start, end, match=match)
        try:
            data = bytearray()
            view = memoryview(bytearray(piece))
            while count := body.readinto(view):
                data += view[:count]
            if body.length >= 0:
                assert len(data) == body.length
            # A store that ignores ranges returns everything, and reports that with `start`.
            assert body.start == start or not data or body.start == 0
            return bytes(data)
        finally:
            body.close()

    def keys(self, below: str = "", *, after: str = "") -> list[str]:
        found = self.store.list(self.prefix + below, after=self.prefix + after if after else "")
        return [info.key[len(self.prefix) :] for info in found]

    def delete(self, keys: Iterable[str]) -> None:
        if self.folder is not None:
            LocalStore().delete(f"{self.folder}/{key}".lstrip("/") for key in keys)
            return
        self.store.delete(self.prefix + key for key in keys)

    def another(self, *, bucket: str = "", **options: Any) -> Store:
        """Return the same store with other options or another bucket."""
        options = {**self.options, **options}
        if self.kind == "s3fs":
            return s3fs_store(options)
        if self.kind == "gs":
            return gs_store({**options, "bucket": bucket or options["bucket"]})
        if self.kind == "az":
            return az_store({**options, "bucket": bucket or options["bucket"]})
        if self.kind == "ais":
            return ais_store({**options, "bucket": bucket or options["bucket"]})
        return _s3_store(bucket or self.options["bucket"], options)


class SftpPlace(Place):
    """A folder of an SSH server.

    Changed files get times at least a second apart, because SFTP reports whole seconds.
    """

    _seconds = itertools.count(1_000_000_000)

    def __init__(self, server: SshServer) -> None:
        store = open_place(server.url, context(password=PASSWORD)).store
        super().__init__("sftp", store, f"{secrets.token_hex(6)}/")
        self._served = server.folder

    def put(self, key: str, data: bytes) -> ObjectInfo:
        super().put(key, data)
        time = next(self._seconds)
        os.utime(self._served / (self.prefix + key), (time, time))
        return self.store.head(self.prefix + key)


class ZipPlace(Place):
    """A zip archive, read through fsspec, and rewritten for each change."""

    def __init__(self, folder: Path) -> None:
        self.path, self.held = folder / "all.zip", dict[str, bytes]()
        super().__init__("zip", LocalStore(), "folder/")
        self._write()

    def _write(self) -> None:
        import fsspec

        with zipfile.ZipFile(self.path, "w") as archive:
            for name, data in self.held.items():
                archive.writestr(self.prefix + name, data)
        self.store = FsspecStore(fsspec.filesystem("zip", fo=str(self.path), skip_instance_cache=True))

    def put(self, key: str, data: bytes) -> ObjectInfo:
        self.held[key] = data
        self._write()
        return self.store.head(self.prefix + key)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.held.pop(key, None)
        self._write()


def context(**storage_options: Any) -> Context:
    """Return a context with these options and without environment variables."""
    return Context(cwd="/", env={"HOME": "/nonexistent"}, storage_options=storage_options)


def _s3_store(bucket: str, options: dict[str, Any]) -> S3Store:
    return S3Store(bucket, s3_config("s3", context(**{k: v for k, v in options.items() if k != "bucket"})))


def s3fs_store(options: dict[str, Any]) -> FsspecStore:
    """Return plain s3fs, as a user would pass it in."""
    import s3fs

    known = {k: v for k, v in options.items() if k != "bucket"}
    return FsspecStore(
        s3fs.S3FileSystem(**known, client_kwargs={"region_name": "us-east-1"}, skip_instance_cache=True)
    )


def gs_store(options: dict[str, Any]) -> Store:
    """Return nbdata's Google store."""
    known = {k: v for k, v in options.items() if k != "bucket"}
    return open_place(f"gs://{options['bucket']}/", context(**known)).store


def az_store(options: dict[str, Any]) -> AzStore:
    """Return nbdata's Azure store."""
    known = {k: v for k, v in options.items() if k != "bucket"}
    return AzStore(options["bucket"], az_config("", context(**known)))


def ais_store(options: dict[str, Any]) -> Store:
    """Return nbdata's AIStore store."""
    known = {k: v for k, v in options.items() if k != "bucket"}
    return open_place(f"ais://{options['bucket']}/", context(**known)).store


@pytest.fixture(scope="session")
def aistore_buckets(aistore: Cluster) -> dict[str, str]:
    """A bucket on the server that stands in for AIStore for each door. Over S3, others than this list no ETags."""
    names = {kind: f"{kind}-{secrets.token_hex(4)}" for kind in ("ais", "ais-s3")}
    aistore.create_bucket(names["ais"])
    aistore.create_bucket(names["ais-s3"], checksum="md5")
    return names


@pytest.fixture(scope="session")
def azure_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Azurite with a container named ``bucket``, for the whole session."""
    with azure(tmp_path_factory.mktemp("azure")) as port:
        endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
        store = az_store(
            {"connection_string": f"UseDevelopmentStorage=true;BlobEndpoint={endpoint}", "bucket": "bucket"}
        )
        store._send("PUT", "", {"restype": "container"}, body=b"", ok=(201,)).read()
        yield port


@pytest.fixture(scope="session")
def google_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """gcp-storage-emulator, for the whole session."""
    with google(tmp_path_factory.mktemp("google")) as port:
        yield port


@pytest.fixture(scope="session")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """An SSH server, for the whole session."""
    with SshServer(tmp_path_factory.mktemp("ssh")) as server:
        yield server


@pytest.fixture(scope="session")
def buckets(request: pytest.FixtureRequest) -> dict[str, tuple[EmbeddedServer, str]]:
    """A bucket on each requested server."""
    return {}


def _bucket(request: pytest.FixtureRequest, kind: str) -> tuple[EmbeddedServer, str]:
    known: dict[str, tuple[EmbeddedServer, str]] = request.getfixturevalue("buckets")
    if kind not in known:
        server: EmbeddedServer = request.getfixturevalue(kind)
        name = f"conformance-{secrets.token_hex(4)}"
        server.create_bucket(name)
        known[kind] = (server, name)
    return known[kind]


def make_place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a new place of this kind."""
    options: dict[str, Any]
    if kind == "local":
        return Place(kind, LocalStore(), str(tmp_path).lstrip("/") + "/store/")
    if kind == "memory":
        import fsspec

        return Place(kind, FsspecStore(fsspec.filesystem("memory")), f"{secrets.token_hex(6)}/")
    if kind == "sftp":
        return SftpPlace(request.getfixturevalue("ssh"))
    if kind == "gs":
        endpoint = f"http://127.0.0.1:{request.getfixturevalue('google_port')}"
        prefix = f"{secrets.token_hex(6)}/"
        options = {"endpoint_url": endpoint, "token": "anon", "bucket": "bucket"}
        return Place(kind, gs_store(options), prefix, options=options)
    if kind == "az":
        endpoint = f"http://127.0.0.1:{request.getfixturevalue('azure_port')}/devstoreaccount1"
        prefix = f"{secrets.token_hex(6)}/"
        options = {
            "connection_string": f"UseDevelopmentStorage=true;BlobEndpoint={endpoint}",
            "bucket": "bucket",
        }
        return Place(kind, az_store(options), prefix, options=options)
    if kind in ("ais", "ais-s3"):
        cluster: Cluster = request.getfixturevalue("aistore")
        options = {"endpoint_url": cluster.url, "bucket": request.getfixturevalue("aistore_buckets")[kind]}
        prefix = f"{secrets.token_hex(6)}/"
        if kind == "ais":
            return Place(kind, ais_store(options), prefix, options=options)
        options |= {"endpoint_url": f"{cluster.url}/s3", "redirects": "127.0.0.1", "region": "us-east-1"}
        options |= {"key": "any", "secret": "any"}
        return Place(kind, _s3_store(options["bucket"], options), prefix, options=options)
    server, bucket = _bucket(request, "moto" if kind == "moto" else "seaweedfs")
    options = {**server.storage_options(), "bucket": bucket}
    prefix = f"{secrets.token_hex(6)}/"
    if kind == "s3fs":
        return Place(kind, s3fs_store(options), f"{bucket}/{prefix}", server, options)
    return Place(kind, _s3_store(bucket, options), prefix, server, options)


def params(*kinds: str) -> list[Any]:
    """Return kinds of stores as parameters, each with its needed capabilities."""
    return [
        pytest.param(kind, marks=pytest.mark.needs("azurite")) if kind == "az" else kind for kind in kinds
    ]


@pytest.fixture(params=params(*KINDS, *READ_ONLY))
def readable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each store in turn, including read-only ones."""
    if request.param == "zip":
        yield ZipPlace(tmp_path)
        return
    if request.param != "http":
        yield make_place(request.param, request, tmp_path)
        return
    folder = tmp_path / "served/folder"
    folder.mkdir(parents=True)
    with folder_server(folder.parent) as server:
        at = open_place(f"{server.url}folder/", context())
        yield Place("http", at.store, at.key, folder=folder)


@pytest.fixture(params=params(*KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each writable store in turn."""
    return make_place(request.param, request, tmp_path)


@pytest.fixture(params=params(*PARTS))
def parts_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each store with multipart uploads in turn."""
    return make_place(request.param, request, tmp_path)


@pytest.fixture(params=params(*REMOTE))
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each store with a server in turn."""
    return make_place(request.param, request, tmp_path)


@pytest.fixture(params=S3)
def s3_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """nbdata's S3 store on each server in turn."""
    return make_place(request.param, request, tmp_path)


@pytest.fixture
def seaweedfs_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """nbdata's S3 store on SeaweedFS."""
    return make_place("seaweedfs", request, tmp_path)
