"""Workers for the tests: a cluster that a file shares, and one of separate processes that a test may kill."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import distributed
import pytest

from nbdata.cluster import opening
from nbdata.demo.server import EmbeddedServer
from tests.cluster.separate import Separate
from tests.conftest import client_of


@pytest.fixture(scope="module")
def workers(seaweedfs: EmbeddedServer) -> Iterator[distributed.Client]:
    """A client of two workers, which have the credentials of SeaweedFS in their environment."""
    given = seaweedfs.environment()
    before = {name: os.environ.get(name) for name in given}
    os.environ |= given
    try:
        with (
            # See `nbdata.cluster.opening`: a worker could stop for ever.
            dask.config.set({"distributed.worker.profile.enabled": False}),
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                security=True,
                dashboard_address="127.0.0.1:0",
                memory_limit=None,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            opening._restore()
            # Its connections open when they are first used.
            client.run(os.getpid)
            client.run(os.getpid, nanny=True)
            futures = [client.submit(abs, number, pure=False) for number in range(16)]
            client.gather(futures)
            client.sync(_open_connections, client, futures)
            yield client
    finally:
        opening._restore()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


async def _open_connections(client: distributed.Client, futures: list[distributed.Future]) -> None:
    """Have the client and the scheduler open more connections than a job needs at a time: they keep them."""
    await asyncio.gather(*(client.scheduler.gather(keys=[future.key]) for future in futures))


@pytest.fixture
def beside(workers: distributed.Client) -> distributed.Client:
    """The workers, with the runtime folder of this test."""
    workers.run(_enter, os.environ["NBDATA_RUNTIME_DIR"])
    return workers


def _enter(folder: str) -> None:
    os.environ["NBDATA_RUNTIME_DIR"] = folder


@pytest.fixture
def separate(s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Separate]:
    """A scheduler and two workers with TLS, each a process of its own."""
    with Separate(tmp_path / "cluster", workers=2) as cluster:
        for name, value in cluster.environment().items():
            monkeypatch.setenv(name, value)
        yield cluster


Put = Callable[[dict[str, bytes]], str]


@pytest.fixture
def put(s3: EmbeddedServer, bucket: str) -> Put:
    """Store objects; return the URL of their folder."""

    def put(objects: dict[str, bytes]) -> str:
        client = client_of(s3)
        for name, data in objects.items():
            client.put_object(Bucket=bucket, Key=f"in/{name}", Body=data)
        client.close()
        return f"s3://{bucket}/in/"

    return put


@pytest.fixture
def stored(s3: EmbeddedServer, bucket: str) -> Callable[[str], dict[str, bytes]]:
    """Return the objects below a prefix."""

    def stored(prefix: str) -> dict[str, bytes]:
        client = client_of(s3)
        found = {}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for entry in page.get("Contents", []):
                body = client.get_object(Bucket=bucket, Key=entry["Key"])["Body"]
                found[entry["Key"].removeprefix(prefix)] = bytes(body.read())
        client.close()
        return found

    return stored
