"""`Turns` when the system refuses to start more threads."""

from __future__ import annotations

import threading

import pytest

from nbdata.engine.job.task import Task
from nbdata.engine.job.turns import Turns
from nbdata.report import Report, Snapshot
from tests.waiting import PATIENCE


def test_a_job_without_a_thread_to_wait_in_fails_and_blocks_no_other_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = threading.Event()

    def work(task: Task) -> Report:
        task.enter("PLANNING")
        task.enter("RUNNING")
        assert go.wait(PATIENCE)
        return Report("pull", "a", "b", state="DONE")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    turns, tasks = Turns(1), [Task(Snapshot(id=name, verb="pull")) for name in "abc"]
    turns.add(tasks[0], work)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        turns.add(tasks[1], work)
    turns.add(tasks[2], work)
    assert tasks[2].snapshot().state == "QUEUED"
    go.set()
    for task in tasks:
        task.wait_end(30)
    assert [task.snapshot().state for task in tasks] == ["DONE", "FAILED", "DONE"]
    assert "could not be started" in str(tasks[1].error)
