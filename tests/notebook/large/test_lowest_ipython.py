"""With the lowest IPython and ipykernel that are allowed: a session beside nbdata works as one without it.

The packages are installed into a virtual environment of its own, in which the tests of this folder's parent run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# What these tests need beside nbdata; each in the lowest version that is allowed.
NEEDED = ("ipykernel", "ipython", "jupyter_client")


def lowest() -> list[str]:
    """Return the requirements, with the lowest versions that pyproject.toml allows."""
    text = (ROOT / "pyproject.toml").read_text()
    found = {name: re.search(rf'"{name}>=([\d.]+)"', text) for name in NEEDED}
    return [f"{name}=={version[1]}.*" for name, version in found.items() if version]


@pytest.mark.timeout(1800)
def test_a_session_is_the_same_with_the_lowest_ipython(tmp_path: Path) -> None:
    assert len(lowest()) == len(NEEDED)
    python = tmp_path / "environment/bin/python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*install, *lowest(), "pytest>=8", "pytest-timeout>=2.3", str(ROOT)], check=True)
    files = sorted(str(path) for path in (ROOT / "tests/notebook").glob("test_*beside*.py"))
    tests = [*files, str(ROOT / "tests/notebook/test_session_state.py")]
    done = subprocess.run(
        [python.with_name("pytest"), "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/tests", *tests],
        cwd=ROOT,
        env={**os.environ, "NBDATA_TESTED": "wheel"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
