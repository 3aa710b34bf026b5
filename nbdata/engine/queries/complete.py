"""complete: list the places that begin with a URL, and cache the answers for a while."""

from __future__ import annotations

import hashlib
import json
import time

from nbdata.engine.job.run import Run
from nbdata.report import Plan, Report
from nbdata.stores.resolve import children
from nbdata.threads import ForkLock
from nbdata.verbs.complete import Complete

__all__ = ["perform", "plan"]

# Most places listed, seconds for which an answer is valid, and number of cached answers.
_MOST, _FRESH, _KEPT = 200, 20.0, 200

_answers: dict[str, tuple[float, list[str]]] = {}
_lock = ForkLock()


def plan(run: Run) -> Plan:
    """Return an empty plan: nothing is moved."""
    del run
    return Plan("complete")


def perform(run: Run, planned: Plan) -> Report:
    """Ask the store, unless an answer for the same credentials is cached."""
    del planned
    op = run.operation
    assert isinstance(op, Complete)
    whose = json.dumps([op.prefix, run.context.to_dict()], sort_keys=True, default=str)
    name = hashlib.sha256(whose.encode()).hexdigest()
    with _lock:
        until, found = _answers.get(name, (0.0, []))
    if time.monotonic() > until:
        found = children(op.prefix, run.context, _MOST, stop=run.control)
        with _lock:
            _answers[name] = (time.monotonic() + _FRESH, found)
            while len(_answers) > _KEPT:
                del _answers[next(iter(_answers))]
    return Report("complete", op.prefix, details={"places": found})
