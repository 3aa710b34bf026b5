"""The button widgets below a background job's panel."""

from __future__ import annotations

from typing import Any

from ipywidgets.widgets import widget

from nbdata.notebook.buttons import Buttons
from nbdata.report import Snapshot


def test_a_kernel_keeps_the_widgets_of_the_last_jobs_only() -> None:
    nobody: Any = None

    def after(jobs: int) -> int:
        for _ in range(jobs):
            Buttons(nobody, Snapshot(id="1", verb="pull")).end("done")
        return len(widget._instances)

    assert after(30) == after(30)
