"""Limits, disks, caches, mounts and loader services for the panel.

``%quota``'s queries, ``%cleanup`` of one cache and ``%unmount`` run in this process.

They do not run in the agent, because looking at the panel must neither start an agent nor keep it alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from nbdata.client.inline import inline_host
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.files.mounted.mounts import listed
from nbdata.server.workers import Workers
from nbdata.services import services
from nbdata.verbs.cleanup import Cleanup
from nbdata.verbs.mount import Unmount
from nbdata.verbs.quota import Quota

__all__ = ["Disks"]

# Seconds for which one answer is reused for all browsers.
_FRESH = 1.0


class Disks:
    """The panel's gauges; used only by the event loop's thread.

    They are for the server's root folder, for the home folder, and for the folders that `written` returns.
    """

    def __init__(self, workers: Workers, root: str, written: Callable[[], list[str]]) -> None:
        self._workers, self._written = workers, written
        home = os.path.expanduser("~")
        self._root = root
        self._paths = list(dict.fromkeys([root if os.path.isdir(root) else home, home]))
        self._at = -_FRESH
        self._gauges, self._caches = list[dict[str, Any]](), list[dict[str, Any]]()
        self._mounts, self._services = list[dict[str, Any]](), list[dict[str, Any]]()
        self._looking: asyncio.Task[None] | None = None

    async def seen(self) -> dict[str, Any]:
        """Return the server's folder as ``root``, gauges of ``disks``, sample ``caches``, ``mounts`` and ``services``.

        Entries of ``disks`` list limits first: path, source, limit, used, reserved, free, and whether notebooks or
        jobs are *here*. A cache has path, source, limit, used, hit_rate, consumers and in_use. A mount has path,
        source, its *age* in seconds, and whether its process is *alive*. A service has the fields of a `ServiceStatus`,
        and its *age*.

        One query at a time serves all callers that wait meanwhile, so slow disks block one thread instead of all.
        """
        if self._looking is None and time.monotonic() - self._at >= _FRESH:
            self._looking = asyncio.get_running_loop().create_task(self._renew())
        if self._looking is not None:
            await asyncio.shield(self._looking)
        return {
            "root": self._root,
            "disks": self._gauges,
            "caches": self._caches,
            "mounts": self._mounts,
            "services": self._services,
        }

    def outdate(self) -> None:
        """Look anew at the next call of `seen`: something has changed the disks."""
        self._at = -_FRESH

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
        self.outdate()

    async def unmount(self, path: str) -> None:
        """End a mount, as ``unmount PATH`` does.

        Raises
        ------
        NotFound
            If nbdata has mounted nothing there.
        NbdataError
            If files in it are open.
        """
        await self._workers.run(lambda: Unmount(target=path).run())
        self.outdate()

    async def _renew(self) -> None:
        try:
            written = self._written()
            self._gauges, self._caches = await self._workers.run(lambda: self._look(written))
            self._mounts, self._services = await self._workers.run(lambda: (_mounts(), _services()))
            self._at = time.monotonic()
        finally:
            self._looking = None

    def _look(self, written: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        asked = [_quota(path) for path in self._paths]
        for path in written:
            with contextlib.suppress(
                NbdataError, OSError
            ):  # a job's folder that cannot be looked at hides no other
                asked.append(_quota(path))
        limits: dict[str, dict[str, Any]] = {}
        disks = {
            disk["device"]: _gauge(disk["path"], disk["size"], disk["used"], disk["free"])
            for disk in asked[0]["disks"]
        }
        for room in (room for found in asked for room in found["rooms"]):
            if room["source"] != "the disk":
                limits.setdefault(room["root"], {"path": room["root"], **_numbers(room), "here": True})
                continue
            with contextlib.suppress(OSError):  # deleted meanwhile
                device = os.stat(room["root"]).st_dev
                if device not in disks:  # its mount point cannot be written
                    path = _mount_point(room["root"], device)
                    disks[device] = _gauge(path, room["limit"], room["used"], room["free"])
                disks[device].update(reserved=room["reserved"], free=room["free"], here=True)
        gauges = [*limits.values(), *sorted(disks.values(), key=lambda disk: not disk["here"])]
        return gauges, [{name: cache[name] for name in _OF_A_CACHE} for cache in asked[0]["caches"]]


def _quota(path: str) -> dict[str, Any]:
    return inline_host().submit(Quota(path), background=False).wait().details


def _gauge(path: str, size: int, used: int, free: int) -> dict[str, Any]:
    """The gauge of a disk that no job has reserved space on, as far as is known."""
    return {
        "path": path,
        "source": "the disk",
        "limit": size,
        "used": used,
        "reserved": 0,
        "free": free,
        "here": False,
    }


def _mount_point(path: str, device: int) -> str:
    path = os.path.realpath(path)
    while path != "/" and os.stat(os.path.dirname(path)).st_dev == device:
        path = os.path.dirname(path)
    return path


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


def _mounts() -> list[dict[str, Any]]:
    now = time.time()
    return [
        {"path": one.folder, "source": one.url, "age": max(0.0, now - one.began), "alive": one.lives}
        for one in listed()
    ]


def _services() -> list[dict[str, Any]]:
    now = time.time()
    return [{**asdict(one), "age": max(0.0, now - one.began)} for one in services()]


def _numbers(room: dict[str, Any]) -> dict[str, Any]:
    return {name: room[name] for name in ("source", "limit", "used", "reserved", "free")}
