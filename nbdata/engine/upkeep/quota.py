"""quota: set or remove a limit; show the free room, its source, and other disks with more room."""

from __future__ import annotations

import itertools
import os
import shlex
from dataclasses import asdict
from typing import Any

from nbdata.cache.known import KnownCache, known_caches
from nbdata.engine.job.run import Run
from nbdata.own_files import has_own_folder
from nbdata.paths import is_inside
from nbdata.report import Plan, Report
from nbdata.runtime import runtime_folder
from nbdata.sizes import counted, format_duration, format_size, parse_size
from nbdata.space.elsewhere import disks_instead, named
from nbdata.space.ledger import Ledger, Room
from nbdata.space.limits import Disk, disk_of, limited_folders, set_limit, writable_disks
from nbdata.transfer.index import written_below
from nbdata.transfer.locks import TargetLock
from nbdata.verbs.quota import Quota

__all__ = ["perform", "plan"]

_NOT_KEPT = "not kept after a reboot: the state folder cannot be written (NBDATA_STATE_DIR names another)"
_CACHES = "caches of samples"
_CLEARED = "cleanup FOLDER --all clears a cache that nobody uses; it is filled anew when it is needed"


def plan(run: Run) -> Plan:
    """Plan the new limit; sets nothing."""
    op = run.operation
    assert isinstance(op, Quota)
    planned = Plan("quota", op.path)
    if op.limit is not None:
        limit = _limit(op.limit)
        planned.count("remove limit" if limit is None else "set limit", limit or 0)
    return planned


def perform(run: Run, planned: Plan) -> Report:
    """Set or remove the limit if asked, and report the room."""
    del planned
    op = run.operation
    assert isinstance(op, Quota)
    context = run.context
    if op.limit is not None:
        set_limit(context.state_dir, op.path, _limit(op.limit))
    # The files are counted anew for a new limit: a count of a minute ago could hide that it is too small.
    rooms = Ledger().room(
        op.path, limited_folders(context.state_dir, context.env), fresh=op.limit is not None
    )
    kept = not is_inside(os.path.realpath(context.state_dir), os.path.realpath(runtime_folder()))
    here, device, _ = disk_of(op.path)
    disks = writable_disks()
    report = Report("quota", op.path, headline=_text(rooms[0], here))
    report.details = {
        "path": op.path,
        "rooms": [_room(room, here) for room in rooms],
        "disks": [
            {
                "path": disk.path,
                "size": disk.size,
                "used": disk.used,
                "free": disk.free,
                "inodes_free": disk.inodes_free,
                "in_memory": disk.in_memory,
                "device": disk.device,
            }
            for disk in disks
        ],
        "caches": [_cache(cache) for cache in known_caches(context.state_dir)],
        "kept": kept,
    }
    report.gauges = [_gauge(report.details["rooms"][0], op.path, context.state_dir)]
    report.tables = _tables(
        _within(report.details, {disk.path for disk in disks if disk.device == device}),
        rooms[0].domain.device == device,
    )
    if not os.path.isdir(op.path):
        report.notes.append(f"{op.path} does not exist; this is the disk that it would be on")
    if op.limit is not None:
        report.notes += _too_small(_limit(op.limit), op.path, rooms)
    if not kept and (op.limit is not None or len(rooms) > 1):
        report.notes.append(_NOT_KEPT)
    if any(table["caption"] == _CACHES for table in report.tables):
        report.notes.append(_CLEARED)
    return report


# The used shares from which a room counts as high, and as full. With `_AMPLE` bytes free it is neither, whatever its
# size: the needs of running jobs are reserved, so they are not part of the free bytes.
_HIGH, _FULL = 0.80, 0.95
_AMPLE = 20 * 10**9
# Number of recorded files of a folder that are checked, to see whether any still exists.
_LOOKED_AT = 1000


def _gauge(room: dict[str, Any], path: str, state_dir: str) -> dict[str, Any]:
    """The tightest room as a gauge, with a remedy if little is left."""
    # As df does: what the file system keeps for root is not part of the whole.
    whole = room["used"] + room["reserved"] + room["free"]
    taken = 1 - room["free"] / whole if whole else 1.0
    ample = room["free"] >= _AMPLE
    level = "" if ample or taken < _HIGH else "full" if taken >= _FULL else "high"
    warning = ""
    if level:
        word = "nearly full" if level == "full" else "filling up"
        words = [
            f"{word}: {taken:.0%} of {room['root']} is used or reserved",
            _cleaned(room["root"], state_dir),
        ]
        limited = room["root"] if room["source"] != "the disk" else ""
        disks = disks_instead(path, room["free"] + 1, 0, limited=limited)
        if disks:
            words.append(f"There is more room on {named(disks[0], limited=limited)}")
        warning = ". ".join(filter(None, words))
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


def _cleaned(folder: str, state_dir: str) -> str:
    """What cleanup would do there according to the records; '' if nothing."""
    folder = os.path.realpath(folder)
    line = shlex.join(["cleanup", folder])
    staged = False
    for index in written_below(state_dir, folder):
        if (
            not is_inside(os.path.realpath(index.target), folder)
            or TargetLock(index.target, "quota").holder()
        ):
            continue
        if has_own_folder(index.target):
            return f"{line} removes what interrupted jobs left there"
        some = itertools.islice((path for path, record in index.records() if record.ours), _LOOKED_AT)
        staged = staged or any(os.path.isfile(os.path.join(index.target, path)) for path in some)
    return f"{line} --all removes what nbdata wrote there and nobody changed" if staged else ""


def _limit(text: str) -> int | None:
    return None if text.lower() == "none" else parse_size(text, option="--limit")


def _too_small(limit: int | None, path: str, rooms: list[Room]) -> list[str]:
    """What a new limit forbids from the start; nothing if it leaves room."""
    if limit is None:
        return []
    folder = os.path.realpath(path)
    own = (room for room in rooms if room.domain.device is None and room.domain.root == folder)
    used = next((room.used for room in own), 0)
    if used > limit:
        figures = format_size(used), format_size(limit)
        if figures[0] == figures[1]:
            figures = f"{used:,} B", f"{limit:,} B"
        told = f"{figures[0]} are used there already, and the limit allows {figures[1]}"
        return [f"{told}: nothing can be written there until less is used"]
    return [] if limit else ["with a limit of 0 B, nothing can be written there"]


def _room(room: Room, here: Disk) -> dict[str, Any]:
    """A room as plain data; of a disk with the bytes that all its files use."""
    domain = room.domain
    disk = domain.device is not None
    return {
        "source": "the disk" if disk else domain.source,
        "root": domain.root,
        "limit": here.size if disk else domain.limit,
        "used": here.used if disk else room.used,
        "reserved": room.reserved,
        "free": _free(room, here),
        "age": room.age,
    }


def _cache(cache: KnownCache) -> dict[str, Any]:
    """A cache as plain data."""
    return {**asdict(cache), "hit_rate": cache.hit_rate}


def _within(details: dict[str, Any], own: set[str]) -> dict[str, Any]:
    """What concerns the folder: its disk, and the caches in it or around it; of the home folder, everything."""
    folder = os.path.realpath(details["path"])
    if folder == os.path.realpath(os.path.expanduser("~")):
        return details
    near = [
        one for one in details["caches"] if is_inside(one["path"], folder) or is_inside(folder, one["path"])
    ]
    return {**details, "caches": near, "disks": [one for one in details["disks"] if one["path"] in own]}


def _text(room: Room, here: Disk) -> str:
    """The tightest room in words."""
    if room.domain.device is None:
        text = f"{format_size(room.used)} of {format_size(room.domain.limit)} used"
        text += f" (limit by {room.domain.source} on {room.domain.root})"
    else:
        text = f"{format_size(here.used)} of {format_size(here.size)} used (the disk)"
    if room.reserved:
        text += f", {format_size(room.reserved)} reserved"
    return f"{text}, {format_size(_free(room, here))} free"


def _free(room: Room, here: Disk) -> int:
    """Return the free bytes: of a disk those of ``df`` without what is reserved, but with what always stays free."""
    return room.free if room.domain.device is None else max(0, here.free - room.reserved)


def _tables(details: dict[str, Any], only_disk: bool) -> list[dict[str, Any]]:
    """Tables of all limits around the path, unless there is only the disk, and of all disks."""
    rooms = [
        [
            room["root"],
            room["source"],
            format_size(room["limit"]),
            format_size(room["used"]),
            format_size(room["reserved"]),
            format_size(room["free"]),
            f"{format_duration(room['age'])} ago" if room["age"] else "now",
        ]
        for room in details["rooms"]
    ]
    disks = [
        [
            disk["path"] + (" (in memory)" if disk["in_memory"] else ""),
            format_size(disk["size"]),
            format_size(disk["used"]),
            format_size(disk["free"]),
            "–" if disk["inodes_free"] is None else f"{disk['inodes_free']:,}",
        ]
        for disk in details["disks"]
    ]
    head = ["folder", "source", "limit", "used", "reserved", "free", "counted"]
    tables = [{"caption": "limits", "head": head, "rows": rooms}]
    if only_disk and len(rooms) == 1:
        tables = []
    if disks:
        head = ["disk", "size", "used", "free", "files free"]
        tables.append({"caption": "writable disks", "head": head, "rows": disks})
    if caches := [_row_of(cache) for cache in details["caches"]]:
        head = ["folder", "of", "in it", "limit", "objects", "hits", "used by"]
        tables.append({"caption": _CACHES, "head": head, "rows": caches})
    return tables


def _row_of(cache: dict[str, Any]) -> list[str]:
    rate, count = cache["hit_rate"], cache["consumers"]
    users = counted(count, "processes") if count else "nobody now"
    return [
        cache["path"],
        cache["source"] or "not known",
        format_size(cache["used"]),
        format_size(cache["limit"]) if cache["limit"] else "not known",
        f"{cache['objects']:,}",
        "–" if rate is None else f"{rate:.0%}",
        users if cache["in_use"] else "nobody",
    ]
