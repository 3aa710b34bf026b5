"""A job's snapshot as a display bundle, complete as text and as HTML, and still true when nobody updates it any more.

Therefore every view says at what time it was so, in full, and what to do if it does not move: a notebook may be saved,
and its kernel or its page may end, between any two updates.
"""

from __future__ import annotations

import time
from html import escape

from nbdata.display import progress_line, share_of
from nbdata.rendering import dim, edged, html_bar
from nbdata.report import Snapshot
from nbdata.sizes import format_duration, format_size

__all__ = ["Bundle", "background_note", "foreground_note", "message", "now", "view"]

Bundle = dict[str, str]

_COLOR = {"RUNNING": "moving", "PLANNING": "moving", "DONE": "good", "FAILED": "bad"}


def now() -> str:
    """Date and time of this second, on the user's clock."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def foreground_note(job_id: str) -> str:
    """What who waits for a job has to know."""
    return f"job {job_id}: the stop button stops it; the same line continues, also if this no longer moves"


def background_note(job_id: str, *, carried: bool) -> str:
    """The same for a job in the background; `carried` by the agent, or by this kernel."""
    if carried:
        return f"job {job_id} goes on without this notebook; %transfers {job_id} shows how it stands"
    return f"job {job_id} ends with this kernel; the same line continues"


def view(snapshot: Snapshot, note: str, *, state: str = "", at: str | None = None) -> Bundle:
    """A job as it was at one moment.

    Parameters
    ----------
    snapshot : Snapshot
    note : str
        What the user should know besides.
    state : str, optional
        What to say in place of the snapshot's state, when more is known by now; it then is no bar of a running job.
    at : str, optional
        The moment (None: now).
    """
    at = at or now()
    said = state or snapshot.state.lower() + (f": {snapshot.reason}" if snapshot.reason else "")
    if snapshot.state == "RUNNING" and snapshot.phase and not state:
        said = f"running: {snapshot.phase}"
    title = snapshot.source + (f" → {snapshot.target}" if snapshot.target else "")
    running = not state and not snapshot.finished
    color = _COLOR.get(snapshot.state, "waiting") if running or snapshot.finished else "waiting"
    share = share_of(snapshot)
    html = "".join(
        [
            f"<div><b>{escape(snapshot.verb)}</b> {escape(title)}</div>",
            html_bar([(share or 0.0, color)]),
            f"<div>{_numbers(snapshot, share, said, running=running)}</div>",
            dim(f"{escape(at)} · {escape(note)}"),
        ]
    )
    text = [
        f"{snapshot.verb} {title}".rstrip(),
        progress_line(snapshot) if running else _stopped_line(snapshot, said),
        f"{at}: {note}",
    ]
    return {"text/plain": "\n".join(text), "text/html": edged(html, color)}


def _stopped_line(snapshot: Snapshot, said: str) -> str:
    """The last numbers of a job that does not run, or that nobody follows: no rate, no time left."""
    still = Snapshot(**{**vars(snapshot), "rate": 0.0, "eta": None, "state": "RUNNING", "reason": ""})
    return f"{progress_line(still)}  {said}"


def _numbers(snapshot: Snapshot, share: float | None, said: str, *, running: bool) -> str:
    """State, bytes, files, rate, time left, retries and failures, as far as they are known."""
    words = [f"<b>{escape(said)}</b>"]
    if share is not None:
        words.append(f"{share:.0%}")
    if snapshot.bytes_total:
        words.append(f"{format_size(snapshot.bytes)} of {format_size(snapshot.bytes_total)}")
    elif snapshot.bytes:
        words.append(format_size(snapshot.bytes))
    if snapshot.files_total:
        words.append(f"{snapshot.files:,}/{snapshot.files_total:,} files")
    elif snapshot.files:
        words.append(f"{snapshot.files:,} files")
    if running and snapshot.rate:
        words.append(f"{format_size(snapshot.rate)}/s")
    if running and snapshot.eta is not None:
        words.append(f"{format_duration(snapshot.eta)} left")
    if snapshot.retries:
        words.append(f"{snapshot.retries:,} {'retry' if snapshot.retries == 1 else 'retries'}")
    if snapshot.failures:
        words.append(f"{snapshot.failures:,} failed")
    return " · ".join(words)


def message(text: str) -> Bundle:
    """A line without numbers."""
    return {"text/plain": text, "text/html": f"<div>{escape(text)}</div>"}
