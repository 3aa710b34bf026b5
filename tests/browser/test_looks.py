"""The panel's appearance: light and dark, narrow and wide, and with disks that fill up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import nbdata
from nbdata.verbs.probe import Probe
from tests.browser.panel import Panel
from tests.lab import Lab
from tests.slow import SlowProxy

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]


@pytest.fixture
def busy(slow: SlowProxy, put: Put, lab: Lab, panel: Panel) -> Iterator[None]:
    """A running, a paused and a failed transfer."""
    url = put({f"clips/day-{n:02}.mp4": os.urandom(1_000_000) for n in range(60)})
    running = nbdata.Pull(f"{url}clips/", str(lab.root / "clips"), include="*.mp4").start()
    held = nbdata.Pull(f"{url}clips/", str(lab.root / "a folder with a long name" / "night")).start()
    failed = nbdata.Pull(f"{url}no-such-folder/", str(lab.root / "nothing")).start()
    held.pause()
    expect(panel.job(held.id)).to_contain_text("Paused")
    expect(panel.job(failed.id)).to_contain_text("Failed")
    panel.wait_for_growth(running.id)
    yield
    for job in (running, held):
        job.cancel()


def overflow(panel: Panel, inside: str = ".nbd-Path") -> list[str]:
    """Return the elements that extend beyond the panel's right edge, but for what is cut off `inside` others."""
    found: list[str] = panel.root.evaluate(
        """(panel, inside) => {
            const edge = panel.getBoundingClientRect().right;
            return [...panel.querySelectorAll('*')]
                .filter(e => e.getClientRects().length && !e.parentElement.closest(inside))
                .filter(e => e.getBoundingClientRect().right > edge + 0.5)
                .map(e => e.className);
        }""",
        inside,
    )
    return found


def contrasts(panel: Panel) -> dict[str, float]:
    """Return the contrast to the background for each kind of text, as WCAG 2 defines it."""
    found: dict[str, Any] = panel.root.evaluate(
        """panel => {
            const parse = text => text.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => {
                const [R, G, B] = [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * R + 0.7152 * G + 0.0722 * B;
            };
            const behind = e => {
                for (; e; e = e.parentElement) {
                    const colour = parse(getComputedStyle(e).backgroundColor);
                    if (colour.length < 4 || colour[3] > 0) return colour;
                }
                return [255, 255, 255];
            };
            const found = {};
            for (const e of panel.querySelectorAll('*')) {
                const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
                if (!text || !e.getClientRects().length) continue;
                const ground = behind(e), [r, g, b, a = 1] = parse(getComputedStyle(e).color);
                const ink = [r, g, b].map((v, n) => a * v + (1 - a) * ground[n]);
                const [one, two] = [light(ink), light(ground)].sort((a, b) => b - a);
                const ratio = (one + 0.05) / (two + 0.05), name = e.className || e.tagName;
                found[name] = Math.min(found[name] ?? 99, ratio);
            }
            return found;
        }"""
    )
    return found


@pytest.mark.long
@pytest.mark.parametrize("theme", ["Dark", "Light"])
@pytest.mark.in_ci("Dark")
@pytest.mark.usefixtures("busy")
def test_both_themes_can_be_read(panel: Panel, theme: str, shoot: Shoot) -> None:
    panel.theme(theme)
    panel.width(320)
    panel.root.locator("details.nbd-Fold").last.locator("summary").click()
    shoot(panel.page, f"theme-{theme.lower()}")
    poor = {name: round(ratio, 2) for name, ratio in contrasts(panel).items() if ratio < 4.5}
    assert poor == {}


@pytest.mark.long
@pytest.mark.parametrize("width", [240, 600])
@pytest.mark.in_ci("240")
@pytest.mark.usefixtures("busy")
def test_nothing_sticks_out_at_any_width(panel: Panel, width: int, shoot: Shoot) -> None:
    panel.width(width)
    shoot(panel.page, f"width-{width}")
    assert overflow(panel) == []


@pytest.mark.long
def test_a_stream_that_waits_for_its_loop_stays_within_its_card(
    panel: Panel, put: Put, lab: Lab, shoot: Shoot
) -> None:
    url = put({f"{n}.bin": os.urandom(100_000) for n in range(20)})
    panel.width(240)
    with nbdata.cache_stream(url, max_size="500kB", by="file", cache_dir=str(lab.root), quiet=True):
        expect(panel.root).to_contain_text("Waits for your loop")
        shoot(panel.page, "stream")
        assert overflow(panel) == []


@pytest.mark.long
def test_a_limit_that_is_nearly_reached_is_said_in_words(panel: Panel, lab: Lab, shoot: Shoot) -> None:
    (lab.root / "fill.bin").write_bytes(bytes(1_000_000))
    gauge = panel.root.get_by_role("listitem").filter(has_text="limit by %quota --limit")
    try:
        for share, word in ((0.5, "50%"), (0.85, "filling up, 85%"), (0.97, "almost full, 97%")):
            rooms = nbdata.quota(str(lab.root), limit="1TB", quiet=True).details["rooms"]
            used = next(room["used"] for room in rooms if room["source"] == "%quota --limit")
            # Slightly more than the share, because the panel rounds down.
            nbdata.quota(str(lab.root), limit=f"{int(used / (share + 0.005))}B", quiet=True)
            Probe(items=1, tag=f"look {share}").run(quiet=True)  # the panel updates when jobs start or end
            expect(gauge).to_contain_text(word)
            expect(gauge.get_by_role("meter")).to_have_attribute("aria-valuenow", str(round(100 * share)))
        shoot(panel.page, "almost-full")
    finally:
        nbdata.quota(str(lab.root), limit="none", quiet=True)
