"""Says at the start of a run what it will do: the number of tests, about how long it takes, and what will not run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.budget import folder_of
from tests.capabilities import CAPABILITIES, why_missing

__all__ = ["announced", "expected_minutes"]

#: Seconds that the tests of each folder took in one process, by the folder's path: ``{"tests/engine": 812, …}``.
DURATIONS = Path(__file__).with_name("durations.json")
# Part of a worker's time in which another one could not work for it: the last files end at different times.
_UNEVEN = 1.15


def expected_minutes(files: Iterable[str], workers: int, durations: Path = DURATIONS) -> int | None:
    """Return about how many minutes all tests of the folders of these files take; None if no table tells it."""
    if not durations.exists():
        return None
    seconds: dict[str, float] = json.loads(durations.read_text())
    folders = {folder_of(file) for file in files}
    known = [seconds[folder] for folder in folders if folder in seconds]
    if not known:
        return None
    return max(1, math.ceil(sum(known) / max(1, workers) * (_UNEVEN if workers > 1 else 1) / 60))


def announced(ids: list[str], workers: int, durations: Path = DURATIONS) -> list[str]:
    """Return the lines on a run of these tests."""
    files = {name.partition("::")[0] for name in ids}
    minutes = expected_minutes(files, workers, durations)
    lines = [
        f"tests: {len(ids):,} in {len(files):,} {'file' if len(files) == 1 else 'files'}, "
        f"by {workers or 1} {'processes' if workers > 1 else 'process'}"
        + (f"; about {minutes} min" if minutes else "")
    ]
    missing = {why: name for name in sorted(CAPABILITIES) if (why := why_missing([name]))}
    lines += [f"not run here: tests that need {name}, because {why}" for why, name in missing.items()]
    return lines


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Announce a run in one process."""
    return announced([item.nodeid for item in items], 0)


_told = pytest.StashKey[bool]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Announce a run in several processes, once: all of them collect the same tests."""
    if not node.config.stash.get(_told, False):
        node.config.stash[_told] = True
        terminal = node.config.pluginmanager.getplugin("terminalreporter")
        terminal.ensure_newline()
        for line in announced(ids, len(node.config.option.tx or ())):
            terminal.write_line(line)
