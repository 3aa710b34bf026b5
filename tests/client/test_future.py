"""A job as a future (done, result, exception): in an agent, in this process, and after its agent has ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.client.inline import inline_host
from nbdata.client.launch import connect
from nbdata.client.remote import AgentHost, agent_host
from nbdata.lock_files import held
from nbdata.operation import Host
from nbdata.runtime import endpoint
from nbdata.verbs.probe import Probe
from tests.agent.rig import Rig, rigged
from tests.waiting import PATIENCE, wait_until

BOTH = pytest.mark.parametrize("host", [agent_host, inline_host], ids=["agent", "inline"])


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with rigged(monkeypatch) as made:
        yield made


def running() -> nbdata.Job:
    """Start a job, and wait until its start is recorded."""
    job = Probe(items=10_000, delay=50, tag="goes on").start()
    noted = Path(os.environ["NBDATA_STATE_DIR"]) / "jobs.log"
    wait_until(lambda: job.snapshot().state == "RUNNING" and noted.exists() and job.id in noted.read_text())
    return job


def start(host: Host, operation: nbdata.operation.Operation) -> nbdata.Job:
    return host.submit(operation, background=True)


@BOTH
def test_a_loop_until_it_is_done_ends_with_its_report(host: object, tree: Path, tmp_path: Path) -> None:
    job = start(host(), nbdata.Pull(str(tree), str(tmp_path / "out")))
    while not job.done():
        pass
    assert job.result(timeout=0).counts == {"fetched": 5}
    assert job.exception(timeout=0) is None
    assert job.result().line == job.wait().line


@BOTH
def test_a_wait_that_times_out_raises_and_the_job_continues(host: object) -> None:
    job = start(host(), Probe(items=10_000, delay=50, tag=f"future {host}"))
    for ask in (job.result, job.exception):
        with pytest.raises(TimeoutError, match=job.id):
            ask(timeout=0.01)
    assert not job.done()
    job.cancel()
    for ask in (job.result, job.exception):
        with pytest.raises(nbdata.Cancelled):
            ask(timeout=PATIENCE)
    assert job.done()


@BOTH
@pytest.mark.parametrize("on_error", ["raise", "report"])
def test_a_failed_job_gives_its_error(host: object, on_error: str, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "a.txt").mkdir(parents=True)
    job = start(host(), nbdata.Pull(str(tree), str(tmp_path / "out"), on_error=on_error))
    if on_error == "report":
        assert job.exception() is None
        assert len(job.result().failures) == 1
        return
    error = job.exception()
    assert isinstance(error, nbdata.TransferFailed)
    assert len(error.report.failures) == 1
    with pytest.raises(nbdata.TransferFailed, match="a folder with this name exists"):
        job.result()
    assert job.done()


def test_a_job_whose_agent_was_killed_is_done_and_says_why(rig: Rig) -> None:
    job = running()
    os.kill(rig.pid, signal.SIGKILL)
    wait_until(lambda: not held(endpoint().alive))
    assert job.done()
    assert isinstance(job.exception(), nbdata.AgentUnavailable)
    with pytest.raises(nbdata.AgentUnavailable, match="interrupted"):
        job.result()
    past = AgentHost().job(job.id)
    assert past.done()
    with pytest.raises(nbdata.Cancelled, match="interrupted"):
        past.exception()
    connect().close()  # the next agent cleans up after the killed one
    wait_until(lambda: not list(Path(endpoint().folder).glob("jobs/*")))


def test_a_job_of_an_agent_that_does_not_answer_is_not_called_done(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = running()
    monkeypatch.setattr("nbdata.client.remote._ANSWER", 0.2)
    pid = rig.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for ask in (job.done, lambda: job.exception(timeout=0)):
            with pytest.raises(nbdata.AgentUnavailable):
                ask()
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not job.done())
    job.cancel()
