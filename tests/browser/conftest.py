"""A headless Chromium, and a JupyterLab for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, sync_playwright

from tests.browser.panel import Panel
from tests.capabilities import system_chromium
from tests.lab import Lab
from tests.waiting import PATIENCE

# Sound goes nowhere: the library that plays it leaves a file in the temporary folder.
_FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-audio-output"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server for the tests of one file; it uses the folders of that file."""
    with Lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


# Not pytest-playwright's fixture: its event loop would keep running during the tests of other folders.
@pytest.fixture(scope="module")
def browser(chromium: None) -> Iterator[Browser]:
    """Headless Chromium: the system's, or the one that Playwright installed."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=system_chromium(), args=_FLAGS)
        yield running
        running.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A private browser profile for the test."""
    made = browser.new_context(viewport={"width": 1280, "height": 800})
    made.set_default_timeout(PATIENCE * 1000)
    made.grant_permissions(["clipboard-read", "clipboard-write"])
    yield made
    made.close()


@pytest.fixture
def shoot(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Page | Locator, str], None]:
    """Returns a function that saves a screenshot in ``$NBDATA_SCREENSHOTS``, or else in the test's folder."""
    folder = Path(os.environ.get("NBDATA_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def save(shown: Page | Locator, name: str) -> None:
        shown.screenshot(path=folder / f"{name}.png")

    return save


@pytest.fixture
def panel(context: BrowserContext, lab: Lab) -> Panel:
    """nbdata's panel, open in a new tab."""
    return Panel.open(context, lab)
