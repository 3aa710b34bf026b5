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
from nbdata.operation import slots
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.probe import Probe
from tests.faults.gate import Gate
from tests.waiting import AT_ONCE, PATIENCE, wait_until

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


@pytest.mark.parametrize("rate", [None, 2_000_000_000])
def test_what_waits_for_an_earlier_limit_goes_on_when_the_limit_changes(rate: int | None) -> None:
    control = Planning()
    control.limit(1000)
    counted = threading.Event()

    def unit() -> None:
        for _ in range(3):
            control.advance(bytes=10_000_000)  # two hours and three quarters at that limit
            counted.set()
            control.checkpoint()

    waiting = threading.Thread(target=unit, daemon=True)
    waiting.start()
    assert counted.wait(AT_ONCE)
    control.limit(rate)
    waiting.join(AT_ONCE)
    assert not waiting.is_alive()


def test_a_job_that_runs_is_limited_and_its_limit_is_lifted(put: Put, gate: Gate, tmp_path: Path) -> None:
    url = put({"d/a": os.urandom(5_000_000)}) + "d/"
    gate.close(after=100_000)
    job = nbdata.Pull(url, tmp_path / "out").start()
    gate.wait_until_it_holds()
    assert job.max_rate is None
    job.max_rate = "10KB"
    assert job.max_rate == nbdata.transfers(job.id)[0].max_rate == 10_000
    moved = job.snapshot().bytes
    gate.open()
    wait_until(lambda: job.snapshot().bytes > moved)  # the rest takes minutes at this limit
    assert not job.done()
    assert "--max-rate 10000" in job.snapshot().command
    assert nbdata.transfers(job.id, max_rate=0)[0].max_rate is None
    assert job.wait(PATIENCE).bytes == 5_000_000
    assert "--max-rate" not in job.snapshot().command


def test_a_limit_holds_when_the_job_is_begun_again(put: Put, gate: Gate, tmp_path: Path) -> None:
    url = put({"d/a": bytes(400_000)}) + "d/"
    gate.close(after=100_000)
    job = nbdata.Pull(url, tmp_path / "out").start()
    gate.wait_until_it_holds()
    job.max_rate = "5MB/s"
    job.cancel()
    wait_until(job.done)
    again = slots.host().job(job.again())
    assert again.max_rate == 5_000_000
    gate.open()
    again.wait()
    with pytest.raises(nbdata.BadOption, match="is done: there is nothing to limit"):
        again.max_rate = None


def test_a_job_that_waits_for_its_turn_can_be_limited(put: Put, gate: Gate, tmp_path: Path) -> None:
    url = put({"d/a": bytes(400_000)}) + "d/"
    gate.close(after=100_000)
    first = nbdata.Pull(url, tmp_path / "out").start()
    gate.wait_until_it_holds()
    second = nbdata.Pull(url, tmp_path / "out", include="a").start()
    wait_until(lambda: second.snapshot().reason)
    second.max_rate = 3_000_000
    assert second.snapshot().state == "QUEUED"
    assert second.max_rate == 3_000_000
    gate.open()
    first.wait()
    second.wait()


@pytest.mark.parametrize("rate", [5, "fast", -1, True])
def test_a_limit_that_is_a_slip_changes_nothing(rate: object, put: Put, gate: Gate, tmp_path: Path) -> None:
    url = put({"d/a": bytes(400_000)}) + "d/"
    gate.close(after=100_000)
    job = nbdata.Pull(url, tmp_path / "out", max_rate="5MB").start()
    gate.wait_until_it_holds()
    with pytest.raises(nbdata.BadOption, match="max-rate"):
        job.max_rate = rate  # type: ignore[assignment]
    with pytest.raises(nbdata.BadOption, match="max-rate"):
        nbdata.transfers(job.id, max_rate=rate)
    assert job.max_rate == 5_000_000
    gate.open()
    job.wait()


def test_a_job_whose_verb_has_no_limit_says_so() -> None:
    job = Probe(items=1000, delay=20, tag="limit").start()
    with pytest.raises(nbdata.BadOption, match="probe has no --max-rate"):
        job.max_rate = "5MB"
    job.cancel()
