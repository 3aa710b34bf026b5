"""Errors of stores for a missing bucket, wrong credentials and an unreachable server."""

from __future__ import annotations

import io
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata.errors import AccessDenied, NotFound, StoreUnavailable
from nbdata.stores.base import Store
from tests.conformance.conftest import Place, make_place, s3fs_store
from tests.ports import free_port
from tests.waiting import AT_ONCE, PATIENCE


def asking(store: Store, prefix: str) -> dict[str, Callable[[], object]]:
    def read() -> None:
        store.read(prefix + "x").close()

    return {
        "list": lambda: list(store.list(prefix)),
        "read": read,
        "write": lambda: store.write(prefix + "x", io.BytesIO(b"x"), 1),
    }


@pytest.mark.in_ci(7)
@pytest.mark.parametrize("what", ["list", "read", "write"])
def test_a_missing_bucket_is_named(remote: Place, what: str) -> None:
    missing = f"no-such-bucket-{secrets.token_hex(4)}"
    store = remote.another(bucket=missing)
    prefix = f"{missing}/" if remote.kind == "s3fs" else ""
    if what == "write" and remote.kind in (
        "seaweedfs",
        "s3fs",
    ):  # SeaweedFS creates the bucket for an administrator
        asking(store, prefix)[what]()
        assert [info.size for info in store.list(prefix)] == [1]
        return
    with pytest.raises(NotFound) as caught:
        asking(store, prefix)[what]()
    # s3fs uses HEAD, whose response does not name what is missing; neither do those of Google's emulator.
    if (what == "read" and remote.kind == "s3fs") or (what != "list" and remote.kind == "gs"):
        assert missing in str(caught.value)
        return
    assert ("container" if remote.kind == "az" else "bucket") in caught.value.message
    assert caught.value.details["bucket"] is True
    assert missing in str(caught.value)


def test_a_handed_in_file_system_makes_no_bucket(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = make_place("moto", request, tmp_path)
    store = s3fs_store(place.options)
    missing = f"no-such-bucket-{secrets.token_hex(4)}"
    with pytest.raises(NotFound, match="bucket"):
        store.write(f"{missing}/folder/x", io.BytesIO(b"x"), 1)
    with pytest.raises(NotFound):
        list(place.another(bucket=missing).list(""))


@pytest.mark.parametrize("what", ["list", "read", "write"])
@pytest.mark.parametrize("wrong", ["key", "secret"])
def test_wrong_credentials_are_denied_and_not_shown(
    what: str, wrong: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place("seaweedfs", request, tmp_path)  # moto accepts any credentials
    assert place.server is not None
    store = place.another(**{wrong: "AKIAWRONGWRONGWRONG"})
    with pytest.raises(AccessDenied) as caught:
        asking(store, place.prefix)[what]()
    text = f"{caught.value} {caught.value.to_dict()}"
    assert "storage options" in text
    assert "AKIAWRONG" not in text
    assert place.server.access_key not in text
    assert place.server.secret_key not in text


@pytest.mark.parametrize("what", ["list", "read", "write"])
def test_a_handed_in_file_system_with_wrong_credentials_is_denied(
    what: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place("s3fs", request, tmp_path)
    store = place.another(key="AKIAWRONGWRONGWRONG")
    with pytest.raises(AccessDenied) as caught:
        asking(store, place.prefix)[what]()
    assert "file system" in str(caught.value)
    assert "AKIAWRONG" not in f"{caught.value} {caught.value.to_dict()}"


@pytest.mark.parametrize("what", ["list", "read", "write"])
@pytest.mark.in_ci("!s3fs-*")
def test_nobody_listens(remote: Place, what: str) -> None:
    port = free_port()
    store = remote.another(endpoint_url=f"http://127.0.0.1:{port}")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        asking(store, remote.prefix)[what]()
    # botocore, used by s3fs, retries by itself
    assert time.monotonic() - began < (PATIENCE if remote.kind == "s3fs" else AT_ONCE)
    assert caught.value.details["retry"] is True
    assert caught.value.details["unreached"] is True
