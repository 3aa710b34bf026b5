"""A job comes to an end, whatever happens between its last step and its end."""

from __future__ import annotations

import pytest

from nbdata.engine.task import Task
from nbdata.report import Report, Snapshot


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
    task.join(10)
    assert task.snapshot().state == "CANCELLED"
    assert task.report is not None
