"""The section Mounts in a browser."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import nbdata
from tests.browser.panel import Panel
from tests.browser.test_looks import contrasts, overflow
from tests.lab import Lab

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]

pytestmark = [pytest.mark.needs("fuse"), pytest.mark.long]


def test_a_mount_is_listed_shows_in_the_file_browser_and_is_ended_by_its_button(
    context: BrowserContext, lab: Lab, put: Put, shoot: Shoot
) -> None:
    url = put({"data/a.txt": b"hello"})
    folder = lab.root / "mounted"
    with nbdata.mount(f"{url}data", str(folder)) as mount:
        panel = Panel.open(context, lab)
        panel.width(250)
        card = panel.root.locator(f'[data-mount="{mount.folder}"]')
        expect(card).to_contain_text("read only")
        expect(card).to_contain_text(f"{url}data")
        assert overflow(panel) == []
        shoot(panel.page, "mounts")
        with open(folder / "a.txt", "rb") as file:
            card.get_by_role("button", name="Unmount").click()
            expect(card.get_by_role("alert")).to_contain_text("it is in use")
            shoot(panel.page, "mounts-in-use")
            assert min(contrasts(panel).values()) >= 4.5
            file.read()
        card.get_by_role("button", name="Unmount").click()
        expect(card).to_have_count(0)
        assert os.listdir(folder) == []
    assert [error for error in panel.errors if "/mounts/unmount" not in error and "40" not in error] == []


def test_a_mount_whose_process_was_killed_is_told_and_released(
    context: BrowserContext, lab: Lab, shoot: Shoot, tmp_path: Path
) -> None:
    seen = {
        "root": str(lab.root),
        "disks": [],
        "caches": [],
        "services": [],
        "mounts": [{"path": str(tmp_path), "source": "s3://bucket/data", "age": 60, "alive": False}],
    }
    context.route("**/nbdata/api/disks*", lambda route: route.fulfill(json=seen))
    panel = Panel.open(context, lab)
    card = panel.root.locator(f'[data-mount="{tmp_path}"]')
    expect(card).to_contain_text("its process was killed")
    card.get_by_role("button", name="Unmount").click()
    expect(card.get_by_role("alert")).to_contain_text("has mounted nothing there")
    shoot(panel.page, "mounts-killed")
