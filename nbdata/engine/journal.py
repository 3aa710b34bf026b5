"""Write the history and the log of an agent's jobs in a separate thread, so a slow disk does not delay a job."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable

from nbdata.ending import Daemon
from nbdata.engine.job.task import Task
from nbdata.history import record_of, remember
from nbdata.rendering import printable
from nbdata.report import Snapshot
from nbdata.runtime import runtime_folder, state_folder
from nbdata.sizes import format_duration, format_size
from nbdata.space.holders import this_process

__all__ = ["Journal"]

# Seconds that the end of a process waits for unwritten entries.
_PATIENCE = 3.0


class Journal:
    """Records the begin and the end of jobs; safe to use from many threads.

    Parameters
    ----------
    say : callable
        Writes a line into the agent's log.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._queue: queue.SimpleQueue[tuple[Task, str, str, bool] | None] = queue.SimpleQueue()
        self._thread = Daemon(self._write, name="journal")
        self._thread.start()
        self._said = ""

    def note(self, task: Task, state_dir: str, on_error: str, *, begins: bool) -> None:
        """Queue a record of the job's current state, at its beginning or end; never waits."""
        self._queue.put((task, state_dir or state_folder(), on_error, begins))

    def close(self) -> None:
        """Write the remaining entries, for at most `_PATIENCE` seconds."""
        self._queue.put(None)
        self._thread.join(_PATIENCE)

    def _write(self) -> None:
        while (noted := self._queue.get()) is not None:
            task, state_dir, on_error, begins = noted
            try:
                failure = task.error.to_dict() if task.error else None
                record = record_of(task.snapshot(), task.report, failure, on_error)
                self._say(printable(_line(task.snapshot(), begins)))
                remember(state_dir, record, os.path.join(runtime_folder(), this_process()))
            except Exception as error:  # a failing history must not end a job
                self._complain(f"the history of jobs could not be written: {error}")

    def _complain(self, text: str) -> None:
        """Write to the agent's log, but do not repeat the same message."""
        if text != self._said:
            self._said = text
            self._say(text)


def _line(now: Snapshot, begins: bool) -> str:
    """The log line for a job."""
    told = f"job {now.id}, {now.verb} {now.source}" + (f" → {now.target}" if now.target else "")
    if begins:
        return f"{told}: begun by {now.owner}" if now.owner else f"{told}: begun"
    return f"{told}: {now.condition}; files: {now.files:,}, {format_size(now.bytes)}, {format_duration(now.seconds)}"
