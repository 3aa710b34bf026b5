"""The routes below ``nbdata/api/``.

``GET jobs``, ``GET disks``, ``POST jobs/ID/pause|resume|cancel|again``, ``POST jobs/ID/limit`` with the body
``{"max_rate": BYTES}`` (null lifts the limit), ``POST jobs/finished/clear``, and ``POST caches/clear`` with the body
``{"path": PATH}``. The websocket ``live`` sends changes: ``{"jobs": [job, …], "gone":
[key, …], "problem": text}``; its first message lists all jobs, and one without changes shows now and then that the
connection is alive. All routes require the server's token or cookie. Routes
that change something require the XSRF token too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from nbdata.client.hosts import ChoosingHost
from nbdata.errors import AgentUnavailable, NbdataError, NotFound
from nbdata.protocols import Job
from nbdata.server.disks import Disks
from nbdata.server.feed import Feed, Jobs
from nbdata.server.workers import Workers

__all__ = ["routes"]

# Largest number of browsers that watch at once.
_WATCHERS = 100
# Most seconds between two messages to a browser; three times as many are silence in `connection.ts`.
_SILENT = 15.0


class _Route(JupyterHandler):
    """Base of all routes. It keeps the query of a request, which may be ``?token=…``, out of all log lines.

    Jupyter hides the token in its access log, but Tornado logs the whole URI of a request that fails. No route reads
    the query; Jupyter's authentication reads the parsed arguments, which stay.
    """

    auth_resource = "nbdata"

    def initialize(self, feed: Feed, disks: Disks, workers: Workers) -> None:
        self.feed, self.disks, self.workers = feed, disks, workers
        self.request.uri = self.request.path


class _Handler(_Route, APIHandler):
    """Base of all plain routes."""

    # A panel's automatic requests are not user activity; nbdata_last_activity says when jobs run.
    _track_activity = False

    def refuse(self, error: NbdataError) -> None:
        """Respond with the error as text."""
        self.set_status(
            404 if isinstance(error, NotFound) else 503 if isinstance(error, AgentUnavailable) else 409
        )
        self.finish(json.dumps({"message": error.message, "remedy": error.remedy}))


class _Jobs(_Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        await self.feed.fresh()
        self.finish(json.dumps({"jobs": list(self.feed.jobs.values()), "problem": self.feed.problem}))


class _Action(_Handler):
    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self, job_id: str, action: str) -> None:
        await self.change(lambda: _act(job_id, action))

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
        if isinstance(rate, bool) or not isinstance(rate, (int, type(None))):
            raise web.HTTPError(400, 'the body is {"max_rate": BYTES}, or null for no limit')
        await self.change(lambda: _limit(job_id, rate))


def _act(job_id: str, action: str) -> None:
    job = _job(job_id)
    {"pause": job.pause, "resume": job.resume, "cancel": job.cancel, "again": job.again}[action]()


def _limit(job_id: str, rate: int | None) -> None:
    _job(job_id).max_rate = rate


def _job(job_id: str) -> Job:
    job = ChoosingHost().job(job_id)
    if job.id != job_id:  # hosts also accept the beginning of an id; a button means one job
        raise NotFound(f"there is no job {job_id!r}", remedy="It may have ended with its agent")
    return job


class _ClearFinished(_Handler):
    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self) -> None:
        self.feed.clear()
        await self.feed.fresh()
        self.finish(json.dumps({"done": True}))


class _Disks(_Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        try:
            seen = await self.disks.seen()
        except NbdataError as error:
            self.refuse(error)
            return
        self.finish(json.dumps(seen))


class _ClearCache(_Handler):
    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self) -> None:
        said = self.get_json_body()
        if not isinstance(said, dict) or not isinstance(said.get("path"), str):
            raise web.HTTPError(400, 'the body is {"path": PATH}')
        try:
            await self.disks.clear(said["path"])
        except NbdataError as error:
            self.refuse(error)
            return
        self.finish(json.dumps({"done": True}))


class _Live(WebSocketMixin, WebSocketHandler, _Route):
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
                }
                sent = jobs
                try:
                    await self.write_message(message)
                except WebSocketClosedError:
                    return
                with contextlib.suppress(asyncio.TimeoutError):
                    version = await asyncio.wait_for(self.feed.newer(version), _SILENT)


def routes(
    base_url: str, feed: Feed, disks: Disks, workers: Workers
) -> list[tuple[str, type[Any], dict[str, Any]]]:
    """Return the handlers with their paths, for a tornado application."""

    def at(path: str) -> str:
        return str(url_path_join(base_url, "nbdata/api", path))

    shared = {"feed": feed, "disks": disks, "workers": workers}
    return [
        (at("jobs"), _Jobs, shared),
        (at("jobs/([0-9a-f]{1,32})/(pause|resume|cancel|again)"), _Action, shared),
        (at("jobs/([0-9a-f]{1,32})/limit"), _Limit, shared),
        (at("jobs/finished/clear"), _ClearFinished, shared),
        (at("disks"), _Disks, shared),
        (at("caches/clear"), _ClearCache, shared),
        (at("live"), _Live, shared),
    ]
