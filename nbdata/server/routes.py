"""The routes below ``nbdata/api/``.

``GET jobs``, ``GET disks``, ``POST jobs/ID/pause|resume|cancel|again``, ``POST jobs/ID/limit`` with the body
``{"max_rate": "20MB/s"}`` (as for ``transfers --max-rate``; null lifts the limit), ``POST jobs/finished/clear``, and
``POST caches/clear`` with the body ``{"path": PATH}``. Those that run an Operation are in `nbdata.server.run`, the one
that plans in `nbdata.server.plans`, those that look into stores in `nbdata.server.stores` and `nbdata.server.media`,
and those of connections in `nbdata.server.connections`. The websocket ``live`` sends changes: ``{"jobs": [job, …],
"gone": [key, …], "problem": text, "version": nbdata's}``; its first message lists all jobs, and one without changes
shows now and then that the connection is alive. All routes require the server's token or cookie. All that are asked by
POST require the XSRF token too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from nbdata.errors import NbdataError
from nbdata.protocols import Job
from nbdata.server.bounds import Bounds
from nbdata.server.connections import ConnectionsRoute, ForgetRoute, KeepRoute
from nbdata.server.disks import Disks
from nbdata.server.feed import Feed, Jobs
from nbdata.server.handlers import Handler, Route
from nbdata.server.media import MediaRoute
from nbdata.server.plans import PlannedRoute, PlanRoute
from nbdata.server.run import LineRoute, ReportRoute, RunRoute
from nbdata.server.runs import Runs
from nbdata.server.stores import ListRoute, PreviewRoute, StartsRoute
from nbdata.server.tickets import Tickets
from nbdata.server.workers import Workers
from nbdata.verbs.transfers import Transfers
from nbdata.version import __version__

__all__ = ["routes"]

# Largest number of browsers that watch at once.
_WATCHERS = 100
# Most seconds between two messages to a browser; three times as many are silence in `connection.ts`.
_SILENT = 15.0


class _Jobs(Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        await self.feed.fresh()
        self.finish(json.dumps({"jobs": list(self.feed.jobs.values()), "problem": self.feed.problem}))


class _Action(Handler):
    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self, job_id: str, action: str) -> None:
        await self.change(lambda: _act(self.runs, job_id, action))

    async def change(self, do: Callable[[], None]) -> None:
        """Change a job, and answer."""
        try:
            await self.workers.run(do)
        except NbdataError as error:
            self.refuse(error)
            return
        self.feed.poke()
        self.finish(json.dumps({"done": True}))


class _Limit(_Action):
    @web.authenticated
    @authorized
    async def post(self, job_id: str) -> None:
        said = self.get_json_body()
        rate = said.get("max_rate", "") if isinstance(said, dict) else ""
        if rate is not None and not (isinstance(rate, str) and rate):
            raise web.HTTPError(400, 'the body is {"max_rate": SIZE}, or null for no limit')
        await self.change(lambda: _limit(self.runs.job(job_id), rate))


def _act(runs: Runs, job_id: str, action: str) -> None:
    if action == "cancel":
        runs.cancel(job_id)
        return
    job = runs.job(job_id)
    {"pause": job.pause, "resume": job.resume, "again": job.again}[action]()


def _limit(job: Job, rate: str | None) -> None:
    said = Transfers(job.id, max_rate=rate or 0)  # type: ignore[arg-type]  # a text is parsed as in a line
    job.max_rate = said.max_rate or None


class _ClearFinished(Handler):
    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self) -> None:
        self.feed.clear()
        await self.feed.fresh()
        self.finish(json.dumps({"done": True}))


class _Disks(Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        try:
            seen = await self.disks.seen()
        except NbdataError as error:
            self.refuse(error)
            return
        self.finish(json.dumps(seen))


class _WithPath(Handler):
    """Does something with the path in the body."""

    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self) -> None:
        said = self.get_json_body()
        if not isinstance(said, dict) or not isinstance(said.get("path"), str):
            raise web.HTTPError(400, 'the body is {"path": PATH}')
        try:
            await self.do(said["path"])
        except NbdataError as error:
            self.refuse(error)
            return
        self.finish(json.dumps({"done": True}))

    async def do(self, path: str) -> None:
        raise NotImplementedError


class _ClearCache(_WithPath):
    async def do(self, path: str) -> None:
        self.bounds.refuse_written(path)
        await self.disks.clear(path)


class _Unmount(_WithPath):
    async def do(self, path: str) -> None:
        self.bounds.refuse_written(path)
        await self.disks.unmount(path)


class _Live(WebSocketMixin, WebSocketHandler, Route):
    """Sends updates to one browser: at most four messages a second, each after the previous one is sent."""

    _sender: asyncio.Task[None] | None = None

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        if self.feed.watchers >= _WATCHERS:
            raise web.HTTPError(503, "too many browser tabs are connected")
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        super().open(*args, **kwargs)
        self._sender = asyncio.get_running_loop().create_task(self._send())

    def on_message(self, message: str | bytes) -> None:
        """Ignore messages from browsers."""

    def on_close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()

    async def _send(self) -> None:
        sent: Jobs = {}
        with self.feed.watching():
            version = await self.feed.fresh()
            while True:
                jobs = self.feed.jobs
                message = {
                    "jobs": [job for key, job in jobs.items() if sent.get(key) is not job],
                    "gone": [key for key in sent if key not in jobs],
                    "problem": self.feed.problem,
                    "version": __version__,
                }
                sent = jobs
                try:
                    await self.write_message(message)
                except WebSocketClosedError:
                    return
                with contextlib.suppress(asyncio.TimeoutError):
                    version = await asyncio.wait_for(self.feed.newer(version), _SILENT)


def routes(
    base_url: str, feed: Feed, disks: Disks, workers: Workers, bounds: Bounds
) -> list[tuple[str, type[Any], dict[str, Any]]]:
    """Return the handlers with their paths, for a tornado application."""

    def at(path: str) -> str:
        return str(url_path_join(base_url, "nbdata/api", path))

    shared = {
        "feed": feed,
        "disks": disks,
        "workers": workers,
        "runs": Runs(),
        # Stores that are slow to answer hold threads of their own, so the other routes answer meanwhile.
        "listers": Workers("nbdata-list"),
        "planners": Workers("nbdata-plan"),
        "tickets": Tickets(),
        "bounds": bounds,
    }
    return [
        (at("jobs"), _Jobs, shared),
        (at("jobs/([0-9a-f]{1,32})/(pause|resume|cancel|again)"), _Action, shared),
        (at("jobs/([0-9a-f]{1,32})/limit"), _Limit, shared),
        (at("jobs/([0-9a-f]{1,32})/report"), ReportRoute, shared),
        (at("jobs/finished/clear"), _ClearFinished, shared),
        (at("run"), RunRoute, shared),
        (at("line"), LineRoute, shared),
        (at("plan"), PlanRoute, shared),
        (at("plan/([0-9a-f]{1,32})"), PlannedRoute, shared),
        (at("disks"), _Disks, shared),
        (at("caches/clear"), _ClearCache, shared),
        (at("mounts/unmount"), _Unmount, shared),
        (at("stores/list"), ListRoute, shared),
        (at("stores/preview"), PreviewRoute, shared),
        (at("stores/media/([0-9a-f]{1,64})"), MediaRoute, shared),
        (at("stores/starts"), StartsRoute, shared),
        (at("connections"), ConnectionsRoute, shared),
        (at("connections/keep"), KeepRoute, shared),
        (at("connections/forget"), ForgetRoute, shared),
        (at("live"), _Live, shared),
    ]
