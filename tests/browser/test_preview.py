"""Previews in a browser: text, tables, pictures and members of archives, and nothing of an object runs."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, expect

from nbdata.demo.server import EmbeddedServer
from tests.browser.panel import Panel, expect_focus
from tests.browser.test_looks import contrasts, overflow
from tests.browser.test_stores import opened, row
from tests.client.test_previewing import png
from tests.faults.gate import Gate
from tests.lab import Lab

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]

_SCRIPT = "<script>window.ran = true; fetch('/evil')</script>"
# What would run, and what of it is shown.
_HOSTILE = {
    "page.html": f"<html><body onload='window.ran = true'>{_SCRIPT}",
    "a.svg": f'<svg xmlns="http://www.w3.org/2000/svg" onload="window.ran = true">{_SCRIPT}</svg>',
    "a.md": f"# Title\n<img src=x onerror='window.ran = true'>{_SCRIPT}",
    "a.csv": f"name,value\n=HYPERLINK(1),{_SCRIPT}\n",
    "a.ipynb": json.dumps(
        {
            "cells": [
                {
                    "cell_type": "code",
                    "source": "show()",
                    "outputs": [{"data": {"text/html": _SCRIPT, "text/plain": "a widget"}}],
                }
            ]
        }
    ),
}


@pytest.fixture(scope="module")
def lab(seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server that knows the store's credentials."""
    with Lab(tmp_path_factory.mktemp("lab"), environment=seaweedfs.environment()) as running:
        yield running


def preview(section: Locator, name: str) -> Locator:
    """Open the preview of an object, and return its tray."""
    row(section, name).click()
    section.get_by_role("button", name=f"Preview: {name}").click()
    return section.get_by_role("region", name=f"Preview: {name}")


def shard() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("a.jpg", "a.cls", "b.jpg"):
            header = tarfile.TarInfo(name)
            header.size = 2000
            tar.addfile(header, io.BytesIO(bytes(2000)))
    return packed.getvalue()


def test_what_would_run_is_shown_as_text_and_pictures_as_pixels(panel: Panel, put: Put) -> None:
    url = put({**{name: text.encode() for name, text in _HOSTILE.items()}, "a.png": png(30, 20)})
    asked: list[str] = []
    panel.page.on("request", lambda request: asked.append(request.url))
    section = opened(panel, url)
    for name in ("page.html", "a.svg", "a.md"):
        text = preview(section, name).get_by_label("The text")
        expect(text).to_have_text(_HOSTILE[name])
        assert text.locator("*").count() == 0
    expect(preview(section, "a.csv").get_by_role("cell").first).to_have_text("=HYPERLINK(1)")
    notebook = preview(section, "a.ipynb")
    expect(notebook).to_contain_text("a widget")
    expect(notebook).not_to_contain_text("script")
    picture = preview(section, "a.png")
    expect(picture).to_contain_text("30 × 20 pixels")
    image = picture.get_by_role("img", name="The picture")
    assert str(image.get_attribute("src")).startswith("blob:")
    kind = panel.page.evaluate(
        "async src => (await (await fetch(src)).blob()).type", image.get_attribute("src")
    )
    assert kind == "image/png"
    assert panel.page.evaluate("window.ran") is None
    assert [one for one in asked if "evil" in one] == []
    assert panel.errors == []


@pytest.mark.long
def test_the_members_of_an_archive_are_listed_by_a_line(panel: Panel, put: Put) -> None:
    url = put({"train-000000.tar": shard(), "all.tar.gz": gzip.compress(shard())})
    section = opened(panel, url)
    for name in ("train-000000.tar", "all.tar.gz"):
        tray = preview(section, name)
        expect(tray.locator(".nbd-Line code")).to_have_text(f"%untar_volumes {url}{name} --list")
        tray.get_by_role("button", name="List members").click()
        expect(tray).to_contain_text("All 3 members.")
        expect(tray.get_by_role("cell").first).to_have_text("a.jpg")
    assert panel.errors == []


@pytest.mark.long
def test_why_there_is_no_preview_is_said_and_keys_suffice(
    context: BrowserContext, seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory, put: Put
) -> None:
    url = put({"binary.dat": bytes(range(256)) * 4, "large.txt": b"line\n" * 100_000, "z.txt": b"1"})
    with Gate(seaweedfs.url) as gate:
        environment = {**seaweedfs.environment(), "AWS_ENDPOINT_URL": gate.url}
        with Lab(tmp_path_factory.mktemp("behind"), environment=environment) as lab:
            panel = Panel.open(context, lab)
            section = opened(panel, url)
            expect(preview(section, "binary.dat")).to_contain_text("No preview: this is no text")
            expect(preview(section, "large.txt")).to_contain_text(
                "Only its beginning; the object has 500.0 kB."
            )
            panel.page.keyboard.press("Escape")
            expect_focus(section.get_by_role("button", name="Preview: large.txt"))
            gate.close()
            tray = preview(section, "z.txt")
            expect(tray).to_contain_text("Loading…")
            gate.wait_until_it_holds()
            panel.page.keyboard.press("Escape")
            gate.open()
            expect(preview(section, "z.txt").get_by_label("The text")).to_have_text("1")
            assert panel.errors == []


@pytest.mark.parametrize(("theme", "width"), [("Light", 420), ("Dark", 420), ("Light", 240)])
@pytest.mark.long
def test_previews_can_be_read_in_both_themes_and_at_any_width(
    panel: Panel, put: Put, shoot: Shoot, theme: str, width: int
) -> None:
    table = "city,country,inhabitants\n" + "".join(f"Town {n},Land {n % 7},{n * 1000}\n" for n in range(300))
    url = put(
        {
            "towns.csv": table.encode(),
            "about.json": json.dumps({"name": "towns", "columns": ["city", "country"], "rows": 300}).encode(),
            "map.png": png(300, 120),
            "train-000000.tar": shard(),
        }
    )
    panel.theme(theme)
    panel.page.set_viewport_size({"width": 1280, "height": 1100})
    panel.width(width)
    section = opened(panel, url)
    for name, shown in (
        ("towns.csv", "Town 0"),
        ("about.json", '"columns"'),
        ("map.png", "300 × 120 pixels"),
        ("train-000000.tar", "List members"),
    ):
        tray = preview(section, name)
        expect(tray).to_contain_text(shown)
        if name.endswith(".tar"):
            tray.get_by_role("button", name="List members").click()
            expect(tray).to_contain_text("All 3 members.")
        tray.scroll_into_view_if_needed()
        shoot(panel.page, f"preview-{name.partition('.')[0]}-{theme.lower()}-{width}")
        assert overflow(panel, ".nbd-Path, .nbd-TreeName, .nbd-Tree, .nbd-Table, .nbd-Preview") == []
        poor = {one: round(ratio, 2) for one, ratio in contrasts(panel).items() if ratio < 4.5}
        assert poor == {}
    found = Axe().run(panel.page, context="#nbdata-panel")
    assert [one["id"] for one in found.response["violations"]] == []
