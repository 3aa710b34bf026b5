"""Jobs as HTML: one line per job, cut at the available width, with details on demand.

A running job has its details only in the tooltip: its line is redrawn every second, which would close them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from html import escape

from nbdata.paths import last_component
from nbdata.rendering import chip, printable
from nbdata.report import Snapshot
from nbdata.sizes import format_duration, format_size
from nbdata.sortable import SCRIPT, UNKNOWN, keys_attribute

__all__ = ["amount", "rows_html", "whole"]

_COLOR = {"RUNNING": "moving", "PLANNING": "moving", "DONE": "good", "FAILED": "bad", "PAUSED": "warning"}
_LINE = "white-space:nowrap;overflow:hidden;text-overflow:ellipsis"
_COLUMN = "display:inline-block;vertical-align:middle"
_ID = f"{_COLUMN};box-sizing:content-box;font-family:monospace;padding:0px 1ch"
# Relative to the width, so that a narrow notebook shows both.
_NAME = f"{_COLUMN};box-sizing:border-box;width:26%;max-width:220px;padding:0px 8px 0px 4px;{_LINE}"
_ROW = "border-bottom:1px solid rgba(128,128,128,0.35);padding:2px 0px;max-width:1100px"
_NAMED = "opacity:0.75;white-space:nowrap"
# What jobs can be sorted by, and the buttons for it. The time is what an ended job took and what a running one needs.
_SORTED_BY = ("begun", "state", "job", "size", "time")
_HEAD = "border:0px;background:none;color:inherit;font:inherit;padding:2px 6px;text-decoration:underline"
_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0px;overflow-wrap:anywhere"


def rows_html(jobs: Iterable[Snapshot], *, ids: int, opened: bool = False, name: str = "") -> str:
    """Return the lines of some jobs; `ids` is the length of the longest id; with `opened`, details are shown too.

    Where scripts run, the lines can be sorted. Lines with a `name` stay so when lines of this name are drawn again.
    """
    rows = [(job, _row(job, opened, ids)) for job in jobs]
    lines = "".join(html for _, html in rows)
    if len(rows) < 2:
        return lines
    heads = "".join(
        f'<button type="button" data-nbdata-n="{n}" style="{_HEAD}">{name}</button>'
        for n, name in enumerate(_SORTED_BY)
    )
    return (
        f'<div data-nbdata="{name}"><div data-nbdata-heads style="display:none;opacity:0.75">sort by{heads}</div>'
        f"<div data-nbdata-rows>{lines}</div></div>{SCRIPT}"
    )


def amount(job: Snapshot) -> str:
    """Return the progress in bytes and files, with the totals if they are known."""
    done = []
    if job.bytes_total:
        done.append(f"{format_size(job.bytes)} of {format_size(job.bytes_total)}")
    elif job.bytes:
        done.append(format_size(job.bytes))
    if job.files_total:
        done.append(f"{job.files:,}/{job.files_total:,} {job.unit}")
    return ", ".join(done)


def _row(job: Snapshot, opened: bool, ids: int) -> str:
    name = f"<b>{escape(job.verb)}</b> {escape(last_component(job.target or job.source))}"
    line = (
        f"{chip(*_state(job))}"
        f'<span style="{_ID};min-width:{ids}ch">{escape(job.id)}</span>'
        f'<span style="{_NAME}">{printable(name)}</span>'
        f'<span style="vertical-align:middle">{escape(_progress(job))}</span>'
        f'<span style="vertical-align:middle;opacity:0.75;padding:0px 0px 0px 12px">{escape(_places(job))}</span>'
    )
    facts = _facts(job)
    tip = escape("\n".join([whole(job), *(f"{name}: {value}" for name, value in facts)]), quote=True)
    if not job.finished and not opened:
        # The same indent as jobs with a triangle for their details.
        return (
            f'<div {_keys(job)} style="{_ROW};{_LINE}" title="{tip}">'
            f'<span style="padding:0px 0px 0px 16px">{line}</span></div>'
        )
    table = "".join(
        f'<tr style="background-color:transparent"><td style="{_CELL};{_NAMED}">{escape(name)}</td>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
        for name, value in facts
    )
    return (
        f'<details {_keys(job)} style="{_ROW}"{" open" if opened else ""}>'
        f'<summary style="{_LINE}" title="{tip}">{line}</summary>'
        f'<table style="margin:2px 0px 6px 16px;background-color:transparent"><tbody>{table}</tbody></table></details>'
    )


def _keys(job: Snapshot) -> str:
    """Return the attribute with what a job is sorted by: see `_SORTED_BY`."""
    name = f"{job.verb} {last_component(job.target or job.source)}".rstrip()
    seconds = job.seconds if job.finished else job.eta
    known = UNKNOWN if seconds is None else seconds
    return keys_attribute([job.created, _state(job)[0], printable(name), job.bytes, known])


def _state(job: Snapshot) -> tuple[str, str]:
    """Return the word for a job's state, and its colour."""
    if job.state == "RUNNING" and not job.moving:
        return "waiting", "waiting"
    return job.state.lower(), _COLOR.get(job.state, "waiting")


def whole(job: Snapshot) -> str:
    """Return the verb and the complete places."""
    return f"{job.verb} {_places(job)}".rstrip()


def _places(job: Snapshot) -> str:
    return printable(job.source + (f" → {job.target}" if job.target else ""))


def _progress(job: Snapshot) -> str:
    """Return the progress and the time left; for an ended job its size and duration, as far as they are known."""
    if job.finished:
        size = format_size(job.bytes) if job.bytes else f"{job.files:,} {job.unit}" if job.files else ""
        far = job.percent if job.state != "DONE" and size else ""
        return ", ".join(filter(None, [far, size, format_duration(job.seconds) if job.seconds else ""]))
    words = [job.percent or (format_size(job.bytes) if job.bytes else "")]
    if job.state == "RUNNING" and not job.moving:
        words.append(job.condition)
    elif job.state == "RUNNING" and job.eta is not None:
        words.append(f"{format_duration(job.eta)} left")
    return ", ".join(filter(None, words)) or "–"


def _again(job: Snapshot) -> str:
    if job.why_no_command:
        return f"not as a command: {job.why_no_command}"
    return f"%{job.command}" if job.command else ""


def _facts(job: Snapshot) -> list[tuple[str, str]]:
    """Return the details of a job, as pairs of a name and a text."""
    why = (job.error or {}).get("message", "") if job.state == "FAILED" else ""
    if not why and not (job.finished and job.state == "DONE"):
        why = job.reason if job.reason != "user" else ""
    remedy = (job.error or {}).get("remedy", "") if job.state == "FAILED" else ""
    doing = job.phase if job.state == "RUNNING" else ""
    moving = job.rate and job.moving
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.created))
    facts = [
        ("why", ". ".join(filter(None, [why, remedy]))),
        ("doing", doing),
        ("from", job.source),
        ("to", job.target),
        ("done", amount(job)),
        ("rate", f"{format_size(job.rate)}/s" if moving else ""),
        ("limit", "" if job.max_rate is None else f"{format_size(job.max_rate)}/s"),
        ("retries", f"{job.retries:,}" if job.retries else ""),
        ("failed", f"{job.failures:,}" if job.failures else ""),
        ("begun", begun + (f" by {job.owner}" if job.owner else "")),
        ("took", format_duration(job.seconds) if job.finished and job.seconds else ""),
        ("again", _again(job)),
    ]
    return [(name, printable(value)) for name, value in facts if value]
