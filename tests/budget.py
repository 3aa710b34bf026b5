"""How long each folder of tests took, and how long it may take: the end of a run prints both.

The seconds of a folder are the durations of its tests with their fixtures, as in one process. Its share of a run is
those divided by the number of workers. Each share has a budget, for two quiet cores. A folder in a folder, such as
``tests/engine/unpack``, counts by itself, as the package that it tests does. On a busy machine all durations grow, so a
run only prints what went over; ``make budget`` looks at the last run again, and fails.

``build/test-durations.json`` has the last run of several folders. ``make budget ARGS=--keep`` makes it the table
``tests/durations.json``, from which `tests.announcement` estimates a run.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

__all__ = ["Durations", "folder_of", "over_budget"]

#: Seconds for a folder's share, for those that need more, and for all together: CI has 22 minutes, 7 of them for what
#: is no test.
BUDGET, MORE, WHOLE = 60.0, {"tests/browser": 120.0}, 15 * 60.0

_ROOT = Path(__file__).parents[1]
_LAST, _TABLE = _ROOT / "build/test-durations.json", _ROOT / "tests/durations.json"


class Durations:
    """A pytest plugin for the main process of a run: sums up the durations of its tests by folder."""

    def __init__(self, workers: int) -> None:
        self._workers = max(1, workers)
        self._seconds = Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of a test, its setup or its teardown."""
        self._seconds[folder_of(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the folders that took long, and keep all."""
        if len(self._seconds) < 2:
            return
        found = {
            "workers": self._workers,
            "seconds": {name: round(took, 1) for name, took in self._seconds.most_common()},
        }
        _LAST.parent.mkdir(exist_ok=True)
        _LAST.write_text(json.dumps(found, indent=1) + "\n")
        said = ", ".join(
            f"{name.removeprefix('tests/')} {share:.0f}" for name, share in _shares(found) if share >= 1
        )
        terminalreporter.write_line(f"seconds of this run by folder: {said}")
        for line in over_budget(found):
            terminalreporter.write_line(line, yellow=True)


def folder_of(nodeid: str) -> str:
    """Return the folder that a test counts for: that of its file, up to the second below ``tests``."""
    path = nodeid.partition("::")[0].split("/")
    return "/".join(path[: max(2, min(3, len(path) - 1))])


def _shares(found: dict[str, Any]) -> list[tuple[str, float]]:
    """Return each folder's share of a run, the longest first."""
    return [(name, seconds / found["workers"]) for name, seconds in found["seconds"].items()]


def over_budget(found: dict[str, Any]) -> list[str]:
    """Return a line for each budget that a run went over."""
    shares = [*_shares(found), ("all tests", sum(share for _, share in _shares(found)))]
    budgets = {**MORE, "all tests": WHOLE}
    return [
        f"over budget, if the machine was quiet: {name} took {share:.0f} s of {budgets.get(name, BUDGET):.0f} s"
        for name, share in shares
        if share > budgets.get(name, BUDGET)
    ]


def main() -> int:
    """Print the shares of the last run; with ``--keep``, make it the table. The exit status is 1 if over budget."""
    if not _LAST.exists():
        print("there is no run of several folders yet: make test", file=sys.stderr)
        return 1
    found = json.loads(_LAST.read_text())
    for name, share in _shares(found):
        print(f"{share:7.1f} s  {name}")
    if "--keep" in sys.argv[1:]:
        _TABLE.write_text(json.dumps(found["seconds"], indent=1) + "\n")
    lines = over_budget(found)
    print(*lines, sep="\n", end="\n" * bool(lines))
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
