"""The dialogs of the verbs in a browser: from the tree of a store, and from Lab's file browser."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, Request, expect

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.agent.rig import fill, tmpfs
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel, expect_focus
from tests.browser.test_looks import contrasts, overflow
from tests.browser.test_stores import names, opened, row
from tests.faults.gate import Gate
from tests.lab import Lab
from tests.waiting import wait_until

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]
Stored = Callable[[str], dict[str, bytes]]


@pytest.fixture(scope="module")
def lab(seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server that knows the store's credentials."""
    with Lab(tmp_path_factory.mktemp("lab"), environment=seaweedfs.environment()) as running:
        yield running


def archive(files: dict[str, bytes]) -> bytes:
    """Return a tar.gz of these files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def began(section: Locator, button: str, name: str) -> Locator:
    """Choose a row and open a dialog of it; return the dialog."""
    row(section, name).click()
    bare = name.rstrip("/")
    section.get_by_role("button", name=f"{button}: {bare}", exact=True).click()
    return section.get_by_role("region", name=f"{button.rstrip('…')}: {bare}")


def plan(dialog: Locator) -> Locator:
    return dialog.get_by_role("status", name="The plan")


def line(dialog: Locator) -> Locator:
    return dialog.locator(".nbd-Line code")


def keys(url: str) -> list[str]:
    report = nbdata.ls(url, recursive=True, quiet=True)
    return sorted(row.path for row in report.rows)


@pytest.mark.long
def test_objects_are_copied_by_a_dialog_whose_plan_follows_its_filters(panel: Panel, put: Put) -> None:
    url = put({"day/a.jpg": b"12345", "day/b.txt": b"1", "day/in/c.jpg": b"123"})
    dialog = began(opened(panel, url), "Copy…", "day/")
    expect_focus(dialog.get_by_role("heading", name="Copy"))
    target = dialog.get_by_role("combobox", name="Into")
    expect(dialog.get_by_role("button", name="Start")).to_have_attribute("aria-disabled", "true")
    target.fill(f"{url}copied/")
    expect(plan(dialog)).to_contain_text("3 objects, 9 B")
    dialog.get_by_text("Filters and verification").click()
    dialog.get_by_label("Only", exact=True).fill("*.jpg")
    expect(plan(dialog)).to_contain_text("2 objects, 8 B")
    dialog.get_by_label("Without").fill("in/**")
    expect(plan(dialog)).to_contain_text("1 object, 5 B")
    dialog.get_by_label("Verify").select_option("md5")
    said = f"%copy {url}day/ {url}copied/ --include '*.jpg' --exclude 'in/**' --verify md5"
    expect(line(dialog)).to_have_text(said)
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Copied.")
    assert keys(f"{url}copied/") == ["a.jpg"]
    expect(plan(dialog)).to_have_count(0)  # it is true no more
    panel.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert panel.errors == []


@pytest.mark.long
def test_a_folder_of_the_file_browser_is_pushed_checked_and_an_archive_unpacked(
    panel: Panel, lab: Lab, put: Put
) -> None:
    url = put({"kept": b"1"})
    page = panel.page
    folder = lab.root / "results é"
    folder.mkdir()
    (folder / "1.bin").write_bytes(os.urandom(5000))
    (lab.root / "site.tar.gz").write_bytes(archive({"a/b.txt": b"12345"}))
    page.evaluate("() => jupyterapp.commands.execute('filebrowser:go-to-path', { path: '' })")
    page.evaluate("() => jupyterapp.commands.execute('filebrowser:refresh')")

    def wished(name: str, item: str) -> None:
        page.locator(".jp-DirListing-item").filter(has_text=name).click(button="right")
        page.get_by_role("menuitem", name=item).click()

    wished("results é", "Push to a store…")
    dialog = panel.root.get_by_role("region", name="Push to a store: results é")
    expect_focus(dialog.get_by_role("heading", name="Push to a store"))
    dialog.get_by_role("combobox", name="Into").fill(f"{url}out/")
    expect(line(dialog)).to_have_text(f"%push '{folder}' {url}out/")
    expect(plan(dialog)).to_contain_text("1 object, 5.0 kB")
    dialog.get_by_role("combobox", name="Into").press("Enter")
    expect(dialog).to_contain_text("Pushed.")
    assert keys(f"{url}out/") == ["1.bin"]

    wished("results é", "Check…")
    dialog = panel.root.get_by_role("region", name="Check: results é")
    expect(dialog.get_by_role("alert")).to_contain_text("no checksum")
    dialog.get_by_role("combobox", name="Against").fill(f"{url}out/")
    expect(plan(dialog)).to_contain_text("1 file to check, 5.0 kB")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("1 ok")
    (folder / "1.bin").write_bytes(os.urandom(5000))
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("alert")).to_contain_text("1 of 1 does not match")

    wished("site.tar.gz", "Unpack…")
    dialog = panel.root.get_by_role("region", name="Unpack: site.tar.gz")
    target = dialog.get_by_role("combobox", name="Into")
    expect(target).to_have_value(f"{lab.root}/site")
    expect(plan(dialog)).to_contain_text("1 volume, ")
    dialog.get_by_role("button", name="Choose a folder…").click()
    chooser = page.get_by_role("dialog")
    chooser.locator(".jp-DirListing-item").filter(has_text="results é").click()
    chooser.get_by_role("button", name="Select").click()
    expect(target).to_have_value(f"{folder}/site")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Unpacked.")
    assert (folder / "site" / "a" / "b.txt").read_bytes() == b"12345"
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert [error for error in panel.errors if "404" not in error] == []  # a plan without checksums is one


@pytest.mark.long
def test_a_folder_of_a_store_is_packed_and_the_archive_unpacked_in_the_store(panel: Panel, put: Put) -> None:
    url = put({"day/a.txt": b"12345", "day/b.txt": b"1"})
    section = opened(panel, url)
    dialog = began(section, "Pack…", "day/")
    dialog.get_by_role("combobox", name="Into").fill(f"{url}packed/day.tar.gz")
    expect(plan(dialog)).to_contain_text("2 members in 1 volume")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Packed.")
    section.get_by_role("button", name="List again").click()
    row(section, "packed/").locator(".nbd-Twist").click()
    dialog = began(section, "Unpack…", "day.tar.gz")
    dialog.get_by_role("combobox", name="Into").fill(f"{url}again/")
    expect(plan(dialog)).to_contain_text("1 volume, ")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Unpacked.")
    assert keys(f"{url}again/") == ["a.txt", "b.txt"]
    assert panel.errors == []


@pytest.mark.long
def test_several_rows_and_several_files_are_taken_by_one_line(
    panel: Panel, lab: Lab, put: Put, shoot: Shoot
) -> None:
    url = put({"day/1.bin": b"1", "day/a [1].bin": b"12", "day/a 1.bin": b"x", "day/in/2.bin": b"123"})
    section = opened(panel, f"{url}day/")
    expect(names(section)).to_have_text(["1.bin", "a 1.bin", "a [1].bin", "in/"])
    row(section, "a [1].bin").click()
    row(section, "in/").click(modifiers=["ControlOrMeta"])
    expect(section).to_contain_text("1 folder · 1 object, 2 B")
    section.get_by_role("button", name="Pull here…: 2 entries").click()
    dialog = section.get_by_role("region", name="Pull here: 2 entries")
    target = lab.root / "several"
    dialog.get_by_role("textbox", name="Into").fill(str(target))
    expect(line(dialog)).to_have_text(f"%pull {url}day/ {target} --include '/a [[]1].bin' --include /in")
    expect(plan(dialog)).to_contain_text("2 objects, 5 B")
    section.scroll_into_view_if_needed()
    shoot(panel.page, "several")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Pulled.")
    assert sorted(path.name for path in target.rglob("*")) == ["2.bin", "a [1].bin", "in"]

    row(section, "1.bin").click()
    row(section, "in/").click(modifiers=["Shift"])
    expect(section.get_by_role("group", name="4 entries")).to_be_visible()
    section.get_by_role("tree").press("ArrowUp")
    section.get_by_role("tree").press("Shift+ArrowUp")
    expect(section.get_by_role("group", name="2 entries")).to_be_visible()

    page = panel.page
    page.evaluate("() => jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'several' })")
    files = page.locator(".jp-DirListing-item")
    files.filter(has_text="a [1].bin").click()
    files.filter(has=page.get_by_text("in", exact=True)).click(modifiers=["ControlOrMeta"])
    box, onto = files.filter(has_text="a [1].bin").bounding_box(), row(section, "in/").bounding_box()
    assert box is not None
    assert onto is not None
    page.mouse.move(box["x"] + 40, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(onto["x"] + 20, onto["y"] + 60, steps=10)
    page.mouse.move(onto["x"] + 40, onto["y"] + 8, steps=5)
    shoot(page, "dropping")
    page.mouse.up()
    dialog = panel.root.get_by_role("region", name="Push to a store: a [1].bin and 1 more")
    expect(dialog.get_by_role("combobox", name="Into")).to_have_value(f"{url}day/in/")
    expect(plan(dialog)).to_contain_text("2 objects, 5 B")
    shoot(page, "dropped")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Pushed.")
    assert keys(f"{url}day/in/") == ["2.bin", "a [1].bin", "in/2.bin"]
    assert panel.errors == []


@pytest.mark.long
def test_the_line_of_a_dialog_is_inserted_into_the_notebook_and_is_not_run(
    context: BrowserContext, lab: Lab, put: Put
) -> None:
    url = put({"day/a.bin": b"1"})
    with Notebook(context, lab, "copies", "%load_ext nbdata") as notebook:
        dialog = began(opened(notebook.panel, url), "Copy…", "day/")
        dialog.get_by_role("combobox", name="Into").fill(f"{url}to/")
        dialog.get_by_role("button", name="Insert as cell").click()
        cell = notebook.panel.page.locator(".jp-CodeCell").nth(1)
        expect(cell).to_contain_text(f"%copy {url}day/ {url}to/")
    assert keys(url) == ["day/a.bin"]


@pytest.mark.long
def test_nothing_is_deleted_before_settings_allow_it_and_the_user_is_sure(panel: Panel, put: Put) -> None:
    url = put({"day/<b>1</b>.bin": b"12345", "day/2.txt": b"1", "kept": b"1"})
    section = opened(panel, url)
    row(section, "day/").click()
    button = section.get_by_role("button", name="Delete…: day")
    expect(button).to_have_attribute("aria-disabled", "true")
    button.press("Enter")
    expect(section).to_contain_text("Deleting in stores is off")
    section.get_by_role("button", name="Open Settings").click()
    allow = panel.page.get_by_label("Allow deleting in stores")
    allow.check()
    expect(button).to_have_attribute("aria-disabled", "false")
    try:
        dialog = began(section, "Delete…", "day/")
        expect(line(dialog)).to_have_text(f"%delete {url}day/ --yes")
        expect(plan(dialog)).to_contain_text("2 objects, 6 B")
        delete = dialog.get_by_role("button", name="Delete…")
        delete.click()
        question = panel.page.get_by_role("dialog")
        expect(question).to_contain_text("2 objects, 6 B below")
        expect(question).to_contain_text("2.txt, <b>1</b>.bin")
        expect_focus(question.get_by_role("button", name="Keep them"))
        panel.page.keyboard.press("Enter")
        expect(question).to_have_count(0)
        assert len(keys(url)) == 3
        dialog.get_by_text("Filters", exact=True).click()
        dialog.get_by_label("Only", exact=True).fill("*.bin")
        expect(plan(dialog)).to_contain_text("1 object, 5 B")
        delete.click()
        question.get_by_role("button", name="Delete", exact=True).click()
        expect(dialog).to_contain_text("Deleted.")
        assert keys(url) == ["day/2.txt", "kept"]
    finally:
        panel.page.evaluate("() => void jupyterapp.serviceManager.settings.save('nbdata:panel', '{}')")
    assert panel.errors == []


@pytest.mark.long
def test_a_plan_that_is_replaced_or_whose_dialog_is_closed_ends(
    context: BrowserContext, seaweedfs: EmbeddedServer, tmp_path: Path, put: Put
) -> None:
    url = put({"day/a": b"1"})
    asked: list[str] = []
    ended: list[str] = []

    def target_of(request: Request) -> list[str]:
        is_plan = "nbdata/api/plan" in request.url
        return [json.loads(request.post_data or "{}")["target"]] if is_plan else []

    with Gate(seaweedfs.url) as gate:
        environment = {**seaweedfs.environment(), "AWS_ENDPOINT_URL": gate.url}
        with Lab(tmp_path, environment=environment) as lab:
            panel = Panel.open(context, lab)
            panel.page.on("request", lambda request: asked.extend(target_of(request)))
            panel.page.on("requestfailed", lambda request: ended.extend(target_of(request)))
            section = opened(panel, url)
            expect(names(section)).to_have_text(["day/"])
            gate.close()
            dialog = began(section, "Pull here…", "day/")
            wait_until(lambda: happened(panel, asked) == [f"{lab.root}/day"])
            gate.wait_until_it_holds()
            dialog.get_by_role("textbox", name="Into").fill("/data/other")
            wait_until(lambda: happened(panel, asked)[1:] == ["/data/other"])
            assert ended == asked[:1]
            dialog.get_by_role("button", name="Cancel: Looking what would be pulled").click()
            wait_until(lambda: happened(panel, ended) == asked)
            dialog.get_by_role("button", name="Show the plan").click()
            wait_until(lambda: len(happened(panel, asked)) == 3)
            panel.page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
            wait_until(lambda: happened(panel, ended) == asked)
            gate.open()


def happened(panel: Panel, events: list[str]) -> list[str]:
    """Return the events of the page up to now."""
    panel.page.wait_for_timeout(20)
    return events


@pytest.mark.long
def test_where_it_does_not_fit_the_ways_that_do_are_buttons(panel: Panel, lab: Lab, put: Put) -> None:
    url = put({"site.tar": bytes(100), "big/a.bin": os.urandom(3_000_000)})
    folder = lab.root / "small"
    folder.mkdir()
    nbdata.quota(str(folder), limit="1MB", quiet=True)
    try:
        dialog = began(opened(panel, url), "Pull here…", "big/")
        target = dialog.get_by_role("textbox", name="Into")
        target.fill(f"{folder}/big")
        expect(plan(dialog)).to_contain_text("it does not fit: 3.0 MB needed")
        ways = dialog.get_by_role("group", name="Ways that fit")
        ways.get_by_role("button", name="Another disk").click()
        expect_focus(target)
        ways.get_by_role("button", name="Take less").click()
        expect_focus(dialog.get_by_label("Only", exact=True))
        dialog.get_by_label("Only", exact=True).fill("*.txt")
        expect(ways).to_have_count(0)
        dialog.get_by_label("Only", exact=True).fill("")
        ways.get_by_role("button", name="Free…").click()
        freeing = panel.root.locator(".nbd-Gauge .nbd-Tray")
        expect_focus(freeing.get_by_role("heading", name="Free"))
    finally:
        nbdata.quota(str(folder), limit="none", quiet=True)


@pytest.mark.needs("mounts")
@pytest.mark.long
def test_on_a_full_disk_nothing_is_begun_and_another_disk_takes_it(
    panel: Panel, lab: Lab, put: Put, shoot: Shoot
) -> None:
    url = put({"big/a.bin": os.urandom(3_000_000)})
    with tmpfs(lab.root / "full", size="8m") as disk:
        filler = fill(disk, leave=200_000)
        panel.page.set_viewport_size({"width": 1280, "height": 1100})
        dialog = began(opened(panel, url), "Pull here…", "big/")
        target = dialog.get_by_role("textbox", name="Into")
        target.fill(f"{disk}/big")
        expect(plan(dialog)).to_contain_text("it does not fit: 3.0 MB needed")
        ways = dialog.get_by_role("group", name="Ways that fit")
        expect(ways.get_by_role("button")).to_have_text(["Free…", "Another disk", "Take less"])
        for theme, width in (("Light", 420), ("Dark", 420), ("Light", 240)):
            panel.theme(theme)
            panel.width(width)
            dialog.scroll_into_view_if_needed()
            shoot(panel.page, f"full-disk-{theme.lower()}-{width}")
        dialog.get_by_role("button", name="Start").click()
        expect(dialog).to_contain_text("not enough space")
        assert os.listdir(disk) == [filler.name]
        ways.get_by_role("button", name="Free…").click()
        freeing = panel.root.locator(".nbd-Gauge").filter(has_text="/full").locator(".nbd-Tray")
        expect_focus(freeing.get_by_role("heading", name="Free"))
        ways.get_by_role("button", name="Another disk").click()
        expect_focus(target)
        target.fill(f"{lab.root}/elsewhere")
        expect(plan(dialog)).to_contain_text("free after that")
        expect(ways).to_have_count(0)
        dialog.get_by_role("button", name="Start").click()
        expect(dialog).to_contain_text("Pulled.")
        assert (lab.root / "elsewhere" / "a.bin").stat().st_size == 3_000_000
        assert os.listdir(disk) == [filler.name]
    assert panel.errors == []


@pytest.mark.parametrize(("theme", "width"), [("Light", 320), ("Dark", 480), ("Light", 240)])
@pytest.mark.long
def test_dialogs_can_be_read_in_both_themes_and_at_any_width(
    panel: Panel, lab: Lab, put: Put, shoot: Shoot, theme: str, width: int
) -> None:
    files = {f"clips/day-{n:02}.mp4": os.urandom(100_000) for n in range(12)}
    url = put({**files, "a name that is too long for a narrow panel.tar.gz": archive({"a": b"1"})})
    panel.theme(theme)
    panel.page.set_viewport_size({"width": 1280, "height": 1000})
    panel.width(width)
    section = opened(panel, url)
    for verb, name in (
        ("Copy…", "clips/"),
        ("Pack…", "clips/"),
        ("Check…", "clips/"),
        ("Unpack…", "a name that is too long for a narrow panel.tar.gz"),
    ):
        dialog = began(section, verb, name)
        if verb == "Copy…":
            dialog.get_by_role("combobox", name="Into").fill(f"{url}mirror/clips/")
        expect(plan(dialog)).to_be_visible()
        dialog.get_by_text("Filters").first.click()
        section.scroll_into_view_if_needed()
        shoot(panel.page, f"dialog-{verb[:-1].lower()}-{theme.lower()}-{width}")
        assert overflow(panel, ".nbd-Path, .nbd-TreeName, .nbd-Tree") == []
        poor = {name: round(ratio, 2) for name, ratio in contrasts(panel).items() if ratio < 4.5}
        assert poor == {}
        found = Axe().run(panel.page, context="#nbdata-panel")
        assert [one["id"] for one in found.response["violations"]] == []
        panel.page.keyboard.press("Escape")
