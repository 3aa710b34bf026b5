"""IPython in a terminal, without a kernel and without cells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE


def said(lines: str, folder: Path) -> str:
    """What IPython writes for some lines; with their prompts, until its end."""
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--simple-prompt", "--colors=NoColor", "--no-banner"],
        input=lines + "\nexit\n",
        cwd=folder,
        env={**os.environ, "NBDATA_HOST": "inline", "IPYTHONDIR": str(folder / "ipython")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout + done.stderr


@pytest.mark.long
def test_each_result_is_shown_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"1")
    shown = said(
        "%load_ext nbdata\n%pull in magic\nimport nbdata\nnbdata.pull('in', 'function')\n"
        "report = nbdata.pull('in', 'later', quiet=True)\nreport\n%pull in magic -n\n%transfers",
        tmp_path,
    )
    for target in ("magic", "function", "later"):
        assert shown.count(f"/{target}: 1 fetched") == 1
    assert shown.count("<plan pull") == 1
    assert shown.count("1/1 files") == 3


def test_ls_is_ipythons_again_and_nothing_is_said_of_it(tmp_path: Path) -> None:
    (tmp_path / "seen").write_bytes(b"1")
    lines = ["%load_ext nbdata", "%ls", "%reset -f", "%ls", "%unload_ext nbdata", "%ls", "%reset -f", "%ls"]
    shown = said("\n".join(lines), tmp_path)
    assert shown.count("seen") == 4
    assert "alias" not in shown.lower()
    assert "alias" not in said("%load_ext nbdata", tmp_path).lower()
