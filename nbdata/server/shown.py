"""Converts a job's snapshot for the panel: only the fields that the panel shows."""

from __future__ import annotations

import os
from typing import Any

from nbdata.errors import NbdataError, NotEnoughSpace, error_from_dict
from nbdata.paths import is_inside, is_url
from nbdata.report import Snapshot
from nbdata.verbs import VERBS
from nbdata.verbs.options import Storing

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


_LIMITED = {verb for verb, cls in VERBS.items() if issubclass(cls, Storing)}


def key_of(snapshot: Snapshot) -> str:
    """Return a key that is unique among all agents' jobs; ids alone are unique only within one agent."""
    return f"{snapshot.id}-{snapshot.created:.3f}"


def shown(snapshot: Snapshot, root: str, here: bool) -> dict[str, Any]:
    """Convert the snapshot to JSON-able data.

    ``can_limit`` says whether its rate can be limited, and ``notebook`` is the path of the notebook that began it
    relative to `root`, or None if it is not known, or not one that JupyterLab can open. ``lacks`` is where there was no
    room for a job that failed, or None: ``folder``, and ``limited`` if it is a limit on it rather than its disk.

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
    error = error_from_dict(snapshot.error) if snapshot.error else None
    data["error"] = "" if error is None else str(error)
    data["lacks"] = _full(error) if snapshot.state == "FAILED" else None
    data["here"] = here
    data["can_limit"] = snapshot.verb in _LIMITED
    data["notebook"] = _below(snapshot.notebook, root)
    data["why_no_command"] = snapshot.why_no_command
    if snapshot.why_no_command:
        data["command"] = ""
    data["folder"] = _below(snapshot.target, root) if snapshot.target else None
    if data["folder"] is None:
        data["folder"] = _below(snapshot.source, root)
    return data


def _full(error: NbdataError | None) -> dict[str, Any] | None:
    """Where there was no room, if that is the error."""
    if not isinstance(error, NotEnoughSpace):
        return None
    limited = error.details.get("limit") is not None
    folder = error.details.get("root") or error.path  # jobs of older versions have no root
    return {"folder": folder, "limited": limited} if folder and os.path.isabs(folder) else None


def _below(place: str, root: str) -> str | None:
    """Return a local path relative to `root`; None if it is outside, or hidden from the file browser."""
    if not root or not place or is_url(place) or not is_inside(place, root):
        return None
    relative = os.path.relpath(place, root)
    if relative == ".":
        return ""
    return None if any(part.startswith(".") for part in relative.split("/")) else relative
