"""Buttons to pause, resume and cancel a background job, as ipywidgets; none if ipywidgets is not installed.

Only buttons are widgets; results never are. A widget lives in its kernel, and a saved notebook shows nothing or an
error in its place. So the buttons have a display of their own, which is emptied when the job ends.

A click waits until the kernel is idle, like every request from a page to a kernel. So there are no buttons for
foreground jobs; Jupyter's stop button cancels these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from html import escape
from typing import Any

from nbdata.errors import NbdataError
from nbdata.protocols import Job
from nbdata.report import Snapshot

__all__ = ["EMPTY", "Buttons"]

# Content of the buttons' display when there are no buttons.
EMPTY = {"text/plain": ""}
# Number of ended jobs whose widgets are kept, so that a page that was reloaded meanwhile can read how they ended.
_KEPT = 16

_USABLE = {
    "pause": ("QUEUED", "PLANNING", "RUNNING"),
    "resume": ("PAUSED",),
    "cancel": ("QUEUED", "PLANNING", "RUNNING", "PAUSED"),
}
_ICON = {"pause": "pause", "resume": "play", "cancel": "stop"}
_TIP = {
    "pause": "Stop transferring until you resume the job",
    "resume": "Continue the job",
    "cancel": "Stop the job; finished work is kept, and running the command again resumes it",
}

_ended: deque[Buttons] = deque()


class Buttons:
    """The buttons of one job.

    Raises
    ------
    ImportError
        If ipywidgets is not installed.
    """

    def __init__(self, job: Job, snapshot: Snapshot) -> None:
        import ipywidgets

        self._job = job
        self._state = snapshot.state
        self._buttons = {
            action: ipywidgets.Button(
                description=action.capitalize(),
                icon=_ICON[action],
                tooltip=_TIP[action],
                disabled=snapshot.state not in usable,
                layout=ipywidgets.Layout(width="auto", flex="0 0 auto"),
            )
            for action, usable in _USABLE.items()
        }
        for action, button in self._buttons.items():
            button.on_click(self._handler(action))
        self._said = ipywidgets.HTML()
        self._box = ipywidgets.HBox([*self._buttons.values(), self._said])

    @property
    def bundle(self) -> dict[str, Any]:
        """The bundle to display."""
        reference = {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}
        return {**EMPTY, "application/vnd.jupyter.widget-view+json": reference}

    def _handler(self, action: str) -> Callable[[Any], None]:
        def pressed(_: Any) -> None:
            try:
                getattr(self._job, action)()
            except NbdataError as error:  # shown beside the buttons, because a print could go into any cell
                self._said.value = escape(str(error))

        return pressed

    def update(self, snapshot: Snapshot) -> None:
        """Enable the buttons that apply to the current state; does nothing if the state is unchanged."""
        if snapshot.state != self._state:
            self._state = snapshot.state
            for action, button in self._buttons.items():
                button.disabled = snapshot.state not in _USABLE[action]

    def end(self, line: str) -> None:
        """Disable the buttons of an ended job."""
        self._said.value = escape(line)
        self._box.children = (self._said,)
        _ended.append(self)
        while len(_ended) > _KEPT:
            _ended.popleft().close()

    def close(self) -> None:
        """Remove the widgets, with their layouts and styles, from the page and the kernel."""
        for widget in (self._box, self._said, *self._buttons.values()):
            for each in (widget, widget.layout, getattr(widget, "style", None)):
                if each is not None:
                    each.close()
