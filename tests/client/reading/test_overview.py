"""How samples display themselves: as one line, as a few lines, and in a notebook as the first ones with pictures."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.display import TextDisplay
from nbdata.loaders.pytorch import SampleLoader
from nbdata.operation import slots
from nbdata.reading import loose
from nbdata.reading.timeline import Timeline
from tests.kernel import Kernel
from tests.waiting import PATIENCE

NBDATA = str(Path(sys.executable).with_name("nbdata"))


def picture(size: tuple[int, int], *, noise: bool = False) -> bytes:
    out = io.BytesIO()
    made = Image.effect_noise(size, 80) if noise else Image.new("RGB", size, (200, 30, 40))
    made.save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def images(put: Callable[[dict[str, bytes]], str]) -> Iterator[str]:
    """Nine samples, one with a picture that is too large for a preview, and a file without a sample."""
    files = {f"{n}.png": picture((300, 200)) for n in range(9)} | {f"{n}.cls": b"1" for n in range(9)}
    return put(
        {**files, "3.png": picture((2000, 2000), noise=True), "README": b"read me", "5.png": b"no picture"}
    )


def test_nothing_that_a_terminal_obeys_is_shown_of_names(tmp_path: Path) -> None:
    for name in ("a.\x1b[31mred\x07", "a.cls", "\x1b]0;title\x07"):
        (tmp_path / name).write_bytes(b"1")
    with nbdata.samples(str(tmp_path)) as samples:
        samples.fetch([0])
        shown = [
            repr(samples),
            samples.text(),
            str(samples.report),
            samples._repr_html_(),
            repr(samples.keys),
        ]
        assert "\\x1b[31mred\\x07" in samples.text()
        assert "\\x1b]0;title\\x07" in str(samples.report)
        assert not any("\x1b" in text or "\x07" in text for text in shown)


def test_an_overview_says_what_there_is(images: str) -> None:
    with nbdata.samples(images, concurrency=8) as samples:
        assert samples.text().splitlines()[0] == repr(samples)
        assert re.search(r"^  png +9 +[\d.]+ MB +[\d.]+ [kM]B$", samples.text(), re.MULTILINE)
        assert "1 file belongs to no sample: README" in samples.text()
        assert "1 file belongs to no sample: README" in str(samples.report)
        told = samples.to_dict()
        assert (told["samples"], told["left_out_names"], told["fields"]["cls"]) == (
            9, ["README"], {"objects": 9, "bytes": 9},
        )  # fmt: skip
        html = samples._repr_html_()
        assert html.count("<img ") == 4, "of six, one is too large and one no picture"
        assert len(html) < 60_000
        assert samples.report.samples == 5
        assert "README" in html
        assert "<img" not in samples.select(lambda key: key == "3")._repr_html_()
        assert samples.windows(2)._repr_html_().count("<img ") == 3
        both = samples + samples[:2]
        assert "png" in both.text()


def test_a_key_is_no_html(put: Callable[[dict[str, bytes]], str]) -> None:
    with nbdata.samples(put({"<b>x&.<i>": b"1"})) as samples:
        assert "<b>x" not in samples._repr_html_()
        assert "<i>" not in samples._repr_html_()


def test_what_was_read_in_this_process_is_shown_with_it(images: str) -> None:
    with nbdata.samples(images, concurrency=8) as samples:
        loader = SampleLoader(samples, 3)
        assert len(list(loader)) == 3
        html = nbdata.samples(images)._repr_html_()
        assert "SampleLoader" not in html, "another source"
        html = samples._repr_html_()
        assert "SampleLoader" in html
        assert "9 samples" in html
        assert "share of the time that was waited" in html


def test_a_timeline_is_bounded_and_loses_no_second() -> None:
    line = Timeline()
    for at in range(0, 10_000, 10):
        line.add(at, at + 5)
    assert len(line.waited) <= 120
    assert sum(line.waited) == pytest.approx(5000)
    assert all(0.4 < waited / line.piece < 0.6 for waited in line.waited[:-1])
    assert Timeline().html()


def test_a_wait_that_began_before_the_first_one_ended_is_counted_from_the_start() -> None:
    """Of two threads, the one that began first may be counted last."""
    line = Timeline()
    line.add(-3.0, 0.1)
    assert line.waited == pytest.approx([0.1])


@pytest.mark.long
def test_the_magic_gives_samples_and_shows_them(images: str, s3: EmbeddedServer, tmp_path: Path) -> None:
    with Kernel(tmp_path) as kernel:
        assert kernel.run("%load_ext nbdata").error is None
        assert kernel.run(f"%samples {images} -o found --concurrency 8").error is None
        (shown,) = [one["bundle"] for one in kernel.page.displays if "text/html" in one["bundle"]]
        assert "<img" in shown["text/html"]
        assert "9 samples" in shown["text/plain"]
        assert kernel.run("assert len(found) == 9 and found[0]['cls'] == b'1'").error is None
        assert "no such bucket" in str(kernel.run("%samples s3://nothing-there-at-all/").error)


@pytest.mark.long
def test_the_command_prints_them(images: str, s3: EmbeddedServer) -> None:
    run = subprocess.run([NBDATA, "samples", images], capture_output=True, text=True, timeout=PATIENCE)
    assert (run.returncode, run.stderr) == (0, "")
    assert "9 samples" in run.stdout
    run = subprocess.run(
        [NBDATA, "samples", images, "--json"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert json.loads(run.stdout)["samples"] == 9
    run = subprocess.run(
        [NBDATA, "samples", f"{images}none/"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 1
    assert "no such object or folder" in run.stderr


@pytest.mark.long
def test_a_long_listing_shows_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for number in range(1100):
        (tmp_path / f"{number}.jpg").touch()
        (tmp_path / f"{number}.cls").touch()
    monkeypatch.setattr(loose, "_SHOW_EVERY", 0)
    for quiet in (False, True):
        terminal = Terminal()
        monkeypatch.setattr(slots, "display", lambda terminal=terminal: TextDisplay(terminal))
        assert len(nbdata.samples(str(tmp_path), quiet=quiet, refresh="always")) == 1100
        written = terminal.getvalue()
        if quiet:
            assert not written
        else:
            assert re.findall(r"samples: [\d,]+ samples of ([\d,]+) files so far", written) == [
                "1,000",
                "2,000",
            ]
            assert written.endswith("\r\x1b[K"), "it is gone in the end"
