"""Previews in a browser: text, tables, pictures and members of archives, and nothing of an object runs."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import BrowserContext, Locator, Page, Response, expect

from nbdata.demo.server import EmbeddedServer
from tests.browser.panel import Panel, expect_focus
from tests.browser.test_looks import contrasts, overflow
from tests.browser.test_stores import opened, row
from tests.client.test_previewing import png
from tests.faults.gate import Gate
from tests.lab import Lab
from tests.server.test_preview import records, wav
from tests.waiting import wait_until

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


def colours() -> bytes:
    """Return a picture that can be seen in both themes."""
    file = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").resize((120, 80)).save(file, "PNG")
    return file.getvalue()


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


# Draws for a second, and returns that as a film of the browser's own making, in base64.
_FILMED = """async () => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 160, height: 90 });
  const paper = canvas.getContext('2d');
  const recorder = new MediaRecorder(canvas.captureStream(25), { mimeType: 'video/webm' });
  const parts = [];
  recorder.ondataavailable = event => parts.push(event.data);
  const stopped = new Promise(done => (recorder.onstop = done));
  recorder.start();
  for (let n = 0; n < 25; n++) {
    paper.fillStyle = `hsl(${n * 14} 80% 50%)`;
    paper.fillRect(0, 0, 160, 90);
    await new Promise(done => setTimeout(done, 40));
  }
  recorder.stop();
  await stopped;
  const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
  return btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(''));
}"""


def played(player: Locator) -> float:
    return float(player.evaluate("player => player.currentTime"))


@pytest.mark.long
def test_sound_and_film_are_played_by_ranges(panel: Panel, put: Put) -> None:
    film = base64.b64decode(panel.page.evaluate(_FILMED))
    url = put({"film.webm": film, "long.wav": wav(12_500), "wrong.mp3": b"ID3" + bytes(9_000)})
    section = opened(panel, url)
    tray = preview(section, "film.webm")
    player = tray.get_by_label("The player")
    expect(tray).to_contain_text("160 × 90 pixels")
    player.evaluate("player => { player.muted = true; return player.play(); }")
    wait_until(lambda: played(player) > 0.2)

    asked: list[tuple[int, int]] = []

    def note(response: Response) -> None:
        if response.status == 206 and "stores/media" in response.url:
            start, end = response.headers["content-range"].split(" ")[1].split("/")[0].split("-")
            asked.append((int(start), int(end) + 1))

    panel.page.on("response", note)
    tray = preview(section, "long.wav")
    player = tray.get_by_label("The player")
    expect(tray).to_contain_text("3 h 28 min")
    expect(tray).to_contain_text("100.0 MB")
    player.evaluate("player => { player.muted = true; return player.play(); }")
    wait_until(lambda: played(player) > 0.2)
    player.evaluate("player => (player.currentTime = 10_000)")
    wait_until(lambda: played(player) > 10_000.2)
    assert any(start >= 79_000_000 for start, _ in asked)
    assert all(end - start <= 2 << 20 for start, end in asked)
    moved = sum(end - start for start, end in asked)
    print(f"{moved:,} bytes moved of 100,000,044, in {len(asked)} requests")
    assert moved < 20_000_000
    panel.page.keyboard.press("Escape")
    expect(player).to_have_count(0)
    expect(preview(section, "wrong.mp3")).to_contain_text("The browser cannot play this.")
    assert panel.errors == []


@pytest.mark.long
def test_samples_of_ffrecord_are_shown_with_their_pictures(panel: Panel, put: Put) -> None:
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" onload="window.ran = true">{_SCRIPT}</svg>'
    url = put({"train.ffr": records([png(30, 20), svg.encode(), bytes(9)])})
    tray = preview(opened(panel, url), "train.ffr")
    picture = tray.get_by_role("img", name="The picture of sample 0")
    wait_until(lambda: picture.evaluate("img => img.naturalWidth") == 30)
    expect(tray.get_by_role("row")).to_contain_text(["Content", "0", f"1{len(svg)} B<svg", "29 Bbytes"])
    expect(tray).to_contain_text("All 3 samples.")
    assert panel.page.evaluate("window.ran") is None
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
            "spoken.wav": wav(90),
            "train.ffr": records([colours(), b"label: tree", bytes(2000), colours()]),
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
        ("spoken.wav", "1 min 30 s"),
        ("train.ffr", "All 4 samples."),
    ):
        tray = preview(section, name)
        expect(tray).to_contain_text(shown)
        if name.endswith(".tar"):
            tray.get_by_role("button", name="List members").click()
            expect(tray).to_contain_text("All 3 members.")
        tray.scroll_into_view_if_needed()
        shoot(panel.page, f"preview-{name.replace('.', '-')}-{theme.lower()}-{width}")
        assert overflow(panel, ".nbd-Path, .nbd-TreeName, .nbd-Tree, .nbd-Table, .nbd-Preview") == []
        poor = {one: round(ratio, 2) for one, ratio in contrasts(panel).items() if ratio < 4.5}
        assert poor == {}
    found = Axe().run(panel.page, context="#nbdata-panel")
    assert [one["id"] for one in found.response["violations"]] == []
