"""A thousand finished and two hundred running jobs in the panel: a message draws only what it names."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.feed import SentFeed, job
from tests.browser.panel import Panel
from tests.lab import Lab

_OBSERVE = """panel => {
    window.drawn = new Set();
    new MutationObserver(changes => changes.forEach(change => {
        const from = change.target.nodeType === 1 ? change.target : change.target.parentElement;
        drawn.add(from?.closest('[data-job]')?.dataset.job ?? from?.className);
    })).observe(panel.querySelector('[aria-label=Transfers]'),
                { subtree: true, childList: true, attributes: true, characterData: true });
}"""


@pytest.mark.long
def test_of_hundreds_of_jobs_only_those_are_drawn_that_changed(context: BrowserContext, lab: Lab) -> None:
    over = [job(f"over{n}", state="DONE", seconds=9, created=1.7e9 + n) for n in range(1000)]
    running = [job(f"run{n}", created=1.8e9 + n) for n in range(200)]
    feed = SentFeed(context, *over, *running)
    panel = Panel.open(context, lab)
    panel.root.get_by_role("button", name="Show 180 more that are not finished").click()
    expect(panel.root.get_by_role("progressbar")).to_have_count(200)
    panel.root.evaluate(_OBSERVE)
    feed.send({**running[150], "bytes": 60_225_000})
    expect(panel.job("run150")).to_contain_text("75%")
    assert panel.page.evaluate("[...drawn]") == ["run150"]
