"""The panel in Notebook 7: the same plugin, opened from the menu and from the toolbar."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.feed import SentFeed, job
from tests.browser.panel import Panel, expect_focus
from tests.lab import Lab

Shoot = Callable[[Page, str], None]


@pytest.mark.long
def test_the_panel_opens_from_the_toolbar_and_from_the_menu(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": []}
    (lab.root / "train.ipynb").write_text(json.dumps(document))
    running = job("vols20", folder="vols20", notebook="train.ipynb")
    feed = SentFeed(context, running, job("bad", state="FAILED", notebook="other.ipynb"))
    page = context.new_page()
    panel = Panel(page)
    page.goto(f"{lab.url}/notebooks/train.ipynb?token={lab.token}")
    button = page.locator("jp-button[data-command='nbdata:show-from-toolbar']")
    expect(button).to_be_visible()
    expect(panel.root).to_be_hidden()
    button.click()
    expect(panel.running("vols20")).to_be_visible()
    expect(panel.root.get_by_role("region", name="This kernel")).to_contain_text("has not loaded nbdata")
    shoot(page, "notebook-7")
    panel.button("bad", "Edit and run").click()
    cell = page.locator(".jp-CodeCell").last.locator(".cm-content")
    expect(cell).to_have_text("%pull s3://bucket/bad/ /work/bad")
    expect_focus(cell)
    with page.expect_response(re.compile("/lab/api/settings")):
        panel.root.get_by_role("button", name="This notebook").click()
    expect(panel.job("bad")).to_have_count(0)
    expect(panel.running("vols20")).to_be_visible()
    page.reload()
    button.click()
    expect(panel.running("vols20")).to_be_visible()
    expect(panel.job("bad")).to_have_count(0)
    page.get_by_role("menuitem", name="View").click()
    page.get_by_role("menuitem", name="Show nbdata Disks and Transfers").click()
    expect_focus(panel.root)
    feed.send({**running, "state": "DONE", "seconds": 45, "verified": 20, "files": 20})
    toast = page.locator(".Toastify__toast")
    expect(toast).to_contain_text("20 files verified")
    shoot(page, "notebook-7-told")
    (lab.root / "vols20").mkdir()
    with context.expect_page() as opened:
        toast.get_by_role("button", name="Open folder").click()
    expect(opened.value.locator(".jp-BreadCrumbs")).to_contain_text("vols20")
    # Notebook 7.6 has this error of its own, without nbdata too.
    assert [error for error in panel.errors if "reading 'schema'" not in error] == []


@pytest.mark.long
def test_the_menu_of_the_list_of_files_leads_to_a_dialog(context: BrowserContext, lab: Lab) -> None:
    (lab.root / "pushed").mkdir()
    page = context.new_page()
    panel = Panel(page)
    page.goto(f"{lab.url}/tree?token={lab.token}")
    page.locator(".jp-DirListing-item").filter(has_text="pushed").click(button="right")
    page.get_by_role("menuitem", name="Push to a store…").click()
    dialog = panel.root.get_by_role("region", name="Push to a store: pushed")
    dialog.get_by_role("combobox", name="Into").fill("s3://bucket/pushed/")
    said = f"%push {lab.root}/pushed s3://bucket/pushed/"
    expect(dialog.locator(".nbd-Line code")).to_have_text(said)
