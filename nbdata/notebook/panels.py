"""Shows progress and results in a cell's output: one display, updated in place, that stays correct without a kernel.

Progress and results are plain HTML and text under one display id, never a widget. A front end that finds a widget in a
bundle shows only the widget, and does not fall back to the rest when the widget is gone. After the kernel ends, after a
reload or in ``nbconvert``, it would show an error or nothing. The HTML is replaced at most four times a second, which
costs one message each, whatever the number of objects. The last saved HTML is readable everywhere. To keep it correct,
each view states its time (`views`), and the last view is the report. Only the buttons of background jobs are widgets
(`buttons`), in a display of their own.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython
from IPython.display import display

from nbdata.display import Follower, TextDisplay
from nbdata.interrupts import Held
from nbdata.notebook.views import Bundle, foreground_note, loop_note, message, state_after, view
from nbdata.protocols import Job
from nbdata.report import BAD_OUTCOMES, Report, Snapshot

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["NotebookDisplay", "TerminalDisplay", "register", "shown", "unregister"]

# Jobs that end sooner show no bar.
_SHOW_AFTER = 0.4

# Reports that a panel has shown, and the cell in which it did; a later cell that returns one shows it again.
_just_shown: weakref.WeakKeyDictionary[Report, int] = weakref.WeakKeyDictionary()


class NotebookDisplay(Follower):
    """The panel of a foreground job; at the end it is replaced by the report."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._note = ""
        self._last: Snapshot | None = None

    def follow(self, job: Job, *, quiet: bool = False, held: Held | None = None) -> Report:
        report = super().follow(job, quiet=quiet, held=held)
        if not quiet:
            shown(report)
        return report

    def begin(self, job: Job, *, bound: bool = False) -> None:
        self._note = loop_note(job.id) if bound else foreground_note(job.id)
        if attached := getattr(job, "attached", ""):
            self._note = f"{attached}. {self._note}"
            self._show(message(attached))

    def update(self, snapshot: Snapshot) -> None:
        self._last = snapshot
        if not snapshot.finished and snapshot.seconds > _SHOW_AFTER:
            self._show(view(snapshot, self._note))

    def end(self, text: str, report: Report | None, *, raised: bool = False) -> None:
        last = self._last
        if report is not None and raised:
            # The error states the rest. If nothing succeeded, was shown or noted, it states everything.
            good = any(n and name not in BAD_OUTCOMES for name, n in report.counts.items())
            if good or report.notes or self._handle is not None or len(report.failures) > 1:
                self._show({"text/plain": report.text(raised=True), "text/html": report.html(raised=True)})
        elif report is not None:
            self._show({"text/plain": report.text(), "text/html": report.html()})
        elif text and (self._handle is None or last is None):
            self._show(message(text))
        elif text and last is not None:
            state, _, note = text.partition("; ")
            self._show(view(last, note, state=state))
        elif self._handle is not None and last is not None:
            self._show(view(last, "", state=last.state.lower()))  # the error is shown separately

    def lost(self, error: BaseException) -> None:
        if self._handle is not None and self._last is not None:
            self._show(view(self._last, "", state=state_after(error)))  # the error is shown separately

    def tell(self, text: str) -> None:
        if text or self._handle is not None:
            self._show(message(text))

    def _show(self, bundle: Bundle) -> None:
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


class TerminalDisplay(TextDisplay):
    """The bar of a foreground job and its report, in IPython without cells."""

    def follow(self, job: Job, *, quiet: bool = False, held: Held | None = None) -> Report:
        report = super().follow(job, quiet=quiet, held=held)
        if not quiet:
            shown(report)
        return report


def shown(report: Report) -> None:
    """Note that a report has just been displayed, so that it is not displayed again as the value of this cell."""
    _just_shown[report] = _cell()


def _cell() -> int:
    """Return the number of the running cell."""
    shell = get_ipython()
    return 0 if shell is None else int(shell.execution_count)


def _show_report(report: Report) -> None:
    if _just_shown.pop(report, None) != _cell():
        bundle = {"text/plain": report.text(), "text/html": report._repr_html_()}
        display(bundle, raw=True)  # type: ignore[no-untyped-call]


def _show_jobs(jobs: Any) -> None:
    from nbdata.notebook.transfers_table import show_jobs

    show_jobs(jobs)


def _show_carried(job: Any) -> None:
    from nbdata.notebook.background import show_carried

    show_carried(job)


def _show_inline(job: Any) -> None:
    from nbdata.notebook.background import show_inline

    show_inline(job)


# By name, so that a module is loaded only when there is an object to show.
_REPORT = ("nbdata.report", "Report")
_SHOWN = {
    _REPORT: _show_report,
    ("nbdata.verbs.transfers", "JobList"): _show_jobs,
    ("nbdata.client.remote", "AgentJob"): _show_carried,
    ("nbdata.client.inline", "InlineJob"): _show_inline,
}


def register(shell: InteractiveShell, *, in_cells: bool = True) -> None:
    """Show reports unless they were just shown and, in cells, jobs and lists of jobs as live panels and tables."""
    assert shell.display_formatter is not None
    for (module, name), show in _SHOWN.items() if in_cells else [(_REPORT, _show_report)]:
        shell.display_formatter.ipython_display_formatter.for_type_by_name(module, name, show)


def unregister(shell: InteractiveShell) -> None:
    """Restore the default display of these objects."""
    assert shell.display_formatter is not None
    formatter = shell.display_formatter.ipython_display_formatter
    for module, name in _SHOWN:
        formatter.pop(f"{module}.{name}", None)
