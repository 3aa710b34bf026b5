"""A cell shows each error once, and names the notebook that started a job."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import nbdata
from nbdata.client.context import notebook_path, owner_name
from nbdata.engine.job.failure import failure_of
from nbdata.engine.job.outcomes import BAD
from nbdata.report import BAD_OUTCOMES, Report
from tests.kernel import Kernel


def conflicting(tree: Path, target: Path, *names: str) -> None:
    for name in names:
        (target / name / "in the way").mkdir(parents=True)


def said(kernel: Kernel, line: str) -> tuple[list[str], str]:
    """Return a cell's displays and its error."""
    cell = kernel.run(line)
    return cell.displays, re.sub(r"\x1b\[[0-9;]*m", "", cell.error or "")


@pytest.mark.long
def test_one_failure_is_named_by_the_error_and_counted_in_the_line_above_it(
    kernel: Kernel, tree: Path, tmp_path: Path
) -> None:
    conflicting(tree, tmp_path / "out", "a.txt")
    displays, error = said(kernel, f"%pull {tree} out")
    assert len(displays) == 1
    assert "1 conflict, 4 fetched" in displays[0]
    assert ". FAILED" in displays[0]
    assert "a.txt" not in displays[0]
    assert error.count("a folder with this name exists") == 1


def test_several_failures_are_a_table_and_the_error_counts_them(
    kernel: Kernel, tree: Path, tmp_path: Path
) -> None:
    conflicting(tree, tmp_path / "out", "a.txt", "b/e.txt")
    displays, error = said(kernel, f"%pull {tree} out")
    for name in ("a.txt", "b/e.txt"):
        assert displays[0].count(f"{name}: a folder with this name exists") == 1
        assert name not in error
    assert "2 of 5 are conflicts" in error


def test_a_failed_check_looks_like_one_in_text_and_html_and_stores_its_report(
    kernel: Kernel, tmp_path: Path
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a").write_text("spoilt")
    (tmp_path / "m" / "extra").write_text("x")
    (tmp_path / "m" / "MD5SUMS").write_text(f"{'0' * 32}  a\n")
    cell = kernel.start("%md5check m -o r")
    assert kernel.collect(cell).error is not None
    (bundle,) = kernel.page.of(cell)
    for shown in (bundle["text/plain"], bundle["text/html"]):
        assert "1 mismatch, 1 extra" in shown
        assert ". FAILED" in shown
    assert kernel.run("print(r.counts['mismatch'], r.ok)").text == "1 False\n"


@pytest.mark.parametrize("ok", [0, 3])
def test_the_advice_to_run_it_again_is_given_once(ok: int) -> None:
    for reason in ("the file changed while it was sent. Run the command again", "it broke"):
        report = Report("push", state="FAILED", counts={"failed": 1, "sent": ok}, failures=[["a", reason]])
        assert len(re.findall(r"run (?:it|the command) again", str(failure_of(report)), re.IGNORECASE)) == 1


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("headline", ["", "4 files freed"])
def test_the_report_above_an_error_has_all_counts_and_says_failed(failures: int, headline: str) -> None:
    rows = [[str(n), "why"] for n in range(failures)]
    table = {"caption": "not ok", "head": ["file", "why"], "rows": [*rows, ["x", "extra"]], "failures": True}
    report = Report(
        "v", state="FAILED", headline=headline, counts={"ok": 4, "failed": failures}, failures=rows,
        tables=[table],
    )  # fmt: skip
    for shown in (report.text(raised=True), report.html(raised=True)):
        assert f"{failures} failed" in shown
        assert ". FAILED" in shown
        assert "extra" in shown


def test_a_job_that_could_not_begin_shows_only_its_error(kernel: Kernel) -> None:
    displays, error = said(kernel, "%pull nowhere out")
    assert displays == []
    assert error.count("no such object or folder") == 1


def test_a_report_that_raises_nothing_names_its_failure_once_and_has_no_table_of_one_row() -> None:
    report = Report(
        "pull", "a", "b", state="FAILED", counts={"fetched": 3, "failed": 1}, failures=[["x", "why <not>"]]
    )
    html = report._repr_html_()
    assert html.count("why &lt;not&gt;") == 1
    assert "<table" not in html
    assert "<table" not in Report("pull", "a", "b", counts={"fetched": 3})._repr_html_()
    several = Report(
        "pull", "a", "b", state="FAILED", counts={"failed": 2}, failures=[["x", "1"], ["y", "2"]]
    )
    assert several._repr_html_().count("<tr") == 3


def test_the_notebook_and_the_engine_agree_on_bad_outcomes() -> None:
    assert set(BAD_OUTCOMES) == {str(name) for name in BAD}


@pytest.mark.long
def test_a_job_carries_the_name_of_its_notebook(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> None:
    kernel.run("import os; os.environ['JPY_SESSION_NAME'] = '/home/me/work/train <1>.ipynb'")
    kernel.run("from nbdata.verbs.probe import Probe\nProbe(items=1, tag='whose').run()")
    job = nbdata.transfers(quiet=True)[0]
    assert (job.owner, job.notebook) == ("train <1>.ipynb", "/home/me/work/train <1>.ipynb")
    for odd in ("train.ipynb", "/home/me/Console 1"):  # not a path, not a notebook
        kernel.run(f"os.environ['JPY_SESSION_NAME'] = {odd!r}\nProbe(items=1, tag={odd!r}).run()")
        job = nbdata.transfers(quiet=True)[0]
        assert (job.owner, job.notebook) == (os.path.basename(odd), "")
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(sys, "argv", ["/somewhere/train.py", "x"])
    assert owner_name() == "train.py"
    monkeypatch.setenv(
        "JPY_SESSION_NAME", "/home/me/work/train.ipynb"
    )  # as a notebook's subprocess inherits it
    assert (owner_name(), notebook_path()) == ("train.py", "")
