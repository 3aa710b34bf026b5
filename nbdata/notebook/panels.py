"""Progress and results in a cell's output: one display, updated in place, true to the end without a kernel."""

from __future__ import annotations

import weakref
from html import escape
from typing import TYPE_CHECKING, Any

from IPython.display import display

from nbdata.display import Follower, progress_line
from nbdata.operation import Job
from nbdata.report import Report, Snapshot

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["NotebookDisplay", "register", "shown"]

# Jobs that end sooner show no bar.
_SHOW_AFTER = 0.4

_just_shown: weakref.WeakSet[Report] = weakref.WeakSet()


class NotebookDisplay(Follower):
    """A text bar under one display id; at the end the report stands in its place, as text and as HTML."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._text = ""

    def begin(self, job: Job) -> None:
        if getattr(job, "attached", False):
            self._show(f"attached to job {job.id}, which was running already")

    def update(self, snapshot: Snapshot) -> None:
        if not snapshot.finished and snapshot.seconds > _SHOW_AFTER:
            self._show(progress_line(snapshot))

    def end(self, text: str, report: Report | None) -> None:
        if report is not None:
            self._show(report.text(), report._repr_html_())
        elif text or self._handle is not None:
            self._show(text or "ended")

    def _show(self, text: str, html: str | None = None) -> None:
        if text == self._text:
            return
        self._text = text
        bundle = {"text/plain": text, "text/html": html or f"<pre>{escape(text)}</pre>"}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


def shown(report: Report) -> None:
    """Note that a report has just been displayed, so that it does not come again as the cell's value."""
    _just_shown.add(report)


def register(shell: InteractiveShell) -> None:
    """Show reports that were not just shown, and only those."""

    def show(report: Report) -> None:
        if report in _just_shown:
            _just_shown.discard(report)
        else:
            bundle = {"text/plain": report.text(), "text/html": report._repr_html_()}
            display(bundle, raw=True)  # type: ignore[no-untyped-call]

    assert shell.display_formatter is not None
    shell.display_formatter.ipython_display_formatter.for_type(Report, show)
