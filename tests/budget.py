"""How long each folder of tests takes, and how long it may: the end of a run prints both.

Each top-level folder of ``tests/`` has a budget. A folder's seconds are the sum of its tests' durations, with their
fixtures, divided by the number of workers: its share of the run on two quiet cores. Durations depend on the machine, so
a run only prints them. ``make budget`` fails if the last run of all tests went over.

The last run is kept in ``build/test-durations.json``, and the measured shares of a quiet run in
``tests/durations.json``. The latter is committed, and says beforehand about how long a run takes.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Durations", "estimated", "folder_of"]

#: Seconds for a folder, and for those that need more.
BUDGET, MORE = 60.0, {"browser": 120.0}
#: Seconds for all folders together: the tests' part of CI.
WHOLE = 11 * 60.0

_ROOT = Path(__file__).parents[1]
_LAST, _USUAL = _ROOT / "build/test-durations.json", _ROOT / "tests/durations.json"


def folder_of(nodeid: str) -> str:
    """Return the top-level folder of a test: ``engine``; for a file beside the folders, its own name."""
    first, _, rest = nodeid.partition("::")[0].partition("/")
    return rest.partition("/")[0] if first == "tests" else first


def estimated(nodeids: Iterable[str]) -> float:
    """Estimate the seconds that these tests take on two quiet cores, from the committed shares; 0 if unknown."""
    usual: dict[str, list[float]] = json.loads(_USUAL.read_text()) if _USUAL.exists() else {}
    seconds = 0.0
    for folder, count in Counter(map(folder_of, nodeids)).items():
        whole, tests = usual.get(folder, (0.0, 1))
        seconds += whole * min(1.0, count / max(1, tests))
    return seconds


class Durations:
    """A pytest plugin that sums up the durations of tests by folder. Only the main process of a run needs it."""

    def __init__(self, workers: int) -> None:
        self._workers = max(1, workers)
        self._seconds, self._tests = Counter[str](), Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of a test, its setup or its teardown."""
        folder = folder_of(report.nodeid)
        self._seconds[folder] += report.duration
        self._tests[folder] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the folders that took long, and keep all durations."""
        found = {
            name: [round(seconds / self._workers, 1), self._tests[name]]
            for name, seconds in sorted(self._seconds.items())
        }
        _LAST.parent.mkdir(exist_ok=True)
        _LAST.write_text(json.dumps(found, indent=1) + "\n")
        if len(found) > 1:
            said = "  ".join(
                f"{name} {seconds:.0f}" for name, (seconds, _) in _by_seconds(found) if seconds >= 1
            )
            terminalreporter.write_line(f"seconds of the run by folder: {said}")
        for line in _over(found):
            terminalreporter.write_line(line, yellow=True)


def _by_seconds(found: dict[str, list[float]]) -> list[tuple[str, list[float]]]:
    return sorted(found.items(), key=lambda one: -one[1][0])


def _over(found: dict[str, list[float]]) -> list[str]:
    """Return a line for each budget that a run went over."""
    lines = [
        f"over budget: tests/{name} took {seconds:.0f} s of {MORE.get(name, BUDGET):.0f} s"
        for name, (seconds, _) in _by_seconds(found)
        if seconds > MORE.get(name, BUDGET)
    ]
    whole = sum(seconds for seconds, _ in found.values())
    return lines + [f"over budget: all tests took {whole:.0f} s of {WHOLE:.0f} s"] * (whole > WHOLE)


def main() -> int:
    """Say what the last run took; with ``--keep``, make it the usual durations. The exit status is 1 if over budget."""
    if not _LAST.exists():
        print("no run of all tests is kept: make test", file=sys.stderr)
        return 1
    found: dict[str, list[float]] = json.loads(_LAST.read_text())
    for name, (seconds, tests) in _by_seconds(found):
        print(f"{seconds:7.1f} s  {tests:5} tests  {name}")
    if "--keep" in sys.argv[1:]:
        _USUAL.write_text(json.dumps(found, indent=1) + "\n")
    lines = _over(found)
    print(*lines, sep="\n", end="\n" * bool(lines))
    return 1 if lines and os.environ.get("NBDATA_BUDGET") != "shown" else 0


if __name__ == "__main__":
    sys.exit(main())
