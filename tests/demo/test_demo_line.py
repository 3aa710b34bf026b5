"""The line at the end of the demo."""

from __future__ import annotations

from pathlib import Path

from nbdata.demo.run import _notebook_line, _timed
from nbdata.report import Report


def test_the_notebook_is_opened_where_it_is_and_else_is_said_to_be_in_a_checkout(tmp_path: Path) -> None:
    assert _notebook_line(tmp_path).endswith(".ipynb in a checkout of nbdata")
    notebook = tmp_path / "notebooks" / "01-stage-verify-extract.ipynb"
    notebook.parent.mkdir()
    notebook.touch()
    assert "jupyter" in (line := _notebook_line(tmp_path))
    assert line.endswith(" notebooks/01-stage-verify-extract.ipynb")


def test_the_table_counts_what_a_cleanup_freed() -> None:
    def freed() -> Report:
        return Report("cleanup", counts={"deleted": 3}, details={"freed": 187_500_000})

    step = _timed("cleanup", freed)
    assert (step.objects, step.bytes) == (3, 187_500_000)
