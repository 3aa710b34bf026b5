"""Changes something between the plan of a run and its first transfer, as another program may."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from unittest.mock import patch

from nbdata.engine import runner
from nbdata.engine.job.run import Run
from nbdata.report import Plan

__all__ = ["after_the_plan"]


@contextlib.contextmanager
def after_the_plan(change: Callable[[], object]) -> Iterator[None]:
    """Call `change` once the plan of each run is made."""
    planned = runner._planned

    def then_changed(run: Run) -> Plan:
        plan = planned(run)
        change()
        return plan

    with patch.object(runner, "_planned", then_changed):
        yield
