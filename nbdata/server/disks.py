"""Limits, disks and caches for the panel: runs ``%quota``'s queries and ``%cleanup`` of one cache in this process.

They do not run in the agent, because looking at the panel must neither start an agent nor keep it alive.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from nbdata.client.inline import inline_host
from nbdata.errors import BadOption, NotFound
from nbdata.paths import is_inside
from nbdata.server.workers import Workers
from nbdata.verbs.cleanup import Cleanup
from nbdata.verbs.quota import Quota

__all__ = ["Disks"]

# Seconds for which one answer is reused for all browsers.
_FRESH = 1.0


class Disks:
    """The panel's gauges for the server's root folder and the home folder; used only by the event loop's thread."""

    def __init__(self, workers: Workers, root: str) -> None:
        self._workers = workers
        home = os.path.expanduser("~")
        self._paths = list(dict.fromkeys([root if os.path.isdir(root) else home, home]))
        self._at = -_FRESH
        self._gauges, self._caches = list[dict[str, Any]](), list[dict[str, Any]]()
        self._looking: asyncio.Task[None] | None = None

    async def seen(self) -> dict[str, list[dict[str, Any]]]:
        """Return the gauges of ``disks`` and the sample ``caches``.

        Entries of ``disks`` list limits first: path, source, limit, used, reserved, free, and whether notebooks are
        *here*. A cache has path, source, limit, used, hit_rate, consumers and in_use.

        One query at a time serves all callers that wait meanwhile, so slow disks block one thread instead of all.
        """
        if self._looking is None and time.monotonic() - self._at >= _FRESH:
            self._looking = asyncio.get_running_loop().create_task(self._renew())
        if self._looking is not None:
            await asyncio.shield(self._looking)
        return {"disks": self._gauges, "caches": self._caches}

    async def clear(self, path: str) -> None:
        """Remove one cache, as ``cleanup PATH --all`` does.

        Raises
        ------
        NotFound
            If there is no such cache.
        BadOption
            If it is in use.
        """
        await self._workers.run(lambda: _clear(path))
        self._at = -_FRESH

    async def _renew(self) -> None:
        try:
            self._gauges, self._caches = await self._workers.run(self._look)
            self._at = time.monotonic()
        finally:
            self._looking = None

    def _look(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        details = [inline_host().submit(Quota(path), background=False).wait().details for path in self._paths]
        limits: dict[str, dict[str, Any]] = {}
        reserved: dict[str, int] = {}
        here: set[str] = set()
        disks = details[0]["disks"]
        for path, found in zip(self._paths, details, strict=True):
            for room in found["rooms"]:
                if room["source"] != "the disk":
                    limits.setdefault(room["root"], {"path": room["root"], **_numbers(room), "here": True})
                    continue
                around = [disk["path"] for disk in disks if is_inside(os.path.realpath(path), disk["path"])]
                if around:
                    at = max(around, key=len)
                    reserved[at] = room["reserved"]
                    here.add(at)
        gauges = list(limits.values()) + [
            {
                "path": disk["path"],
                "source": "the disk",
                "limit": disk["size"],
                "used": disk["size"] - disk["free"],
                "reserved": reserved.get(disk["path"], 0),
                "free": max(0, disk["free"] - reserved.get(disk["path"], 0)),
                "here": disk["path"] in here,
            }
            for disk in sorted(disks, key=lambda disk: disk["path"] not in here)
        ]
        return gauges, [{name: cache[name] for name in _OF_A_CACHE} for cache in details[0]["caches"]]


# Fields of a cache that the panel shows.
_OF_A_CACHE = ("path", "source", "limit", "used", "hit_rate", "consumers", "in_use")


def _clear(path: str) -> None:
    known = inline_host().submit(Quota(os.path.expanduser("~")), background=False).wait().details["caches"]
    if path not in [cache["path"] for cache in known]:  # a button removes a known cache, never another folder
        raise NotFound("this cache no longer exists", path=path)
    report = inline_host().submit(Cleanup(source=path, all=True), background=False).wait()
    if report.counts.get("in use"):
        reason = next(str(row.detail["reason"]) for row in report.rows if row.action == "in use")
        raise BadOption(f"it cannot be cleared now: {reason}", path=path, remedy="Clear it after that")


def _numbers(room: dict[str, Any]) -> dict[str, Any]:
    return {name: room[name] for name in ("source", "limit", "used", "reserved", "free")}
