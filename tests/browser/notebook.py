"""A notebook that is open in JupyterLab, and its kernel."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import BrowserContext

from tests.browser.panel import Panel
from tests.lab import Lab
from tests.waiting import wait_until

__all__ = ["Notebook"]


class Notebook:
    """Runs `cells` in order in a new notebook, and ends its kernel at the end; a context manager.

    With ``run=False`` it only opens the notebook, and waits until its kernel is idle.

    Attributes
    ----------
    panel : Panel
        The panel of the tab that shows the notebook.
    """

    def __init__(self, context: BrowserContext, lab: Lab, name: str, *cells: str, run: bool = True) -> None:
        self._lab, self._path, self._run = lab, f"{name}.ipynb", run
        document = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "cells": [
                {
                    "cell_type": "code",
                    "id": f"cell-{n}",
                    "metadata": {},
                    "source": source,
                    "outputs": [],
                    "execution_count": None,
                }
                for n, source in enumerate(cells)
            ],
        }
        (lab.root / self._path).write_text(json.dumps(document))
        self.panel = Panel.open(context, lab, f"lab/tree/{self._path}")

    def __enter__(self) -> Notebook:
        page = self.panel.page
        page.wait_for_function(
            "() => jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
        )
        if self._run:
            page.evaluate("() => void jupyterapp.commands.execute('notebook:run-all-cells')")
        return self

    def __exit__(self, *exc: object) -> None:
        for session in self._lab.ask("api/sessions").json():
            if session["path"] == self._path:
                self._lab.ask(f"api/sessions/{session['id']}", "DELETE")

    def said(self, file: str) -> str:
        """Return what a cell has written into a file beside the notebook."""
        path = Path(self._lab.root, file)
        wait_until(
            lambda: path.exists() and path.read_text().endswith("\n"),
            why=lambda: f"no cell wrote {file}: {self._lab.log.read_text()[-2000:]}",
        )
        return path.read_text().strip()
