"""Where else there is room: the disks that are named to whoever has too little."""

from __future__ import annotations

from nbdata.paths import is_inside
from nbdata.sizes import format_size
from nbdata.space.limits import Disk, disk_of, writable_disks

__all__ = ["disks_instead", "named"]


def disks_instead(path: str, needed: int, inodes: int, *, limited: str = "") -> list[Disk]:
    """The disks with that much room, the roomiest first; those in memory only where there is no other.

    Parameters
    ----------
    path : str
        Where there is too little; its own disk is no help.
    needed, inodes : int
    limited : str
        The folder whose limit allows no more, if that is why. Then its disk may help outside the folder; it comes
        last.
    """
    device = disk_of(path)[1]
    fitting = [
        d for d in writable_disks() if d.free >= needed and (d.inodes_free is None or d.inodes_free >= inodes)
    ]
    others = [d for d in fitting if d.device != device]
    outside = [d for d in fitting if d.device == device and limited and not is_inside(d.path, limited)]
    on_disks = [d for d in (*others, *outside) if not d.in_memory]
    return on_disks or [*others, *outside]


def named(disk: Disk, *, limited: str = "") -> str:
    """A disk as it is recommended."""
    memory = "in memory, " if disk.in_memory else ""
    outside = f", outside {limited}" if limited and is_inside(limited, disk.path) else ""
    return f"{disk.path} ({memory}{format_size(disk.free)} free{outside})"
