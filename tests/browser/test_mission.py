"""The job of a data scientist by mouse alone: split volumes from a store through a small disk back into the store.

``make pictures`` saves its six steps for docs/panel.md.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from nbdata.demo.server import EmbeddedServer
from tests.browser.panel import Panel
from tests.browser.test_connections import connecting, fill
from tests.browser.test_dialogs import began, plan
from tests.browser.test_stores import names, row
from tests.conftest import client_of
from tests.lab import Lab

Shoot = Callable[[Page | Locator, str], None]

VOLUMES, FILES = 20, 40


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server that knows no store."""
    nothing = dict.fromkeys(
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_PROFILE"), ""
    )
    folder = tmp_path_factory.mktemp("lab")
    with Lab(folder, environment={**nothing, "NBDATA_STATE_DIR": str(folder / "state")}) as running:
        yield running


@pytest.fixture
def research(seaweedfs: EmbeddedServer) -> Iterator[dict[str, bytes]]:
    """A bucket with an archive in 20 volumes and the checksum file of each; returns the files of the archive."""
    files = {f"site/day-{n % 4}/{n:03}.bin": os.urandom(50_000) for n in range(FILES)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    whole = packed.getvalue()
    step = -(-len(whole) // VOLUMES)
    seaweedfs.create_bucket("research")
    client = client_of(seaweedfs)
    for n in range(VOLUMES):
        name, data = f"site.tar.gz.{n:03}", whole[n * step : (n + 1) * step]
        sums = f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}  {name}\n"
        client.put_object(Bucket="research", Key=f"volumes/{name}", Body=data)
        client.put_object(Bucket="research", Key=f"volumes/{name}.md5", Body=sums.encode())
    yield files
    client.delete_bucket(Bucket="research")
    client.close()


@pytest.mark.long
def test_volumes_are_pulled_checked_and_unpacked_into_the_store_by_mouse_alone(
    panel: Panel, lab: Lab, seaweedfs: EmbeddedServer, research: dict[str, bytes], shoot: Shoot
) -> None:
    page = panel.page
    page.set_viewport_size({"width": 1100, "height": 1000})
    panel.theme("Light")
    panel.width(420)

    connections, form = connecting(panel)
    fill(form, seaweedfs, "s3://research/", Access_key="AKIAIOSFODNN7EXAMPLE")
    _part(connections, shoot, "mission-1-connect")
    fill(form, seaweedfs, "s3://research/")
    form.get_by_role("button", name="Connect", exact=True).click()
    expect(connections).to_contain_text("lab-data is kept")

    connections.get_by_role("button", name="Browse: lab-data").click()
    connections.locator("summary").click()
    stores = panel.root.get_by_role("region", name="Stores", exact=True)
    row(stores, "volumes/").locator(".nbd-Twist").click()
    expect(names(stores).nth(1)).to_have_text("site.tar.gz.000")
    expect(stores.get_by_role("status").first).to_have_text("All 41 loaded")
    row(stores, "volumes/").click()
    _part(stores, shoot, "mission-2-browse")

    dialog = began(stores, "Pull here…", "volumes/")
    expect(plan(dialog)).to_contain_text("40 objects, 2.0 MB")
    _part(dialog, shoot, "mission-3-pull")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Pulled.")
    stores.locator("summary").first.click()

    dialog = wished(panel, "volumes", "Check…")
    expect(plan(dialog)).to_be_visible()
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Checked. 20 ok")
    _part(dialog, shoot, "mission-4-check")
    page.keyboard.press("Escape")

    dialog = wished(panel, "volumes", "Unpack…")
    dialog.get_by_role("combobox", name="Into").fill("s3://research/files/")
    dialog.get_by_label("Through").select_option("lab-data")
    expect(plan(dialog)).to_contain_text("20 volumes")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Unpacked. 40 extracted")
    _part(dialog, shoot, "mission-5-unpack")
    page.keyboard.press("Escape")

    disks = panel.root.get_by_role("region", name="Disks", exact=True)
    disks.get_by_role("button", name="Free…").first.click()
    tray = disks.get_by_role("region", name="Free: ")
    tray.get_by_role("button", name="Show the plan").click()
    expect(tray.get_by_role("list", name="The plan")).to_contain_text("can be fetched again")
    _part(tray, shoot, "mission-6-free")
    tray.get_by_role("button", name=re.compile("^Free [0-9.]+ MB$")).click()
    expect(tray).to_contain_text("Freed 2.1 MB.")
    assert [path.name for path in lab.root.rglob("*")] == []
    stored = client_of(seaweedfs)
    for name, data in research.items():
        found = stored.get_object(Bucket="research", Key=f"files/{name}")["Body"].read()
        assert found == data
    stored.close()
    assert panel.errors == []


def wished(panel: Panel, name: str, item: str) -> Locator:
    """Choose an item of the context menu of Lab's file browser; return the dialog."""
    panel.page.locator(".jp-DirListing-item").filter(has_text=name).click(button="right")
    panel.page.get_by_role("menuitem", name=item).click()
    return panel.root.get_by_role("region", name=f"{item.rstrip('…')}: {name}")


def _part(section: Locator, shoot: Shoot, name: str) -> None:
    """Save a picture of a part of the panel alone, which is smaller than that of a page."""
    section.page.evaluate("() => document.activeElement.blur()")
    section.scroll_into_view_if_needed()
    shoot(section, name)
