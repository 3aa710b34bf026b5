"""The pictures of README and docs: a notebook at work, and stores in the panel. ``make pictures`` saves them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from nbdata.demo.server import EmbeddedServer
from tests.browser.notebook import Notebook
from tests.browser.test_stores import opened, row
from tests.conftest import client_of
from tests.lab import Lab
from tests.slow import SlowProxy

Shoot = Callable[[Page, str], None]
# Runs before the notebook's first cell, so that no picture shows addresses and keys of a test server.
_SETUP = "import os\nos.environ.update({environment})\n"
_CELLS = (
    "%run setup.py\n%load_ext nbdata",
    "%ls s3://media/clips/ --max-files 3",
    "%pull s3://media/labels/ labels",
    "%pull s3://media/clips/ clips -b --max-rate 500k",
    "%transfers",
    "%pull s3://media/clip/ clip",
)


@pytest.fixture
def media(s3: EmbeddedServer) -> Iterator[None]:
    """A bucket whose name reads well, with clips and labels."""
    s3.create_bucket("media")
    client = client_of(s3)
    for number in range(60):
        client.put_object(Bucket="media", Key=f"clips/day-{number:02}.mp4", Body=os.urandom(400_000))
        client.put_object(
            Bucket="media", Key=f"labels/day-{number:02}.json", Body=json.dumps({"n": number}).encode()
        )
    yield
    client.delete_bucket(Bucket="media")
    client.close()


@pytest.mark.usefixtures("media")
@pytest.mark.long
def test_a_notebook_at_work_looks_as_in_the_pictures(
    context: BrowserContext, lab: Lab, slow: SlowProxy, shoot: Shoot
) -> None:
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    (lab.root / "setup.py").write_text(_SETUP.format(environment=json.dumps(environment)))
    with Notebook(context, lab, "train", *_CELLS) as notebook:
        panel, page = notebook.panel, notebook.panel.page
        cells = page.locator(".jp-CodeCell")
        expect(cells.nth(1)).to_contain_text("day-02.mp4")
        expect(cells.nth(2)).to_contain_text("60 fetched")
        running = cells.nth(3).locator(".jp-OutputArea")
        expect(running).to_contain_text(re.compile(r"[1-9]\d% · .*running", re.DOTALL))
        expect(cells.nth(4)).to_contain_text("running")
        expect(cells.nth(5)).to_contain_text("no such object or folder")
        expect(panel.root).to_contain_text("train.ipynb")
        expect(panel.root).to_contain_text("Retry")
        page.set_viewport_size({"width": 1280, "height": 860})
        page.evaluate("() => jupyterapp.commands.execute('application:toggle-left-area')")
        panel.width(300)
        for name in ("Dark", "Light"):
            panel.theme(name)
            page.locator(".jp-NotebookPanel .jp-WindowedPanel-outer").evaluate("e => e.scrollTo(0, 0)")
            shoot(page, f"notebook-{name.lower()}")
        running.get_by_role("button", name="Cancel").click()
        expect(running).to_contain_text("CANCELLED")


@pytest.mark.usefixtures("media")
@pytest.mark.long
def test_stores_in_the_panel_look_as_in_the_pictures(
    context: BrowserContext, s3: EmbeddedServer, tmp_path: Path, shoot: Shoot
) -> None:
    with Lab(tmp_path, environment=s3.environment()) as lab, Notebook(context, lab, "train", "") as notebook:
        panel, page = notebook.panel, notebook.panel.page
        page.set_viewport_size({"width": 1280, "height": 860})
        page.evaluate("() => jupyterapp.commands.execute('application:toggle-left-area')")
        section = opened(panel, "s3://media/")
        row(section, "labels/").locator(".nbd-Twist").click()
        row(section, "labels/").click()
        section.get_by_role("button", name="Pull here…: labels").click()
        tray = section.get_by_role("region", name="Pull here: labels")
        tray.get_by_role("textbox", name="Into").fill("/data/labels")
        expect(tray.get_by_role("status", name="The plan")).to_contain_text("60 objects")
        for name, theme, width in (("dark", "Dark", 420), ("light", "Light", 420), ("narrow", "Light", 250)):
            panel.theme(theme)
            panel.width(width)
            section.evaluate("section => section.scrollIntoView()")
            shoot(page, f"stores-{name}")
