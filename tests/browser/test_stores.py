"""The section Stores in a browser: browse a bucket, page on in a large one, and begin a pull."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, expect

from benchmarks.listing import ListServer
from nbdata.demo.server import EmbeddedServer
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel
from tests.browser.test_looks import contrasts, overflow
from tests.faults.gate import Gate
from tests.lab import Lab
from tests.waiting import wait_until

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]


@pytest.fixture(scope="module")
def lab(seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server that knows the store's credentials."""
    with Lab(tmp_path_factory.mktemp("lab"), environment=seaweedfs.environment()) as running:
        yield running


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server whose store has a million objects in one folder, and lists a page in its own time."""
    with ListServer(1_000_000) as server:
        environment = {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }
        with Lab(tmp_path_factory.mktemp("million"), environment=environment) as running:
            yield running


def stores(panel: Panel) -> Locator:
    """Open the section, and return it."""
    section = panel.root.get_by_role("region", name="Stores", exact=True)
    section.locator("summary").click()
    return section


def opened(panel: Panel, url: str) -> Locator:
    """Browse a URL, and return the section."""
    section = stores(panel)
    section.get_by_role("textbox", name="URL of a bucket or a folder").fill(url)
    section.get_by_role("button", name="Open", exact=True).click()
    return section


def row(section: Locator, name: str) -> Locator:
    return section.get_by_role("treeitem").filter(has=section.page.get_by_text(name, exact=True))


def names(section: Locator) -> Locator:
    return section.locator(".nbd-TreeName")


def scroll(section: Locator, to: str) -> None:
    section.get_by_role("tree").evaluate(f"tree => tree.scrollTop = {to}")


@pytest.mark.long
def test_a_bucket_is_browsed_and_a_folder_pulled_by_mouse(panel: Panel, lab: Lab, put: Put) -> None:
    data = os.urandom(50_000)
    url = put({"day/in/1.bin": data, "day/in/2.bin": b"2", "notes é.txt": b"12345"})
    section = opened(panel, url)
    expect(names(section)).to_have_text(["day/", "notes é.txt"])
    expect(row(section, "notes é.txt")).to_contain_text("5 B")
    expect(section.get_by_role("status").first).to_have_text("All 2 loaded")
    row(section, "day/").locator(".nbd-Twist").click()
    row(section, "in/").locator(".nbd-Twist").click()
    expect(names(section)).to_have_text(["day/", "in/", "1.bin", "2.bin", "notes é.txt"])
    row(section, "in/").click()
    section.get_by_role("button", name="Copy URL: in").click()
    wait_until(lambda: panel.page.evaluate("navigator.clipboard.readText()") == f"{url}day/in/")
    section.get_by_role("button", name="Pull here…: in").click()
    tray = section.get_by_role("region", name="Pull here: in")
    target = tray.get_by_role("textbox", name="Into")
    expect(target).to_have_value(f"{lab.root}/in")
    target.fill(f"{lab.root}/pulled")
    expect(tray.locator(".nbd-Line code")).to_have_text(f"%pull {url}day/in/ {lab.root}/pulled")
    expect(tray.get_by_role("status", name="The plan")).to_contain_text("2 objects, 50.0 kB")
    expect(tray.get_by_role("status", name="The plan")).to_contain_text("free after that")
    tray.get_by_role("button", name="Start").click()
    expect(tray).to_contain_text("Pulled.")
    assert (lab.root / "pulled" / "1.bin").read_bytes() == data
    assert sorted(os.listdir(lab.root / "pulled")) == ["1.bin", "2.bin"]
    expect(panel.root.get_by_role("region", name="Transfers", exact=True)).to_contain_text("pulled")
    assert panel.errors == []


@pytest.mark.long
def test_a_pull_is_inserted_into_the_notebook_and_runs_there(
    context: BrowserContext, lab: Lab, put: Put
) -> None:
    url = put({"day/1 a.bin": b"1"})
    folder = lab.root / "work"
    folder.mkdir()
    with Notebook(context, lab, "insert", "%load_ext nbdata") as notebook:
        panel, page = notebook.panel, notebook.panel.page
        page.evaluate("() => jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'work' })")
        section = opened(panel, f"{url}day/")
        row(section, "1 a.bin").click()
        section.get_by_role("button", name="Insert %pull: 1 a.bin").click()
        cell = page.locator(".jp-CodeCell").nth(1)
        expect(cell).to_contain_text(f"%pull '{url}day/1 a.bin' '{folder}/1 a.bin'")
        page.evaluate("() => void jupyterapp.commands.execute('notebook:run-cell')")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("1 fetched")
        assert (folder / "1 a.bin").read_bytes() == b"1"


@pytest.mark.long
def test_without_a_notebook_the_pull_is_copied(panel: Panel, put: Put) -> None:
    section = opened(panel, put({"a.bin": b"1"}))
    row(section, "a.bin").click()
    section.get_by_role("button", name="Insert %pull: a.bin").click()
    expect(section).to_contain_text("Its line is copied, because no Python notebook is in front.")


@pytest.mark.long
def test_people_begin_with_the_buckets_or_where_they_were(panel: Panel, lab: Lab, put: Put) -> None:
    url = put({"kept/a.bin": b"1"})
    section = stores(panel)
    expect(section).to_contain_text("Configured on this server: ")
    section.get_by_role("button", name="Buckets of this account").click()
    bucket = url.removeprefix("s3://")
    section.get_by_role("searchbox").fill(bucket.rstrip("/"))
    expect(names(section)).to_have_text([bucket])
    row(section, bucket).click()
    section.get_by_role("button", name="Go into: ").click()
    expect(names(section)).to_have_text(["kept/"])
    address = section.get_by_role("textbox", name="URL of a bucket or a folder")
    expect(address).to_have_value(url)
    section.get_by_role("button", name="Back to the folder above").click()
    expect(address).to_have_value("s3://")
    section.get_by_role("button", name="Back to the folder above").click()
    expect(section.get_by_role("list", name="Where to begin")).to_be_visible()
    assert panel.errors == []


@pytest.mark.long
def test_a_million_keys_come_by_pages_and_few_rows_are_drawn(
    context: BrowserContext, million: Lab, shoot: Shoot
) -> None:
    panel = Panel.open(context, million)
    asked: list[str] = []
    panel.page.on(
        "request", lambda request: asked.append(request.url) if "stores/list" in request.url else None
    )
    section = opened(panel, "s3://bench/many/")
    rows = section.get_by_role("treeitem")
    expect(names(section).first).to_have_text("object-000000000")
    assert len(asked) == 1
    for page in range(2, 6):
        scroll(section, "tree.scrollHeight")
        expect(section.get_by_role("status").first).to_have_text(f"The first {page},000 loaded")
    assert len(asked) == 5
    shoot(panel.page, "stores-million")
    scroll(section, "24 * 2500")
    expect(names(section).filter(has_text="object-000002500")).to_be_visible()
    assert rows.count() < 40
    section.get_by_role("searchbox").fill("4999")
    expect(section.get_by_role("status").first).to_have_text("1 of the first 5,000 loaded")
    expect(names(section)).to_have_text(["object-000004999"])
    assert len(asked) == 5  # nothing more is asked for what a filter hides
    section.get_by_role("button", name="Load more").click()
    expect(section.get_by_role("status").first).to_have_text("1 of the first 6,000 loaded")


@pytest.mark.long
def test_pages_that_were_forgotten_come_again_where_they_are_looked_at(
    context: BrowserContext, million: Lab
) -> None:
    panel = Panel.open(context, million)
    section = opened(panel, "s3://bench/many/")
    status = section.get_by_role("status").first
    for page in range(1, 102):
        expect(status).to_contain_text(f"{min(page, 100)},000 loaded")
        scroll(section, "tree.scrollHeight")
    expect(status).to_have_text("100,000 loaded")
    scroll(section, "0")
    expect(names(section).first).to_have_text("object-000000000")
    assert section.get_by_role("treeitem").count() < 40


@pytest.mark.long
def test_counting_and_summing_up_say_how_far_they_are(
    context: BrowserContext, tmp_path: Path, shoot: Shoot
) -> None:
    with ListServer(30_000, per_folder=30_000) as server, Gate(server.url) as gate:
        environment = {
            "AWS_ENDPOINT_URL": gate.url,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }
        with Lab(tmp_path, environment=environment) as lab:
            panel = Panel.open(context, lab)
            section = opened(panel, "s3://bench/")
            row(section, "many/").click()
            section.get_by_role("button", name="Pull here…: many").click()
            dialog = section.get_by_role("region", name="Pull here: many")
            planned = dialog.get_by_role("status", name="The plan")
            expect(planned).to_contain_text("at least 10,000 objects")
            gate.close(after=4_000_000)  # a page has some 300 kB
            dialog.get_by_role("button", name="Count all").click()
            expect(dialog.locator(".nbd-Far")).to_have_text(re.compile(r"^[\d,]+ listed so far$"))
            shoot(panel.page, "counting")
            gate.open()
            expect(planned).to_contain_text("30,000 objects")
            expect(dialog.locator(".nbd-Far")).to_have_count(0)
            gate.close(after=4_000_000)
            section.get_by_role("button", name="Sum up: many").click()
            tray = section.get_by_role("region", name="Sum up: many")
            expect(tray.locator(".nbd-Far")).to_have_text(re.compile(r"^[\d,]+ listed so far$"))
            gate.open()
            expect(tray).to_contain_text("30,000 objects")
            assert panel.errors == []


@pytest.mark.long
def test_names_that_begin_with_a_text_are_looked_up_in_the_store(panel: Panel, put: Put) -> None:
    url = put({f"{number:04}": b"" for number in range(1200)} | {"x-last": b"1"})
    section = opened(panel, url)
    expect(section.get_by_role("status").first).to_have_text("The first 1,000 loaded")
    section.get_by_role("searchbox").fill("x-")
    expect(section).to_contain_text("Load more")
    section.get_by_role("button", name="Jump to names that begin with “x-”").click()
    expect(names(section)).to_have_text(["x-last"])
    section.get_by_role("button", name="Show all names").click()
    expect(names(section).first).to_have_text("0000")
    section.get_by_role("combobox").select_option("largest first")
    expect(names(section).first).to_have_text("0000")
    section.get_by_role("textbox", name="URL of a bucket or a folder").fill(f"{url}000")
    section.get_by_role("button", name="Open", exact=True).click()
    expect(names(section)).to_have_text([f"{number:04}" for number in range(10)])


@pytest.mark.long
def test_the_tree_is_steered_by_keys_and_read_aloud(panel: Panel, put: Put) -> None:
    url = put({"a/1": b"", "a/2": b"", "b/3": b"", "c": b""})
    section = opened(panel, url)
    expect(names(section)).to_have_text(["a/", "b/", "c"])
    tree = section.get_by_role("tree")
    tree.focus()
    press = panel.page.keyboard.press

    def active() -> str:
        found = tree.evaluate(
            "tree => document.getElementById(tree.getAttribute('aria-activedescendant'))?.title"
        )
        return str(found)

    def after(key: str, name: str) -> None:
        press(key)
        wait_until(lambda: active() == name, why=lambda: f"{key} leads to {active()}, not {name}")

    wait_until(lambda: active() == "a/")
    after("ArrowDown", "b/")
    after("ArrowUp", "a/")
    press("ArrowRight")
    expect(names(section)).to_have_text(["a/", "1", "2", "b/", "c"])
    expect(row(section, "a/")).to_have_attribute("aria-expanded", "true")
    expect(row(section, "2")).to_have_attribute("aria-level", "2")
    expect(row(section, "2")).to_have_attribute("aria-posinset", "2")
    after("ArrowRight", "1")
    after("ArrowDown", "2")
    after("ArrowLeft", "a/")
    press("ArrowLeft")
    expect(names(section)).to_have_text(["a/", "b/", "c"])
    after("End", "c")
    after("Home", "a/")
    press("Enter")
    expect(row(section, "a/")).to_have_attribute("aria-expanded", "true")
    expect(section.get_by_role("group", name="a", exact=True)).to_be_visible()
    found = Axe().run(panel.page, context="#nbdata-panel")
    assert [one["id"] for one in found.response["violations"]] == []
    assert panel.errors == []


@pytest.mark.long
def test_why_a_store_cannot_be_listed_is_said_and_it_can_be_tried_again(
    context: BrowserContext, seaweedfs: EmbeddedServer, tmp_path: Path, put: Put
) -> None:
    url = put({"a": b"1"})
    with Gate(seaweedfs.url) as gate:
        environment = {**seaweedfs.environment(), "AWS_ENDPOINT_URL": gate.url}
        with Lab(tmp_path, environment=environment) as lab:
            panel = Panel.open(context, lab)
            section = opened(panel, "s3://there-is-no-such-bucket-here/")
            expect(section.get_by_role("alert")).to_contain_text("no such bucket")
            address = section.get_by_role("textbox", name="URL of a bucket or a folder")
            for wrong, why in (
                ("/etc/", "no URL of a store"),
                ("sftp://user:hunter22@127.0.0.1/", "a password or a signature"),
            ):
                address.fill(wrong)
                address.press("Enter")
                expect(section.get_by_role("alert")).to_contain_text(why)
            gate.close()
            address.fill(url)
            address.press("Enter")
            gate.wait_until_it_holds()
            expect(section).to_contain_text("Loading…")
            address.fill("s3://there-is-no-such-bucket-here/")
            gate.open()
            address.press("Enter")
            expect(section.get_by_role("alert")).to_contain_text("no such bucket")
            address.fill(url)
            address.press("Enter")
            expect(names(section)).to_have_text(["a"])


@pytest.mark.long
def test_names_are_text_and_hide_nothing(panel: Panel, put: Put) -> None:
    url = put({"<img src=x onerror=alert(1)>": b"", "a\u202egnp.exe": b""})
    section = opened(panel, url)
    expect(names(section)).to_have_text(["<img src=x onerror=alert(1)>", "a\\u202egnp.exe"])
    assert section.locator("img").count() == 0


@pytest.mark.parametrize(("theme", "width"), [("Light", 320), ("Dark", 480), ("Light", 240)])
@pytest.mark.long
def test_the_section_can_be_read_in_both_themes_and_at_any_width(
    panel: Panel, lab: Lab, put: Put, shoot: Shoot, theme: str, width: int
) -> None:
    files = {f"clips/2026/day-{n:02}.mp4": os.urandom(100_000 + n) for n in range(12)}
    url = put(
        {
            **files,
            "labels/day-00.json": b"{}",
            "a name that is too long for a narrow panel.parquet": bytes(9000),
        }
    )
    panel.theme(theme)
    panel.page.set_viewport_size({"width": 1280, "height": 1000})
    panel.width(width)
    section = opened(panel, url)
    row(section, "clips/").locator(".nbd-Twist").click()
    row(section, "2026/").locator(".nbd-Twist").click()
    row(section, "2026/").click()
    section.get_by_role("button", name="Pull here…: 2026").click()
    tray = section.get_by_role("region", name="Pull here: 2026")
    expect(tray.get_by_role("status", name="The plan")).to_contain_text("12 objects")
    section.scroll_into_view_if_needed()
    shoot(panel.page, f"stores-{theme.lower()}-{width}")
    assert overflow(panel, ".nbd-Path, .nbd-TreeName, .nbd-Tree") == []
    poor = {name: round(ratio, 2) for name, ratio in contrasts(panel).items() if ratio < 4.5}
    assert poor == {}


@pytest.mark.long
def test_a_folder_is_summed_up_and_a_row_is_dragged_into_a_cell(
    context: BrowserContext, lab: Lab, put: Put
) -> None:
    url = put({"day/a/1": bytes(5000), "day/a/2": bytes(5000), "day/b/3": b"1", "day/4 5.bin": b"12"})
    with Notebook(context, lab, "dragged", "%load_ext nbdata") as notebook:
        panel, page = notebook.panel, notebook.panel.page
        section = opened(panel, url)
        row(section, "day/").click()
        section.get_by_role("button", name="Sum up: day").click()
        tray = section.get_by_role("region", name="Sum up: day")
        expect(tray.locator(".nbd-Line code")).to_have_text(f"%du {url}day/")
        expect(tray.get_by_role("listitem")).to_have_text(
            ["4 objects, 10.0 kB", "a/: 2 objects, 10.0 kB", "b/: 1 object, 1 B"]
        )
        row(section, "day/").locator(".nbd-Twist").click()
        page.evaluate("() => jupyterapp.commands.execute('notebook:insert-cell-below')")
        cell = page.locator(".jp-CodeCell").nth(1)
        row(section, "4 5.bin").drag_to(cell.locator(".cm-content"))
        expect(cell.locator(".cm-content")).to_have_text(f"%pull '{url}day/4 5.bin'")
    assert panel.errors == []
