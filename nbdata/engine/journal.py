"""Write the history and the log of an agent's jobs in a separate thread, so a slow disk does not delay a job.

While a job runs, its record says how far it is: all that remains known of it if the process is killed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

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
# Seconds between two looks at the running jobs. A job's record is renewed after as many seconds at least, and after a
# share of the time that it has run: so it is never far behind, and a job of a day has some hundred records.
_EVERY, _AT_LEAST, _SHARE = 1.0, 5.0, 0.05


@dataclass
class _Noted:
    """A job at its beginning or end, and how far it was when it was last recorded."""

    task: Task
    state_dir: str
    on_error: str
    begins: bool
    done: tuple[int, int] = (0, 0)
    due: float = 0.0

    def is_due(self) -> bool:
        """True if the job has come further since its last record, which is old enough; counts as recorded then."""
        now = self.task.snapshot()
        done = (now.files, now.bytes)
        if done == self.done or now.seconds < self.due:
            return False
        self.done, self.due = done, now.seconds + max(_AT_LEAST, _SHARE * now.seconds)
        return True


class Journal:
    """Records the begin and the end of jobs; safe to use from many threads.

    Parameters
    ----------
    say : callable
        Writes a line into the agent's log.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._queue: queue.SimpleQueue[_Noted | None] = queue.SimpleQueue()
        self._thread = Daemon(self._write, name="journal")
        self._thread.start()
        self._said = ""

    def note(self, task: Task, state_dir: str, on_error: str, *, begins: bool) -> None:
        """Queue a record of the job's current state, at its beginning or end; never waits."""
        self._queue.put(_Noted(task, state_dir or state_folder(), on_error, begins))

    def close(self) -> None:
        """Write the remaining entries, for at most `_PATIENCE` seconds."""
        self._queue.put(None)
        self._thread.join(_PATIENCE)

    def _write(self) -> None:
        running, looked = dict[Task, _Noted](), 0.0
        while True:
            with contextlib.suppress(queue.Empty):
                if (noted := self._queue.get(timeout=_EVERY if running else None)) is None:
                    return
                running.pop(noted.task, None)
                if noted.begins:
                    running[noted.task] = noted
                self._record(noted, _line(noted.task.snapshot(), noted.begins))
            if time.monotonic() - looked >= _EVERY:
                for noted in running.values():
                    if noted.is_due():
                        self._record(noted)
                looked = time.monotonic()

    def _record(self, noted: _Noted, line: str = "") -> None:
        """Append a record to the history, and a line to the log if there is one."""
        task = noted.task
        try:
            failure = task.error.to_dict() if task.error else None
            record = record_of(task.snapshot(), task.report, failure, noted.on_error)
            if line:
                self._say(printable(line))
            remember(noted.state_dir, record, os.path.join(runtime_folder(), this_process()))
        except Exception as error:  # a failing history must not end a job
            self._complain(f"the history of jobs could not be written: {error}")

    def _complain(self, text: str) -> None:
        """Write to the agent's log, but do not repeat the same message."""
        if text != self._said:
            self._said = text
            self._say(text)


def _line(now: Snapshot, begins: bool) -> str:
    """The log line for a job."""
    text = f"job {now.id}, {now.verb} {now.source}" + (f" → {now.target}" if now.target else "")
    if begins:
        return f"{text}: begun by {now.owner}" if now.owner else f"{text}: begun"
    return f"{text}: {now.condition}; files: {now.files:,}, {format_size(now.bytes)}, {format_duration(now.seconds)}"
