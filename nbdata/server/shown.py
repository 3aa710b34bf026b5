"""Converts a job's snapshot for the panel: only the fields that the panel shows."""

from __future__ import annotations

import os
from typing import Any

from nbdata.errors import error_from_dict
from nbdata.paths import is_inside, is_url
from nbdata.report import Snapshot

__all__ = ["key_of", "shown"]

_FIELDS = (
    "id",
    "verb",
    "source",
    "target",
    "state",
    "reason",
    "phase",
    "files",
    "files_total",
    "bytes",
    "bytes_total",
    "present",
    "verified",
    "unverified",
    "rate",
    "eta",
    "retries",
    "failures",
    "created",
    "seconds",
    "owner",
    "command",
    "max_rate",
)


def key_of(snapshot: Snapshot) -> str:
    """Return a key that is unique among all agents' jobs; ids alone are unique only within one agent."""
    return f"{snapshot.id}-{snapshot.created:.3f}"


def shown(snapshot: Snapshot, root: str, here: bool) -> dict[str, Any]:
    """Convert the snapshot to JSON-able data.

    Parameters
    ----------
    snapshot : Snapshot
    root : str
        The server's root folder. ``folder`` is the job's local folder relative to it, or None if the file browser
        cannot open it.
    here : bool
        Whether a notebook or terminal of this server began the job, as far as is known.
    """
    data = {name: getattr(snapshot, name) for name in _FIELDS}
    data["key"] = key_of(snapshot)
    data["error"] = str(error_from_dict(snapshot.error)) if snapshot.error else ""
    data["here"] = here
    data["why_no_command"] = snapshot.why_no_command
    if snapshot.why_no_command:
        data["command"] = ""
    data["folder"] = _below(snapshot.target, root) if snapshot.target else None
    if data["folder"] is None:
        data["folder"] = _below(snapshot.source, root)
    return data


def _below(place: str, root: str) -> str | None:
    """Return a local path relative to `root`; None if it is outside, or hidden from the file browser."""
    if not root or not place or is_url(place) or not is_inside(place, root):
        return None
    relative = os.path.relpath(place, root)
    if relative == ".":
        return ""
    return None if any(part.startswith(".") for part in relative.split("/")) else relative
