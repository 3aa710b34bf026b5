"""A bucket that only nbdata reaches, and the URLs by which a library gets there through nbdata."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import fsspec
import fsspec.config
import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.files import FileSystem, use_for

# Nothing listens there.
_NOWHERE = "http://127.0.0.1:9"


class Bucket:
    """A new bucket, and an empty folder on the disk for the same files."""

    def __init__(self, name: str, disk: Path) -> None:
        self.name, self.disk = name, disk
        self.files: FileSystem = nbdata.filesystem("s3://")

    def path(self, name: str) -> str:
        """Return the path of a file, for ``filesystem=``."""
        return f"{self.name}/{name}"

    def url(self, name: str) -> str:
        """Return the URL of a file for `nbdata.open`, and where `use_for` is in effect."""
        return f"s3://{self.name}/{name}"

    def named(self, name: str) -> str:
        """Return the URL by which every library that asks fsspec gets to nbdata."""
        return f"nb{self.url(name)}"

    def local(self, name: str) -> str:
        """Return the path of a file on the disk."""
        path = self.disk / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    def fetched(self, name: str) -> str:
        """Copy what a library wrote to the disk, where it is read without nbdata; return its path there."""
        target = self.local(f"fetched/{name}")
        self.files.get(self.path(name), target, recursive=self.files.isdir(self.path(name)))
        return target

    def send(self, name: str) -> None:
        """Copy a file or folder of the disk to the bucket."""
        here = self.disk / name
        self.files.put(str(here), self.path(name), recursive=here.is_dir())


@pytest.fixture(autouse=True)
def threads_of_dask() -> Iterator[None]:
    """Have Dask compute in threads that end with the test."""
    with ThreadPoolExecutor(2) as pool, dask.config.set(pool=pool):
        yield


@pytest.fixture
def store(
    bucket: str, seaweedfs: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    """A bucket whose address only fsspec's configuration has: the clients of Arrow, DuckDB and polars find nothing."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", _NOWHERE)
    monkeypatch.setitem(fsspec.config.conf, "s3", seaweedfs.storage_options())
    yield Bucket(bucket, tmp_path)
    FileSystem.clear_instance_cache()


class Place:
    """The URLs of a bucket in one of the ways."""

    def __init__(self, store: Bucket, start: str) -> None:
        self.store, self.start = store, start

    def __call__(self, name: str) -> str:
        return f"{self.start}{self.store.name}/{name}"


@pytest.fixture(params=["nbs3://", "nbdata::s3://", "use_for"])
def place(request: pytest.FixtureRequest, store: Bucket) -> Iterator[Place]:
    """Each way to have a library find nbdata by a URL."""
    with use_for("s3") if request.param == "use_for" else contextlib.nullcontext():
        start = "s3://" if request.param == "use_for" else request.param
        yield Place(store, start)
        fsspec.get_filesystem_class(start.partition(":")[0]).clear_instance_cache()
