"""quota: set or remove a limit, and say how much room there is, who decides it, and where there is more."""

from __future__ import annotations

import os
from typing import Any

from nbdata.engine.run import Run
from nbdata.paths import is_inside
from nbdata.report import Plan, Report
from nbdata.runtime import runtime_folder
from nbdata.sizes import format_duration, format_size, parse_size
from nbdata.space.ledger import Ledger, Room
from nbdata.space.limits import Disk, disk_of, limited_folders, set_limit, writable_disks
from nbdata.verbs.quota import Quota

__all__ = ["perform", "plan"]

_NOT_KEPT = "not kept after a reboot: the state folder cannot be written (NBDATA_STATE_DIR names another)"


def plan(run: Run) -> Plan:
    """What would be set; sets nothing."""
    op = run.operation
    assert isinstance(op, Quota)
    planned = Plan("quota", op.path)
    if op.limit is not None:
        limit = _limit(op.limit)
        planned.count("remove limit" if limit is None else "set limit", limit or 0)
    return planned


def perform(run: Run, planned: Plan) -> Report:
    """Set what was asked for, and look."""
    del planned
    op = run.operation
    assert isinstance(op, Quota)
    context = run.context
    if op.limit is not None:
        set_limit(context.state_dir, op.path, _limit(op.limit))
    rooms = Ledger().room(op.path, limited_folders(context.state_dir, context.env))
    kept = not is_inside(os.path.realpath(context.state_dir), os.path.realpath(runtime_folder()))
    here, device, _ = disk_of(op.path)
    disks = writable_disks()
    report = Report("quota", op.path, headline=_text(rooms[0], here))
    report.details = {
        "path": op.path,
        "rooms": [_room(room, here) for room in rooms],
        "disks": [
            {"path": disk.path, "size": disk.size, "free": disk.free, "inodes_free": disk.inodes_free}
            for disk in disks
        ],
        "kept": kept,
    }
    report.gauges = [_gauge(report.details["rooms"][0], disks)]
    report.tables = _tables(report.details, rooms[0].domain.device == device)
    if not kept and (op.limit is not None or len(rooms) > 1):
        report.notes.append(_NOT_KEPT)
    return report


# From which share on a room is called high, and full.
_HIGH, _FULL = 0.80, 0.95


def _gauge(room: dict[str, Any], disks: list[Disk]) -> dict[str, Any]:
    """The tightest room as a gauge; what to do is said from 80 % on, more urgently from 95 %."""
    taken = 1 - room["free"] / room["limit"] if room["limit"] else 1.0
    level = "full" if taken >= _FULL else "high" if taken >= _HIGH else ""
    warning = ""
    if level:
        word = "nearly full" if level == "full" else "filling up"
        warning = f"{word}: {taken:.0%} of {room['root']} is used or reserved. "
        warning += f"cleanup {room['root']} removes what nbdata left there"
        roomier = max((d for d in disks if d.free > room["free"]), key=lambda d: d.free, default=None)
        if roomier is not None:
            warning += f"; {roomier.path} has {format_size(roomier.free)} free"
    set_by = f"set by {room['source']}" if room["source"] != "the disk" else "set by the disk itself"
    return {
        "label": f"{room['root']}: limit {format_size(room['limit'])}, {set_by}",
        "total": room["limit"],
        "used": room["used"],
        "reserved": room["reserved"],
        "free": room["free"],
        "level": level,
        "warning": warning,
    }


def _limit(text: str) -> int | None:
    return None if text.lower() == "none" else parse_size(text, option="--limit")


def _room(room: Room, here: Disk) -> dict[str, Any]:
    """A room as plain data; of a disk, all that is not free counts as used, whoever uses it."""
    domain = room.domain
    disk = domain.device is not None
    return {
        "source": "the disk" if disk else domain.source,
        "root": domain.root,
        "limit": here.size if disk else domain.limit,
        "used": here.size - here.free if disk else room.used,
        "reserved": room.reserved,
        "free": room.free,
        "age": room.age,
    }


def _text(room: Room, here: Disk) -> str:
    """The tightest room in words."""
    if room.domain.device is None:
        text = f"{format_size(room.used)} of {format_size(room.domain.limit)} used"
        text += f" (limit by {room.domain.source} on {room.domain.root})"
    else:
        text = f"{format_size(here.size - here.free)} of {format_size(here.size)} used (the disk)"
    if room.reserved:
        text += f", {format_size(room.reserved)} reserved"
    return f"{text}, {format_size(room.free)} free"


def _tables(details: dict[str, Any], only_disk: bool) -> list[dict[str, Any]]:
    """All limits around the path, unless there is just the disk; and all disks."""
    rooms = [
        [
            room["root"], room["source"], format_size(room["limit"]), format_size(room["used"]),
            format_size(room["reserved"]), format_size(room["free"]),
            f"{format_duration(room['age'])} ago" if room["age"] else "now",
        ]
        for room in details["rooms"]
    ]  # fmt: skip
    disks = [
        [
            disk["path"], format_size(disk["size"]), format_size(disk["free"]),
            "–" if disk["inodes_free"] is None else f"{disk['inodes_free']:,}",
        ]
        for disk in details["disks"]
    ]  # fmt: skip
    head = ["folder", "source", "limit", "used", "reserved", "free", "counted"]
    tables = [{"caption": "limits", "head": head, "rows": rooms}]
    if only_disk and len(rooms) == 1:
        tables = []
    return [
        *tables,
        {"caption": "writable disks", "head": ["disk", "size", "free", "files free"], "rows": disks},
    ]
