"""The table of ``%transfers`` in a cell: updated once a second while jobs run, without blocking the cell.

Only the most recent table is live. An older table, or one that has been followed for the full time, stays as it is and
states its time.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from html import escape

from IPython.display import display, update_display

from nbdata.errors import NbdataError
from nbdata.notebook.views import Bundle
from nbdata.operation import slots
from nbdata.rendering import dim
from nbdata.verbs.transfers import JobList

__all__ = ["show_jobs"]

# Seconds between two updates, and seconds for which a table is followed.
_EVERY, _FOLLOW = 1.0, 600.0

_newest: threading.Event | None = None


def show_jobs(jobs: JobList) -> None:
    """Show a list of jobs; follow it if it lists all jobs and some of them have not ended.

    Ended jobs have a display of their own, which is redrawn only when another job has ended. So details that a user has
    opened there stay open.
    """
    global _newest
    if not (jobs.whole and jobs.active):
        display({"text/plain": jobs.text(), "text/html": jobs._repr_html_()}, raw=True)  # type: ignore[no-untyped-call]
        return
    if _newest is not None:
        _newest.set()
    _newest = end = threading.Event()
    name = f"nbdata-transfers-{secrets.token_hex(4)}"
    running, over = _bundles(jobs, name)
    display(running, raw=True, display_id=name)  # type: ignore[no-untyped-call]
    display(over, raw=True, display_id=f"{name}-over")  # type: ignore[no-untyped-call]
    threading.Thread(target=_follow, args=(jobs, name, end), name=name, daemon=True).start()


def _follow(jobs: JobList, name: str, end: threading.Event) -> None:
    until = time.monotonic() + _FOLLOW
    _, shown = _bundles(jobs, name)
    while jobs.active and time.monotonic() < until and not end.wait(_EVERY):
        try:
            found, silent = slots.host().look()
            if silent:
                return  # the view states its time
            jobs = JobList(found, limit=jobs.limit, whole=True)
        except (NbdataError, OSError):
            return  # the view states its time
        running, over = _bundles(jobs, name)
        if over != shown:  # first, so that each job is in at least one
            update_display(over, raw=True, display_id=f"{name}-over")  # type: ignore[no-untyped-call]
            shown = over
        update_display(running, raw=True, display_id=name)  # type: ignore[no-untyped-call]


def _bundles(jobs: JobList, name: str) -> tuple[Bundle, Bundle]:
    """Return two bundles: the running jobs, with all jobs as text, and the ended jobs."""
    text = jobs.text()
    running, over = jobs.html_parts(name)
    if jobs.active:
        at = f"as of {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(jobs.at))}; %transfers shows the current state"
        text, running = f"{text}\n{at}", running + dim(escape(at))
    return {"text/plain": text, "text/html": running or "<div></div>"}, {"text/plain": "", "text/html": over}


def _after_fork() -> None:
    global _newest
    _newest = None  # its thread belongs to the parent


os.register_at_fork(after_in_child=_after_fork)
