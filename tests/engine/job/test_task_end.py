"""A job always ends, whatever happens between its last step and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from nbdata.engine.job.failure import failure_of
from nbdata.engine.job.task import Task
from nbdata.errors import NotFound
from nbdata.report import Report, Snapshot
from tests.waiting import PATIENCE


def failing(task: Task) -> Report:
    task.cancel()
    return Report("pull", "a", "b", state="FAILED", counts={"failed": 1}, failures=[["x", "why"]])


def broken(task: Task) -> Report:
    task.cancel()
    raise OSError("a fault of ours")


@pytest.mark.parametrize("work", [failing, broken])
def test_a_job_that_fails_while_it_is_being_cancelled_ends_as_cancelled(work) -> None:  # type: ignore[no-untyped-def]
    task = Task(Snapshot(id="t", verb="pull"))
    task.enter("PLANNING")
    task.enter("RUNNING")
    task.start(work)
    task.join(PATIENCE)
    assert task.snapshot().state == "CANCELLED"
    assert task.report is not None


def test_a_listing_that_is_closed_at_the_end_may_still_use_its_job() -> None:
    """An example is a listing whose threads wait for a store: it ends only after them."""
    asked = []

    def listing(task: Task) -> Iterator[int]:
        try:
            yield 1
        finally:
            thread = threading.Thread(target=task.add, args=(lambda: None,), daemon=True)
            thread.start()
            thread.join(PATIENCE)
            asked.append(not thread.is_alive())

    def work(task: Task) -> Report:
        entries = listing(task)
        next(entries)
        raise NotFound("gone while it was being listed")

    task = Task(Snapshot(id="t", verb="pull"))
    task.start(work)
    assert task.join(PATIENCE)
    assert asked == [True]
    assert task.snapshot().state == "FAILED"


@pytest.mark.parametrize(
    ("path", "reason", "told"),
    [
        ("b", "the md5 differs (expected 92eb, got 0)", "b: the md5 differs (expected 92eb, got 0)"),
        ("b", "the md5 differs: b (expected 92eb, got 0)", "the md5 differs: b (expected 92eb, got 0)"),
        ("d/a b.txt", "no such file: /x/d/a b.txt. Look", "no such file: /x/d/a b.txt. Look"),
        ("a", "no such file: /x/a.txt", "a: no such file: /x/a.txt"),
    ],
)
def test_the_first_failure_names_its_file_once(path: str, reason: str, told: str) -> None:
    report = Report("pull", "a", "b", state="FAILED", counts={"failed": 1}, failures=[[path, reason]])
    assert failure_of(report).message == f"pull: 1 of 1 failed; first {told}"


@pytest.mark.parametrize(
    ("source", "way"), [("/w/data", "md5check --repair SOURCE pulls"), ("s3://b/data/", "copy --overwrite")]
)
def test_wrong_files_are_repaired_where_they_are(source: str, way: str) -> None:
    report = Report("md5check", source, counts={"mismatch": 1}, failures=[["a", "the md5 differs"]])
    remedy = failure_of(report).remedy or ""
    assert remedy.startswith(way)
    assert ("--repair" in remedy) is source.startswith("/")


def test_a_job_that_its_host_interrupts_says_how_long_it_ran() -> None:
    begun, end = threading.Event(), threading.Event()

    def work(task: Task) -> Report:
        begun.set()
        end.wait(PATIENCE)
        return Report("pull")

    task = Task(Snapshot(id="t", verb="pull"))
    task.start(work)
    assert begun.wait(PATIENCE)
    task.interrupt()
    end.set()
    assert task.join(PATIENCE)
    assert task.snapshot().state == "INTERRUPTED"
    assert task.snapshot().seconds > 0
