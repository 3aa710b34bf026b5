"""Who writes the history of an agent's jobs: a thread of its own, so that a slow or full disk holds no job."""

from __future__ import annotations

import os
import queue
import sys
import threading

from nbdata.engine.task import Task
from nbdata.history import record_of, remember
from nbdata.runtime import runtime_folder, state_folder
from nbdata.space.holders import this_process

__all__ = ["Journal"]

# Seconds that the end of a process waits for what is not written yet.
_PATIENCE = 3.0


class Journal:
    """Notes when jobs begin and end; safe to use from many threads."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Task, str, str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()
        self._said = ""

    def note(self, task: Task, state_dir: str, on_error: str) -> None:
        """Have it noted how a job looks now; never waits."""
        self._queue.put((task, state_dir or state_folder(), on_error))

    def close(self) -> None:
        """Write what is not written yet, for as long as that does not take long."""
        self._queue.put(None)
        self._thread.join(_PATIENCE)

    def _write(self) -> None:
        while (noted := self._queue.get()) is not None:
            task, state_dir, on_error = noted
            try:
                failure = task.error.to_dict() if task.error else None
                record = record_of(task.snapshot(), task.report, failure, on_error)
                remember(state_dir, record, os.path.join(runtime_folder(), this_process()))
            except Exception as error:  # a job is worth more than what is remembered of it
                self._complain(f"the history of jobs could not be written: {error}")

    def _complain(self, text: str) -> None:
        """Into the agent's log, but not again and again."""
        if text != self._said:
            self._said = text
            print(text, file=sys.stderr)  # noqa: T201
