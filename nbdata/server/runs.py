"""What the panel has begun, and reports of that and of all other jobs.

Jobs run in an agent, as those of a cell do. Agents list no queries and no plans, so these are remembered here.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from nbdata.client.hosts import ChoosingHost
from nbdata.errors import AgentUnavailable, NbdataError, NotFound
from nbdata.protocols import Job, Planning
from nbdata.report import Plan
from nbdata.server.asked import Asked
from nbdata.server.reports import shown_plan, shown_report
from nbdata.server.shown import key_of
from nbdata.threads import begin

__all__ = ["Runs"]

# Most queries and plans that are remembered; fewer than an agent keeps.
_MOST = 16

_log = logging.getLogger("nbdata.server")


class Watched(Protocol):
    """A plan that is made."""

    @property
    def listed(self) -> int:
        """How many entries have been listed."""


class Runs:
    """The queries and plans that the panel has begun. May be used from several threads; each call may take long."""

    def __init__(self) -> None:
        self._known: dict[str, Job | _BegunPlan] = {}
        self._lock = threading.Lock()
        #: The plans that a browser waits for, by the names that it gave them; only for the event loop.
        self.watched: dict[str, Watched] = {}

    def begin(self, asked: Asked) -> dict[str, str]:
        """Begin a job, or a plan; return its ``id``, and the ``key`` that it has in the feed, empty if it has none."""
        operation = asked.operation
        if asked.dry_run:
            plan = _BegunPlan(ChoosingHost().planning(operation))
            self._remember(plan.id, plan)
            return {"id": plan.id, "key": ""}
        # A query of this process ends with it, because nobody else could see it.
        job = ChoosingHost().submit(operation, background=not operation.query)
        if operation.query:
            self._remember(job.id, job)
            return {"id": job.id, "key": ""}
        return {"id": job.id, "key": key_of(job.snapshot())}

    def _remember(self, run_id: str, run: Job | _BegunPlan) -> None:
        with self._lock:
            self._known[run_id] = run
            old = [self._known.pop(name) for name in list(self._known)[:-_MOST]]
        for one in old:
            _end(one)

    def cancel(self, run_id: str) -> None:
        """Cancel a job, a query or a plan; NotFound if there is none."""
        known = self._known.get(run_id)
        if known is None:
            self.job(run_id).cancel()
        else:
            _end(known)

    def job(self, job_id: str) -> Job:
        """Return the job with an id; NotFound if there is none."""
        known = self._known.get(job_id)
        if known is not None and not isinstance(known, _BegunPlan):
            return known
        job = ChoosingHost().job(job_id)
        if job.id != job_id:  # hosts also accept the beginning of an id; a button means one job
            raise NotFound(f"there is no job {job_id!r}", remedy="It may have ended with its agent")
        return job

    def report(self, run_id: str, actions: Sequence[str]) -> dict[str, Any]:
        """Return the report of a job or the plan, or how far it is; see `shown_report`."""
        known = self._known.get(run_id)
        return known.shown() if isinstance(known, _BegunPlan) else shown_report(self.job(run_id), actions)


class _BegunPlan:
    """A plan that is made in a thread of its own."""

    def __init__(self, planning: Planning) -> None:
        self.id = secrets.token_hex(8)
        self._planning = planning
        self._state, self._error = "PLANNING", ""
        self._plan: Plan | None = None
        if not begin(self._make, name="plan"):
            planning.cancel()
            raise AgentUnavailable("the system refuses more threads", remedy="Try again in a moment")

    def _make(self) -> None:
        try:
            self._plan = self._planning.wait()
            self._state = "DONE"
        except NbdataError as error:
            self._fail(str(error))
        except Exception:
            _log.exception("nbdata: a plan could not be made")
            self._fail("internal error; the server's log says more")

    def _fail(self, error: str) -> None:
        if self._state != "CANCELLED":
            self._error, self._state = error, "FAILED"

    def cancel(self) -> None:
        """End the work on it."""
        if self._state == "PLANNING":
            self._state = "CANCELLED"
            self._planning.cancel()

    def shown(self) -> dict[str, Any]:
        """Return the plan for the panel, or how far it is."""
        data = {"state": self._state, "error": self._error}
        return data if self._state != "DONE" or self._plan is None else {**data, **shown_plan(self._plan)}


def _end(run: Job | _BegunPlan) -> None:
    try:
        run.cancel()
    except (NotFound, AgentUnavailable):
        _log.debug("nbdata: a query has ended with its agent")
