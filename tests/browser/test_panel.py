"""The panel in a real JupyterLab, in a real browser."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

import nbdata
from tests.browser.panel import Panel
from tests.slow import SlowProxy

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]


def big(count: int = 12) -> dict[str, bytes]:
    """Objects that take half a second each over the slow line."""
    return {f"part-{n:02}.bin": os.urandom(2_000_000) for n in range(count)}


def test_a_transfer_is_shown_while_it_runs_and_can_be_cancelled(
    panel: Panel, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    job = nbdata.Pull(put(big()), str(tmp_path / "data")).start()
    bar = panel.job(job.id).get_by_role("progressbar")
    expect(bar).to_be_visible()
    expect(panel.job(job.id)).to_contain_text("MB/s")
    shoot(panel.page, "running")
    panel.button(job.id, "Cancel").click()
    expect(panel.job(job.id)).to_contain_text("Cancelled")
    assert panel.errors == []
