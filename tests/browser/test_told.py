"""What the panel tells about the ends of transfers, and how it shows states and names that are hard to show.

The test sends the live feed itself, so that no state depends on a real transfer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from nbdata.verbs.probe import Probe
from tests.browser.feed import SentFeed, job
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel, expect_focus
from tests.browser.test_looks import contrasts, overflow
from tests.lab import Lab
from tests.waiting import PATIENCE, wait_until

Shoot = Callable[[Page, str], None]

# Escape, right-to-left override, zero-width space, line separator, tab, newline.
_HIDDEN = "\x1b\u202e\u200b\u2028\t\n"
_SPACE = "no space: it needs 1.2 GB, and 30.0 MB may be used; it continues when there is space"


def states() -> list[dict[str, object]]:
    """Return jobs in all states, from today and the days before."""
    now = time.time()
    day = 24 * 3600
    return [
        job("vols20", retries=3, failures=1),
        job("held", state="PAUSED", reason="user", rate=0),
        job("space", state="PAUSED", reason=_SPACE, rate=0, here=False, owner="other.ipynb"),
        job("loop", verb="cache_stream", target="", phase="waits for your loop", rate=0),
        job("queue", state="QUEUED", reason="waits for one of 4 running jobs to end", bytes=0, rate=0),
        job("bad", state="FAILED", error="no such bucket: 'bucket'. Check its name", created=now - 20),
        *[
            job("runs", id=f"runs{n}", state="DONE", created=now - day - n, seconds=20, files=20, verified=20)
            for n in range(3)
        ],
        job("part", verb="push", state="DONE", created=now - 2 * day, seconds=9, verified=5, unverified=3),
        job("stopped", verb="copy", state="CANCELLED", created=now - 2 * day, seconds=9),
    ]


def hide(panel: Panel) -> None:
    """Show another part of the sidebar."""
    panel.page.evaluate("jupyterapp.shell.activateById('jp-property-inspector')")
    expect(panel.root).to_be_hidden()


def unfold(panel: Panel) -> None:
    """Open everything that is folded, also the earlier runs of a line, with their details."""
    expect(panel.job("runs0")).to_be_visible()
    for card in ("runs0", "runs1"):
        panel.root.evaluate("e => e.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        expect(panel.job(card)).to_be_visible()


@pytest.mark.long
def test_the_end_of_a_transfer_is_told_once_with_what_to_do_next(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    asked: list[str] = []

    def begin_again(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(json={"done": True})

    context.route(re.compile("/nbdata/api/jobs/[^/]*/again"), begin_again)
    (lab.root / "vols20").mkdir()
    running = job("vols20")
    feed = SentFeed(context, running, job("past", state="FAILED", created=1e9))
    panel = Panel.open(context, lab)
    page = panel.page
    status = page.locator(".nbd-Status-button")
    expect(status).to_contain_text("↓ 3.0 MB/s · 11 s")
    expect(status).to_contain_text(re.compile(r"disk \d+"))
    hide(panel)
    over = {"state": "DONE", "seconds": 45, "verified": 20, "files": 20, "bytes": 80_300_000}
    done = {**running, **over, "folder": "vols20"}
    bad = job("bad", state="FAILED", error="no such bucket", seconds=0.2)
    feed.send(done, bad)
    feed.send(done, bad)
    toasts = page.locator(".Toastify__toast")
    expect(toasts.filter(has_text="Pulled vols20: 80.3 MB, 20 files verified")).to_have_count(1)
    expect(toasts.filter(has_text="pull bad failed: no such bucket")).to_have_count(1)
    expect(toasts).to_have_count(2)
    expect(status).to_contain_text("! 1 failed")
    shoot(page, "told")
    toasts.get_by_role("button", name="Open folder").click()
    expect(page.locator(".jp-BreadCrumbs")).to_contain_text("vols20")
    page.evaluate("jupyterapp.commands.execute('apputils:display-notifications')")
    centre = page.locator(".jp-Notification-Center")
    shoot(page, "told-in-the-centre")
    centre.get_by_role("button", name="Show", exact=True).click()
    expect_focus(panel.job("bad").locator("summary"))
    expect(status).not_to_contain_text("failed")
    page.keyboard.press("Escape")
    panel.button("bad", "Retry").click()
    wait_until(lambda: asked)
    page.reload()
    panel.show()
    expect(panel.job("vols20")).to_be_visible()  # and is told of no more
    assert page.locator(".Toastify__toast").count() == 0
    assert len(asked) == 1
    assert "/jobs/bad/again" in asked[0]
    assert panel.errors == []


@pytest.mark.long
def test_hostile_and_long_names_are_escaped_and_keep_their_place(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    name = f"{_HIDDEN}{'x' * 10_000}"
    failed = {"state": "FAILED", "error": f"no such object: {name}"}
    feed = SentFeed(
        context,
        job("running", source=f"s3://b/{name}/", target=f"/w/{name}", owner=name, phase=name),
        job("paused", state="PAUSED", reason=name),
        job("failed", source=f"s3://b/{name}", target=f"/w/{name}", created=1e9, **failed),
    )
    panel = Panel.open(context, lab)
    panel.width(250)
    panel.job("failed").locator("summary").click()
    feed.send(job("new", source=f"s3://b/{name}", target="", created=time.time() + 9, **failed))
    expect(panel.page.locator(".Toastify__toast")).to_contain_text(r"\x1b\u202e\u200b\u2028\t\nxx")
    shoot(panel.page, "hostile-names")
    shown: str = panel.page.evaluate(
        """() => [...document.querySelectorAll('#nbdata-panel, .nbd-Status, .Toastify')]
            .flatMap(root => [root, ...root.querySelectorAll('*')])
            .flatMap(e => [...[...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data),
                           ...[...e.attributes].map(a => a.value)])
            .join('')"""
    )
    assert r"\x1b\u202e\u200b\u2028\t\n" in shown
    assert [char for char in _HIDDEN if char in shown] == []
    assert panel.root.evaluate("e => e.scrollWidth - e.clientWidth") == 0
    assert overflow(panel, inside=".nbd-Path, .nbd-Title") == []


def poor_bars(panel: Panel) -> dict[str, float]:
    """Return the bars whose colour has too little contrast to their empty part."""
    found: dict[str, float] = panel.root.evaluate(
        """panel => {
            const parse = text => text.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => {
                const [R, G, B] = [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * R + 0.7152 * G + 0.0722 * B;
            };
            const found = {};
            for (const bar of panel.querySelectorAll('.nbd-Bar')) {
                const ground = parse(getComputedStyle(bar).backgroundColor);
                const [r, g, b, a = 1] = parse(getComputedStyle(bar.firstChild).backgroundColor);
                const ink = [r, g, b].map((v, n) => a * v + (1 - a) * ground[n]);
                const [one, two] = [light(ink), light(ground)].sort((a, b) => b - a);
                const ratio = (one + 0.05) / (two + 0.05);
                if (ratio < 3) found[bar.closest('li').className] = ratio;
            }
            return found;
        }"""
    )
    return found


@pytest.mark.long
@pytest.mark.parametrize("theme", ["Light", "Dark", "Dark High Contrast"])
@pytest.mark.in_ci("Dark")
def test_every_state_can_be_read_and_used_by_everyone(
    context: BrowserContext, lab: Lab, theme: str, shoot: Shoot
) -> None:
    SentFeed(context, *states())
    panel = Panel.open(context, lab)
    panel.theme(theme)
    panel.width(300)
    unfold(panel)
    panel.page.set_viewport_size({"width": 1280, "height": 2400})
    shoot(panel.page, f"states-{theme.lower().replace(' ', '-')}")
    poor = {name: round(ratio, 2) for name, ratio in contrasts(panel).items() if ratio < 4.5}
    assert poor == {}
    assert poor_bars(panel) == {}
    for part in ("#nbdata-panel", ".nbd-Status"):
        found = Axe().run(panel.page, context=part)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.long
@pytest.mark.parametrize("zoom", [1, 2])
def test_nothing_sticks_out_in_a_narrow_sidebar(browser: Browser, lab: Lab, zoom: int, shoot: Shoot) -> None:
    context = browser.new_context(
        viewport={"width": 1280 // zoom, "height": 800 // zoom}, device_scale_factor=zoom
    )
    context.set_default_timeout(PATIENCE * 1000)
    SentFeed(context, *states())
    panel = Panel.open(context, lab)
    panel.theme("Light")
    panel.width(250)
    unfold(panel)
    shoot(panel.page, f"narrow-zoom-{zoom}")
    assert overflow(panel) == []
    context.close()


def settings_of_the_panel(panel: Panel, text: str) -> None:
    """Save the user's settings as Lab's editor does, and open the page anew."""
    panel.page.evaluate("text => jupyterapp.serviceManager.settings.save('nbdata:panel', text)", text)
    panel.page.reload()
    panel.show()


@pytest.mark.long
def test_settings_choose_what_is_told_and_what_the_status_bar_shows(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    running = job("vols20", here=False)
    feed = SentFeed(context, running)
    panel = Panel.open(context, lab)
    status = panel.page.locator(".nbd-Status-button")
    try:
        panel.page.evaluate("jupyterapp.commands.execute('settingeditor:open', { query: 'nbdata' })")
        expect(panel.page.get_by_text("Working disk", exact=True)).to_be_visible()
        shoot(panel.page, "settings")
        settings_of_the_panel(panel, '{"statusBar": "disk", "notifyJobs": "all", "notifyAfter": 1}')
        expect(status).to_have_text(re.compile(r"^disk \d+%$"))
        feed.send({**running, "state": "DONE", "seconds": 2})
        expect(panel.page.locator(".Toastify__toast")).to_contain_text("Pulled vols20")
        settings_of_the_panel(panel, '{"statusBar": "nothing", "notifyJobs": "none"}')
        expect(status).to_be_hidden()
        feed.send(job("bad", state="FAILED", created=time.time() + 9))
        expect(panel.job("bad")).to_be_visible()
        expect(panel.page.locator(".Toastify__toast")).to_have_count(0)
    finally:
        settings_of_the_panel(panel, "{}")


@pytest.mark.long
def test_a_transfer_of_a_notebook_of_this_server_is_told_and_filtered(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    elsewhere = Probe(items=1, tag="elsewhere").start()
    elsewhere.wait()
    pull = f"%pull {lab.root}/none {lab.root}/data -b"
    with Notebook(context, lab, "tells", "%load_ext nbdata", pull) as notebook:
        panel, page = notebook.panel, notebook.panel.page
        toast = page.locator(".Toastify__toast")
        expect(toast).to_contain_text("pull none → data failed: no such object or folder")
        expect(panel.job(elsewhere.id)).to_be_visible()
        panel.root.get_by_role("button", name="This server").click()
        expect(panel.job(elsewhere.id)).to_have_count(0)
        expect(panel.root).to_contain_text("tells.ipynb")
        shoot(page, "of-this-server")
