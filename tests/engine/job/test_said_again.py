"""The same command, run again while its job exists: it joins the job, and may change its rate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.client.context import capture
from nbdata.cluster.dealing import dealer_of
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.job.task import Task
from nbdata.engine.jobs import EngineJob, Jobs
from nbdata.report import Report, Snapshot
from nbdata.verbs.pull import Pull
from tests.faults.gate import Gate
from tests.waiting import PATIENCE, wait_until

Said = Callable[[str | None], tuple[EngineJob, str]]


@pytest.fixture
def said(put: Callable[[dict[str, bytes]], str], gate: Gate, tmp_path: Path) -> Iterator[Said]:
    """Returns a function that runs one command with an optional rate; its job stops halfway until the test ends."""
    jobs = Jobs(dealer_of)
    url = put({"d/a": bytes(400_000), "d/b": bytes(400_000)}) + "d/"
    gate.close(after=100_000)

    def say(rate: str | None) -> tuple[EngineJob, str]:
        operation = Pull(url, tmp_path / "out", max_rate=rate)  # type: ignore[arg-type]
        return jobs.submit(operation, capture(operation), {}, background=False)

    yield say
    gate.open()
    for job in jobs.all():
        job.task.cancel()
        assert job.task.join(PATIENCE)
    jobs.close()


def test_a_job_paused_by_an_interrupt_resumes_at_the_rate_of_the_new_command(said: Said) -> None:
    job, how = said("5MB")
    assert (how, job.task.rate) == ("", 5_000_000)
    assert job.task.pause("interrupt")
    again, how = said(None)
    assert (again.id, how) == (job.id, f"continued job {job.id}")
    assert (job.task.rate, job.task.paused) == (None, False)
    assert job.task.pause("interrupt")
    assert said("7MB")[1] == f"continued job {job.id}"
    assert job.task.rate == 7_000_000


def test_a_running_job_keeps_its_rate_and_says_so(said: Said) -> None:
    job, _ = said("5MB")
    again, how = said(None)
    assert (again.id, again.task.rate) == (job.id, 5_000_000)
    assert how == f"attached to job {job.id}, which was running already, limited to 5.0 MB/s"
    assert said("8MB")[1] == f"attached to job {job.id}, which was running already"
    assert job.task.rate == 8_000_000


def test_a_job_paused_by_the_user_stays_paused_and_keeps_its_rate(said: Said) -> None:
    job, _ = said("5MB")
    assert job.task.pause("user")
    again, how = said(None)
    assert again.id == job.id
    assert how.startswith(
        f"attached to job {job.id}, which is paused: %transfers {job.id} --resume continues it"
    )
    assert (job.task.rate, job.task.paused) == (5_000_000, True)


def test_an_interrupt_that_has_become_a_cancel_is_not_continued(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = said("5MB")
    assert job.task.pause("interrupt")
    resume = job.task.resume

    def too_late() -> bool:
        job.task.cancel()
        return resume()

    monkeypatch.setattr(job.task, "resume", too_late)
    again, how = said(None)
    assert (again.id != job.id, how, again.task.rate) == (True, "", None)


@pytest.mark.usefixtures("inline")
def test_the_same_command_for_another_server_is_another_job(
    put: Callable[[dict[str, bytes]], str],
    gate: Gate,
    s3: EmbeddedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who corrects a wrong endpoint must not be attached to the job that still tries the old one."""
    url = put({"d/f": b"content"}) + "d/"
    gate.close()
    held = nbdata.Pull(url, tmp_path / "d").start()
    gate.wait_until_it_holds()
    again = nbdata.Pull(url, tmp_path / "d").start()
    assert again.id == held.id
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    other = nbdata.Pull(url, tmp_path / "d").start()
    assert (other.id != held.id, other.attached) == (True, "")
    option = nbdata.Pull(url, tmp_path / "d", storage_options={"endpoint_url": s3.url}).start()
    assert option.id not in (held.id, other.id)
    held.cancel()
    reports = [other.wait(PATIENCE), option.wait(PATIENCE)]  # one waits for the other
    assert sorted(word for report in reports for word in report.counts) == ["fetched", "unchanged"]
    gate.open()


def test_a_job_that_waits_for_space_says_so_and_keeps_its_counts_until_it_has_planned_again(
    said: Said,
) -> None:
    job, _ = said(None)
    task = Task(Snapshot(id="0", verb="pull"))
    task.expect(files=2, bytes=30)
    task.advance(files=1, bytes=16)
    task.enter("PLANNING")
    waiting = threading.Thread(target=lambda: task.stand_by("no space", lambda: False, every=60.0))
    waiting.start()
    wait_until(lambda: task.paused)
    how = EngineJob(job.operation, job.context, task, "").said_again(job.operation, job.context)
    assert how == "attached to job 0, which waits for space, and looks for it now"
    waiting.join(PATIENCE)
    assert task.snapshot().bytes == 16
    task.expect(files=2, bytes=30)
    assert (task.snapshot().files, task.snapshot().bytes) == (0, 0)


def test_a_cancelled_job_does_not_claim_that_nothing_was_done() -> None:
    assert "no file was finished" in Report("pull", state="CANCELLED").line
