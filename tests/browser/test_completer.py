"""Tab in a cell of JupyterLab, in a notebook where nbdata is loaded."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, expect

from tests.browser.notebook import Notebook
from tests.lab import Lab


def test_tab_in_a_cell_completes_python_and_nbdatas_magics(context: BrowserContext, lab: Lab) -> None:
    loading = "import os\n%load_ext nbdata\nopen('loaded', 'w').write('loaded\\n')"
    with Notebook(context, lab, "completer", loading, "os.pa", "%pull --over") as notebook:
        assert notebook.said("loaded") == "loaded"
        page = notebook.panel.page
        box = page.locator(".jp-Completer")
        python = page.locator(".jp-CodeCell").nth(1).locator(".cm-content")
        python.click()
        page.keyboard.press("End")
        page.keyboard.press("Tab")
        expect(box.get_by_text("path", exact=True)).to_be_visible()
        expect(box.get_by_text("pardir", exact=True)).to_be_visible()
        page.keyboard.press("Escape")
        expect(box).to_be_hidden()
        ours = page.locator(".jp-CodeCell").nth(2).locator(".cm-content")
        ours.click()
        page.keyboard.press("End")
        page.keyboard.press("Tab")
        expect(box.get_by_text("--overwrite", exact=True)).to_be_visible()
        page.keyboard.press("Enter")
        expect(ours).to_have_text("%pull --overwrite")
