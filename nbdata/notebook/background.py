"""Shows a background job in a cell: a panel that a thread updates in the cell where the job was shown.

Updates are sent to the display's id, so they reach that cell whichever cell runs at the time. The thread is a daemon
with its own connection, so it does not keep the kernel alive. A forked child has neither the thread nor its state.
"""

from __future__ import annotations

import os
import secrets
import threading
from dataclasses import replace
from typing import Any

from IPython.display import display, update_display

from nbdata.errors import NbdataError
from nbdata.notebook.buttons import EMPTY, Buttons
from nbdata.notebook.views import Bundle, background_note, message, state_after, view
from nbdata.protocols import Job
from nbdata.report import Snapshot
from nbdata.threads import ForkLock

__all__ = ["JobPanel", "show_carried", "show_inline"]

# Jobs that end sooner show only their report.
_SHOW_AFTER = 0.4
# Largest number of jobs followed at once; each uses a thread and a connection.
_MOST = 16
# Seconds to wait for the agent's first message.
_FIRST = 5.0

_followed: dict[str, JobPanel] = {}
_lock = ForkLock()


class JobPanel:
    """One job as shown in this notebook: one display for its progress and one for its buttons."""

    def __init__(self, job: Job, *, carried: bool) -> None:
        self._job, self._carried = job, carried
        self._attached = ""  # how the latest command joined it
        self._name = f"nbdata-{job.id}-{secrets.token_hex(4)}"
        self._changed = threading.Condition()
        self._latest: Snapshot | None = None
        self._bundle: Bundle = message(f"job {job.id} was started; its agent has not answered yet")
        self._shown = False
        self._over = False
        self._buttons: Buttons | None = None

    # -- what the cell calls --------------------------------------------------------------------

    def follow(self) -> None:
        """Start to follow the job."""
        threading.Thread(target=self._follow, name=f"nbdata-panel-{self._job.id}", daemon=True).start()

    def show(self, attached: str = "") -> None:
        """Show the job in this cell's output; a job that ends at once shows only its report.

        `attached` says how this cell's command joined the job.
        """
        with self._changed:
            self._attached = attached or self._attached
            self._changed.wait_for(lambda: self._latest is not None or self._over, _FIRST)
            if self._latest is not None and not self._shown:
                self._changed.wait_for(lambda: self._over, max(0.0, _SHOW_AFTER - self._latest.seconds))
            if self._latest is not None and self._latest.finished:
                self._changed.wait_for(lambda: self._over, _FIRST)  # its report is about to arrive
            if attached and self._latest is not None and not self._over:
                self._update(self._latest)
            display(self._bundle, raw=True, display_id=self._name)  # type: ignore[no-untyped-call]
            self._shown = True
            if not self._over:
                self._show_buttons()

    def _show_buttons(self) -> None:
        if self._buttons is None and self._latest is not None:
            try:
                self._buttons = Buttons(self._job, self._latest)
            except ImportError:
                return
        if self._buttons is not None:
            display(self._buttons.bundle, raw=True, display_id=f"{self._name}-buttons")  # type: ignore[no-untyped-call]

    # -- what the thread does -------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            for snapshot in self._job.watch():
                with self._changed:
                    if self._over:
                        return
                    self._latest = snapshot
                    if not snapshot.finished:
                        self._update(snapshot)
                    self._changed.notify_all()
            bundle, line = self._ended()
        except (NbdataError, OSError) as error:
            bundle, line = self._lost(error)
        finally:
            with _lock:
                _followed.pop(self._job.id, None)
        with self._changed:
            if not self._over:
                self._end(bundle, line)

    def _update(self, snapshot: Snapshot) -> None:
        note = background_note(snapshot, carried=self._carried)
        self._bundle = view(snapshot, f"{self._attached}. {note}" if self._attached else note)
        if self._shown:
            update_display(self._bundle, raw=True, display_id=self._name)  # type: ignore[no-untyped-call]
            if self._buttons is not None:
                self._buttons.update(snapshot)

    def _ended(self) -> tuple[Bundle, str]:
        """Return the final bundle: the report, or a view of the last snapshot if there is no report."""
        last = self._latest
        assert last is not None
        try:
            report = self._job.report()
        except NbdataError:
            return view(last, last.stopped_means), f"{last.verb} {last.condition}"
        if last.state in ("CANCELLED", "INTERRUPTED"):
            report = replace(report, notes=[*report.notes, last.stopped_means])
        return {"text/plain": report.text(), "text/html": report._repr_html_()}, report.line

    def _lost(self, error: Exception) -> tuple[Bundle, str]:
        if self._latest is None:
            return message(f"job {self._job.id}: {error}"), str(error)
        return view(self._latest, str(error), state=state_after(error)), str(error)

    def _end(self, bundle: Bundle, line: str) -> None:
        """Replace the panel by its final form and remove the buttons: a saved notebook needs no widgets."""
        self._over, self._bundle = True, bundle
        if self._shown:
            update_display(bundle, raw=True, display_id=self._name)  # type: ignore[no-untyped-call]
            if self._buttons is not None:
                update_display(EMPTY, raw=True, display_id=f"{self._name}-buttons")  # type: ignore[no-untyped-call]
                self._buttons.end(line)
        self._changed.notify_all()


def _show(job: Job, *, carried: bool) -> None:
    with _lock:
        panel = _followed.get(job.id)
        full = panel is None and len(_followed) >= _MOST
        if panel is None and not full:
            panel = _followed[job.id] = JobPanel(job, carried=carried)
            panel.follow()
    if panel is not None:
        panel.show(getattr(job, "attached", ""))
        return
    now = job.snapshot()
    note = f"{background_note(now, carried=carried)}; not shown here, because {_MOST} other jobs are"
    display(view(now, note), raw=True)  # type: ignore[no-untyped-call]


def show_carried(job: Any) -> None:
    """Show a job that runs in the agent."""
    _show(job, carried=True)


def show_inline(job: Any) -> None:
    """Show a job that runs in this process."""
    _show(job, carried=False)


def _after_fork() -> None:
    """Forget the parent's threads; a child that shows a job follows it with its own thread."""
    _followed.clear()


os.register_at_fork(after_in_child=_after_fork)
