"""The two kernels that tests compare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook.twin_kernels import TwinKernels

_SCRIPT = """\
'''A script for %run.'''
import sys
print("script", __name__, sys.argv[1:])
script_value = 7
if sys.argv[1:] == ["fail"]:
    raise ValueError("the script fails")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels' folder: some files, and a settings folder of IPython of its own."""
    made = tmp_path_factory.mktemp("twins")
    for name in ("data/one.txt", "data/two words.txt", "data.csv", "dätä.txt", ".hidden", "ipython/x"):
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(name)
    (made / "script.py").write_text(_SCRIPT)
    (made / "qqmodule.py").write_text("unmistakable_name = 1\n\ndef fails():\n    raise KeyError('inside')\n")
    return made


@pytest.fixture(scope="module")
def twins(folder: Path) -> Iterator[TwinKernels]:
    """Two kernels, without nbdata and with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("HOME", str(folder))
        patch.setenv("PYTHONHASHSEED", "1")  # IPython offers modules in the order of a set
        running = TwinKernels(folder)
        running.__enter__()
    yield running
    running.__exit__(None, None, None)
