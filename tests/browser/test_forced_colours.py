"""The panel in the colours that an operating system forces on pages (high contrast), over a theme that does not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.feed import SentFeed
from tests.browser.panel import Panel
from tests.browser.test_told import poor_bars, states
from tests.lab import Lab
from tests.waiting import PATIENCE


@pytest.mark.long
def test_bars_icons_and_what_is_chosen_are_seen_in_forced_colours(
    browser: Browser, lab: Lab, shoot: Callable[[Page, str], None]
) -> None:
    context = browser.new_context(
        viewport={"width": 1280, "height": 1400}, forced_colors="active", color_scheme="dark"
    )
    context.set_default_timeout(PATIENCE * 1000)
    SentFeed(context, *states())
    panel = Panel.open(context, lab)
    panel.theme("Light")
    expect(panel.job("bad")).to_be_visible()
    shoot(panel.page, "forced-colours")
    assert poor_bars(panel) == {}
    text, background = panel.root.evaluate(
        "e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]"
    )
    assert (text, background) == ("rgb(255, 255, 255)", "rgb(0, 0, 0)")
    fills = panel.root.evaluate(
        """e => [...e.querySelectorAll(".nbd-Icon svg [fill]:not([fill='none'])")].map(e => getComputedStyle(e).fill)"""
    )
    assert set(fills) == {text}
    ground = "e => getComputedStyle(e).backgroundColor"
    chosen, other = (
        panel.root.get_by_role("button", name=name, exact=True) for name in ("All", "This server")
    )
    assert chosen.evaluate(ground) != other.evaluate(ground)
    context.close()
