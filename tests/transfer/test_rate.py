"""``--max-rate`` limits the bytes per second of all threads together; a stop does not wait for the limit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.engine.runner import Planning
from nbdata.errors import Cancelled
from nbdata.transfer.worker_pool import run_units
from tests.waiting import AT_ONCE

Put = Callable[[dict[str, bytes]], str]


@pytest.mark.parametrize("workers", [1, 16])
def test_bytes_of_all_threads_keep_to_one_rate(workers: int) -> None:
    control = Planning()
    control.limit(1_000_000)

    def unit() -> None:
        control.advance(bytes=20_000)
        control.checkpoint()

    began = time.monotonic()
    run_units(control, [unit] * 50, workers=workers)
    assert 0.95 <= time.monotonic() - began < AT_ONCE


def test_a_stop_ends_a_wait_for_bandwidth() -> None:
    control = Planning()
    control.enter("PLANNING")
    control.limit(1000)
    control.advance(bytes=1_000_000)
    threading.Timer(0.2, control.cancel).start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        control.checkpoint()
    assert time.monotonic() - began < AT_ONCE


def test_pull_and_push_keep_to_the_rate(put: Put, bucket: str, tmp_path: Path) -> None:
    url = put({f"d/{n}": os.urandom(500_000) for n in range(8)}) + "d/"
    pulled = nbdata.pull(url, tmp_path / "out", max_rate="2MB", quiet=True)
    pushed = nbdata.push(tmp_path / "out", f"s3://{bucket}/back/", max_rate="2MB", quiet=True)
    assert 1.7 < pulled.seconds < AT_ONCE
    assert 1.7 < pushed.seconds < AT_ONCE
    assert pulled.bytes == pushed.bytes == 4_000_000


def test_the_same_line_with_another_rate_changes_that_of_the_job(put: Put, tmp_path: Path) -> None:
    url = put({f"d/{n}": os.urandom(500_000) for n in range(20)}) + "d/"
    slow = nbdata.Pull(url, tmp_path / "out", max_rate="100KB").start()
    assert not slow.snapshot().finished
    job = nbdata.Pull(url, tmp_path / "out", max_rate="100MB").start()
    assert job.id == slow.id
    assert job.wait().seconds < 60, "at the first rate it would take a minute and a half"


def test_a_rate_that_is_a_slip_is_refused() -> None:
    with pytest.raises(nbdata.BadOption, match="at least 10000 bytes a second"):
        nbdata.Pull("s3://bucket/x", "x", max_rate=5)
