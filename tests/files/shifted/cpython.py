"""Runs one of CPython's own suites in this process, with `nbdata.shift` on or off: ``cpython.py on|off NAME``.

The suites know nothing of URLs: with the shift on, all that they try on the disk must go as without it. Prints the
outcome of each test as JSON.
"""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

#: The suites of what is shifted, and of what stands on it.
SUITES = ("test_shutil", "test_glob", "test_os", "test_tempfile", "test_pathlib", "test_zipfile", "test_io")


class Outcomes(unittest.TestResult):
    """Notes the outcome of each test by its id."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, str] = {}

    def addSuccess(self, test: Any) -> None:
        self.of.setdefault(test.id(), "ok")

    def addSkip(self, test: Any, reason: str) -> None:
        self.of[test.id()] = "skipped"

    def addError(self, test: Any, err: Any) -> None:
        self.of[test.id()] = f"error: {self._exc_info_to_string(err, test)[-600:]}"  # type: ignore[attr-defined]

    addFailure = addError  # noqa: N815

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.addError(test, err)


def outcomes(python: str, how: str, suite: str) -> dict[str, str]:
    """Run a suite in a new process of an interpreter, and return the outcome of each test."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [python, __file__, how, suite, f"{folder}/outcomes"],
            cwd=folder, capture_output=True, text=True, errors="replace", timeout=600, check=False,
            env={**os.environ, "NBDATA_STATE_DIR": f"{folder}/state", "PYTHONWARNINGS": ""},
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
        found: dict[str, str] = json.loads(Path(f"{folder}/outcomes").read_text(encoding="utf-8"))
        return found


def main() -> None:
    """Run the suite that the command names."""
    how, suite, told = sys.argv[1:]
    del sys.argv[1:]
    if how == "on":
        import nbdata

        nbdata.shift()
    from test import support

    support.use_resources = ()
    result = Outcomes()
    unittest.defaultTestLoader.loadTestsFromName(f"test.{suite}").run(result)
    shifted = "shifted" in repr(builtins.open)
    with open(told, "w", encoding="utf-8") as file:
        json.dump({**result.of, "the shift": "on" if shifted else "off"}, file)


if __name__ == "__main__":
    main()
