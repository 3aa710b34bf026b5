"""The panel in a real JupyterLab and a real browser: what it shows, and what its buttons do."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, WebSocketRoute, expect

import nbdata
from nbdata.client.agents import stop_all
from nbdata.verbs.parsing import parse
from nbdata.verbs.probe import Probe
from tests.browser.panel import Panel, expect_focus
from tests.lab import Lab
from tests.slow import SlowProxy
from tests.waiting import wait_until

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]


def big(count: int = 30) -> dict[str, bytes]:
    """Create objects of a megabyte."""
    return {f"part-{n:02}.bin": os.urandom(1_000_000) for n in range(count)}


@pytest.mark.long
def test_without_an_agent_it_says_kindly_that_there_is_nothing(
    context: BrowserContext, tmp_path: Path, shoot: Shoot
) -> None:
    stop_all(now=True)
    with Lab(tmp_path) as lab:
        panel = Panel.open(context, lab)
        expect(panel.root).to_contain_text("No transfers yet")
        expect(panel.root.get_by_role("meter").first).to_be_visible()
        shoot(panel.page, "nothing-yet")
        assert panel.errors == []
        context.close()


def test_a_transfer_is_shown_live_from_its_start_to_its_end(
    panel: Panel, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    slow.pace(2_000_000)
    job = nbdata.Pull(put(big(60)), str(tmp_path / "data")).start()
    expect(panel.running(job.id)).to_be_visible()
    expect(panel.job(job.id)).to_contain_text("MB/s")
    expect(panel.job(job.id)).to_contain_text("left")
    panel.wait_for_growth(job.id)
    expect(panel.job(job.id)).to_contain_text("of 60 files")
    shoot(panel.page, "running")
    panel.wait_for_growth(job.id)
    slow.pace(40_000_000)
    expect(panel.job(job.id)).to_contain_text("Done")
    panel.job(job.id).locator("summary").click()
    expect(panel.job(job.id)).to_contain_text("100%")
    expect(panel.job(job.id)).to_contain_text("60 of 60 files")
    shoot(panel.page, "done")
    assert panel.errors == []


@pytest.mark.long
def test_a_transfer_can_be_paused_and_resumed(
    panel: Panel, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    job = nbdata.Pull(put(big()), str(tmp_path / "data")).start()
    panel.press(job.id, "Pause")
    expect(panel.job(job.id)).to_contain_text("Paused")
    shoot(panel.page, "paused")
    panel.press(job.id, "Resume")
    expect(panel.job(job.id)).to_contain_text("Running")
    panel.wait_for_growth(job.id)
    job.cancel()
    expect(panel.job(job.id)).to_contain_text("Cancelled")


@pytest.mark.long
def test_two_tabs_are_both_live_and_cancel_in_one_shows_in_the_other(
    context: BrowserContext, lab: Lab, slow: SlowProxy, put: Put, tmp_path: Path
) -> None:
    one, other = Panel.open(context, lab), Panel.open(context, lab, "lab/workspaces/other")
    job = nbdata.Pull(put(big()), str(tmp_path / "data")).start()
    for panel in (one, other):
        expect(panel.running(job.id)).to_be_visible()
        panel.wait_for_growth(job.id)
    one.press(job.id, "Cancel")
    for panel in (other, one):
        expect(panel.job(job.id)).to_contain_text("Cancelled")


@pytest.mark.long
def test_after_a_reload_the_state_is_back(
    panel: Panel, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    job = nbdata.Pull(put(big(60)), str(tmp_path / "data")).start()
    expect(panel.running(job.id)).to_be_visible()
    # JupyterLab saves a changed layout on the server after a moment.
    panel.page.wait_for_function(
        """async () => {
            const { dataConnector: saved } = jupyterapp.serviceManager.workspaces
                ? { dataConnector: jupyterapp.serviceManager.workspaces } : {};
            const workspace = await saved.fetch('default').catch(() => null);
            return workspace?.data['layout-restorer:data']?.right?.current === 'nbdata-panel';
        }"""
    )
    panel.page.goto(panel.page.url.partition("?")[0], wait_until="commit")
    expect(panel.root).to_be_visible()
    expect(panel.running(job.id)).to_be_visible()
    shoot(panel.page, "reloaded")
    job.cancel()


def test_names_of_objects_are_shown_as_text(
    panel: Panel, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    evil = "<img src=x onerror=window.harmed=1>"
    url = put({f"{evil}/{name}": data for name, data in big().items()})
    job = nbdata.Pull(f"{url}{evil}/", str(tmp_path / evil)).start()
    failed = nbdata.Pull(str(tmp_path / "none" / evil), str(tmp_path / "data")).start()
    expect(panel.job(job.id)).to_contain_text(f"from{url}{evil}/")
    panel.job(failed.id).locator("summary").click()
    expect(panel.job(failed.id)).to_contain_text("Failed")
    expect(panel.job(failed.id).locator(".nbd-Reason")).to_contain_text(evil)
    shoot(panel.page, "html-in-names")
    assert panel.root.locator("img").count() == 0
    assert panel.page.evaluate("() => window.harmed") is None
    job.cancel()


@pytest.mark.long
def test_keys_alone_are_enough_to_cancel(
    panel: Panel, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    job = nbdata.Pull(put(big()), str(tmp_path / "data")).start()
    expect(panel.running(job.id)).to_be_visible()
    keys = panel.page.keyboard
    asked = panel.page.locator("#modal-command-palette input")
    found = panel.page.locator("#modal-command-palette .lm-mod-active", has_text="Show nbdata")

    def palette_finds_it() -> bool:
        """Type into the palette; a busy Lab may close it again when something else takes the focus."""
        if not asked.is_visible():
            keys.press("Control+Shift+C")
        elif asked.input_value() != "Show nbdata":
            asked.press_sequentially("Show nbdata") if not asked.input_value() else asked.fill("")
        return found.is_visible()

    wait_until(palette_finds_it)
    keys.press("Enter")
    expect_focus(panel.root)
    cancel = panel.button(job.id, "Cancel")
    for _ in range(30):
        keys.press("Tab")
        if cancel.evaluate("button => button === document.activeElement"):
            break
    expect_focus(cancel)
    assert cancel.evaluate("button => getComputedStyle(button).outlineStyle") == "solid"
    shoot(panel.page, "focus")
    keys.press("Enter")
    expect(panel.page.get_by_role("dialog")).to_be_visible()
    keys.press("Tab")
    keys.press("Enter")
    expect(panel.job(job.id)).to_contain_text("Cancelled")


@pytest.mark.long
def test_the_line_can_be_copied(panel: Panel, tmp_path: Path, tree: Path) -> None:
    operation = nbdata.Pull(str(tree), str(tmp_path / "with space"), include="*.txt", verify="none")
    job = operation.start()
    expect(panel.job(job.id)).to_contain_text("Done")
    panel.job(job.id).locator("summary").click()
    panel.button(job.id, "Copy command").click()
    expect(panel.button(job.id, "Copied")).to_be_visible()
    line = panel.page.evaluate("() => navigator.clipboard.readText()")
    assert line.startswith("%pull ")
    assert parse(nbdata.Pull, shlex.split(line)[1:], prog="pull", extra={})[0] == operation


@pytest.mark.long
def test_the_target_folder_opens_in_the_file_browser(panel: Panel, lab: Lab, tree: Path) -> None:
    job = nbdata.Pull(str(tree), str(lab.root / "unpacked here")).start()
    expect(panel.job(job.id)).to_contain_text("Done")
    panel.job(job.id).locator("summary").click()
    panel.button(job.id, "Open folder").click()
    expect(panel.page.locator(".jp-BreadCrumbs")).to_contain_text("unpacked here")
    expect(panel.page.locator(".jp-DirListing-item", has_text="a.txt")).to_be_visible()


@pytest.mark.long
def test_a_folder_outside_of_labs_root_cannot_be_opened(panel: Panel, tree: Path, tmp_path: Path) -> None:
    job = nbdata.Pull(str(tree), str(tmp_path / "data")).start()
    expect(panel.job(job.id)).to_contain_text("Done")
    panel.job(job.id).locator("summary").click()
    expect(panel.button(job.id, "Copy command")).to_be_visible()
    expect(panel.button(job.id, "Open folder")).to_have_count(0)


@pytest.mark.long
def test_a_cache_is_shown_and_cleared_after_a_question(
    panel: Panel, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    url, disk = put({f"{n:02}.jpg": os.urandom(50_000) for n in range(20)}), tmp_path / "disk"
    samples = nbdata.samples(url, cache="2MB", cache_dir=str(disk))
    list(samples.stream())
    list(samples.stream())
    card = panel.root.get_by_role("region", name="Caches").get_by_role("listitem").filter(has_text=str(disk))
    expect(card).to_contain_text(f"of{url}")
    expect(card).to_contain_text("MB of 2.0 MB")
    expect(card).to_contain_text("50% hits")
    expect(card).to_contain_text("used by 1")
    expect(card.get_by_role("meter")).to_have_attribute("aria-valuenow", re.compile("^[5-9][0-9]$"))
    shoot(panel.page, "cache")
    clear, dialog = card.get_by_role("button", name="Clear"), panel.page.get_by_role("dialog")
    clear.click()
    dialog.get_by_role("button", name="Clear").click()
    expect(card.get_by_role("alert")).to_contain_text("it is in use as a cache")
    samples.close()
    stop_all(now=True)
    expect(card).to_contain_text("not in use")
    clear.click()
    expect(dialog).to_contain_text(f"of {url} will be deleted")
    shoot(panel.page, "cache-question")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert len([path for path in disk.rglob("kept-*/*") if len(path.name) == 32]) == 20
    clear.click()
    dialog.get_by_role("button", name="Clear").click()
    expect(card).to_have_count(0)
    assert os.listdir(disk) == []
    assert [error for error in panel.errors if "409" not in error] == []


@pytest.mark.long
def test_finished_transfers_are_folded_and_only_the_newest_are_shown(panel: Panel) -> None:
    jobs = [Probe(items=1, tag=f"more {n}").start() for n in range(13)]
    for job in jobs:
        job.wait()
    finished = panel.root.get_by_role("list", name="Finished").get_by_role("listitem")
    more = panel.root.get_by_role("button", name=re.compile(r"^Show \d+ more$"))
    expect(more).to_be_visible()
    expect(finished).to_have_count(10)
    expect(panel.job(jobs[-1].id)).to_be_visible()
    assert panel.job(jobs[-1].id).locator("details").get_attribute("open") is None
    expect(panel.job(jobs[0].id)).to_have_count(0)
    more.click()
    expect(panel.job(jobs[0].id)).to_be_visible()


@pytest.mark.long
def test_what_was_cancelled_is_resumed_and_what_failed_is_tried_again(
    panel: Panel, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    url = put(big(10))
    slow.pace(1_000_000)
    job = nbdata.Pull(url, str(tmp_path / "data")).start()
    panel.press(job.id, "Cancel")
    expect(panel.job(job.id)).to_contain_text("Cancelled")
    failed = nbdata.Pull(str(tmp_path / "later"), str(tmp_path / "copy")).start()
    expect(panel.job(failed.id).locator(".nbd-Reason")).to_contain_text("no such object or folder")
    expect(panel.button(failed.id, "Resume")).to_have_count(0)
    shoot(panel.page, "stopped")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "x").write_bytes(b"12345")
    panel.press(failed.id, "Retry")
    wait_until((tmp_path / "copy" / "x").exists)
    slow.pace(40_000_000)
    panel.press(job.id, "Resume")
    wait_until(lambda: len([*(tmp_path / "data").glob("*.bin")]) == 10)
    done = nbdata.transfers(quiet=True)[0]
    expect(panel.job(done.id)).to_contain_text("Done")
    expect(panel.job(done.id).locator(".nbd-Outcome")).to_contain_text("10.0 MB · 10 files · ")
    expect(panel.button(done.id, "Retry")).to_have_count(0)
    name = panel.job(done.id).locator(".nbd-Title")
    assert name.get_attribute("title") == f"pull {url} → {tmp_path}/data"
    shoot(panel.page, "resumed")


@pytest.mark.long
def test_what_is_finished_can_be_cleared(panel: Panel) -> None:
    over, running = Probe(items=1, tag="clear").start(), Probe(items=1000, delay=50, tag="stays").start()
    expect(panel.job(over.id)).to_contain_text("Done")
    panel.root.get_by_role("button", name="Clear finished").click()
    expect(panel.job(over.id)).to_have_count(0)
    expect(panel.running(running.id)).to_be_visible()
    expect(panel.root.get_by_text("Clear finished")).to_have_count(0)
    running.cancel()
    expect(panel.job(running.id)).to_contain_text("Cancelled")


@pytest.mark.long
def test_a_server_that_cannot_be_reached_is_said_and_tried_again_ever_more_slowly(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    reachable, tries, open_now = True, list[float](), list[WebSocketRoute]()

    def answer(route: WebSocketRoute) -> None:
        tries.append(time.monotonic())
        if reachable:
            route.connect_to_server()
            open_now.append(route)
        else:
            route.close()

    job = Probe(items=1, tag="known").start()
    job.wait()
    context.route_web_socket("**/nbdata/api/live*", answer)
    panel = Panel.open(context, lab)
    expect(panel.job(job.id)).to_be_visible()
    reachable = False
    open_now[-1].close()
    notice = panel.root.get_by_text("cannot be reached")
    expect(notice).to_be_visible()
    expect(panel.job(job.id)).to_be_visible()  # earlier information stays visible
    panel.page.wait_for_timeout(4000)
    shoot(panel.page, "unreachable")
    assert len(tries) <= 1 + 4
    assert panel.errors == []
    reachable = True
    panel.root.get_by_role("button", name="Try now").click()
    expect(notice).to_be_hidden()
