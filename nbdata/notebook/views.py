"""A job's snapshot as a display bundle, complete as text and as HTML, and still true when nobody updates it any more.

Therefore every view says at what time it was so, in full, and what to do if it does not move: a notebook may be saved,
and its kernel or its page may end, between any two updates.
"""

from __future__ import annotations

import time
from html import escape

from nbdata.display import numbers_of, share_of
from nbdata.rendering import dim, edged, html_bar, text_bar
from nbdata.report import Snapshot

__all__ = ["Bundle", "background_note", "foreground_note", "message", "view"]

Bundle = dict[str, str]

_COLOR = {"RUNNING": "moving", "PLANNING": "moving", "DONE": "good", "FAILED": "bad"}


def foreground_note(job_id: str) -> str:
    """What who waits for a job has to know."""
    return f"job {job_id}: the stop button stops it; run it again to resume, also if this no longer moves"


def loop_note(job_id: str) -> str:
    """The same for a stream."""
    return f"job {job_id} ends with this loop, and deletes what it has on the disk"


def background_note(job_id: str, *, carried: bool) -> str:
    """The same for a job in the background; `carried` by the agent, or by this kernel."""
    if carried:
        return f"job {job_id} goes on without this notebook; %transfers {job_id} shows how it stands"
    return f"job {job_id} ends with this kernel; run it again to resume"


def view(snapshot: Snapshot, note: str, *, state: str = "", at: float | None = None) -> Bundle:
    """A job as it was at one moment.

    Parameters
    ----------
    snapshot : Snapshot
    note : str
        What the user should know besides.
    state : str, optional
        What to say in place of the snapshot's state, when more is known by now; it then is no bar of a running job.
    at : float, optional
        The moment, as `time.time` has it (None: now).
    """
    moment = time.localtime(at)
    day, hour = time.strftime("%Y-%m-%d", moment), time.strftime("%H:%M:%S", moment)
    moving = not state and snapshot.state == "RUNNING"
    said = state or snapshot.condition
    if moving and snapshot.phase:
        said = f"running: {snapshot.phase}"
    title = snapshot.source + (f" → {snapshot.target}" if snapshot.target else "")
    color = "waiting" if state else _COLOR.get(snapshot.state, "waiting")
    share, numbers = share_of(snapshot) or 0.0, numbers_of(snapshot, moving=moving)
    html = "".join(
        [
            f"<div><b>{escape(snapshot.verb)}</b> {escape(title)}</div>",
            html_bar([(share, color)]),
            f"<div>{' · '.join([f'at {hour}: <b>{escape(said)}</b>', *numbers])}</div>",
            dim(" · ".join(filter(None, [day, escape(note)]))),
        ]
    )
    text = [
        f"{snapshot.verb} {title}".rstrip(),
        f"{text_bar(share)}  {', '.join([f'at {hour}: {said}', *numbers])}",
        ", ".join(filter(None, [day, note])),
    ]
    return {"text/plain": "\n".join(text), "text/html": edged(html, color)}


def message(text: str) -> Bundle:
    """A line without numbers."""
    return {"text/plain": text, "text/html": f"<div>{escape(text)}</div>"}
