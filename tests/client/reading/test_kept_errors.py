"""An error that a notebook keeps holds none of the bytes that were read before it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

import nbdata
from nbdata.errors import NbdataError
from tests.faults.proxy import BEFORE, Fault, FaultProxy
from tests.faults.test_lines import proxy
from tests.waiting import wait_until

__all__ = ["proxy"]

MIB = 1 << 20


def test_errors_that_are_kept_hold_no_bytes(
    proxy: FaultProxy, put: Callable[[dict[str, bytes]], str]
) -> None:
    url = put({"a.cls": bytes(2 * MIB), "a.jpg": bytes(2 * MIB), "a.txt": b"refused"})
    samples = nbdata.samples(url, concurrency=8)
    proxy.begin(
        lambda request, _before: Fault("refuse", BEFORE, status=403) if request.key == "a.txt" else None
    )
    errors = []
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(10):
            with pytest.raises(NbdataError) as raised:
                samples.fetch([0])
            errors.append(raised.value)
        samples.close()
        # What was on its way is dropped on arrival.
        wait_until(lambda: tracemalloc.get_traced_memory()[0] < 10 * MIB)
    finally:
        tracemalloc.stop()
        gc.enable()
    assert len(errors) == 10
