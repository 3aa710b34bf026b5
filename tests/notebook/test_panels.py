"""Panels in cells of real kernels: the messages for the front end, their number, and the final display."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.client.connection import Connection
from nbdata.client.remote import AgentHost
from nbdata.notebook.views import background_note
from nbdata.report import Snapshot
from nbdata.runtime import endpoint
from nbdata.verbs import GROUPS, VERBS
from tests.kernel import Kernel
from tests.waiting import wait_until

_WIDGET = "application/vnd.jupyter.widget-view+json"
_SHOWN = ("display_data", "update_display_data", "comm_open", "comm_msg", "comm_close")


@pytest.fixture
def probing(tmp_path: Path) -> Iterator[Kernel]:
    """A kernel with the probe verb, which transfers nothing and needs no store."""
    with Kernel(tmp_path) as running:
        assert running.run("%load_ext nbdata\nfrom nbdata.verbs.probe import Probe").error is None
        yield running


def newest() -> str:
    """Return the id of the newest job of any agent."""
    return AgentHost().jobs()[-1].id


def told(kernel: Kernel, since: int = 0) -> list[dict[str, Any]]:
    """Return the messages for which a front end would draw something."""
    return [m for m in kernel.page.messages[since:] if m["msg_type"] in _SHOWN]


def buttons(kernel: Kernel) -> dict[str, str]:
    """Return the models of all buttons, by description."""
    return {
        state["description"]: model
        for model, state in kernel.widgets().items()
        if state.get("_model_name") == "ButtonModel"
    }


def enabled(kernel: Kernel) -> set[str]:
    """Return the buttons that are enabled."""
    states = kernel.widgets()
    return {name for name, model in buttons(kernel).items() if not states[model]["disabled"]}


def whole(bundle: dict[str, Any]) -> bool:
    """True if a bundle is complete for viewers that show only text or only HTML, and needs no widget."""
    return bool(bundle["text/plain"]) and bool(bundle["text/html"]) and _WIDGET not in bundle


def test_a_foreground_job_is_one_display_that_ends_as_its_report(probing: Kernel) -> None:
    cell = probing.start("r = Probe(items=20, delay=100, tag='foreground').run()")
    probing.until(lambda: "running" in probing.page.texts(cell))
    (bundle,) = probing.page.of(cell)
    assert whole(bundle)
    for shown in (bundle["text/plain"], re.sub("<[^>]*>", "", bundle["text/html"])):
        assert re.search(r"\d+%( · |, )(.* left( · |, ))?running( · |, )\d+/20 files", shown)
        assert re.search(r"as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d; ", shown)
        assert "the stop button stops it; run it again to resume" in shown
    probing.finish(cell)
    (bundle,) = probing.page.of(cell)
    assert whole(bundle)
    assert bundle["text/plain"].startswith("probe: 20 handed out")
    assert not probing.widgets(), "a click would wait for the end of the cell"


def test_a_report_that_is_also_the_cells_value_is_shown_once_and_again_when_it_is_asked_for(
    probing: Kernel, tree: Path, tmp_path: Path
) -> None:
    probing.run("import nbdata")
    for line in (f"nbdata.pull({str(tree)!r}, 'here')", f"%pull {tree} there"):
        ran = probing.run(line)
        assert ran.error is None
        assert len(ran.displays) == 1, line
    probing.run(f"kept = nbdata.pull({str(tree)!r}, 'elsewhere')")
    assert "5 fetched" in probing.run("kept").displays[0]
    assert len(probing.run("kept").displays) == 1


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("how", ["r = {}.run()", "{}.start()"])
def test_a_job_that_ends_at_once_shows_its_report_and_nothing_else(how: str, probing: Kernel) -> None:
    for attempt in range(100):
        cell = probing.start(how.format(f"Probe(items=2, delay=75, tag='{how} {attempt}')"))
        probing.finish(cell)
        probing.until(lambda cell=cell: "2 handed out" in probing.page.texts(cell))  # type: ignore[misc]
        if AgentHost().jobs()[-1].seconds < 0.35:  # it may take longer on a busy machine
            break
    else:
        pytest.fail("the machine is too slow to see a quick job")
    drawn = [m for m in told(probing) if m["parent_header"].get("msg_id") == cell]
    assert [m["msg_type"] for m in drawn] == ["display_data"]


def test_a_background_job_moves_in_its_own_cell_while_others_run(probing: Kernel, tmp_path: Path) -> None:
    job = probing.start("Probe(items=100, delay=100, tag='background').start()")
    probing.finish(job)
    first = probing.page.of(job)[0]["text/plain"]
    assert f"%transfers {newest()} shows its state" in first
    busy = probing.start(
        "import os, time\nwhile not os.path.exists('moved'): time.sleep(0.02); print('busy')"
    )
    probing.until(lambda: probing.page.of(job)[0]["text/plain"] != first)  # updates meanwhile
    (tmp_path / "moved").touch()
    probing.finish(busy)
    probing.until(lambda: "100 handed out" in probing.page.texts(job))
    # The buttons are removed, so a saved notebook needs no widget.
    probing.until(lambda: probing.page.of(job)[1] == {"text/plain": ""})
    assert whole(probing.page.of(job)[0])
    assert probing.page.of(busy) == []
    assert not [
        m for m in probing.page.messages if m["msg_type"] == "stream" and "probe" in m["content"]["text"]
    ]


@pytest.mark.parametrize("items", [1, 100_000])
@pytest.mark.in_ci("100000")
def test_messages_depend_on_time_and_not_on_the_number_of_objects(items: int, probing: Kernel) -> None:
    """Four snapshots a second give one message each; a few more appear when the panel and its buttons come and go."""
    since, began = len(probing.page.messages), time.monotonic()
    cell = probing.start(f"r = Probe(items={items}, delay={1500 // items}, tag='many {items}').run()")
    probing.finish(cell)
    limit = 4 * (time.monotonic() - began) + 3
    drawn = told(probing, since)
    assert len(drawn) <= limit, f"{len(drawn)} messages, {limit} allowed"
    assert f"{items:,} handed out" in probing.page.texts(cell)

    since, began = len(probing.page.messages), time.monotonic()
    cell = probing.start(
        f"Probe(items={items}, delay={1500 // items}, tag='many in the background {items}').start()"
    )
    probing.until(lambda: f"{items:,} handed out" in probing.page.texts(cell))
    opened = [m for m in told(probing, since) if m["msg_type"] == "comm_open"]
    limit = 4 * (time.monotonic() - began) + 3 + len(opened) + 10
    assert len(opened) <= 20
    assert len(told(probing, since)) <= limit


def test_the_buttons_pause_resume_and_cancel(probing: Kernel) -> None:
    cell = probing.start("j = Probe(items=3000, delay=100, tag='pressed').start()\nj")
    probing.until(lambda: len(buttons(probing)) == 3 and "running" in probing.page.texts(cell))
    probing.finish(cell)
    probing.until(lambda: enabled(probing) == {"Pause", "Cancel"})
    job = newest()
    probing.click(buttons(probing)["Pause"])
    probing.until(lambda: "paused" in probing.page.texts(cell))
    assert AgentHost().job(job).snapshot().state == "PAUSED"
    probing.until(lambda: enabled(probing) == {"Resume", "Cancel"})
    probing.click(buttons(probing)["Resume"])
    probing.until(lambda: "running" in probing.page.texts(cell) and enabled(probing) == {"Pause", "Cancel"})
    probing.click(buttons(probing)["Cancel"])
    probing.until(lambda: "CANCELLED" in probing.page.texts(cell))
    panel = probing.page.of(cell)[0]
    assert "run it again to resume" in panel["text/plain"]
    assert "run it again to resume" in panel["text/html"]
    assert AgentHost().job(job).snapshot().state == "CANCELLED"


@pytest.mark.long
def test_a_page_that_was_loaded_again_reads_the_end_where_the_buttons_were(probing: Kernel) -> None:
    """The reloaded page knows no display ids any more, but gets the widgets from the kernel."""
    cell = probing.start("Probe(items=12, delay=100, tag='loaded again').start()")
    probing.until(lambda: "12 handed out" in probing.page.texts(cell))
    probing.until(lambda: any("12 handed out" in str(w.get("value")) for w in probing.widgets().values()))


@pytest.mark.long
def test_a_job_shown_twice_is_followed_once_and_moves_in_both_cells(probing: Kernel) -> None:
    one = probing.start("j = Probe(items=60, delay=100, tag='twice').start()\nj")
    probing.finish(one)
    two = probing.start("j")
    probing.finish(two)
    threads = probing.run(
        "import threading; print([t.name for t in threading.enumerate() if 'panel' in t.name])"
    )
    assert threads.text.count("nbdata-panel") == 1
    for cell in (one, two):
        probing.until(lambda cell=cell: "60 handed out" in probing.page.texts(cell))  # type: ignore[misc]
    left = probing.run(
        "import threading; print([t.name for t in threading.enumerate() if 'panel' in t.name])"
    )
    assert left.text.strip() == "[]"


@pytest.mark.long
def test_only_so_many_jobs_are_followed_and_the_others_say_so(probing: Kernel) -> None:
    code = """
import nbdata.notebook.background as background
background._MOST = 2
jobs = [Probe(items=3000, delay=100, tag=f'crowd {n}').start() for n in range(3)]
for job in jobs: display(job)
"""
    out = probing.run(code)
    assert out.error is None
    assert sum("not shown here, because 2 other jobs are" in text for text in out.displays) == 1
    probing.run("for job in jobs: job.cancel()")


def test_a_job_that_is_over_is_shown_as_its_report_at_once(probing: Kernel) -> None:
    probing.run("j = Probe(items=6, delay=100, tag='over').start(); r = j.wait()")
    cell = probing.start("j")
    probing.finish(cell)
    (drawn,) = [m for m in told(probing) if m["parent_header"].get("msg_id") == cell]
    assert drawn["content"]["data"]["text/plain"].startswith("probe: 6 handed out")


def test_a_failed_background_job_says_what_failed_and_why(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x").write_bytes(b"1")
    (tmp_path / "source" / "x.md5").write_text("00000000000000000000000000000000  x\n")
    cell = kernel.start("%md5check source -b")
    kernel.until(lambda: "FAILED" in kernel.page.texts(cell))
    panel = kernel.page.of(cell)[0]
    assert whole(panel)
    assert re.search(r"<th[^>]*>expected</th><th[^>]*>got</th>", panel["text/html"])
    assert "0000000000000000" in panel["text/html"]
    assert "0000000000000000" in panel["text/plain"]


def test_when_the_agent_dies_both_panels_say_that_the_job_was_interrupted(probing: Kernel) -> None:
    back = probing.start("Probe(items=3000, delay=100, tag='orphan').start()")
    probing.until(lambda: "running" in probing.page.texts(back))
    front = probing.start("Probe(items=3000, delay=100, tag='orphan in front').run()")
    probing.until(lambda: "running" in probing.page.texts(front))
    from nbdata.client.agents import stop_all

    stop_all(now=True)
    for cell in (back, front):
        probing.until(lambda cell=cell: "interrupted" in probing.page.texts(cell))  # type: ignore[misc]
        panel = probing.page.of(cell)[0]
        assert whole(panel)
        assert "running" not in panel["text/plain"]
    assert "again to resume" in probing.page.of(back)[0]["text/plain"]
    probing.until(
        lambda: "again to resume" in str([m for m in probing.page.messages if m["msg_type"] == "error"])
    )
    assert "again to resume" not in probing.page.of(front)[0]["text/plain"], (
        "the error below it says that already"
    )


@pytest.mark.long
def test_when_the_agent_does_not_answer_no_panel_says_that_its_job_runs_or_was_interrupted(
    probing: Kernel,
) -> None:
    cell = probing.start("Probe(items=3000, delay=100, tag='stuck').run()")
    probing.until(lambda: "running" in probing.page.texts(cell))
    with Connection(endpoint()) as connection:
        pid = int(connection.ask({"do": "hello"})["pid"])
    os.kill(pid, signal.SIGSTOP)
    try:
        probing.manager.interrupt_kernel()
        probing.finish(cell)
    finally:
        os.kill(pid, signal.SIGCONT)
    (panel,) = probing.page.of(cell)
    assert whole(panel)
    assert panel["text/plain"].split("  ")[1].startswith("its state is not known")
    assert "running" not in panel["text/plain"]
    nbdata.Transfers(newest(), cancel=True).run()


@pytest.mark.long
def test_without_ipywidgets_the_panel_is_complete_and_has_no_buttons(tmp_path: Path) -> None:
    with Kernel(tmp_path) as kernel:
        kernel.run("import sys; sys.modules['ipywidgets'] = None")
        kernel.run("%load_ext nbdata\nfrom nbdata.verbs.probe import Probe")
        cell = kernel.start("Probe(items=150, delay=100, tag='no widgets').start()")
        kernel.finish(cell)
        (bundle,) = kernel.page.of(cell)
        assert whole(bundle)
        assert "running" in bundle["text/plain"]
        kernel.until(lambda: "150 handed out" in kernel.page.texts(cell))
        assert len(kernel.page.of(cell)) == 1
        assert not [m for m in kernel.page.messages if m["msg_type"] == "comm_open"]
        (loaded,) = [m for m in kernel.page.messages if m["msg_type"] in ("error", "stream")]
        assert "%nbdata? lists the verbs" in loaded["content"]["text"]


def test_loading_says_one_line_and_only_once(tmp_path: Path) -> None:
    with Kernel(tmp_path) as kernel:
        (line,) = kernel.run("%load_ext nbdata").text.splitlines()
        assert line == f"nbdata {nbdata.__version__}: %nbdata? lists the verbs, %pull? explains one"
        again = "%reload_ext nbdata\n%unload_ext nbdata\n%load_ext nbdata"
        assert kernel.run(again).text == ""


def test_the_help_of_nbdata_names_each_verb_in_a_group_with_an_example(tmp_path: Path) -> None:
    with Kernel(tmp_path) as kernel:
        kernel.run("%load_ext nbdata")
        told = kernel.run("print(get_ipython().find_line_magic('nbdata').__doc__)").text.splitlines()
    assert [line for line in told[1:] if line and line[0] != " "] == [*GROUPS, "Files"]
    assert any(line.startswith("  %shift ") for line in told)
    for cls in VERBS.values():
        name = f"%nbdata {cls.verb}" if cls.verb == "ls" else f"%{cls.verb}"
        at = next(n for n, line in enumerate(told) if line.startswith(f"  {name} "))
        assert cls.summary in told[at]
        assert told[at + 1].strip().endswith(cls.examples[0])
    assert max(map(len, told)) <= 120


def test_loading_the_extension_is_fast_and_leaves_ipywidgets_alone(tmp_path: Path) -> None:
    with Kernel(tmp_path) as kernel:
        code = "import time, sys; t = time.thread_time()\n%load_ext nbdata\nt = time.thread_time() - t\n"
        out = kernel.run(
            code + "print(t, 'ipywidgets' in sys.modules, 'nbdata.client.inline' in sys.modules)"
        )
    seconds, widgets, inline = out.text.splitlines()[-1].split()
    assert float(seconds) < 0.3
    assert (widgets, inline) == ("False", "False")


@pytest.mark.long
def test_a_followed_job_keeps_no_kernel_alive_and_harms_no_fork(probing: Kernel) -> None:
    cell = probing.start("j = Probe(items=3000, delay=100, tag='forked').start()\nj")
    probing.until(lambda: "running" in probing.page.texts(cell))
    code = """
import os
child = os.fork()
if not child:
    import nbdata.notebook.background as background
    fine = background._followed == {} and background._lock.acquire(timeout=1)
    os._exit(0 if fine and j.snapshot().state == 'RUNNING' else 1)
print('child:', os.waitpid(child, 0)[1])
"""
    assert "child: 0" in probing.run(code).text
    probing.run("%transfers")
    code = (
        "import threading; print([t.daemon for t in threading.enumerate() if t.name.startswith('nbdata-')])"
    )
    assert probing.run(code).text.strip() == "[True, True]"
    probing.manager.shutdown_kernel(now=False)
    job = AgentHost().job(newest())
    assert job.snapshot().state == "RUNNING"
    job.cancel()


@pytest.mark.long
def test_a_job_of_this_kernel_says_that_it_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_HOST", "inline")
    with Kernel(tmp_path) as kernel:
        kernel.run("%load_ext nbdata\nfrom nbdata.verbs.probe import Probe")
        cell = kernel.start("Probe(items=150, delay=100, tag='inline').start()")
        kernel.finish(cell)
        assert "ends with this kernel; run it again to resume" in kernel.page.texts(cell)
        kernel.until(lambda: "150 handed out" in kernel.page.texts(cell))


@pytest.mark.long
def test_the_table_of_transfers_moves_until_all_are_finished(probing: Kernel) -> None:
    probing.run("j = Probe(items=150, delay=100, tag='in the table').start()")
    job = newest()
    since, began = len(probing.page.messages), time.monotonic()
    cell = probing.start("%transfers")
    probing.finish(cell)
    first = probing.page.texts(cell)
    assert re.search(rf"^{job} +probe .* running .*/150 files", first, re.MULTILINE)
    assert re.search(r"^as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", first, re.MULTILINE)
    probing.until(lambda: re.search(rf"^{job} .* done ", probing.page.texts(cell), re.MULTILINE) is not None)
    assert "as of" not in probing.page.texts(cell)
    running, over = probing.page.of(cell)
    assert f">{job}</span>" in over["text/html"]
    assert job not in running["text/html"], "what is over has a display of its own, which is not drawn anew"
    assert len(told(probing, since)) <= time.monotonic() - began + 4


@pytest.mark.long
def test_only_the_newest_table_of_transfers_is_followed(probing: Kernel) -> None:
    probing.run("j = Probe(items=3000, delay=100, tag='two tables').start()")
    for _ in range(3):
        probing.run("%transfers")
    code = "import threading; print(sum('nbdata-transfers' in t.name for t in threading.enumerate()))"
    wait_until(lambda: probing.run(code).text.strip() == "1")
    probing.run("j.cancel()")
    with pytest.raises(nbdata.Cancelled):
        AgentHost().job(newest()).wait()


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        ("RUNNING", "", "job 3f continues without this notebook; %transfers 3f shows its state"),
        (
            "PAUSED",
            "user",
            "job 3f stays paused also without this notebook; %transfers 3f --resume continues it",
        ),
        (
            "PAUSED",
            "the disk is full",
            "job 3f waits also without this notebook; %transfers 3f --resume continues it",
        ),
        ("CANCELLING", "", "job 3f is being cancelled; %transfers 3f shows its state"),
    ],
)
def test_what_a_background_job_does_without_its_notebook_is_said_by_its_state(
    state: str, reason: str, told: str
) -> None:
    assert background_note(Snapshot(id="3f", verb="pull", state=state, reason=reason), carried=True) == told
