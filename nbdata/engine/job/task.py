"""The states of one job: its current activity, its end, and how it is paused or stopped.

::

    QUEUED → PLANNING → RUNNING → DONE | FAILED
    any of the first three ⇄ PAUSED(reason)            by a user, or for lack of room; then back to QUEUED
    any unfinished state → CANCELLING → CANCELLED
    any unfinished state → INTERRUPTED          its host ended

A Task runs a callable in its own thread; it knows no verb, socket or widget. The work calls `checkpoint` between steps:
that waits while the task is paused, and raises Cancelled when it must stop. Blocking calls of stores register a
callback with the task that wakes them (`Stop` of stores.objects). `nbdata.engine.job.progress` counts the progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from nbdata.disk import internal_error, is_full
from nbdata.ending import Daemon
from nbdata.engine.job.failure import failure_of
from nbdata.engine.job.progress import Progress
from nbdata.errors import Cancelled, NbdataError, cleaned, without_calls
from nbdata.redaction import scrub, scrub_data
from nbdata.report import FINISHED, Report, Snapshot

__all__ = ["ALLOWED", "Task"]

ALLOWED: dict[str, tuple[str, ...]] = {
    "QUEUED": ("PLANNING", "PAUSED", "CANCELLING", "FAILED", "INTERRUPTED"),
    "PLANNING": ("RUNNING", "PAUSED", "CANCELLING", "FAILED", "INTERRUPTED", "QUEUED"),
    "RUNNING": ("PAUSED", "DONE", "FAILED", "CANCELLING", "INTERRUPTED"),
    "PAUSED": ("QUEUED", "PLANNING", "RUNNING", "CANCELLING", "FAILED", "INTERRUPTED"),
    "CANCELLING": ("CANCELLED", "INTERRUPTED"),
}


class Task(Progress):
    """Runs one job's work through its states (see the module); only `snapshot` leaves it."""

    def __init__(self, snapshot: Snapshot, *, stopped: str = "Run it again to resume") -> None:
        super().__init__(snapshot)
        self._stopped_means = stopped
        self._aborts: dict[Callable[[], None], None] = {}
        self._stopping = False
        self._abandoned = False
        self._fault: NbdataError | None = None
        self._stands_by = False  # paused by itself, until its condition holds
        self._resume_to = ""
        self._thread: threading.Thread | None = None
        self._tell_move: Callable[[], None] = lambda: None
        self._tell_end: Callable[[], None] = lambda: None
        self.report: Report | None = None
        self.error: NbdataError | None = None
        snapshot.created = snapshot.created or time.time()

    # -- lifetime -----------------------------------------------------------------------------

    def start(self, work: Callable[[Task], Report]) -> None:
        """Run `work` in a thread; its Report or its error becomes the task's end."""
        self._thread = Daemon(self._work, work, name=f"job-{self.id}")
        try:
            self._thread.start()
        except RuntimeError as error:  # the system gives no more threads
            self._thread = None
            self._end(
                "FAILED",
                NbdataError(f"the job could not be started: {error}", remedy="Run the command again"),
            )

    def on_move(self, tell: Callable[[], None]) -> None:
        """Have `tell` called at each change of state; it must not block, and must not call the task."""
        self._tell_move = tell

    def on_end(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when the task is over; it must not block."""
        self._tell_end = tell

    def _work(self, work: Callable[[Task], Report]) -> None:
        self._began = time.monotonic()
        try:
            report = work(self)
        except NbdataError as error:
            if self._fault is not None:
                self._end("FAILED", self._fault)
            else:
                self._end("CANCELLED" if self._stopping or isinstance(error, Cancelled) else "FAILED", error)
        except BaseException as error:
            if isinstance(error, OSError) and is_full(error):
                self._end("FAILED", internal_error(error))
                return
            import sys
            import traceback

            sys.stderr.write(scrub(traceback.format_exc()))  # into the agent's log: this may be a bug of ours
            self._end("FAILED", internal_error(error))
        else:
            failed = report.state == "FAILED"
            self._end(report.state, failure_of(report) if failed else None, report)

    def _end(self, state: str, error: NbdataError | None, report: Report | None = None) -> None:
        if error is not None:
            # Not under the lock: releasing failed generators ends what they wait for, and that may
            # need the lock.
            without_calls(cleaned(error))
        with self._changed:
            now = self._now
            if now.state in FINISHED:
                return
            if state == "FAILED" and now.state == "CANCELLING":
                state = "CANCELLED"  # it had failures, or broke, after it was told to end
            if report is None:
                report = Report(
                    verb=now.verb,
                    source=now.source,
                    target=now.target,
                    files=now.files,
                    bytes=now.bytes,
                    present=now.present,
                    counts={"done": now.files, "failed": now.failures},
                    retries=now.retries,
                    failures=[["", str(error)]] if error and state == "FAILED" else [],
                )
            if state == "CANCELLED":
                error = Cancelled(f"{now.verb} was cancelled", remedy=self._stopped_means)
            report.state = state
            now.seconds = report.seconds = time.monotonic() - self._began if self._began else 0.0
            for told in ("failures", "notes", "headline", "details", "tables"):
                setattr(report, told, scrub_data(getattr(report, told)))
            self.report, self.error = report, error
            now.error = error.to_dict() if error else None
            now.verified, now.unverified = report.verified, report.unverified
            if state == "CANCELLED" and now.state != "CANCELLING":
                self._move("CANCELLING")
            if state == "DONE" and now.state != "RUNNING":
                now.state = "RUNNING"  # paused or interrupted in its very last step
            self._move(state, now.reason if now.state == "CANCELLING" and state == "CANCELLED" else "")

    def _move(self, state: str, reason: str = "") -> None:
        with self._changed:
            if state not in ALLOWED.get(self._now.state, ()):
                raise ValueError(f"a job that is {self._now.state} cannot become {state}")
            self._now.state, self._now.reason = state, reason
            self._touch()
        self._tell_move()
        if state in FINISHED:
            self._tell_end()

    def enter(self, state: str, reason: str = "") -> None:
        """Enter the next state of the work itself (PLANNING, RUNNING, or QUEUED with a reason)."""
        with self._changed:
            self.checkpoint()
            if self._now.state != state or self._now.reason != reason:
                if self._now.state == state:
                    self._now.reason = reason
                    self._touch()
                else:
                    self._move(state, reason)

    def waits(self, reason: str) -> None:
        """Say why it has not started; never blocks the caller."""
        with self._changed:
            if self._now.state == "QUEUED":
                self._now.reason = reason
                self._touch()

    # -- stopping: the Stop protocol of stores.objects, and calls for the work ------------------

    def is_set(self) -> bool:
        """True if the work must end."""
        return self._stopping

    def add(self, abort: Callable[[], None]) -> None:
        """Register a callback that wakes a blocking call; called at once if the task is already stopping."""
        with self._changed:
            self._aborts[abort] = None
            stopping = self._stopping
        if stopping:
            abort()

    def remove(self, abort: Callable[[], None]) -> None:
        """Remove a callback that `add` registered."""
        self._aborts.pop(abort, None)

    def checkpoint(self) -> None:
        """Wait while paused or ahead of the rate limit; raise Cancelled if the work must end. Cheap otherwise."""
        if self._rate is not None:
            self._hold()
        if self._stopping or self._now.state == "PAUSED":
            with self._changed:
                while self._now.state == "PAUSED" and not self._stopping:
                    self._changed.wait()
            if self._stopping:
                raise Cancelled("cancelled")

    def _hold(self) -> None:
        (due, limit), self._due.at = getattr(self._due, "at", (0.0, 0)), (0.0, 0)
        with self._changed:
            while not self._stopping and limit == self._limits and (left := due - time.monotonic()) > 0:
                self._changed.wait(left)

    def sleep(self, seconds: float) -> None:
        """Wait that long, or until the work must end (then Cancelled)."""
        end = time.monotonic() + seconds
        with self._changed:
            while not self._stopping and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
        self.checkpoint()

    def pause(self, reason: str = "user") -> bool:
        """Hold the work at its next checkpoint; False if there is nothing to hold."""
        with self._changed:
            if self._now.state in ("QUEUED", "PLANNING", "RUNNING"):
                self._resume_to = self._now.state
                self._move("PAUSED", reason)
                return True
            if self._stands_by and self._now.state == "PAUSED":  # it must not resume by itself any more
                self._stands_by, self._now.reason = False, reason
                self._touch()
                return True
            return False

    def stand_by(self, reason: str, may_go_on: Callable[[], bool], *, every: float) -> None:
        """Pause by itself, and start again (QUEUED) once `may_go_on`, or when a user resumes it.

        Parameters
        ----------
        reason : str
        may_go_on : callable
            Called every `every` seconds; a pause by a user ends that.
        every : float
            Seconds between two calls; more if a call takes long.

        Raises
        ------
        Cancelled
            If the work must end.
        """
        with self._changed:
            self.checkpoint()
            self._resume_to, self._stands_by = "QUEUED", True
            self._move("PAUSED", reason)
        pause = every
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._now.state != "PAUSED", pause)
                if self._stopping or self._now.state != "PAUSED":
                    break
                asks = self._stands_by
            began = time.monotonic()
            if asks and may_go_on():
                with self._changed:
                    if self._stands_by and not self._stopping:
                        self.resume()
            pause = max(every, 10 * (time.monotonic() - began))
        self._stands_by = False
        self.checkpoint()
        self._anew = True

    def look_again(self) -> None:
        """Start again at once if it paused by itself with `stand_by`; a pause by a user stays."""
        with self._changed:
            if self._stands_by:
                self.resume()

    def resume(self) -> bool:
        """Resume after `pause`."""
        with self._changed:
            if self._now.state == "PAUSED":
                self._move(self._resume_to)
                return True
            return False

    def cancel(self, reason: str = "") -> bool:
        """End the work soon, resumable; False if it is over already. The reason is kept for lists."""
        with self._changed:
            if self._now.state in FINISHED or self._stopping:
                self._abandoned = True
                return False
            self._stopping = True
            self._move("CANCELLING", reason)
            aborts = list(self._aborts)
        for abort in aborts:
            abort()
        return True

    @property
    def abandoned(self) -> bool:
        """True if it was cancelled while already ending: what it still holds is not needed any more."""
        return self._abandoned

    def fail(self, error: NbdataError) -> None:
        """End the work soon, as failed: one of its threads has met a fatal error."""
        with self._changed:
            if self._stopping:
                return
            self._stopping, self._fault = True, error
            self._changed.notify_all()
            aborts = list(self._aborts)
        for abort in aborts:
            abort()

    def interrupt(self) -> None:
        """Record that its host ends now, whatever the work does."""
        with self._changed:
            self._abandoned = True
            if self._now.state not in FINISHED:
                self._stopping = True
                self._now.seconds = time.monotonic() - self._began if self._began else 0.0
                self._now.error = Cancelled(
                    f"{self._now.verb} was interrupted: the agent ended", remedy=self._stopped_means
                ).to_dict()
                self._move("INTERRUPTED")
            aborts = list(self._aborts)
        for abort in aborts:
            abort()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the work's thread; False if it still runs."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True
