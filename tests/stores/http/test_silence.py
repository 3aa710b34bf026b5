"""How long each HTTP store waits on a silent connection."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from nbdata.errors import BadOption, StoreUnavailable
from nbdata.operation import Context
from nbdata.stores.resolve import open_place
from tests.stores.servers import serving
from tests.waiting import AT_ONCE, PATIENCE

# URLs, with the options that lead them to a server here.
STORES: dict[str, dict[str, Any]] = {
    "s3://bucket/x": {"key": "k", "secret": "s"},
    "obs://bucket/x": {"key": "k", "secret": "s", "addressing_style": "path"},
    "gs://bucket/x": {"anon": True},
    "az://container/x": {"account_name": "account", "anon": True},
    "http://127.0.0.1:PORT/x": {},
}


def context(url: str, port: int, stall: str) -> Context:
    options = dict(STORES[url])
    if options:
        options["endpoint_url"] = f"http://127.0.0.1:{port}"
    env = {"HOME": "/nonexistent", "NBDATA_STALL_TIMEOUT": stall}
    return Context(cwd="/", env=env, storage_options=options)


@pytest.mark.in_ci("s3*", "http*", "az*")
@pytest.mark.parametrize("url", STORES)
def test_a_silent_connection_is_given_up_after_the_stall_timeout(url: str) -> None:
    ended = threading.Event()

    def silent(connection: socket.socket) -> None:
        ended.wait(PATIENCE)

    with serving(silent) as port:
        place = open_place(url.replace("PORT", str(port)), context(url, port, "0.3"))
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="took too long"):
            place.store.read(place.key)
        assert 0.3 <= time.monotonic() - began < AT_ONCE
        ended.set()


@pytest.mark.parametrize("url", STORES)
@pytest.mark.parametrize("stall", ["soon", "0", "-1", "inf", "nan"])
def test_a_time_that_is_none_is_refused(url: str, stall: str) -> None:
    with pytest.raises(BadOption, match=f"NBDATA_STALL_TIMEOUT: '{stall}' is not a time"):
        open_place(url.replace("PORT", "1"), context(url, 1, stall))
