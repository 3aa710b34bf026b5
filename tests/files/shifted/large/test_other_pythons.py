"""The same with every other Python that nbdata is for and that is installed here, each with nbdata in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.files.shifted.cpython import SUITES, outcomes

_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
_ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module", params=_PYTHONS)
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of a new environment with nbdata in it."""
    found = next(filter(None, map(_usable, _candidates(request.param))), None)
    if found is None:
        pytest.skip(f"there is no Python {request.param} with its tests here")
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([found, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "--no-compile", str(_ROOT)], check=True)
    return str(folder / "bin/python")


def _candidates(version: str) -> list[str]:
    if sys.version.startswith(f"{version}."):
        return [sys.executable]
    roots = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
        f"versions/{version}.*/bin/python"
    )
    return [*filter(None, [shutil.which(f"python{version}")]), *map(str, roots)]


def _usable(python: str) -> str:
    asked = [python, "-c", "import test.test_shutil, venv"]
    return python if subprocess.run(asked, capture_output=True, check=False).returncode == 0 else ""


@pytest.mark.parametrize("suite", SUITES)
def test_pythons_own_suite_passes_with_the_shift_on(suite: str, python: str) -> None:
    off, on = (outcomes(python, how, suite) for how in ("off", "on"))
    assert (off.pop("the shift"), on.pop("the shift")) == ("off", "on")
    assert {name: told for name, told in on.items() if told != off.get(name)} == {}
    assert on.keys() == off.keys()
    assert len(on) > 10
