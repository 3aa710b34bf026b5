"""Control characters in names never reach a terminal; names may come from anyone."""

from __future__ import annotations

import io
from typing import cast

import pytest

import nbdata
from nbdata.display import TextDisplay
from nbdata.engine.job.failure import failure_of
from nbdata.notebook.views import message, view
from nbdata.protocols import Job
from nbdata.rendering import printable
from nbdata.report import Plan, Report, Snapshot
from nbdata.transfer.names import unrepresentable


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain näme 100%.txt", "plain näme 100%.txt"),
        ("red\x1b[31m", "red\\x1b[31m"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("c1\x9b", "c1\\x9b"),
        ("gpj.\u202eexe", "gpj.\\u202eexe"),
        ("not utf-8 \udcff", "not utf-8 \\udcff"),
    ],
)
def test_control_characters_are_escaped(name: str, shown: str) -> None:
    assert printable(name) == shown


def test_no_name_reaches_a_terminal_as_it_is() -> None:
    odd = "a\x1b]0;title\x07b\nc"
    report = Report("pull", source=odd, failures=[[odd, odd]], notes=[odd], state="FAILED")
    report.tables = [{"caption": "", "head": ["name"], "rows": [[odd]]}]
    plan = Plan("pull", odd, notes=[odd])
    job = Snapshot("1", "pull", odd, odd, state="RUNNING", phase=odd)
    shown = [view(job, odd), view(job, odd, state=odd), message(odd)]
    html = [report.html(), plan._repr_html_(), *(each["text/html"] for each in shown)]
    for text in (report.text(), plan.text(), *(each["text/plain"] for each in shown), *html):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert not any(line == "c" for line in text.splitlines())


def test_a_job_that_was_refused_does_not_say_that_there_was_nothing_to_do() -> None:
    assert "nothing was done" in Report("pull", state="FAILED").line
    assert "nothing to do" in Report("pull").line


def test_the_singular_is_used_for_one_folder() -> None:
    assert ": 1 folder, 40 extracted" in Report("untar_volumes", counts={"folders": 1, "extracted": 40}).line
    assert ": 2 folders" in Report("untar_volumes", counts={"folders": 2}).line


def test_the_text_of_an_error_and_the_line_of_a_report_have_nothing_that_a_terminal_obeys() -> None:
    odd = "a\x1b]0;title\x07b\r\nc"
    error = nbdata.NotFound(f"there is no {odd}", path=f"s3://b/{odd}", remedy=odd)
    assert str(error) == repr(str(error))[1:-1].replace("\\\\", "\\")
    assert error.path == f"s3://b/{odd}", "programs get the name as it is"
    failed = failure_of(Report("pull", counts={"failed": 1}, failures=[[odd, f"no such object: {odd}"]]))
    assert str(failed).count("title") == 1, "it is named once"
    for line in (str(failed), Report("pull", odd).line, repr(Report("pull", odd)), Plan("pull", odd).line):
        assert line.isprintable()
    assert Snapshot("1", "pull", odd).line.isprintable()


def test_the_traceback_of_a_loaders_worker_keeps_its_lines_and_nothing_else() -> None:
    told = "Caught NotFound in DataLoader worker 0.\nOriginal Traceback (most recent call last):\n  F\x1b[31m\r\n"
    assert str(nbdata.NotFound(told)).splitlines()[1:] == [
        "Original Traceback (most recent call last):",
        "  F\\x1b[31m\\r",
    ]
    for other in (f"no such object: {told}", told.replace("Original", "original")):
        assert "\n" not in str(nbdata.NotFound(other))
    assert "\n" not in str(nbdata.NotFound(told, path="s3://b/key")), (
        "nbdata's own errors say more than a message"
    )


@pytest.mark.parametrize("key", [".", "..", ".nbdata"])
def test_a_key_that_cannot_be_a_name_is_named(key: str) -> None:
    why = unrepresentable(key)
    assert why
    failed = failure_of(Report("pull", counts={"unrepresentable": 1}, failures=[[key, why]]))
    assert f"first {key}: {why}" in str(failed)


def test_the_bar_of_a_terminal_says_what_a_job_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # it would begin a thread
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    display = TextDisplay(terminal)
    job = Snapshot("1", "pull", state="RUNNING", phase="waits for a job on far\x1b-away", seconds=60.0)
    display.begin(cast(Job, object()))
    display.update(job)
    display.end("", None)
    assert "waits for a job on far\\x1b-away" in terminal.getvalue()
