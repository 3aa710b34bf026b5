"""Converts the reports of jobs, and plans, for the panel: sums, and a bounded number of rows."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from nbdata.errors import AgentUnavailable, NotFound, error_from_dict
from nbdata.protocols import Job
from nbdata.report import BAD_OUTCOMES, Plan, Report, Row

__all__ = ["BAD", "MOST_ROWS", "shown_plan", "shown_report"]

#: Most rows in an answer.
MOST_ROWS = 1000
#: Stands for all outcomes that make a job a failed one.
BAD = "bad"


def shown_report(job: Job, actions: Sequence[str]) -> dict[str, Any]:
    """Convert the report of a job to JSON-able data; of an unfinished job only how far it is.

    Parameters
    ----------
    job : Job
    actions : sequence of str
        The actions whose rows are wanted; none for all, `BAD` for those that failed. ``count`` says how many rows
        there are. If ``rows`` has fewer than that and than `MOST_ROWS`, the others are gone.

    Raises
    ------
    NotFound
        If nobody has the report any more.
    """
    try:
        now = job.snapshot()
        error = str(error_from_dict(now.error)) if now.error else ""
        data = {"verb": now.verb, "state": now.state, "files": now.files, "phase": now.phase, "error": error}
        if not now.finished:
            return data
        report = job.report()
        rows, count = _wanted(report, actions)
    except NotFound as lost:
        raise _gone() from lost
    except AgentUnavailable as lost:
        if lost.details.get("alive"):
            raise
        raise _gone() from lost
    return {
        **data,
        "ended": now.created + now.seconds,
        "source": report.source,
        "outcome": report.outcome,
        "notes": report.notes,
        "details": report.details,
        "rows": [_shown(row) for row in rows],
        "count": count,
    }


def shown_plan(plan: Plan, most: int = MOST_ROWS) -> dict[str, Any]:
    """Convert a plan to JSON-able data, with its first rows: if it deletes what is only here, the first of these."""
    rows: Iterable[Row] = plan.rows
    if plan.details.get("frees", {}).get("only_here"):
        rows = (row for row in rows if row.action == "delete" and row.detail.get("kind") == "only here")
    return {
        "verb": plan.verb,
        "source": plan.source,
        "line": plan.line,
        "notes": plan.notes,
        "details": plan.details,
        "actions": plan.actions,
        "moves": {
            "files": plan.files,
            "bytes": plan.bytes,
            "needed": plan.needed,
            "free": plan.free,
            "fits": plan.fits,
        },
        "rows": [_shown(row) for row in itertools.islice(rows, most)],
        "count": len(plan.rows),
    }


def _wanted(report: Report, actions: Sequence[str]) -> tuple[list[Row], int]:
    """Return rows of a report, and how many there are of them."""
    if not actions:
        return _first(report.rows, report.verb), len(report.rows)
    wanted = {*actions, *BAD_OUTCOMES * (BAD in actions)}
    count = sum(report.counts.get(action, 0) for action in wanted)
    rows = (row for row in report.rows if row.action in wanted)
    found = list(itertools.islice(rows, min(count, MOST_ROWS)))
    if len(found) < len(report.failures) and BAD in actions:  # the agent has ended; this is on record
        found = [Row(path, "failed", -1, {"reason": reason}) for path, reason in report.failures]
    return found, count


def _first(rows: Iterable[Row], verb: str) -> list[Row]:
    """Return as many rows as are sent: the first ones, or the largest folders of du, and its total."""
    if verb != "du":
        return list(itertools.islice(rows, MOST_ROWS))
    total = list[Row]()

    def folders() -> Iterable[Row]:
        for row in rows:
            if row.action == "total":
                total.append(row)
            else:
                yield row

    largest = heapq.nlargest(MOST_ROWS - 1, folders(), key=lambda row: row.detail.get("disk", row.size))
    return [*largest, *total]


def _shown(row: Row) -> dict[str, Any]:
    return row._asdict()


def _gone() -> NotFound:
    return NotFound(
        "this result is gone: its agent has ended, or has newer ones in its place", remedy="Run it again"
    )
