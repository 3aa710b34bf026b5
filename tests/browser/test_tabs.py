"""Several pages at once, a page that nobody sees, and a connection that died: each shows what is true."""

from __future__ import annotations

import json
import time

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, WebSocketRoute, expect

from nbdata.verbs.probe import Probe
from tests.browser.feed import SentFeed, job
from tests.browser.panel import Panel, expect_focus
from tests.lab import Lab
from tests.waiting import PATIENCE, wait_until

_HIDING = """
let hidden = false;
Object.defineProperty(document, 'hidden', { get: () => hidden });
window.hide = now => { hidden = now; document.dispatchEvent(new Event('visibilitychange')); };
"""


# Keeps the notices that the panel shows, however short, in `noticed`.
_TELLS_NOTICES = """() => {
    window.noticed = [];
    const look = () => document.querySelectorAll('#nbdata-panel .nbd-Notice').forEach(
        notice => window.noticed.push(notice.textContent)
    );
    new MutationObserver(look).observe(
        document.getElementById('nbdata-panel'), { childList: true, subtree: true }
    );
}"""


class CountedFeed(SentFeed):
    """Counts connections: how many were `opened`, and how many the page has `closed`; a `mute` one sends nothing."""

    opened = closed = 0
    mute = False

    def __init__(self, context: BrowserContext, *first: dict[str, object]) -> None:
        self._over: list[WebSocketRoute] = []
        super().__init__(context, *first)

    def _open(self, tab: WebSocketRoute) -> None:
        self.opened += 1
        tab.on_close(lambda *_: self._left(tab))
        if not self.mute:
            super()._open(tab)

    def _left(self, tab: WebSocketRoute) -> None:
        if tab not in self._over:  # the end of the page is told again
            self.closed += 1
            self._over.append(tab)
        if tab in self._tabs:
            self._tabs.remove(tab)

    def becomes(self, *jobs: dict[str, object]) -> None:
        """Change what the next connection is sent first."""
        self._first = list(jobs)


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A page that can be hidden, and whose time can be advanced."""
    made = context.new_page()
    made.add_init_script(_HIDING)
    made.clock.install()
    return made


def notebook_7(context: BrowserContext, lab: Lab) -> Panel:
    """Open a notebook in Notebook 7, with the panel beside it."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": []}
    (lab.root / "beside.ipynb").write_text(json.dumps(document))
    panel = Panel(context.new_page())
    panel.page.goto(f"{lab.url}/notebooks/beside.ipynb?token={lab.token}")
    panel.page.locator("jp-button[data-command='nbdata:show-from-toolbar']").click()
    return panel


def wait_until_on(page: Page, feed: CountedFeed, connections: tuple[int, int]) -> None:
    """Wait until so many connections were opened and closed; the page's events are handled meanwhile."""

    def reached() -> bool:
        page.wait_for_timeout(20)
        return (feed.opened, feed.closed) == connections

    wait_until(reached, why=lambda: f"opened {feed.opened}, closed {feed.closed}, and not {connections}")


@pytest.mark.long
def test_a_page_that_nobody_sees_costs_nothing_and_is_right_when_it_is_seen_again(
    context: BrowserContext, page: Page, lab: Lab
) -> None:
    running = job("vols20")
    feed = CountedFeed(context, running)
    panel = Panel.open_in(page, lab)
    expect(panel.running("vols20")).to_be_visible()

    def pass_time(share: int) -> None:
        """Let 40 s pass, and send a message, so that the connection does not count as lost."""
        page.clock.fast_forward(40_000)
        feed.send({**running, "bytes": running["bytes_total"] * share / 100})
        expect(panel.job("vols20")).to_contain_text(f"{share}%")

    page.evaluate("hide(true)")
    pass_time(70)
    page.evaluate("hide(false)")
    pass_time(75)
    wait_until_on(page, feed, (1, 0))
    page.evaluate("hide(true)")
    pass_time(80)
    page.clock.fast_forward(30_000)
    wait_until_on(page, feed, (1, 1))
    page.clock.fast_forward(120_000)
    wait_until_on(page, feed, (1, 1))
    over = {"state": "DONE", "seconds": 45}
    feed.becomes({**running, **over}, *[job(f"later{n}", **over, created=time.time()) for n in range(5)])
    page.evaluate("hide(false)")
    expect(panel.job("vols20")).to_contain_text("Done")
    toasts = page.locator(".Toastify__toast")
    expect(toasts.filter(has_text="Pulled vols20")).to_have_count(1)
    expect(toasts.filter(has_text="3 more transfers are done")).to_have_count(1)
    expect(toasts).to_have_count(4)
    wait_until_on(page, feed, (2, 1))


@pytest.mark.long
def test_a_connection_that_died_silently_is_opened_anew(
    context: BrowserContext, page: Page, lab: Lab
) -> None:
    running = job("vols20")
    feed = CountedFeed(context, running)
    panel = Panel.open_in(page, lab)
    expect(panel.running("vols20")).to_be_visible()
    page.clock.fast_forward(30_000)
    feed.send({**running, "bytes": 60_225_000})
    expect(panel.job("vols20")).to_contain_text("75%")
    page.clock.fast_forward(30_000)
    wait_until_on(page, feed, (1, 0))
    panel.button("vols20", "More").click()
    item = panel.job("vols20").get_by_role("button", name="Limit rate…")
    expect_focus(item)
    page.evaluate(_TELLS_NOTICES)
    feed.becomes({**running, "bytes": 72_270_000})
    page.clock.fast_forward(30_000)  # as after a sleep of the computer
    expect(panel.job("vols20")).to_contain_text("90%")
    wait_until_on(page, feed, (2, 1))
    # Nothing was said of it, which would have moved the card under the pointer for a moment.
    assert page.evaluate("noticed") == []
    expect_focus(item)
    feed.send({**running, "state": "PAUSED", "reason": "user"})
    expect(panel.job("vols20")).to_contain_text("Paused")
    expect_focus(item)
    feed.mute = True
    page.clock.fast_forward(50_000)
    wait_until_on(page, feed, (3, 2))
    page.clock.fast_forward(6_000)  # the new connection is silent, too
    expect(panel.root).to_contain_text("cannot be reached; this list is from before")
    wait_until_on(page, feed, (4, 3))
    expect_focus(item)


@pytest.mark.long
def test_pages_of_lab_and_of_notebook_7_agree_and_one_that_is_closed_takes_nothing_along(
    browser: Browser, context: BrowserContext, lab: Lab
) -> None:
    other = browser.new_context(viewport={"width": 1280, "height": 800})
    other.set_default_timeout(PATIENCE * 1000)
    panels = [
        Panel.open(context, lab),
        Panel.open(context, lab, "lab/workspaces/second"),
        Panel.open(other, lab),
        notebook_7(other, lab),
    ]
    job = Probe(items=1000, delay=50, tag="agree").start()
    for panel in panels:
        expect(panel.running(job.id)).to_be_visible()
    panels[3].press(job.id, "Pause")
    for panel in panels:
        expect(panel.job(job.id)).to_contain_text("Paused")
    panels.pop(0).page.close()
    panels[0].press(job.id, "Resume")
    for panel in panels:
        expect(panel.job(job.id)).to_contain_text("Running")
    panels[1].press(job.id, "Cancel")
    for panel in panels:
        expect(panel.job(job.id)).to_contain_text("Cancelled")
    other.close()


@pytest.mark.long
def test_an_end_is_told_once_in_each_page(context: BrowserContext, lab: Lab) -> None:
    running = job("vols20")
    feed = SentFeed(context, running)
    panels = [Panel.open(context, lab), Panel.open(context, lab, "lab/workspaces/second")]
    done = {**running, "state": "DONE", "seconds": 45}
    feed.send(done)
    feed.send({**done, "folder": ""})  # the same end, with more known
    for panel in panels:
        expect(panel.job("vols20")).to_contain_text("Done")
        expect(panel.page.locator(".Toastify__toast")).to_have_count(1)
        expect(panel.page.locator(".Toastify__toast")).to_contain_text("Pulled vols20")
