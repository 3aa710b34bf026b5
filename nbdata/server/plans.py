"""The route that plans: ``POST plan``.

It takes the JSON of an Operation as ``run`` does (`nbdata.server.asked`), and answers its plan (`shown_plan`). The plan
looks at `MOST_PLANNED` objects and one more, which says that there are more; ``"count_all": true`` looks at all. The
agent stops planning when the browser ends the request: it has left, or asks for another plan.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

from nbdata.client.hosts import ChoosingHost
from nbdata.errors import BadOption, Cancelled, NbdataError
from nbdata.operation import Operation
from nbdata.protocols import Planning
from nbdata.server.asked import asked
from nbdata.server.bounds import Bounds
from nbdata.server.looking import Looking, LookRoute
from nbdata.server.reports import shown_plan
from nbdata.server.workers import Workers
from nbdata.verbs.options import Selecting

__all__ = ["MOST_PLANNED", "PlanRoute"]

#: Most objects that a plan looks at, unless all are to be counted.
MOST_PLANNED = 10_000
# The verbs that are planned here.
_PLANNED = ("pull", "push", "copy", "md5check", "untar_volumes", "pack", "delete")
# Most seconds for a plan, and for one that counts all.
_SHORT, _LONG = 60.0, 600.0
# Most rows in an answer: it names the first ones.
_ROWS = 20


class PlanRoute(LookRoute):
    """Answers the plan of an Operation."""

    def asked(self, body: object) -> tuple[Looking, Callable[[], str]]:
        options = dict(body) if isinstance(body, dict) else {}
        count_all = options.pop("count_all", False)
        if not isinstance(count_all, bool):
            raise BadOption("count_all is true or false")
        self.patience = _LONG if count_all else _SHORT
        planned = _Planned(options, self.bounds, count_all)
        return planned, planned.answer

    @property
    def threads(self) -> Workers:
        return self.planners


class _Planned:
    """A plan that somebody waits for. Any thread may stop it."""

    def __init__(self, body: object, bounds: Bounds, count_all: bool) -> None:
        self._body, self._bounds, self._count_all = body, bounds, count_all
        self._planning: Planning | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End the work on it."""
        with self._lock:
            self._stopped, planning = True, self._planning
        if planning is not None:
            planning.cancel()

    def answer(self) -> str:
        """Make the plan, and return it as JSON."""
        operation = self._operation()
        self._refuse_stopped()
        planning = ChoosingHost().planning(operation)
        with self._lock:
            self._planning = planning
        try:
            self._refuse_stopped()
            return json.dumps({"state": "DONE", "error": "", **shown_plan(planning.wait(), _ROWS)})
        except NbdataError:
            self._refuse_stopped()
            raise
        finally:
            planning.cancel()

    def _operation(self) -> Operation:
        operation = asked(self._body, self._bounds).operation
        if operation.verb not in _PLANNED:
            raise BadOption(f"the panel does not plan {operation.verb}", expected=", ".join(_PLANNED))
        if isinstance(operation, Selecting) and not self._count_all:
            return replace(operation, max_files=MOST_PLANNED + 1)
        return operation

    def _refuse_stopped(self) -> None:
        if self._stopped:
            raise Cancelled("nobody waits for this plan any more")
