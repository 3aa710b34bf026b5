"""The section Connections in a browser: connect, browse through it, and remove it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from nbdata.demo.server import EmbeddedServer
from tests.browser.panel import Panel, expect_focus
from tests.browser.test_looks import contrasts, overflow
from tests.browser.test_stores import names, row
from tests.lab import Lab

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server without credentials of a store, and with a state folder of its own."""
    folder = tmp_path_factory.mktemp("lab")
    nothing = dict.fromkeys(
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_PROFILE"), ""
    )
    with Lab(folder, environment={**nothing, "NBDATA_STATE_DIR": str(folder / "state")}) as running:
        yield running


def connecting(panel: Panel) -> tuple[Locator, Locator]:
    """Open the section and its form, and return both."""
    section = panel.root.get_by_role("region", name="Connections", exact=True)
    section.locator("summary").click()
    expect(section).to_contain_text("No connection is kept.")
    section.get_by_role("button", name="Connect…").click()
    return section, section.get_by_role("region", name="Connect: a store")


def fill(form: Locator, server: EmbeddedServer, place: str, **more: str) -> None:
    known = server.environment()
    fields = {
        "Name": "lab-data",
        "Endpoint": known["AWS_ENDPOINT_URL"],
        "URL to begin with": place,
        "Access key": known["AWS_ACCESS_KEY_ID"],
        "Secret key": known["AWS_SECRET_ACCESS_KEY"],
    }
    for label, value in {**fields, **{name.replace("_", " "): text for name, text in more.items()}}.items():
        form.get_by_label(label, exact=True).fill(value)


def test_a_store_is_connected_browsed_and_pulled_from_by_mouse(
    panel: Panel, lab: Lab, seaweedfs: EmbeddedServer, put: Put, shoot: Shoot
) -> None:
    url = put({"day/a.txt": b"12345"})
    section, form = connecting(panel)
    fill(form, seaweedfs, url, Secret_key="hunter2hunter2hunter2")
    form.get_by_role("button", name="Connect", exact=True).click()
    expect(form.get_by_role("alert")).to_be_visible()
    expect(form.get_by_role("alert")).not_to_contain_text("hunter2")
    form.get_by_label("Secret key", exact=True).fill(seaweedfs.environment()["AWS_SECRET_ACCESS_KEY"])
    form.get_by_role("button", name="Connect", exact=True).click()
    expect(section).to_contain_text("lab-data is kept")
    expect(form).to_have_count(0)
    section.get_by_role("button", name="Browse: lab-data").click()
    stores = panel.root.get_by_role("region", name="Stores", exact=True)
    expect(stores).to_contain_text("Through the connection lab-data")
    expect(names(stores)).to_have_text(["day/"])
    row(stores, "day/").click()
    stores.get_by_role("button", name="Pull here…: day").click()
    tray = stores.get_by_role("region", name="Pull here: day")
    line = f"%pull {url}day/ {lab.root}/day --option connection=lab-data"
    expect(tray.locator(".nbd-Line code")).to_have_text(line)
    tray.get_by_role("button", name="Start").click()
    expect(tray).to_contain_text("Pulled.")
    assert (lab.root / "day" / "a.txt").read_bytes() == b"12345"
    secret = seaweedfs.environment()["AWS_SECRET_ACCESS_KEY"]
    kept = panel.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert secret not in kept
    assert secret not in panel.page.content()
    section.get_by_role("button", name="Remove: lab-data").click()
    section.get_by_role("button", name="Remove it: lab-data").click()
    expect(section).to_contain_text("No connection is kept.")


@pytest.mark.long
def test_the_form_is_steered_by_keys(panel: Panel, seaweedfs: EmbeddedServer, put: Put) -> None:
    url = put({"a.txt": b"1"})
    section, form = connecting(panel)
    fill(form, seaweedfs, url)
    form.get_by_label("Secret key", exact=True).press("Enter")
    expect(section).to_contain_text("lab-data is kept")
    expect_focus(section.get_by_role("button", name="Connect…"))
    section.get_by_role("button", name="Connect…").press("Enter")
    form.get_by_label("Kind").select_option("Amazon S3")
    form.get_by_label("Region", exact=True).fill("eu-west-1")
    expect(form.get_by_label("Endpoint", exact=True)).to_have_attribute(
        "placeholder", "https://s3.eu-west-1.amazonaws.com"
    )
    form.get_by_label("Public data: no key").check()
    expect(form.get_by_label("Secret key", exact=True)).to_have_count(0)
    found = Axe().run(panel.page, context="#nbdata-panel")
    assert [one["id"] for one in found.response["violations"]] == []
    panel.page.keyboard.press("Escape")
    expect(form).to_have_count(0)


@pytest.mark.parametrize(("theme", "width"), [("Light", 360), ("Dark", 420), ("Light", 240)])
@pytest.mark.long
def test_the_section_can_be_read_in_both_themes_and_at_any_width(
    panel: Panel, seaweedfs: EmbeddedServer, put: Put, shoot: Shoot, theme: str, width: int
) -> None:
    url = put({"a.txt": b"1"})
    panel.theme(theme)
    panel.page.set_viewport_size({"width": 1280, "height": 1100})
    panel.width(width)
    section, form = connecting(panel)
    fill(form, seaweedfs, url)
    form.get_by_role("button", name="Connect", exact=True).click()
    expect(section).to_contain_text("lab-data is kept")
    section.get_by_role("button", name="Connect…").click()
    fill(form, seaweedfs, "s3://there-is-no-such-bucket-here/", Name="another")
    form.get_by_role("button", name="Connect", exact=True).click()
    expect(form.get_by_role("alert")).to_contain_text("no such bucket")
    section.scroll_into_view_if_needed()
    shoot(panel.page, f"connections-{theme.lower()}-{width}")
    assert overflow(panel, ".nbd-Path, .nbd-TreeName, .nbd-Tree") == []
    poor = {name: round(ratio, 2) for name, ratio in contrasts(panel).items() if ratio < 4.5}
    assert poor == {}
