"""A live feed that the test itself sends: the panel in states that a real transfer has for a moment only."""

from __future__ import annotations

import json
import time
from typing import Any

from playwright.sync_api import BrowserContext, WebSocketRoute

from nbdata.version import __version__

__all__ = ["SentFeed", "job"]


def job(job_id: str, **fields: Any) -> dict[str, Any]:
    """Return a job as the server sends it: a running pull that began half a minute ago, with some fields changed."""
    job = {
        "id": job_id,
        "verb": "pull",
        "source": f"s3://bucket/{job_id}/",
        "target": f"/work/{job_id}",
        "state": "RUNNING",
        "reason": "",
        "phase": "",
        "files": 12,
        "files_total": 20,
        "bytes": 48_000_000,
        "bytes_total": 80_300_000,
        "present": 0,
        "verified": 0,
        "unverified": 0,
        "rate": 3e6,
        "eta": 11.0,
        "retries": 0,
        "failures": 0,
        "created": time.time() - 30,
        "seconds": 0.0,
        "owner": "train.ipynb",
        "command": f"pull s3://bucket/{job_id}/ /work/{job_id}",
        "why_no_command": "",
        "error": "",
        "folder": None,
        "notebook": None,
        "max_rate": None,
        "can_limit": True,
        "here": True,
        "lacks": None,
    }
    job.update(fields)
    return {"key": f"{job_id}-{job['created']:.3f}", **job}


class SentFeed:
    """Takes the place of the server's live feed in all tabs of a context.

    Each new connection is sent the `first` jobs as they are by then. The feed sends no more by itself, so a page
    connects anew after a minute.
    """

    def __init__(self, context: BrowserContext, *first: dict[str, Any]) -> None:
        self._first = list(first)
        self._tabs: list[WebSocketRoute] = []
        context.route_web_socket("**/nbdata/api/live*", self._open)

    def _open(self, tab: WebSocketRoute) -> None:
        self._tabs.append(tab)
        tab.send(_message(self._first))

    def send(self, *jobs: dict[str, Any]) -> None:
        """Send jobs that have changed to all tabs."""
        known = {job["key"]: job for job in (*self._first, *jobs)}
        self._first = list(known.values())
        for tab in self._tabs:
            tab.send(_message(list(jobs)))


def _message(jobs: list[dict[str, Any]]) -> str:
    return json.dumps({"jobs": jobs, "gone": [], "problem": "", "version": __version__})
