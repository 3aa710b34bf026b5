"""A headless Chromium, and a JupyterLab that it looks at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from nbdata.client.agents import stop_all
from tests.browser.panel import Panel
from tests.capabilities import system_chromium
from tests.lab import Lab
from tests.waiting import PATIENCE

_FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server for all tests of this folder, which has seen no job of theirs before."""
    stop_all(now=True)
    with Lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


# Of this folder's own, not pytest-playwright's: its event loop would run on under the tests of all other folders.
@pytest.fixture(scope="package")
def browser(chromium: None) -> Iterator[Browser]:
    """Headless Chromium: the system's, or the one that Playwright has installed."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=system_chromium(), args=_FLAGS)
        yield running
        running.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser profile of the test's own."""
    made = browser.new_context(viewport={"width": 1280, "height": 800})
    made.set_default_timeout(PATIENCE * 1000)
    made.grant_permissions(["clipboard-read", "clipboard-write"])
    yield made
    made.close()


@pytest.fixture
def shoot(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Page, str], None]:
    """Saves a screenshot to look at: to ``$NBDATA_SCREENSHOTS``, else to the test's folder."""
    folder = Path(os.environ.get("NBDATA_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def save(page: Page, name: str) -> None:
        page.screenshot(path=folder / f"{name}.png")

    return save


@pytest.fixture
def panel(context: BrowserContext, lab: Lab) -> Panel:
    """The panel, open in a new tab."""
    return Panel.open(context, lab)
