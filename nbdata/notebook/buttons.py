"""Pause, resume and cancel as ipywidgets under the panel of a background job; nothing where ipywidgets is missing.

Only buttons are widgets. What a job did is never told by one: a widget lives in its kernel, and in a saved notebook
it is nothing, or an error in its place. So the buttons have a display of their own, which is emptied when the job ends.

A click waits until the kernel is idle, as everything that a page asks of a kernel; so there are no buttons for the
foreground, where the stop button does it.
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

# What the display of the buttons holds when there are none.
EMPTY = {"text/plain": ""}
# Buttons of ended jobs whose widgets are kept: a page that was loaded again meanwhile reads in them how it ended.
_KEPT = 16

_USABLE = {
    "pause": ("QUEUED", "PLANNING", "RUNNING"),
    "resume": ("PAUSED",),
    "cancel": ("QUEUED", "PLANNING", "RUNNING", "PAUSED"),
}
_ICON = {"pause": "pause", "resume": "play", "cancel": "stop"}
_TIP = {
    "pause": "Hold the bytes until it is resumed",
    "resume": "Go on",
    "cancel": "End it; what was done is kept, and the command resumes",
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
        """What to display."""
        reference = {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}
        return {**EMPTY, "application/vnd.jupyter.widget-view+json": reference}

    def _handler(self, action: str) -> Callable[[Any], None]:
        def pressed(_: Any) -> None:
            try:
                getattr(self._job, action)()
            except NbdataError as error:  # beside the buttons, for a print would go into any cell
                self._said.value = escape(str(error))

        return pressed

    def update(self, snapshot: Snapshot) -> None:
        """Enable what makes sense now; silent unless the state has changed."""
        if snapshot.state != self._state:
            self._state = snapshot.state
            for action, button in self._buttons.items():
                button.disabled = snapshot.state not in _USABLE[action]

    def end(self, line: str) -> None:
        """There is nothing left to press."""
        self._said.value = escape(line)
        self._box.children = (self._said,)
        _ended.append(self)
        while len(_ended) > _KEPT:
            _ended.popleft().close()

    def close(self) -> None:
        """Take the widgets out of the page and the kernel, with those that say how they look."""
        for widget in (self._box, self._said, *self._buttons.values()):
            for each in (widget, widget.layout, getattr(widget, "style", None)):
                if each is not None:
                    each.close()
