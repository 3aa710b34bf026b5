"""Steering jobs from the panel, whose transfers it lists, and what it puts into the notebook in front."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, Route, expect

import nbdata
from nbdata.verbs.probe import Probe
from tests.browser.feed import SentFeed, job
from tests.browser.notebook import Notebook
from tests.browser.panel import Panel, expect_focus
from tests.browser.test_looks import contrasts, overflow
from tests.faults.gate import Gate
from tests.lab import Lab
from tests.waiting import wait_until

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]


def requests(context: BrowserContext) -> list[str]:
    """Answer all that the panel asks to have done with jobs, and note it: ``POST a1/cancel BODY``."""
    asked: list[str] = []

    def note(route: Route) -> None:
        place = route.request.url.partition("/nbdata/api/jobs/")[2]
        deed = place.partition("?")[0]
        asked.append(f"{route.request.method} {deed} {route.request.post_data or ''}".strip())
        route.fulfill(json={"done": True})

    context.route(re.compile("/nbdata/api/jobs/"), note)
    return asked


def check_looks(panel: Panel) -> None:
    """Check what everyone needs: contrast, axe-core's rules, and nothing that sticks out."""
    assert {name: ratio for name, ratio in contrasts(panel).items() if ratio < 4.5} == {}
    found = Axe().run(panel.page, context="#nbdata-panel")
    assert found.violations_count == 0, found.generate_report()
    assert overflow(panel) == []


def close_notebook(page: Page) -> None:
    """Save and close the notebook in front."""
    page.evaluate(
        """async () => {
            const notebook = jupyterapp.shell.currentWidget;
            await notebook.context.save();
            notebook.close();
        }"""
    )


@pytest.mark.long
def test_the_rate_of_a_live_job_is_limited_and_the_limit_lifted(
    panel: Panel, gate: Gate, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    url = put({"a.bin": os.urandom(20_000_000)})
    gate.close(after=5_000_000)
    live = nbdata.Pull(url, str(tmp_path / "out")).start()
    panel.width(250)
    card, form = panel.job(live.id), panel.job(live.id).get_by_role("form")
    dialog = panel.page.get_by_role("dialog")

    def limit(rate: str) -> None:
        panel.button(live.id, "More").click()
        card.get_by_role("button", name="Limit rate…").click()
        form.get_by_role("textbox").fill(rate)

    limit("fast")
    form.get_by_role("textbox").press("Enter")
    dialog.get_by_role("button", name="Limit rate").click()
    expect(form.get_by_role("alert")).to_contain_text("'fast' is not a size")
    form.get_by_role("textbox").fill("2 MB/s")
    expect(form).to_contain_text(f"%transfers {live.id} --max-rate 2MB/s")
    shoot(panel.page, "limit-rate")
    check_looks(panel)
    form.get_by_role("button", name="Limit", exact=True).click()
    dialog.get_by_role("button", name="Limit rate").click()
    expect(card).to_contain_text("limited to 2.0 MB/s")
    expect_focus(panel.button(live.id, "More"))
    assert live.max_rate == 2_000_000
    shoot(panel.page, "limited")
    limit("")
    expect(form).to_contain_text(f"%transfers {live.id} --max-rate 0")
    form.get_by_role("textbox").press("Enter")
    dialog.get_by_role("button", name="Limit rate").click()
    expect(card).not_to_contain_text("limited to")
    assert live.max_rate is None
    live.cancel()


@pytest.mark.parametrize("theme", ["Light", "Dark"])
@pytest.mark.long
def test_the_further_actions_of_a_job_can_be_read_and_used_by_keys(
    context: BrowserContext, lab: Lab, theme: str, shoot: Shoot
) -> None:
    (lab.root / "work").mkdir(exist_ok=True)
    (lab.root / "work" / "other.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )
    told = {"folder": "vols20", "max_rate": 20_000_000}
    SentFeed(
        context,
        job("vols20", notebook="work/other.ipynb", **told),
        job("gone", notebook="work/gone.ipynb"),
        job("unknown", can_limit=False, command=""),
        job("over", state="DONE", seconds=3.0, notebook="work/other.ipynb"),
    )
    panel = Panel.open(context, lab)
    panel.theme(theme)
    panel.width(250)
    panel.button("vols20", "More").press("Enter")
    more = panel.job("vols20").get_by_role("group", name="More")
    expect(more).to_be_visible()
    shoot(panel.page, f"more-{theme.lower()}")
    check_looks(panel)
    more.get_by_role("button").last.press("Escape")
    expect_focus(panel.button("vols20", "More"))
    expect(more).to_have_count(0)
    panel.page.keyboard.press("Enter")
    expect_focus(more.get_by_role("button").first)
    panel.page.keyboard.press("Escape")
    expect(more).to_have_count(0)
    panel.button("unknown", "More").click()
    expect(panel.job("unknown").get_by_role("group").get_by_role("button")).to_have_count(0)
    panel.button("gone", "More").click()
    panel.job("gone").get_by_role("button", name="Go to its notebook").click()
    expect(panel.job("gone").get_by_role("alert")).to_contain_text("work/gone.ipynb is not there any more")
    panel.job("over").locator("summary").click()
    expect(panel.button("over", "Go to its notebook")).to_be_visible()
    panel.button("vols20", "More").click()
    panel.job("vols20").get_by_role("button", name="Go to its notebook").click()
    panel.page.wait_for_function("() => jupyterapp.shell.currentWidget?.context?.path === 'work/other.ipynb'")


@pytest.mark.long
def test_a_job_from_elsewhere_and_a_cancel_that_deletes_are_asked_about(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    asked = requests(context)
    SentFeed(
        context,
        job("mine"),
        job("theirs", here=False, owner="other.ipynb"),
        job("stream", verb="cache_stream", target=""),
        job("failed", here=False, owner="script.py", state="FAILED"),
    )
    panel = Panel.open(context, lab)
    dialog = panel.page.get_by_role("dialog")
    panel.button("theirs", "Pause").click()
    expect(dialog).to_contain_text("Pause: pull theirs?")
    expect(dialog).to_contain_text("not begun on this server, but by other.ipynb")
    shoot(panel.page, "asks-elsewhere")
    found = Axe().run(panel.page, context=".jp-Dialog-content")
    assert found.violations_count == 0, found.generate_report()
    panel.page.keyboard.press("Enter")  # the safe answer has the focus
    expect(dialog).to_have_count(0)
    panel.button("stream", "Cancel").click()
    expect(dialog).to_contain_text("The files in its cache will be deleted")
    dialog.get_by_role("button", name="Do nothing").click()
    panel.button("mine", "Pause").click()
    panel.button("mine", "Cancel").click()
    wait_until(lambda: len(asked) == 2)
    assert asked == ["POST mine/pause", "POST mine/cancel"]  # unasked, and nothing before
    panel.press("theirs", "Cancel")
    panel.press("failed", "Retry")
    wait_until(lambda: len(asked) == 4)
    assert asked[2:] == ["POST theirs/cancel", "POST failed/again"]
    panel.button("theirs", "More").click()
    panel.job("theirs").get_by_role("button", name="Limit rate…").click()
    panel.job("theirs").get_by_role("textbox").fill("5MB")
    panel.job("theirs").get_by_role("textbox").press("Enter")
    dialog.get_by_role("button", name="Limit rate").click()
    wait_until(lambda: len(asked) == 5)
    assert asked[4] == 'POST theirs/limit {"max_rate":"5MB"}'


@pytest.mark.long
def test_the_transfers_of_the_notebook_in_front_are_listed_and_the_choice_is_kept(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    elsewhere = Probe(items=1, tag="elsewhere").start()
    elsewhere.wait()
    pull = f"%pull {lab.root}/none {lab.root}/data -b"
    with Notebook(context, lab, "mine", "%load_ext nbdata", pull) as notebook:
        panel, page = notebook.panel, notebook.panel.page

        def choice(name: str) -> None:
            expect(panel.root.get_by_role("button", name=name, exact=True)).to_have_attribute(
                "aria-pressed", "true"
            )

        own = panel.root.locator(".nbd-Job", has_text="none → data")
        expect(own).to_be_visible()
        expect(panel.job(elsewhere.id)).to_be_visible()
        choice("All")
        with page.expect_response(re.compile("/lab/api/settings")):
            panel.root.get_by_role("button", name="This notebook").click()
        expect(panel.job(elsewhere.id)).to_have_count(0)
        expect(own).to_be_visible()
        panel.width(250)
        shoot(page, "of-this-notebook")
        assert overflow(panel) == []
        own.get_by_role("button", name="Edit and run").click()
        cell = page.locator(".jp-CodeCell").last
        expect(cell.locator(".cm-content")).to_have_text(re.compile(r"^%pull .*/none .*/data$"))
        page.reload()
        panel.show()
        choice("This notebook")
        expect(panel.job(elsewhere.id)).to_have_count(0)
        expect(own).to_be_visible()
        close_notebook(page)
        choice("This server")
        page.evaluate("() => void jupyterapp.commands.execute('docmanager:open', { path: 'mine.ipynb' })")
        choice("This notebook")
        page.evaluate("() => void jupyterapp.serviceManager.settings.save('nbdata:panel', '{}')")


@pytest.mark.long
def test_edit_and_run_puts_the_line_into_a_new_cell_and_does_not_run_it(
    context: BrowserContext, lab: Lab, shoot: Shoot
) -> None:
    SentFeed(
        context,
        job("bad", state="FAILED", error="no such bucket", command="pull s3://bucket/bad/ '/work/a b'"),
        job("odd", state="INTERRUPTED", command="", why_no_command="a name has a line break"),
        job("good", state="DONE", seconds=3.0),
    )
    with Notebook(context, lab, "edits", "x = 1", "y = 2", run=False) as notebook:
        panel, page = notebook.panel, notebook.panel.page
        panel.width(250)
        shoot(page, "edit-and-run")
        assert overflow(panel) == []
        for name in ("odd", "good"):
            expect(panel.job(name).get_by_role("button", name="Edit and run")).to_have_count(0)
        panel.button("bad", "Edit and run").click()
        cells = page.locator(".jp-NotebookPanel .jp-CodeCell")
        expect(cells).to_have_count(3)
        expect(cells.nth(1).locator(".cm-content")).to_have_text("%pull s3://bucket/bad/ '/work/a b'")
        expect_focus(cells.nth(1).locator(".cm-content"))
        expect(cells.nth(1).locator(".jp-InputPrompt")).to_have_text("[ ]:")
        shoot(page, "edited")
        close_notebook(page)
        panel.button("bad", "Edit and run").click()
        expect(panel.job("bad").get_by_role("status")).to_contain_text("no Python notebook is in front")
        copied = page.evaluate("() => navigator.clipboard.readText()")
        assert copied == "%pull s3://bucket/bad/ '/work/a b'"
        shoot(page, "copied-instead")
        assert panel.errors == []


# -- this kernel ------------------------------------------------------------------------------------

# Makes a kernel one without nbdata, or with an older one, by the name of its notebook.
_STARTUP = """
import os, sys
name = os.path.basename(os.environ.get("JPY_SESSION_NAME", ""))
if name == "bare.ipynb":
    import importlib.util
    found = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name == "nbdata" else found(name, *rest)
elif name == "older.ipynb":
    import nbdata
    nbdata.__version__ = "0.0.9"
    get_ipython().run_line_magic("load_ext", "nbdata")
del name
"""


@pytest.fixture
def questions(context: BrowserContext) -> list[str]:
    """The questions that pages have asked kernels."""
    asked: list[str] = []

    def note(payload: str | bytes) -> None:
        if b"extension_manager" in (payload.encode() if isinstance(payload, str) else payload):
            asked.append("asked")

    context.on("page", lambda page: page.on("websocket", lambda ws: ws.on("framesent", note)))
    return asked


@pytest.mark.long
def test_a_kernel_that_has_not_loaded_nbdata_is_told_once_and_mended(
    context: BrowserContext, lab: Lab, questions: list[str], shoot: Shoot
) -> None:
    busy = "import os, time\nopen('busy', 'w').close()\nwhile not os.path.exists('go'): time.sleep(.05)"
    with Notebook(context, lab, "fresh", "%pull s3://bucket/x/ x", run=False) as notebook:
        panel, page = notebook.panel, notebook.panel.page
        section = panel.root.get_by_role("region", name="This kernel")
        expect(section).to_contain_text("This notebook has not loaded nbdata.")
        expect(section).to_contain_text("%load_ext nbdata")
        panel.width(250)
        shoot(page, "kernel-not-loaded")
        check_looks(panel)
        page.evaluate("jupyterapp.shell.activateById('jp-property-inspector')")
        panel.show()
        expect(section).to_be_visible()
        assert len(questions) == 1
        # After a restart it is asked again, but not while it is busy.
        page.evaluate("jupyterapp.shell.activateById('jp-property-inspector')")
        page.evaluate("async () => void await jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        status = "jupyterapp.shell.currentWidget.sessionContext.session.kernel.status"
        page.wait_for_function(f"() => {status} === 'idle'")
        # Until the first answer, Lab may miss what the new kernel says of its state.
        page.evaluate(
            """async () => {
                const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
                await kernel.requestExecute({ code: '' }).done;
            }"""
        )
        page.evaluate(
            """code => {
                const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
                return void kernel.requestExecute({ code });
            }""",
            busy,
        )
        wait_until((lab.root / "busy").exists)
        page.wait_for_function(f"() => {status} === 'busy'")
        panel.show()
        expect(section).to_have_count(0)
        assert len(questions) == 1
        (lab.root / "go").touch()
        expect(section).to_be_visible()
        assert len(questions) == 2
        section.get_by_role("button", name="Insert").click()
        cell = page.locator(".jp-NotebookPanel .jp-CodeCell").last
        expect(cell.locator(".cm-content")).to_have_text("%load_ext nbdata")
        expect(section).to_have_count(0)  # the notebook has the line now
        page.keyboard.press("Control+Enter")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("lists the verbs")
        expect(cell.locator(".jp-InputPrompt")).to_have_text("[2]:")  # one cell before it, and no question
        assert len(questions) == 2
        assert panel.errors == []


@pytest.mark.parametrize(
    ("name", "told", "line"),
    [
        ("bare", "nbdata is not installed in the kernel of this notebook.", "%pip install nbdata"),
        ("older", "This kernel has nbdata 0.0.9, and the Jupyter server", "%pip install nbdata=="),
    ],
)
@pytest.mark.long
def test_a_kernel_without_nbdata_or_with_another_version_is_told(
    context: BrowserContext, lab: Lab, name: str, told: str, line: str, shoot: Shoot
) -> None:
    startup = Path(lab.root.parent, "ipython/profile_default/startup")
    startup.mkdir(parents=True, exist_ok=True)
    (startup / "00-kernels.py").write_text(_STARTUP)
    with Notebook(context, lab, name, "import nbdata", run=False) as notebook:
        panel = notebook.panel
        section = panel.root.get_by_role("region", name="This kernel")
        expect(section).to_contain_text(told)
        shoot(panel.page, f"kernel-{name}")
        section.get_by_role("button", name="Copy").click()
        expect(section.get_by_role("button", name="Copied")).to_be_visible()
        assert panel.page.evaluate("() => navigator.clipboard.readText()").startswith(line)


@pytest.mark.long
def test_a_kernel_in_which_nbdata_was_installed_is_told_to_load_it(
    context: BrowserContext, lab: Lab, questions: list[str], shoot: Shoot
) -> None:
    startup = Path(lab.root.parent, "ipython/profile_default/startup")
    startup.mkdir(parents=True, exist_ok=True)
    (startup / "00-kernels.py").write_text(_STARTUP)
    with Notebook(context, lab, "bare", "%pull s3://bucket/x/ x", run=False) as notebook:
        section = notebook.panel.root.get_by_role("region", name="This kernel")

        def run(code: str) -> None:
            notebook.panel.page.evaluate(
                """async code => {
                    const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
                    await kernel.requestExecute({ code }).done;
                }""",
                code,
            )

        expect(section).to_contain_text("nbdata is not installed in the kernel")
        run("# install nbdata, in vain")
        expect(section).to_have_count(0)
        wait_until(lambda: notebook.panel.page.wait_for_timeout(20) or len(questions) == 2)
        run("# install nbdata\nimportlib.util.find_spec = found")
        expect(section).to_contain_text("This notebook has not loaded nbdata.")
        expect(section).to_contain_text("%load_ext nbdata")
        assert len(questions) == 3
        shoot(notebook.panel.page, "kernel-installed")


@pytest.mark.long
def test_a_notebook_that_does_not_use_nbdata_is_not_asked(
    context: BrowserContext, lab: Lab, questions: list[str]
) -> None:
    with Notebook(context, lab, "other", "import math\nopen('ran', 'w').write('yes\\n')") as notebook:
        notebook.said("ran")
        notebook.panel.page.evaluate("jupyterapp.shell.activateById('jp-property-inspector')")
        notebook.panel.show()
        expect(notebook.panel.root.get_by_role("region", name="This kernel")).to_have_count(0)
        assert questions == []
