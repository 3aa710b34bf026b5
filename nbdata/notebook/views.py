"""Shows a job's snapshot as a display bundle, complete as text and as HTML, and correct even without further updates.

Each view therefore states its full date and time, and what to do if it does not change. A notebook may be saved, and
its kernel or page may end, between any two updates.
"""

from __future__ import annotations

import time
from html import escape

from nbdata.display import numbers_of
from nbdata.errors import NbdataError
from nbdata.rendering import dim, edged, html_bar, one_line, printable, text_bar
from nbdata.report import Snapshot

__all__ = ["Bundle", "background_note", "foreground_note", "message", "state_after", "view"]

Bundle = dict[str, str]

_COLOR = {"RUNNING": "moving", "PLANNING": "moving", "DONE": "good", "FAILED": "bad"}


def foreground_note(job_id: str) -> str:
    """Return the note for a user who waits for a job."""
    return (
        f"job {job_id}: the stop button stops it; run it again to resume, also if this display stops updating"
    )


def loop_note(job_id: str) -> str:
    """Return the note for a user who waits for a stream."""
    return f"job {job_id} ends with this loop, and deletes what it has on the disk"


def background_note(job: Snapshot, *, carried: bool) -> str:
    """Return the note for a background job that runs in the agent (`carried`) or in this kernel."""
    if not carried:
        return f"job {job.id} ends with this kernel; run it again to resume"
    if job.state == "PAUSED":
        does = "stays paused" if job.reason in ("", "user") else "waits"
        return f"job {job.id} {does} also without this notebook; %transfers {job.id} --resume continues it"
    if job.state == "CANCELLING":
        return f"job {job.id} is being cancelled; %transfers {job.id} shows its state"
    return f"job {job.id} continues without this notebook; %transfers {job.id} shows its state"


def view(snapshot: Snapshot, note: str, *, state: str = "", at: float | None = None) -> Bundle:
    """Show a job as it was at one moment.

    Parameters
    ----------
    snapshot : Snapshot
    note : str
        Additional text for the user.
    state : str, optional
        Replaces the snapshot's state if a newer one is known; the view then has no progress bar.
    at : float, optional
        The moment, as a `time.time` value (None: now).
    """
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    moving = not state and snapshot.moving
    said = state or snapshot.condition
    if moving and snapshot.phase:
        said = f"running: {snapshot.phase}"
    said = printable(said)
    title = printable(
        f"{snapshot.verb} {snapshot.source}" + (f" → {snapshot.target}" if snapshot.target else "")
    )
    color = (
        "waiting"
        if state or not (moving or snapshot.state != "RUNNING")
        else _COLOR.get(snapshot.state, "waiting")
    )
    known = snapshot.share is not None
    numbers = numbers_of(snapshot, moving=moving)
    first = numbers[: 1 + (moving and snapshot.eta is not None)] if known else []
    rest = numbers[len(first) :]
    # The most important facts come first: progress and time left; an unusual state comes before them.
    begin = [*first, said] if moving else [said, *first]
    others = "".join(f" · {word}" for word in begin[2:] + rest)
    note = printable(f"as of {when}" + (f"; {note}" if note else ""))
    html = "".join(
        [
            f"<div><b>{escape(' · '.join(begin[:2]))}</b>{escape(others)}</div>",
            html_bar([(snapshot.share or 0.0, color)]),
            one_line(title),
            dim(escape(note)),
        ]
    )
    text = [f"{text_bar(snapshot.share or 0.0)}  {', '.join([*begin, *rest])}", title.rstrip(), note]
    return {"text/plain": "\n".join(text), "text/html": edged(html, color)}


def state_after(error: BaseException) -> str:
    """Return the state of a job that can be followed no longer: an agent that lives may still carry it on."""
    alive = isinstance(error, NbdataError) and error.details.get("alive")
    return "its state is not known" if alive else "interrupted"


def message(text: str) -> Bundle:
    """A message without numbers."""
    text = printable(text)
    return {"text/plain": text, "text/html": f"<div>{escape(text)}</div>"}
