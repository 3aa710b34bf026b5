"""The pictures of README and docs: a notebook at work, and stores in the panel. ``make pictures`` saves them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from nbdata.demo.server import EmbeddedServer
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel
from tests.browser.test_stores import opened, row
from tests.conftest import client_of
from tests.lab import Lab
from tests.slow import SlowProxy

Shoot = Callable[[Page | Locator, str], None]
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
    cells = ("%load_ext nbdata", "%ls s3://media/clips/ --max-files 3", "%pull s3://media/clips/ clips")
    with (
        Lab(tmp_path, environment=s3.environment()) as lab,
        Notebook(context, lab, "train", *cells) as notebook,
    ):
        panel, page = notebook.panel, notebook.panel.page
        expect(page.locator(".jp-CodeCell").nth(2)).to_contain_text("60 fetched")
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


@pytest.mark.usefixtures("media")
@pytest.mark.long
def test_previews_connections_and_dialogs_look_as_in_the_pictures(
    context: BrowserContext, s3: EmbeddedServer, tmp_path: Path, shoot: Shoot
) -> None:
    client = client_of(s3)
    rows = "".join(f"day-{n:02}.mp4,{n % 3},{0.9 - n / 100:.2f}\n" for n in range(12))
    client.put_object(Bucket="media", Key="labels.csv", Body=f"clip,class,score\n{rows}".encode())
    client.close()
    known = s3.environment()
    kept = {
        "name": "media",
        "kind": "s3",
        "place": "s3://media/",
        "options": {
            "endpoint_url": known["AWS_ENDPOINT_URL"],
            "key": known["AWS_ACCESS_KEY_ID"],
            "secret": known["AWS_SECRET_ACCESS_KEY"],
        },
    }
    environment = {**known, "NBDATA_STATE_DIR": str(tmp_path / "state")}
    folder = tmp_path / "lab"
    folder.mkdir()
    with Lab(folder, environment=environment) as lab:
        answer = lab.ask("nbdata/api/connections/keep", "POST", body=json.dumps(kept).encode())
        assert answer.status == 200, answer
        panel = Panel.open(context, lab)
        panel.page.set_viewport_size({"width": 1100, "height": 900})
        panel.theme("Light")
        panel.width(420)
        section = opened(panel, "s3://media/")
        row(section, "labels.csv").click()
        section.get_by_role("button", name="Preview: labels.csv").click()
        expect(section.get_by_role("table")).to_contain_text("day-11.mp4")
        _part(section, shoot, "panel-preview")
        row(section, "clips/").click()
        section.get_by_role("button", name="Copy…: clips").click()
        dialog = section.get_by_role("region", name="Copy: clips")
        dialog.get_by_role("combobox", name="Into").fill("s3://mirror/clips/")
        dialog.get_by_text("Filters and verification").click()
        dialog.get_by_label("Only", exact=True).fill("day-0*.mp4")
        dialog.get_by_role("combobox", name="Into").fill("s3://media/copy/")
        expect(dialog.get_by_role("status", name="The plan")).to_contain_text("10 objects")
        _part(section, shoot, "panel-dialog")
        section.locator("summary").first.click()
        connections = panel.root.get_by_role("region", name="Connections", exact=True)
        connections.locator("summary").click()
        connections.get_by_role("button", name="Connect…").click()
        _part(connections, shoot, "panel-connections")


def _part(section: Locator, shoot: Shoot, name: str) -> None:
    """Save a picture of one section of the panel alone, which is smaller than that of a page."""
    section.page.evaluate("() => document.activeElement.blur()")
    section.scroll_into_view_if_needed()
    shoot(section, name)
