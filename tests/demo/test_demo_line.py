"""The line at the end of the demo."""

from __future__ import annotations

from pathlib import Path

from nbdata.demo.run import _notebook_line


def test_the_notebook_is_opened_where_it_is_and_else_is_said_to_be_in_a_checkout(tmp_path: Path) -> None:
    assert _notebook_line(tmp_path).endswith(".ipynb in a checkout of nbdata")
    notebook = tmp_path / "notebooks" / "01-stage-verify-extract.ipynb"
    notebook.parent.mkdir()
    notebook.touch()
    assert "jupyter" in (line := _notebook_line(tmp_path))
    assert line.endswith(" notebooks/01-stage-verify-extract.ipynb")
