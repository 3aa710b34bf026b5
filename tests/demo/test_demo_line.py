"""The command that the demo suggests at its end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nbdata.demo.run import _notebook_line, _timed, main
from nbdata.errors import NotEnoughSpace
from nbdata.report import Report
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize(("words", "needed"), [([], "360.0 MB"), (["--small", "--size", "20MB"], "34.0 MB")])
def test_a_disk_that_is_too_small_is_refused_before_anything_starts(
    words: list[str], needed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=30_000_000))
    with pytest.raises(NotEnoughSpace, match=rf"needs {needed} .* 30\.0 MB are free.*--folder"):
        main([*words, "--folder", str(tmp_path / "d")])
    assert not any((tmp_path / "d").iterdir())


def test_the_line_works_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01-stage-verify-extract.ipynb").touch()
    for user, asked in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert (" --allow-root " in _notebook_line(tmp_path)) is asked


def test_make_demo_shows_what_it_installs() -> None:
    said = subprocess.run(
        ["make", "-n", "VENV=none-there", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    ).stdout
    (install,) = [line for line in said.splitlines() if ".[demo,tutorials]" in line]
    assert "--quiet" not in install
    assert "some minutes the first time" in said.split(install)[0]


def test_what_the_notebooks_import_is_installed_with_the_demo_and_on_binder() -> None:
    """Exceptions are torch and webdataset: without them the notebooks say so and continue."""
    code = "\n".join(
        "".join(cell["source"])
        for notebook in (ROOT / "notebooks").glob("*.ipynb")
        for cell in json.loads(notebook.read_text())["cells"]
        if cell["cell_type"] == "code"
    )
    imported = {
        name.partition(".")[0] for name in re.findall(r"^\s*(?:import|from) ([\w.]+)", code, re.MULTILINE)
    }
    foreign = imported - set(sys.stdlib_module_names) - {"nbdata", "torch", "webdataset", "IPython", "dask"}
    packages = {"sklearn": "scikit-learn", "PIL": "pillow"}
    declared = (ROOT / "pyproject.toml").read_text()
    extra = re.findall(r'"([\w-]+)>=', re.findall(r"^tutorials = (.*)$", declared, re.MULTILINE)[0])
    assert {packages.get(name, name) for name in foreign} == set(extra)
    assert re.search(r'^tutorials = .*"nbdata\[cluster\]"', declared, re.MULTILINE), "which has dask"
    for file in ("Makefile", "binder/postBuild"):
        assert "'.[demo,tutorials]'" in (ROOT / file).read_text(), file
