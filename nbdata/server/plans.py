"""The routes that plan: ``POST plan``, and ``GET plan/NAME`` while that goes on.

It takes the JSON of an Operation as ``run`` does (`nbdata.server.asked`), and answers its plan (`shown_plan`). The plan
looks at `MOST_PLANNED` objects and one more, which says that there are more (``is_cut``); ``"count_all": true`` looks
at all. The agent stops planning when the browser ends the request: it has left, or asks for another plan. Under the
name that the browser gives with ``"watch": NAME``, ``GET plan/NAME`` answers ``{"listed": N}`` meanwhile: how many
entries have been listed.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace

from jupyter_server.auth.decorator import authorized
from tornado import web

from nbdata.client.hosts import ChoosingHost
from nbdata.errors import BadOption, Cancelled, NbdataError, NotFound
from nbdata.operation import Operation
from nbdata.protocols import Planning
from nbdata.server.asked import asked
from nbdata.server.bounds import Bounds
from nbdata.server.handlers import Handler
from nbdata.server.looking import Looking, LookRoute
from nbdata.server.reports import shown_plan
from nbdata.server.workers import Workers
from nbdata.verbs.options import Selecting

__all__ = ["MOST_PLANNED", "PlanRoute", "PlannedRoute"]

#: Most objects that a plan looks at, unless all are to be counted.
MOST_PLANNED = 10_000
# The verbs that are planned here.
_PLANNED = ("pull", "push", "copy", "md5check", "untar_volumes", "pack", "delete")
# Most seconds for a plan, and for one that counts all.
_SHORT, _LONG = 60.0, 600.0
# The name under which the browser asks how far a plan is; empty for none.
_NAME = re.compile(r"([0-9a-f]{32})?", re.ASCII)
# Most rows in an answer: it names the first ones.
_ROWS = 20


class PlanRoute(LookRoute):
    """Answers the plan of an Operation."""

    def asked(self, body: object) -> tuple[Looking, Callable[[], str]]:
        options = dict(body) if isinstance(body, dict) else {}
        count_all = options.pop("count_all", False)
        if not isinstance(count_all, bool):
            raise BadOption("count_all is true or false")
        watch = options.pop("watch", "")
        if not isinstance(watch, str) or not _NAME.fullmatch(watch):
            raise BadOption("watch is a name of 32 hexadecimal digits")
        self.patience = _LONG if count_all else _SHORT
        planned = _Planned(options, self.bounds, count_all)
        self._watch = watch
        if watch:
            self.runs.watched[watch] = planned
        return planned, planned.answer

    def on_finish(self) -> None:
        """Forget the plan: it is made, or nobody waits for it."""
        super().on_finish()
        self.runs.watched.pop(self._watch, None)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.runs.watched.pop(self._watch, None)

    _watch = ""

    @property
    def threads(self) -> Workers:
        return self.planners


class PlannedRoute(Handler):
    """Answers how far a plan is."""

    @web.authenticated
    @authorized
    async def get(self, name: str) -> None:
        planned = self.runs.watched.get(name)
        if planned is None:
            self.refuse(NotFound("this plan is not made now"))
            return
        self.finish(json.dumps({"listed": planned.listed}))


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

    @property
    def listed(self) -> int:
        """How many entries have been listed."""
        planning = self._planning
        return planning.listed if planning is not None else 0

    def answer(self) -> str:
        """Make the plan, and return it as JSON."""
        operation = self._operation()
        self._refuse_stopped()
        planning = ChoosingHost().planning(operation)
        with self._lock:
            self._planning = planning
        try:
            self._refuse_stopped()
            plan = planning.wait()
            looked_at = sum(count for count, _ in plan.actions.values())
            is_bounded = isinstance(operation, Selecting) and not self._count_all
            is_cut = is_bounded and looked_at > MOST_PLANNED
            return json.dumps({"state": "DONE", "error": "", "is_cut": is_cut, **shown_plan(plan, _ROWS)})
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
