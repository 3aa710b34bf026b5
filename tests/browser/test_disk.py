"""The section Disks in a browser: what fills a disk, freeing it, its limit; and the files that a job could not do."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, expect

import nbdata
from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from tests.browser.feed import SentFeed, job
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel, expect_focus
from tests.browser.test_looks import contrasts, overflow
from tests.lab import Lab
from tests.waiting import wait_until

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]


@pytest.fixture(scope="module")
def lab(seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server that knows the store's credentials."""
    with Lab(tmp_path_factory.mktemp("lab"), environment=seaweedfs.environment()) as running:
        yield running


@pytest.fixture
def folder(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder below Lab's with a limit of 8 MB, so that the panel shows a gauge of its own for it."""
    made = lab.root / re.sub(r"\W", "-", request.node.name)[-20:]
    made.mkdir()
    nbdata.quota(str(lab.root), limit="8MB", quiet=True)
    yield made
    nbdata.quota(str(lab.root), limit="none", quiet=True)
    shutil.rmtree(made, ignore_errors=True)  # a cleanup removes what it empties


def gauge(panel: Panel, lab: Lab) -> Locator:
    """Return the gauge of the limit on Lab's folder."""
    cards = panel.root.get_by_role("region", name="Disks", exact=True).locator(".nbd-Gauge")
    return cards.filter(has_text="limit by").filter(has_text=str(lab.root))


def opened(panel: Panel, lab: Lab, button: str) -> Locator:
    """Press a button of the gauge, and return the tray below it."""
    card = gauge(panel, lab)
    card.get_by_role("button", name=button).click()
    tray = card.locator(".nbd-Tray")
    expect_focus(tray.get_by_role("heading"))
    return tray


def fill(root: Path, files: dict[str, int]) -> None:
    for path, size in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(os.urandom(size))


@pytest.mark.long
def test_what_fills_a_folder_is_shown_by_size_and_can_be_looked_into(
    panel: Panel, lab: Lab, folder: Path, put: Put, s3: EmbeddedServer, shoot: Shoot
) -> None:
    nbdata.Pull(put({"a.bin": os.urandom(400_000)}), folder / "pulled").run(quiet=True)
    fill(folder, {"mine/deep/b.bin": 900_000, "mine/c.bin": 100_000, "d.txt": 20_000})
    tray = opened(panel, lab, "What fills it")
    tray.get_by_role("button", name=f"{folder.name}: ").click()
    names = tray.get_by_role("list", name="Folders by size").locator(".nbd-Folder-name")
    expect(names).to_have_text(["mine", "pulled", "files in this folder"])
    expect(tray.get_by_role("button", name="pulled: ")).to_have_accessible_name(re.compile("401.* kB known$"))
    expect(tray).to_contain_text("scanned just now")
    expect(tray.locator(".nbd-Line code")).to_have_text(f"%du {folder}")
    shoot(panel.page, "fills")
    tray.get_by_role("button", name="mine: ").click()
    expect(names).to_have_text(["deep", "files in this folder"])
    fill(folder, {"mine/e/f.bin": 2_000_000})
    tray.get_by_role("button", name="Scan again").click()
    expect(names).to_have_text(["e", "deep", "files in this folder"])
    tray.get_by_role("button", name="Back to the folder above").click()
    expect(names).to_have_text(["mine", "pulled", "files in this folder"])
    panel.page.keyboard.press("Escape")
    expect(tray).to_have_count(0)
    expect_focus(gauge(panel, lab).get_by_role("button", name="What fills it"))
    assert panel.errors == []


def test_a_full_disk_is_freed_from_the_panel_and_then_the_next_pull_fits(
    folder: Path, panel: Panel, lab: Lab, put: Put, s3: EmbeddedServer, shoot: Shoot
) -> None:
    url = put({"old/a.bin": os.urandom(3_000_000), "new/b.bin": os.urandom(6_000_000)})
    nbdata.Pull(f"{url}old/", folder / "old").run(quiet=True)
    fill(folder, {"notes.txt": 50_000})
    refused = nbdata.Pull(f"{url}new/", folder / "new").start()
    panel.button(refused.id, "Free…").click()
    tray = gauge(panel, lab).locator(".nbd-Tray")
    expect_focus(tray.get_by_role("heading"))
    expect(tray.locator(".nbd-Line code")).to_have_text(f"%cleanup {lab.root} --stored")
    tray.get_by_role("button", name="Show the plan").click()
    expect(tray.get_by_role("list", name="The plan")).to_contain_text("3.0 MB can be fetched again")
    expect(tray.get_by_role("list", name="The plan")).to_contain_text("only here stay")
    shoot(panel.page, "free-plan")
    tray.get_by_role("button", name="Free 3.0 MB").click()
    expect(tray).to_contain_text("Freed 3.0 MB.")
    shoot(panel.page, "freed")
    assert sorted(os.listdir(folder)) == ["notes.txt"]
    panel.press(refused.id, "Retry")
    wait_until((folder / "new" / "b.bin").exists)
    assert panel.errors == []


@pytest.mark.long
def test_a_job_without_room_leads_to_a_disk_that_is_folded_away(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    disk = {
        "path": "/",
        "source": "the disk",
        "limit": 100,
        "used": 50,
        "reserved": 0,
        "free": 50,
        "here": True,
    }
    seen = {"root": "/work", "caches": [], "disks": [disk, {**disk, "path": "/mnt/big", "here": False}]}
    context.route("**/nbdata/api/disks*", lambda route: route.fulfill(json=seen))
    lacks = {"folder": "/mnt/big/data", "limited": False}
    SentFeed(
        context,
        job("full", state="FAILED", error="not enough space", lacks=lacks),
        job("bad", state="FAILED", error="no such bucket"),
    )
    panel = Panel.open(context, lab)
    panel.width(250)
    tray = panel.root.locator(".nbd-Gauge", has_text="/mnt/big").locator(".nbd-Tray")
    expect(panel.button("bad", "Retry")).to_be_visible()
    expect(panel.button("bad", "Free…")).to_have_count(0)
    shoot(panel.page, "lacks-room")
    panel.button("full", "Free…").press("Enter")
    expect_focus(tray.get_by_role("heading", name="Free"))
    tray.get_by_label("Caches of samples").check()
    panel.button("full", "Free…").click()
    expect_focus(tray.get_by_role("heading", name="Free"))
    expect(tray.get_by_label("Caches of samples")).to_be_checked()
    panel.page.keyboard.press("Escape")
    expect(tray).to_have_count(0)
    assert overflow(panel) == []
    assert panel.errors == []


@pytest.mark.long
def test_what_is_only_here_is_asked_for_twice(panel: Panel, lab: Lab, folder: Path, shoot: Shoot) -> None:
    fill(folder, {"mine.bin": 100_000})
    tray = opened(panel, lab, "Free…")
    tray.get_by_label("What is only here").check()
    expect(tray.locator(".nbd-Line code")).to_have_text(f"%cleanup {lab.root} --stored --only-here")
    tray.get_by_role("button", name="Show the plan").click()
    free = tray.get_by_role("button", name=re.compile("^Free [0-9.]+ [kM]B$"))
    free.click()
    asked = tray.get_by_role("alertdialog")
    expect(asked).to_contain_text(f"{folder.name}/mine.bin")
    shoot(panel.page, "only-here-first")
    asked.get_by_role("button", name="Keep them").click()
    expect_focus(free)
    free.click()
    asked.get_by_role("button", name="Delete them too").click()
    dialog = panel.page.get_by_role("dialog")
    expect(dialog).to_contain_text("will be lost for good")
    shoot(panel.page, "only-here-second")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert (folder / "mine.bin").exists()
    free.click()
    asked.get_by_role("button", name="Delete them too").click()
    dialog.get_by_role("button", name="Delete for good").click()
    expect(tray).to_contain_text("Freed ")
    assert not (folder / "mine.bin").exists()


@pytest.mark.long
def test_a_limit_is_changed_and_lifted_by_keys(panel: Panel, lab: Lab, folder: Path, shoot: Shoot) -> None:
    tray = opened(panel, lab, "Change limit…")
    keys = panel.page.keyboard
    field = tray.get_by_label("At most")
    expect(field).to_have_value("8MB")
    field.fill("much")
    expect(tray.get_by_role("alert")).to_contain_text("much")
    field.fill("40MB")
    expect(tray.locator(".nbd-Line code")).to_have_text(f"%quota {lab.root} --limit 40MB")
    shoot(panel.page, "limit")
    tray.get_by_role("button", name="Insert as cell").click()
    expect(tray).to_contain_text("no Python notebook is in front")
    assert panel.page.evaluate("() => navigator.clipboard.readText()") == f"%quota {lab.root} --limit 40MB"
    field.press("Enter")
    expect(tray).to_contain_text("The limit is set.")
    expect(gauge(panel, lab)).to_contain_text("free of 40.0 MB")
    fill(folder, {"mine.bin": 2_000_000})
    field.fill("500kB")
    field.press("Enter")
    said = tray.get_by_role("status").filter(has_text="The limit is set.")
    expect(said).to_contain_text(re.compile(r"2\.0 MB are used there already, .* allows 500\.0 kB"))
    shoot(panel.page, "limit-too-small")
    tray.get_by_role("button", name="Lift the limit").focus()
    keys.press("Enter")
    expect(gauge(panel, lab)).to_have_count(0)
    nbdata.quota(str(lab.root), limit="8MB", quiet=True)


@pytest.mark.long
@pytest.mark.usefixtures("folder", "s3")
def test_the_line_of_each_tray_is_put_into_a_new_cell(context: BrowserContext, lab: Lab) -> None:
    with Notebook(context, lab, "trays", "x = 1", run=False) as notebook:
        cell = notebook.panel.page.locator(".jp-NotebookPanel .jp-CodeCell .jp-mod-focused .cm-content")
        for button in ("What fills it", "Free…", "Change limit…"):
            tray = opened(notebook.panel, lab, button)
            line = tray.locator(".nbd-Line code")
            expect(line).to_contain_text("%")
            tray.get_by_role("button", name="Insert as cell").click()
            expect(cell).to_have_text(line.inner_text())
            expect_focus(cell)
        assert notebook.panel.errors == []


def failing(put: Put, root: Path) -> nbdata.Job:
    """Return a job that has ended: three of its four files failed."""
    url = put(dict.fromkeys(("=1+1", "b.bin", "c.bin", "fine"), b"x"))
    for name in ("=1+1", "b.bin", "c.bin"):
        (root / name).mkdir(parents=True)
    job = nbdata.Pull(url, root).start()
    with pytest.raises(nbdata.TransferFailed):
        job.wait()
    return job


def test_the_files_that_a_job_could_not_do_are_a_table_to_copy_and_save(
    panel: Panel, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    job = failing(put, tmp_path / "data")
    fold = panel.job(job.id).locator(".nbd-Failures")
    fold.get_by_role("button", name="Failed files").click()
    expect(fold.get_by_role("row")).to_have_count(4)
    expect(fold.get_by_role("row", name="b.bin")).to_contain_text("a folder with this name exists")
    shoot(panel.page, "failed-files")
    fold.get_by_role("button", name="Copy").click()
    copied = panel.page.evaluate("() => navigator.clipboard.readText()")
    assert {line.partition(":")[0] for line in copied.splitlines()} == {"=1+1", "b.bin", "c.bin"}
    with panel.page.expect_download() as download:
        fold.get_by_role("button", name="CSV").click()
    rows = [*csv.DictReader(io.StringIO(Path(download.value.path()).read_text()))]
    assert {row["file"] for row in rows} == {"'=1+1", "b.bin", "c.bin"}
    assert all(row["reason"] for row in rows)
    assert panel.errors == []


@pytest.mark.long
def test_a_table_of_files_says_what_it_leaves_out(panel: Panel, put: Put, tmp_path: Path) -> None:
    names = [f"{n:02}" for n in range(15)]
    for name in names:
        (tmp_path / "data" / name).mkdir(parents=True)
    job = nbdata.Pull(put(dict.fromkeys(names, b"x")), tmp_path / "data").start()
    expect(panel.job(job.id)).to_contain_text("Failed")
    stop_all(now=True)
    fold = panel.job(job.id).locator(".nbd-Failures")
    fold.get_by_role("button", name="Failed files").click()
    expect(fold).to_contain_text("10 of 15 are on record")


@pytest.mark.parametrize("theme", ["Light", "Dark", "Dark High Contrast"])
@pytest.mark.in_ci("Light")
def test_every_tray_can_be_read_and_used_by_everyone(
    panel: Panel, lab: Lab, folder: Path, put: Put, s3: EmbeddedServer, theme: str, shoot: Shoot
) -> None:
    nbdata.Pull(put({"a.bin": os.urandom(400_000)}), folder / "pulled").run(quiet=True)
    fill(folder, {f"a folder with a long name {'x' * 200}/b.bin": 300_000, "c.bin": 20_000})
    fill(folder, {"pulled/.nbdata/left.part": 100_000})
    failed = failing(put, folder / "failed")
    panel.theme(theme)
    panel.width(250)
    panel.page.set_viewport_size({"width": 1280, "height": 1600})
    panel.button(failed.id, "Failed files").click()
    for button in ("What fills it", "Free…", "Change limit…"):
        tray = opened(panel, lab, button)
        if button == "What fills it":
            tray.get_by_role("button", name=f"{folder.name}: ").click()
            expect(tray).to_contain_text("known")
        if button == "Free…":
            tray.get_by_label("What is only here").check()
            tray.get_by_role("button", name="Show the plan").click()
            tray.get_by_role("button", name=re.compile("^Free ")).click()
            expect(tray.get_by_role("alertdialog")).to_be_visible()
        expect(tray.locator(".nbd-Line code")).to_contain_text("%")
        shoot(panel.page, f"tray-{button[:4].lower()}-{theme.lower().replace(' ', '-')}")
        poor = {name: round(ratio, 2) for name, ratio in contrasts(panel).items() if ratio < 4.5}
        assert poor == {}
        found = Axe().run(panel.page, context="#nbdata-panel")
        assert found.violations_count == 0, found.generate_report()
        assert overflow(panel, inside=".nbd-Path, .nbd-Title, .nbd-Folder-name, .nbd-Table") == []


@pytest.mark.long
def test_a_disk_without_a_notebook_is_scanned_only_when_the_user_says_so(
    context: BrowserContext, panel: Panel, lab: Lab
) -> None:
    asked: list[str] = []
    panel.page.on("request", lambda sent: asked.append(sent.url))
    cards = panel.root.locator(".nbd-Gauge").filter(has_not_text="limit by")
    for n in range(cards.count()):
        card = cards.nth(n)
        if not card.is_visible():
            continue
        card.get_by_role("button", name="What fills it").click()
        tray = card.locator(".nbd-Tray")
        expect(tray).to_be_visible()
        begins = tray.locator(".nbd-Path").inner_text() == str(lab.root)
        expect(tray.get_by_role("button", name="Scan this folder")).to_have_count(0 if begins else 1)
        panel.page.keyboard.press("Escape")
    assert context
