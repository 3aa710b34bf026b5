"""The table of ``%transfers`` in a cell: kept up to date once a second while jobs run, without holding the cell.

Only the table shown last is alive; an older one, and one that has been followed for long enough, stays as it is and
says when it was so.
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

# Seconds between two looks, and for how long a table is followed.
_EVERY, _FOLLOW = 1.0, 600.0

_newest: threading.Event | None = None


def show_jobs(jobs: JobList) -> None:
    """Show a list of jobs; follow it if it is that of all jobs and some are not over.

    Jobs that are over have a display of their own, which is drawn anew only when another one has ended: who has opened
    the details of one can read them.
    """
    global _newest
    if not (jobs.whole and jobs.active):
        display({"text/plain": jobs.text(), "text/html": jobs._repr_html_()}, raw=True)  # type: ignore[no-untyped-call]
        return
    if _newest is not None:
        _newest.set()
    _newest = end = threading.Event()
    name = f"nbdata-transfers-{secrets.token_hex(4)}"
    running, over = _bundles(jobs)
    display(running, raw=True, display_id=name)  # type: ignore[no-untyped-call]
    display(over, raw=True, display_id=f"{name}-over")  # type: ignore[no-untyped-call]
    threading.Thread(target=_follow, args=(jobs, name, end), name=name, daemon=True).start()


def _follow(jobs: JobList, name: str, end: threading.Event) -> None:
    until = time.monotonic() + _FOLLOW
    _, shown = _bundles(jobs)
    while jobs.active and time.monotonic() < until and not end.wait(_EVERY):
        try:
            jobs = JobList(slots.host().jobs(), limit=jobs.limit, whole=True)
        except (NbdataError, OSError):
            return  # what is shown says when it was so
        running, over = _bundles(jobs)
        if over != shown:  # first, so that no job is in neither
            update_display(over, raw=True, display_id=f"{name}-over")  # type: ignore[no-untyped-call]
            shown = over
        update_display(running, raw=True, display_id=name)  # type: ignore[no-untyped-call]


def _bundles(jobs: JobList) -> tuple[Bundle, Bundle]:
    """What runs, with all jobs as text; and what is over."""
    text = jobs.text()
    running, over = jobs.html_parts()
    if jobs.active:
        at = f"as of {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(jobs.at))}; %transfers shows how it stands"
        text, running = f"{text}\n{at}", running + dim(escape(at))
    return {"text/plain": text, "text/html": running or "<div></div>"}, {"text/plain": "", "text/html": over}


def _after_fork() -> None:
    global _newest
    _newest = None  # its thread is the parent's


os.register_at_fork(after_in_child=_after_fork)
