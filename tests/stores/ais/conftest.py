"""Buckets on the server that stands in for AIStore."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nbdata.operation import Context
from nbdata.stores.ais.store import AisStore
from nbdata.stores.resolve import open_place
from tests.servers.aistore.cluster import Cluster

#: Makes a bucket with these properties, and returns a store for it with these options.
Made = Callable[..., AisStore]


def opened(url: str, env: dict[str, str] | None = None, **options: Any) -> AisStore:
    """Return the store of a URL, with these options and this environment alone."""
    context = Context(cwd="/", env={"HOME": "/nonexistent", **(env or {})}, storage_options=options)
    store = open_place(url, context).store
    assert isinstance(store, AisStore)
    return store


@pytest.fixture
def made(aistore: Cluster) -> Iterator[Made]:
    """Makes buckets. Faults of the test end with it."""

    def make(**properties: Any) -> AisStore:
        name, provider = f"b-{secrets.token_hex(4)}", properties.pop("provider", "ais")
        aistore.create_bucket(name, provider, **properties)
        where = name if provider == "ais" else f"@{provider}/{name}"
        return opened(f"ais://{where}/", endpoint_url=aistore.url)

    yield make
    for process in (aistore.gateway, *aistore.nodes):
        process.faults()
        process.control("resume")


@pytest.fixture
def environment(aistore: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster as the store for ``ais://``, configured by the environment."""
    monkeypatch.setenv("AIS_ENDPOINT", aistore.url)
    return aistore
