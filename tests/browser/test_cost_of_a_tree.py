"""What an open tree of 100,000 objects and two previews cost while nothing changes: processor time of both sides."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from benchmarks.listing import ListServer
from tests.browser.panel import Panel
from tests.browser.test_stores import names, opened, row, scroll
from tests.lab import Lab

OBJECTS = 100_000
# Milliseconds for which nothing is done, and the share of a core that may be used in them.
IDLE, SHARE = 20_000, 0.05


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Lab]:
    """A JupyterLab server whose store has 100,000 objects in one folder."""
    with ListServer(OBJECTS) as server:
        environment = {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }
        with Lab(tmp_path, environment=environment) as running:
            yield running


def seconds_of(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    """Return a process and all that it has begun."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def is_browser(pid: int) -> bool:
    return b"chrom" in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]


@pytest.mark.long
def test_an_open_tree_and_two_previews_cost_next_to_nothing(context: BrowserContext, large: Lab) -> None:
    for number in (1, 2):
        panel = Panel.open(context, large)
        section = opened(panel, "s3://bench/many/")
        status = section.get_by_role("status").first
        pages = OBJECTS // 1000 if number == 1 else 1
        for page in range(1, pages + 1):
            all_or_first = "All" if page * 1000 == OBJECTS else "The first"
            expect(status).to_have_text(f"{all_or_first} {page},000 loaded")
            if page < pages:
                scroll(section, "tree.scrollHeight")
        scroll(section, "0")
        name = f"object-00000000{number}"
        row(section, name).click()
        section.get_by_role("button", name=f"Preview: {name}").click()
        expect(section.get_by_label("The text")).to_have_text(f"{number:0100d}")
        expect(names(section)).not_to_have_count(0)
    browser = [pid for pid in below(os.getpid()) if is_browser(pid)]
    server = below(large.process_id)
    assert browser
    panel.page.wait_for_timeout(3000)
    begun, before = time.monotonic(), [sum(map(seconds_of, pids)) for pids in (browser, server)]
    panel.page.wait_for_timeout(IDLE)
    used = [sum(map(seconds_of, pids)) - start for pids, start in zip((browser, server), before, strict=True)]
    shares = [one / (time.monotonic() - begun) for one in used]
    print(f"browser {shares[0]:.1%}, server {shares[1]:.1%} of a core")
    assert max(shares) < SHARE, shares
