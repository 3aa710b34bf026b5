"""Limits and disks for the panel: what ``%quota`` knows, asked in this process.

Not of the agent: looking at the panel must neither start one nor keep it alive.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from nbdata.client.inline import inline_host
from nbdata.paths import is_inside
from nbdata.server.workers import Workers
from nbdata.verbs.quota import Quota

__all__ = ["Disks"]

# Seconds for which an answer serves all browsers.
_FRESH = 1.0


class Disks:
    """The gauges, for the server's root folder and the home folder; used by the event loop's thread only."""

    def __init__(self, workers: Workers, root: str) -> None:
        self._workers = workers
        home = os.path.expanduser("~")
        self._paths = list(dict.fromkeys([root if os.path.isdir(root) else home, home]))
        self._at, self._gauges = -_FRESH, list[dict[str, Any]]()
        self._looking: asyncio.Task[None] | None = None

    async def gauges(self) -> list[dict[str, Any]]:
        """Limits first, then disks: path, source, limit, used, reserved, free, and whether notebooks are *here*.

        One look at a time serves all who ask meanwhile: disks that take long to answer hold one thread, not all.
        """
        if self._looking is None and time.monotonic() - self._at >= _FRESH:
            self._looking = asyncio.get_running_loop().create_task(self._renew())
        if self._looking is not None:
            await asyncio.shield(self._looking)
        return self._gauges

    async def _renew(self) -> None:
        try:
            self._gauges = await self._workers.run(self._look)
            self._at = time.monotonic()
        finally:
            self._looking = None

    def _look(self) -> list[dict[str, Any]]:
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
        return list(limits.values()) + [
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


def _numbers(room: dict[str, Any]) -> dict[str, Any]:
    return {name: room[name] for name in ("source", "limit", "used", "reserved", "free")}
