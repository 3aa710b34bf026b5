"""probe: hand out numbered items, to test items, leases, pauses and stops without any store."""

from __future__ import annotations

from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.protocols import Item
from nbdata.report import Plan, Report
from nbdata.verbs.probe import Probe

__all__ = ["perform", "plan"]


def plan(run: Run) -> Plan:
    """Count the items."""
    op = run.operation
    assert isinstance(op, Probe)
    return Plan("probe", files=op.items, actions={"hand out": [op.items, 0]})


def perform(run: Run, planned: Plan) -> Report:  # noqa: ARG001  every verb gets its plan
    """Hand out each item, and wait until it is acknowledged."""
    op = run.operation
    assert isinstance(op, Probe)
    results = Results(run)
    for number in range(op.items):
        if op.delay:
            run.control.sleep(op.delay / 1000)
        run.control.checkpoint()
        if op.lease and run.leases is not None:
            run.leases.offer(Item(number, f"item-{number}", f"item-{number}", 1))
        results.add(f"item-{number}", Outcome.HANDED_OUT)
        run.control.advance(files=1)
    if run.leases is not None:
        run.leases.close()
    return results.report()
