"""Find other disks with enough room, to suggest them when space is short."""

from __future__ import annotations

from nbdata.paths import is_inside
from nbdata.sizes import format_size
from nbdata.space.limits import Disk, disk_of, kept_free, writable_disks

__all__ = ["disks_instead", "named"]


def disks_instead(path: str, needed: int, inodes: int, *, limited: str = "") -> list[Disk]:
    """Return the disks with that much room, largest first. Disks in memory are listed only if there is no other.

    Parameters
    ----------
    path : str
        The place with too little room, whose own disk is no help.
    needed, inodes : int
    limited : str
        The folder whose limit is the cause, or ''. Its disk may then help outside the folder, and is listed last.
    """
    device = disk_of(path)[1]
    fitting = [
        d
        for d in writable_disks()
        if d.free - kept_free(d) >= needed and (d.inodes_free is None or d.inodes_free >= inodes)
    ]
    others = [d for d in fitting if d.device != device]
    outside = [d for d in fitting if d.device == device and limited and not is_inside(d.path, limited)]
    on_disks = [d for d in (*others, *outside) if not d.in_memory]
    return on_disks or [*others, *outside]


def named(disk: Disk, *, limited: str = "") -> str:
    """Describe a disk for a suggestion."""
    memory = "in memory, " if disk.in_memory else ""
    outside = f", outside {limited}" if limited and is_inside(limited, disk.path) else ""
    return f"{disk.path} ({memory}{format_size(disk.free)} free{outside})"
