"""The routes by which the panel runs an Operation: ``POST run``, ``POST line`` and ``GET jobs/ID/report``.

``run`` takes the JSON of an Operation (`nbdata.server.asked`) and starts it in the background, in the agent as a cell
does. It answers ``{"id": ID, "key": KEY, "line": "%du …", "why_no_line": ""}``. With ``"dry_run": true`` only the plan
is made. ``line`` answers the line and runs nothing. ``report`` answers how far a job or plan is, and once it is over,
its details and at most `MOST_ROWS` rows: with ``?action=NAME``, which may be repeated, those of these outcomes.
"""

from __future__ import annotations

import json

from jupyter_server.auth.decorator import authorized
from tornado import web

from nbdata.errors import BadOption, NbdataError
from nbdata.server.asked import Asked, asked
from nbdata.server.handlers import Handler

__all__ = ["LineRoute", "ReportRoute", "RunRoute"]


class LineRoute(Handler):
    """Answers the line of an Operation."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        if (found := await self.asked()) is not None:
            self.finish(json.dumps(found.shown()))

    async def asked(self) -> Asked | None:
        """Return what the request asks for; None if it was refused."""
        body = self.get_json_body()
        try:
            return await self.workers.run(lambda: asked(body, self.bounds))
        except BadOption as error:
            self.refuse(error, 400)
        except NbdataError as error:
            self.refuse(error)
        return None


class RunRoute(LineRoute):
    """Starts an Operation."""

    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self) -> None:
        if (found := await self.asked()) is None:
            return
        try:
            begun = await self.workers.run(lambda: self.runs.begin(found))
        except NbdataError as error:
            self.refuse(error)
            return
        self.feed.poke()
        self.finish(json.dumps({**begun, **found.shown()}))


class ReportRoute(Handler):
    """Answers the report of a job or plan."""

    @web.authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        actions = self.get_query_arguments("action")
        try:
            report = await self.workers.run(lambda: self.runs.report(run_id, actions))
        except NbdataError as error:
            self.refuse(error)
            return
        if report["state"] == "DONE":
            self.disks.outdate()
        self.finish(json.dumps(report))
