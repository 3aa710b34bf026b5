"""Notebooks in a real JupyterLab: panels and tables below cells, Tab in a cell, kernels that are busy or killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from nbdata.rendering import html_table
from nbdata.report import Snapshot
from nbdata.verbs.transfers import JobList
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel, expect_focus
from tests.lab import Lab
from tests.slow import SlowProxy
from tests.waiting import wait_until

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]


# -- a job's panel below its cell --


@pytest.mark.long
def test_a_background_job_moves_in_its_cell_obeys_its_buttons_and_ends_as_a_report(
    context: BrowserContext, lab: Lab, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    url = put({f"part-{n:02}.bin": os.urandom(1_000_000 if n > 2 else 10_000) for n in range(40)})
    slow.pace(1_000_000)  # long enough for a browser on a busy machine
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    setting = f"import os\nos.environ.update({json.dumps(environment)})\n%load_ext nbdata"
    with Notebook(context, lab, "cell-panel", setting, f"%pull {url} {tmp_path}/data -b") as notebook:
        page = notebook.panel.page
        cell = page.locator(".jp-CodeCell").nth(1)
        said = cell.locator(".jp-OutputArea")
        expect(said).to_contain_text(re.compile(r"\d+% · .*running"))
        expect(said).to_contain_text(re.compile(r"[1-9]\d*/40 files"))
        buttons = {name: said.get_by_role("button", name=name) for name in ("Pause", "Resume", "Cancel")}
        expect(buttons["Cancel"]).to_be_enabled()
        expect(buttons["Resume"]).to_be_disabled()
        shoot(page, "cell-running")
        buttons["Pause"].click()
        expect(said).to_contain_text("paused")
        expect(buttons["Resume"]).to_be_enabled()
        shoot(page, "cell-paused")
        buttons["Resume"].click()
        expect(said).to_contain_text("running")
        slow.pace(40_000_000)
        expect(said).to_contain_text("40 fetched")
        expect(said.get_by_role("button")).to_have_count(0)
        shoot(page, "cell-done")
        page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    saved = json.loads((lab.root / "cell-panel.ipynb").read_text())["cells"][1]["outputs"]
    bundles = [output["data"] for output in saved if "data" in output]
    assert any("40 fetched" in "".join(bundle["text/plain"]) for bundle in bundles)
    assert not any("widget-view" in kind for bundle in bundles for kind in bundle)


# -- tables --


@pytest.mark.long
def test_a_table_sorts_by_a_click_without_a_kernel_and_on_a_page_of_nbconvert(
    context: BrowserContext, lab: Lab, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    for name, sizes in {"a": [5, 50_000], "b": [200_000], "c": [1, 2, 3]}.items():
        (data / name).mkdir(parents=True)
        for number, size in enumerate(sizes):
            (data / name / f"{number}").write_bytes(os.urandom(size))

    def sorts(page: Page) -> None:
        table = page.locator("table[data-nbdata]").first
        order = lambda: [row.split()[-1][:1] for row in table.locator("tbody tr").all_inner_texts()]  # noqa: E731
        objects = table.get_by_role("columnheader", name="objects")
        assert order() == ["b", "a", "c"]
        objects.click()
        assert order() == ["c", "a", "b"]
        expect(objects).to_have_attribute("aria-sort", "descending")
        objects.press("Enter")
        assert order() == ["b", "a", "c"]
        table.get_by_role("columnheader", name="folder").click()
        assert order() == ["a", "b", "c"]
        expect(objects).not_to_have_attribute("aria-sort", "ascending")
        assert table.locator("tfoot").inner_text().split()[-1] == "total"

    with Notebook(context, lab, "sorted", "%load_ext nbdata", f"%du {data}") as notebook:
        page = notebook.panel.page
        expect(page.locator("table[data-nbdata]")).to_contain_text("total")
        page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    sorts(page)
    saved = lab.root / "sorted.ipynb"
    subprocess.run([sys.executable, "-m", "nbconvert", "--to", "html", str(saved)], check=True)
    alone = context.new_page()
    alone.goto(saved.with_suffix(".html").as_uri())
    sorts(alone)


@pytest.mark.long
def test_running_jobs_stay_sorted_and_their_button_focused_while_they_are_drawn_again(
    context: BrowserContext, lab: Lab
) -> None:
    start = "from nbdata.verbs.probe import Probe\njobs = [Probe(items=99_999, delay=50, tag=t).start() for t in 'abc']"
    said = "print(*[job.id for job in jobs], file=open('begun', 'w'))"
    with Notebook(context, lab, "live", "%load_ext nbdata", f"{start}\n{said}", "%transfers") as notebook:
        ids = notebook.said("begun").split()
        table = notebook.panel.page.locator(".jp-OutputArea-output [data-nbdata*='transfers']").first
        begun = table.get_by_role("button", name="begun")

        def order() -> list[str]:
            shown = table.locator("[data-nbdata-rows] > *").all_inner_texts()
            return [one for text in shown for one in ids if one in text]

        def drawn_again() -> None:
            """Wait until these elements were replaced."""
            table.evaluate("e => { e.isOld = true; }")
            wait_until(lambda: table.evaluate("e => !e.isOld"))

        begun.click()
        assert order() == ids[::-1]
        drawn_again()
        assert order() == ids[::-1]
        begun.press("Enter")
        for _ in range(2):
            assert order() == ids
            drawn_again()
        expect(begun).to_contain_text("▴")
        expect_focus(begun)
        for job_id in ids:
            lab.ask(f"nbdata/api/jobs/{job_id}/cancel", "POST")


@pytest.mark.long
def test_where_scripts_are_stripped_tables_are_shown_and_nothing_offers_to_sort_them(
    context: BrowserContext, lab: Lab
) -> None:
    jobs = [Snapshot(id=f"{n:06}", verb="pull", target=f"/w/job-{n}", state="DONE") for n in range(3)]
    html = html_table("", ["name", "size"], [["a", "1 B"], ["b", "2 B"]]) + JobList(jobs)._repr_html_()
    output = {"output_type": "display_data", "data": {"text/html": html}, "metadata": {}}
    cell = {"cell_type": "code", "id": "x", "metadata": {}, "source": "", "outputs": [output]}
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{**cell, "execution_count": 1}]}
    (lab.root / "from-elsewhere.ipynb").write_text(json.dumps(document))  # no signature, so it is not trusted
    page = Panel.open(context, lab, "lab/tree/from-elsewhere.ipynb").page
    output_area = page.locator(".jp-OutputArea-output").first
    for text in ("1 B", "job-1"):
        expect(output_area).to_contain_text(text)
    assert output_area.locator("script, [tabindex='0'] th, th[tabindex]").count() == 0
    expect(output_area.get_by_text("sort by")).to_be_hidden()


# -- Tab --


@pytest.mark.long
def test_tab_in_a_cell_completes_python_and_nbdatas_magics(context: BrowserContext, lab: Lab) -> None:
    loading = "import os\n%load_ext nbdata\nopen('loaded', 'w').write('loaded\\n')"
    with Notebook(context, lab, "completer", loading, "os.pa", "%pull --over") as notebook:
        assert notebook.said("loaded") == "loaded"
        page = notebook.panel.page
        box = page.locator(".jp-Completer")
        python = page.locator(".jp-CodeCell").nth(1).locator(".cm-content")
        python.click()
        page.keyboard.press("End")
        page.keyboard.press("Tab")
        expect(box.get_by_text("path", exact=True)).to_be_visible()
        expect(box.get_by_text("pardir", exact=True)).to_be_visible()
        page.keyboard.press("Escape")
        expect(box).to_be_hidden()
        ours = page.locator(".jp-CodeCell").nth(2).locator(".cm-content")
        ours.click()
        page.keyboard.press("End")
        page.keyboard.press("Tab")
        expect(box.get_by_text("--overwrite", exact=True)).to_be_visible()
        page.keyboard.press("Enter")
        expect(ours).to_have_text("%pull --overwrite")


# -- tables: no text is drawn over another, in any width, and ids can be read and copied whole --


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


@pytest.mark.long
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


@pytest.mark.long
def test_the_id_of_a_job_is_shown_whole(page: Page) -> None:
    """Users type it in ``%transfers ID``."""
    first = page.locator(".jp-RenderedHTML").first
    for number in range(8):
        shown = first.get_by_text(f"{0xFEDCB0 + number:06x}", exact=True)
        assert shown.evaluate("id => id.scrollWidth <= id.clientWidth")


# -- the panel while a kernel is busy, and after it has ended --


SPIN = """
open("spinning", "w").write("yes\\n")
while True:
    pass
"""


def begin(url: str, target: Path, said: str) -> str:
    """Return a cell that starts a transfer and writes the job's id and the kernel's process id to a file."""
    environment = {n: v for n, v in os.environ.items() if n.startswith("AWS_")}
    return f"""
import os
os.environ.update({json.dumps(environment)})
%load_ext nbdata
%pull {url} {target} -b -q -o job
open("{said}", "w").write(f"{{job.id}} {{os.getpid()}}\\n")
"""


def objects(count: int) -> dict[str, bytes]:
    """Create objects that take two seconds each over the slow line."""
    return {f"part-{n:02}.bin": os.urandom(1_000_000) for n in range(count)}


@pytest.mark.long
def test_cancel_works_at_once_while_a_cell_spins_in_plain_python(
    context: BrowserContext, lab: Lab, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    (lab.root / "spinning").unlink(missing_ok=True)
    slow.pace(500_000)
    with Notebook(
        context, lab, "busy", begin(put(objects(80)), tmp_path / "data", "busy.txt"), SPIN
    ) as notebook:
        panel, job_id = notebook.panel, notebook.said("busy.txt").split()[0]
        notebook.said("spinning")
        panel.wait_for_growth(job_id)
        shoot(panel.page, "busy-cell")
        panel.button(job_id, "Cancel").click()
        expect(panel.job(job_id)).to_contain_text("Cancelled")
        kernels = lab.ask("api/kernels").json()
        assert [kernel["execution_state"] for kernel in kernels] == ["busy"]


@pytest.mark.long
def test_a_transfer_goes_on_and_is_shown_when_its_kernel_is_killed(
    context: BrowserContext, lab: Lab, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    slow.pace(500_000)
    with Notebook(
        context, lab, "killed", begin(put(objects(24)), tmp_path / "data", "killed.txt")
    ) as notebook:
        panel, (job_id, pid) = notebook.panel, notebook.said("killed.txt").split()
        expect(panel.running(job_id)).to_be_visible()
        os.kill(int(pid), signal.SIGKILL)
        panel.wait_for_growth(job_id)
        shoot(panel.page, "kernel-killed")
        slow.pace(40_000_000)
        expect(panel.job(job_id)).to_contain_text("Done")
    assert len(list((tmp_path / "data").iterdir())) == 24
