"""Limits how many jobs run at a time; the others wait in order, without a thread of their own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from nbdata.engine.job.task import Task
from nbdata.report import Report
from nbdata.threads import begin

__all__ = ["Turns"]

Work = Callable[[Task], Report]


class Turns:
    """The turns of one kind of jobs; many threads may use it.

    A paused job takes no turn: another job may have to provide what it waits for. It resumes at once, so that then
    more than `most` jobs may run.

    Parameters
    ----------
    most : int
        Jobs that run at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Task, Work]] = deque()
        self._begun: list[Task] = []
        self._moved = threading.Event()
        self._dispatching = False

    def add(self, task: Task, work: Work) -> None:
        """Start the work of a new task now, or at its turn."""
        task.on_move(self._moved.set)
        with self._lock:
            if not self._waiting and self._free() > 0:
                self._begun.append(task)
            else:
                task.waits(f"waits for one of {self._most} running jobs to end")
                self._waiting.append((task, work))
                if self._dispatching or self._dispatches():
                    self._moved.set()  # a job may have ended just now
                    return
                self._waiting.pop()  # if it cannot start now either, it ends
                self._begun.append(task)
        task.start(work)

    def _dispatches(self) -> bool:
        """True if some thread starts the waiting tasks from now on."""
        self._dispatching = begin(self._dispatch, name="turns")
        return self._dispatching

    def withdraw(self, task: Task) -> Work | None:
        """Take a waiting task out of the queue and return its work; None if it does not wait."""
        with self._lock:
            for number, (waiting, work) in enumerate(self._waiting):
                if waiting is task:
                    del self._waiting[number]
                    return work
        return None

    def _free(self) -> int:
        self._begun = [task for task in self._begun if not task.finished]
        return self._most - sum(not task.paused for task in self._begun)

    def _dispatch(self) -> None:
        """Start waiting tasks one after the other, whenever a job changes its state, until none is left."""
        while True:
            self._moved.wait()
            self._moved.clear()
            with self._lock:
                ready = self._take()
                self._dispatching = bool(self._waiting)
                over = not self._dispatching
            for task, work in ready:
                task.start(work)
            if over:
                return

    def _take(self) -> list[tuple[Task, Work]]:
        """Return the tasks that may start now, in order; paused ones are skipped, cancelled ones need no turn."""
        ready, still, free = [], deque[tuple[Task, Work]](), self._free()
        for task, work in self._waiting:
            if task.finished:
                continue
            if task.is_set():
                ready.append((task, work))
            elif free > 0 and not task.paused:
                free -= 1
                self._begun.append(task)
                ready.append((task, work))
            else:
                still.append((task, work))
        self._waiting = still
        return ready
