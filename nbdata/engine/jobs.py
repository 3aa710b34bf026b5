"""The running and finished jobs of one process; the agent and the inline host both use this."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

from nbdata.engine import runner
from nbdata.engine.job.leases import Leases
from nbdata.engine.job.shared_cache import SharedCache
from nbdata.engine.job.spool import read_page
from nbdata.engine.job.task import Task
from nbdata.engine.job.turns import Turns
from nbdata.engine.journal import Journal
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.operation import Context, Operation
from nbdata.report import Plan, Report, Row, Snapshot
from nbdata.sizes import counted, format_size
from nbdata.transfer.locks import Claim
from nbdata.verbs.options import Storing, refuse_slow

__all__ = ["EngineJob", "Jobs"]

# Number of finished jobs, of plans and of questions that are kept.
_KEPT, _KEPT_PLANS, _KEPT_QUERIES = 200, 100, 20
# Jobs that move bytes at a time: this many in the foreground, and as many in the background. So a foreground job need
# not wait for a background job that takes a day. Further jobs wait in QUEUED.
_RUNNING = 8
# Streams at a time: they last as long as a training, so they are counted separately.
_STREAMS = 64
# Queries at a time; they do not use a job's turn.
_QUERIES = 16
# Most jobs that run or wait; further ones are refused.
_UNFINISHED = 1000
# Seconds that a job may take to end after its last item.
_ENDING = 60.0
# The environment variable that limits a folder (see nbdata.space.limits).
_LIMIT = "NBDATA_QUOTA"
# States in which the same command attaches to a job; a job that is being cancelled is waited for instead.
_ATTACHABLE = ("QUEUED", "PLANNING", "RUNNING", "PAUSED")


def _on_error(operation: Operation) -> str:
    return operation.on_error if isinstance(operation, Storing) else "raise"


class EngineJob:
    """One submitted operation: its task, its items, and the folder of its rows."""

    def __init__(self, operation: Operation, context: Context, task: Task, folder: str) -> None:
        self.operation, self.context, self.task, self.folder = operation, context, task, folder
        self.identity = runner.identity_of(operation, context)
        self.on_error = _on_error(operation)
        self.leases, self.cache = Leases(task), SharedCache(task)
        self.foreground = 0  # foreground connections that wait for it; guarded by `joining`
        self.joining = threading.Lock()

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.task.id

    def refuse_again(self) -> None:
        """Raise BadOption if the job cannot be restarted on its own."""
        state, op = self.task.snapshot().state, self.operation
        if state not in ("FAILED", "CANCELLED", "INTERRUPTED"):
            raise BadOption(f"job {self.id} is {state.lower()}: there is nothing to run again")
        if op.bound or op.shared:
            raise BadOption(
                f"job {self.id} belonged to the loop that asked for it", remedy="Run its cell again"
            )

    def limit(self, rate: int | None) -> None:
        """Limit the bytes per second from now on, also when the job is begun again; None lifts the limit.

        Raises
        ------
        BadOption
            If the job is over, or its verb has no limit, or the limit is too low.
        """
        state, op = self.task.snapshot().state, self.operation
        if not isinstance(op, Storing):
            raise BadOption(f"job {self.id} has no limit of its rate: {op.verb} has no --max-rate")
        if state not in _ATTACHABLE:
            raise BadOption(
                f"job {self.id} is {state.lower()}: there is nothing to limit",
                remedy="Run its command again with --max-rate",
            )
        refuse_slow(rate)
        self._limit(rate)

    def _limit(self, rate: int | None) -> None:
        self.task.limit(rate)
        if isinstance(self.operation, Storing):
            self.operation = runner.with_rate(self.operation, rate)
            self.task.begun_by(runner.shown_command(self.operation, self.context))

    def said_again(self, operation: Operation, context: Context) -> str:
        """Join the job by the same command, whose options and environment limit apply from now on.

        A job that an interrupt paused, but did not cancel yet, resumes with the new command's options. A running job
        keeps its rate if the new command sets none. A job that waits for room checks for it at once.

        Returns
        -------
        str
            How it was joined, as text for the user; empty if it cannot be joined because it is ending.
        """
        before = self.task.snapshot()
        rate = operation.max_rate if isinstance(operation, Storing) else None
        if before.state not in _ATTACHABLE:
            return ""
        continued = before.reason == "interrupt"
        if continued or rate is not None:
            self._limit(rate)
        if continued and not self.task.resume() and self.task.snapshot().state not in _ATTACHABLE:
            return ""  # the interrupt has just become a cancel
        self.on_error = _on_error(operation)
        if _LIMIT in context.env:
            self.context.env[_LIMIT] = context.env[_LIMIT]
        else:
            self.context.env.pop(_LIMIT, None)
        self.task.look_again()
        if continued:
            return f"continued job {self.id}"
        kept = self.task.rate if rate is None else None
        limited = "" if kept is None else f", limited to {format_size(kept)}/s"
        if before.state == "PAUSED":
            now = "which waits for space, and looks for it now"
            if self.task.paused:
                now = f"which is paused: %transfers {self.id} --resume continues it"
            return f"attached to job {self.id}, {now}{limited}"
        return f"attached to job {self.id}, which was running already{limited}"

    def why_no_more(self) -> NbdataError | None:
        """The error that ended the items early, or None if all items came.

        An error of the job after all items were handed out is returned too.
        """
        error = self.leases.error
        if error is None and self.leases.ended:
            self.task.wait_end(_ENDING)
            error = self.task.error
            if error is None and not self.leases.complete:
                error = NbdataError("the job ended before all items were handed out", remedy="See its report")
        return error

    def page(self, name: str, offset: int) -> tuple[list[Row], int | None]:
        """Rows of the job's ``plan`` or ``report`` from a byte offset on."""
        return read_page(f"{self.folder}/{'plan' if name == 'plan' else 'report'}.rows", offset)


class Jobs:
    """The table of jobs; safe to use from many threads.

    Parameters
    ----------
    dealer_of : callable
        Opens the dealer of a job that asks for a cluster.
    journal : Journal, optional
        Records the begin and the end of jobs, for queries after this process has ended.
    """

    def __init__(self, dealer_of: runner.DealerOf, journal: Journal | None = None) -> None:
        self._dealer_of, self._journal = dealer_of, journal
        self._jobs: dict[str, EngineJob] = {}
        self._plans: list[str] = []
        self._planning = 0
        self._lock = threading.Lock()
        self._running, self._background = Turns(_RUNNING), Turns(_RUNNING)
        self._streams, self._queries = Turns(_STREAMS), Turns(_QUERIES)

    def plan(
        self,
        operation: Operation,
        context: Context,
        bindings: Mapping[str, object],
        control: Task | None = None,
    ) -> tuple[Plan, str]:
        """Make the plan of an operation; return it with the folder of its rows, which is kept for a while.

        `control` stops it, if given: a `runner.Planning`.
        """
        folder = runner.new_folder()
        with self._lock:
            self._planning += 1
        try:
            planned = runner.make_plan(operation, context, control or runner.Planning(), folder, bindings)
        except BaseException:
            runner.forget(folder)
            raise
        finally:
            with self._lock:
                self._planning -= 1
        with self._lock:  # only now, so concurrent plans do not lose unread rows
            self._plans.append(folder)
            old = self._plans.pop(0) if len(self._plans) > _KEPT_PLANS else None
        if old is not None:
            runner.forget(old)
        return planned, folder

    @property
    def planning(self) -> bool:
        """True if a caller waits for a plan."""
        return self._planning > 0

    def submit(
        self, operation: Operation, context: Context, bindings: Mapping[str, object], *, background: bool
    ) -> tuple[EngineJob, str]:
        """Start a job, or join the unfinished one of the same identity; return it, and how it was joined or ''."""
        with self._lock:
            identity = runner.identity_of(operation, context)
            for job in self._jobs.values():
                if job.identity != identity or operation.query:
                    continue
                if how := job.said_again(operation, context):
                    # It has a foreground waiter now, so it need not wait for a background turn.
                    if not background and (work := self._background.withdraw(job.task)) is not None:
                        self._running.add(job.task, work)
                    return job, how
            if sum(not job.task.finished for job in self._jobs.values()) >= _UNFINISHED:
                raise NbdataError(
                    f"{counted(_UNFINISHED, 'jobs')} run or wait already",
                    remedy="Wait for some, or cancel some: see transfers",
                )
            task = runner.new_task(operation, context, background=background)
            while task.id in self._jobs:
                task = runner.new_task(operation, context, background=background)
            job = EngineJob(operation, context, task, runner.new_folder())
            claim = Claim(operation.claimed(), task.id)
            task.on_end(claim.release)
            self._jobs[job.id] = job
            self._forget_old()
        if self._journal is not None and not operation.query:
            note = partial(self._note, self._journal, job, context.state_dir)
            note(begins=True)
            task.on_end(partial(self._ended, claim, note))
        if operation.bound or operation.shared:
            turns = self._streams
        elif operation.query:
            turns = self._queries
        else:
            turns = self._background if background else self._running
        turns.add(task, partial(self._work, job, context, dict(bindings)))
        return job, ""

    @staticmethod
    def _ended(claim: Claim, note: Callable[[], None]) -> None:
        claim.release()
        note()

    @staticmethod
    def _note(journal: Journal, job: EngineJob, state_dir: str, *, begins: bool = False) -> None:
        journal.note(job.task, state_dir, job.on_error, begins=begins)

    def _work(self, job: EngineJob, context: Context, bindings: dict[str, object], task: Task) -> Report:
        return runner.perform(
            job.operation, context, task, job.folder, bindings, job.leases, job.cache, self._dealer_of
        )

    def _forget_old(self) -> None:
        finished = [job for job in self._jobs.values() if job.task.finished]
        queries = [job for job in finished if job.operation.query]
        for job in [*queries[:-_KEPT_QUERIES], *finished[:-_KEPT]]:
            if self._jobs.pop(job.id, None) is not None:
                runner.forget(job.folder)

    def close(self) -> None:
        """Remove the rows of all jobs and plans: the process ends, so they can no longer be requested."""
        if self._journal is not None:
            self._journal.close()
        with self._lock:
            for folder in [*(job.folder for job in self._jobs.values()), *self._plans]:
                runner.forget(folder)

    def find(self, job_id: str) -> EngineJob:
        """The job with an id.

        Raises
        ------
        NotFound
            If there is none.
        """
        with self._lock:
            found = self._jobs.get(job_id)
        if found is None:
            raise NotFound(f"there is no job {job_id!r}", remedy="transfers lists the jobs and their ids")
        return found

    def all(self) -> list[EngineJob]:
        """All jobs except queries, oldest first."""
        with self._lock:
            return [job for job in self._jobs.values() if not job.operation.query]

    def snapshots(self) -> list[Snapshot]:
        """The current snapshots of all jobs."""
        return [job.task.snapshot() for job in self.all()]

    def unfinished(self) -> list[EngineJob]:
        """The jobs that have not ended."""
        with self._lock:
            return [job for job in self._jobs.values() if not job.task.finished]
