"""Small jobs beside large ones: a foreground job does not wait for a job that takes all day."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.client.remote import AgentHost
from nbdata.verbs.probe import Probe
from tests.slow import SlowProxy
from tests.waiting import PATIENCE, wait_until

HOST = AgentHost()
FEW = {f"few/{number}": b"few" * number for number in range(20)}


def test_a_small_pull_beside_a_large_one_is_done_long_before_it(
    tmp_path: Path, put: Callable[[dict[str, bytes]], str], slow: SlowProxy
) -> None:
    """Both use one line, which the large pull could fill during the whole test."""
    slow.pace(1_000_000)
    url = put(FEW | {f"large/{number}": bytes(20_000_000) for number in range(4)})
    large = nbdata.Pull(url + "large/", tmp_path / "large").start()
    wait_until(lambda: large.snapshot().bytes >= 200_000)
    before = large.snapshot()
    report = nbdata.pull(url + "few/", tmp_path / "few", quiet=True)
    after = large.snapshot()
    large.cancel()
    assert report.counts == {"fetched": len(FEW)}
    assert after.state == "RUNNING"
    assert after.bytes - before.bytes < 60_000_000


@pytest.mark.long
def test_a_pull_of_few_objects_is_done_while_one_of_many_is_under_way(
    tmp_path: Path, put: Callable[[dict[str, bytes]], str]
) -> None:
    """Both use the same interpreter, which the larger pull could occupy completely."""
    url = put(FEW)
    (tmp_path / "in").mkdir()
    for number in range(1500):
        (tmp_path / "in" / f"{number:04}").write_bytes(b"many")
    nbdata.push(tmp_path / "in", url + "many/", quiet=True)
    many = nbdata.Pull(url + "many/", tmp_path / "many").start()
    wait_until(lambda: many.snapshot().bytes)
    report = nbdata.pull(url + "few/", tmp_path / "few", quiet=True)
    under_way = many.snapshot()
    assert report.counts == {"fetched": len(FEW)}
    assert many.wait().counts == {"fetched": 1500}
    assert under_way.state == "RUNNING"


def test_a_foreground_job_has_a_turn_although_background_jobs_use_all() -> None:
    jobs = [
        HOST.submit(Probe(items=10_000, delay=50, tag=f"all day {n}"), background=True) for n in range(10)
    ]
    try:
        wait_until(lambda: any("waits for one of" in job.snapshot().reason for job in jobs))
        assert HOST.submit(Probe(items=1, delay=0, tag="now"), background=False).wait().state == "DONE"
        assert not any(job.snapshot().state == "DONE" for job in jobs)
    finally:
        for job in jobs:
            job.cancel()


def test_a_queued_background_job_runs_at_once_when_its_command_is_run_in_the_foreground() -> None:
    def line(number: int, **some: int) -> Probe:
        return Probe(**{"items": 10_000, "delay": 50} | some, tag=f"all week {number}")

    jobs = [HOST.submit(line(n), background=True) for n in range(10)]
    queued = HOST.submit(line(10, items=1, delay=0), background=True)
    try:
        wait_until(lambda: "waits for one of" in queued.snapshot().reason)
        attached = HOST.submit(line(10, items=1, delay=0), background=False)
        assert attached.id == queued.id
        assert attached.wait(PATIENCE).state == "DONE"
        assert any("waits for one of" in job.snapshot().reason for job in jobs)  # these still wait
    finally:
        for job in (*jobs, queued):
            job.cancel()
