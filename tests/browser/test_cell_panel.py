"""A job's panel below its cell, in a real JupyterLab: it updates itself, its buttons work, and it ends as a report."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.notebook import Notebook
from tests.lab import Lab
from tests.slow import SlowProxy

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]


def test_a_background_job_moves_in_its_cell_obeys_its_buttons_and_ends_as_a_report(
    context: BrowserContext, lab: Lab, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    url = put({f"part-{n:02}.bin": os.urandom(1_000_000 if n > 2 else 10_000) for n in range(40)})
    slow.pace(1_000_000)  # long enough for a browser on a busy machine
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    setting = f"import os\nos.environ.update({json.dumps(environment)})\n%load_ext nbdata"
    with Notebook(context, lab, "cell-panel", setting, f"%pull {url} {tmp_path}/data -b") as notebook:
        page = notebook.panel.page
        cell = page.locator(".jp-CodeCell").nth(1)
        said = cell.locator(".jp-OutputArea")
        expect(said).to_contain_text(re.compile(r"\d+% · .*running"))
        expect(said).to_contain_text(re.compile(r"[1-9]\d*/40 files"))
        buttons = {name: said.get_by_role("button", name=name) for name in ("Pause", "Resume", "Cancel")}
        expect(buttons["Cancel"]).to_be_enabled()
        expect(buttons["Resume"]).to_be_disabled()
        shoot(page, "cell-running")
        buttons["Pause"].click()
        expect(said).to_contain_text("paused")
        expect(buttons["Resume"]).to_be_enabled()
        shoot(page, "cell-paused")
        buttons["Resume"].click()
        expect(said).to_contain_text("running")
        slow.pace(40_000_000)
        expect(said).to_contain_text("40 fetched")
        expect(said.get_by_role("button")).to_have_count(0)
        shoot(page, "cell-done")
        page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    saved = json.loads((lab.root / "cell-panel.ipynb").read_text())["cells"][1]["outputs"]
    bundles = [output["data"] for output in saved if "data" in output]
    assert any("40 fetched" in "".join(bundle["text/plain"]) for bundle in bundles)
    assert not any("widget-view" in kind for bundle in bundles for kind in bundle)
