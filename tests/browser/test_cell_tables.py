"""The tables that cells show: no text is drawn over another, in any width, and ids can be read and copied whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.notebook import Notebook
from tests.lab import Lab

Shoot = Callable[[Page, str], None]

JOBS = """
import os, pathlib, time, nbdata
from IPython.display import display
from nbdata.report import Snapshot
from nbdata.verbs.transfers import JobList
os.environ["NBDATA_HOST"] = "inline"
states = ("QUEUED", "PLANNING", "RUNNING", "PAUSED", "DONE", "FAILED", "CANCELLED", "INTERRUPTED")
verbs = ("pull", "untar_volumes", "cache_stream", "md5check")
display(JobList(
    Snapshot(
        id=f"{0xfedcb0 + n:06x}", verb=verbs[n % 4], state=state, source="s3://bucket/a/long/prefix/with/many/parts/",
        target=f"/home/me/project/data-{'x' * 4 * n}", bytes=10**(n + 3), bytes_total=10**(n + 4), files=n,
        files_total=10**n, rate=1e7, eta=3000.0, created=time.time() - 10**n, seconds=10.0**n, owner="kernel 12",
        error={"message": "no such bucket"} if state == "FAILED" else None, reason="user",
    )
    for n, state in enumerate(states)
))
"""
DATA = """
data = pathlib.Path("data")
for n in range(40):
    (data / f"folder-{n % 3}").mkdir(parents=True, exist_ok=True)
    (data / f"folder-{n % 3}" / f"{n:06}{'-long' * n}.txt").write_text("x" * 10**(n % 7))
nbdata.md5check(data, write="MD5SUMS", quiet=True)
(data / "folder-0" / "000000.txt").write_text("spoilt")
display(nbdata.push(data, "copy", dry_run=True))
display(nbdata.push(data, "copy", quiet=True))
display(nbdata.md5check(data, on_error="report", quiet=True))
display(nbdata.ls(data, quiet=True))
display(nbdata.du(data, quiet=True))
display(nbdata.pack(data, "packed.tar.gz", quiet=True))
display(nbdata.untar_volumes("packed.tar.gz", list=True, quiet=True))
display(nbdata.quota(quiet=True))
display(nbdata.cleanup("copy", all=True, dry_run=True))
display(nbdata.samples(data))
pathlib.Path("shown").write_text("all\\n")
"""

# Pairs of texts that are drawn over each other: the boxes of their letters share more than a pixel.
OVERDRAWN = """output => {
    const boxes = [];
    const texts = document.createTreeWalker(output, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const range = document.createRange();
        range.selectNodeContents(texts.currentNode);
        if (!texts.currentNode.textContent.trim() || !texts.currentNode.parentElement.checkVisibility()) continue;
        for (const box of range.getClientRects())
            if (box.width && box.height) boxes.push([texts.currentNode, box]);
    }
    const clipped = node => {
        for (let at = node.parentElement; at !== output; at = at.parentElement)
            if (getComputedStyle(at).overflow === 'hidden') return at;
    };
    const found = [];
    for (let i = 0; i < boxes.length; i++)
        for (let j = i + 1; j < Math.min(boxes.length, i + 60); j++) {
            const [one, a] = boxes[i], [other, b] = boxes[j];
            if (one === other || clipped(one) !== clipped(other)) continue;
            if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
                found.push(`${one.textContent} | ${other.textContent}`);
        }
    return found;
}"""


@pytest.fixture
def page(context: BrowserContext, lab: Lab) -> Iterator[Page]:
    """A notebook whose cells show all tables."""
    with Notebook(context, lab, "tables", JOBS, DATA) as notebook:
        assert notebook.said("shown") == "all"
        yield notebook.panel.page


def test_no_text_in_a_table_of_a_cell_is_drawn_over_another(page: Page, shoot: Shoot) -> None:
    outputs = page.locator(".jp-RenderedHTML")
    expect(outputs.last).to_contain_text("samples")
    page.evaluate("() => jupyterapp.shell.collapseRight()")
    for width in (1280, 700):
        page.set_viewport_size({"width": width, "height": 2600})
        for number in range(outputs.count()):
            assert outputs.nth(number).evaluate(OVERDRAWN) == [], f"output {number}, {width} pixels wide"
        outputs.first.scroll_into_view_if_needed()
        shoot(page, f"cell-tables-{width}")


def test_the_id_of_a_job_is_shown_whole(page: Page) -> None:
    """Users type it in ``%transfers ID``."""
    first = page.locator(".jp-RenderedHTML").first
    for number in range(8):
        shown = first.get_by_text(f"{0xFEDCB0 + number:06x}", exact=True)
        assert shown.evaluate("id => id.scrollWidth <= id.clientWidth")
