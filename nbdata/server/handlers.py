"""Bases of the routes' handlers."""

from __future__ import annotations

import json

from jupyter_server.base.handlers import APIHandler, JupyterHandler

from nbdata.errors import AgentUnavailable, NbdataError, NotFound
from nbdata.server.bounds import Bounds
from nbdata.server.disks import Disks
from nbdata.server.feed import Feed
from nbdata.server.runs import Runs
from nbdata.server.tickets import Tickets
from nbdata.server.workers import Workers

__all__ = ["Handler", "Route"]


class Route(JupyterHandler):
    """Base of all routes. It keeps the query of a request, which may be ``?token=…``, out of all log lines.

    Jupyter hides the token in its access log, but Tornado logs the whole URI of a request that fails. What the query
    says is read from the parsed arguments, which stay.
    """

    auth_resource = "nbdata"

    def initialize(
        self,
        feed: Feed,
        disks: Disks,
        workers: Workers,
        runs: Runs,
        listers: Workers,
        planners: Workers,
        tickets: Tickets,
        bounds: Bounds,
    ) -> None:
        self.feed, self.disks, self.workers, self.runs = feed, disks, workers, runs
        self.listers, self.planners = listers, planners
        self.tickets, self.bounds = tickets, bounds
        self.request.uri = self.request.path


class Handler(Route, APIHandler):
    """Base of all plain routes."""

    # A panel's automatic requests are not user activity; nbdata_last_activity says when jobs run.
    _track_activity = False

    def refuse(self, error: NbdataError, status: int | None = None) -> None:
        """Respond with the error as text, and with the status of its class if no other is given."""
        of_class = 404 if isinstance(error, NotFound) else 503 if isinstance(error, AgentUnavailable) else 409
        self.set_status(status or of_class)
        self.finish(json.dumps({"message": error.message, "remedy": error.remedy}))
