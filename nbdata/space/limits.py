"""Disk limits: free disk space, and limits that a user or an administrator has set on folders.

A *domain* is a device or a limited folder. The usable space at a path is the least that any domain around it allows.
Messages always name the deciding domain.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from nbdata.disk import disk_error
from nbdata.errors import AccessDenied, BadOption
from nbdata.lock_files import file_lock
from nbdata.optional_calls import fsync
from nbdata.own_files import taken, through_no_link
from nbdata.paths import canonical, is_inside
from nbdata.runtime import runtime_folder
from nbdata.sizes import parse_size

__all__ = [
    "Disk",
    "Domain",
    "existing_ancestor",
    "kept_free",
    "limited_folders",
    "mounted_disks",
    "round_up",
    "set_limit",
    "writable_disks",
]

# File systems that hold no user files.
_PSEUDO = {
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "securityfs",
    "pstore",
    "bpf",
    "tracefs",
    "debugfs",
    "mqueue",
    "hugetlbfs",
    "autofs",
    "binfmt_misc",
    "configfs",
    "fusectl",
    "rpc_pipefs",
    "nsfs",
    "squashfs",
    "efivarfs",
}
# File systems that are no disk: their files use memory, and are lost when the machine stops.
_MEMORY = {"tmpfs", "ramfs"}
# Mount points of other file systems without user files.
_SYSTEM = ("/sys/", "/proc/", "/run/credentials/")
# The share of a disk that stays free, and the most bytes of it.
_KEPT_SHARE, _MOST_KEPT = 100, 64 << 20


@dataclass(frozen=True)
class Domain:
    """A limit on the bytes written below a folder.

    Attributes
    ----------
    root : str
        The limited folder, or any path on the device.
    device : int or None
        The st_dev of a disk; None for a folder.
    limit : int
        Bytes. For a disk, the bytes that this user can use at all.
    source : str
        The origin of the limit, for messages.
    """

    root: str
    device: int | None
    limit: int
    source: str


@dataclass(frozen=True)
class Disk:
    """A writable disk: its mount point, and its bytes as ``df`` counts them.

    `used` are in files; `free` are those that this user may still write, as `inodes_free`. What the file system keeps
    for root is in neither. `device` is its st_dev. `in_memory` is True if its files use memory (tmpfs, as /dev/shm).
    """

    path: str
    size: int
    used: int
    free: int
    inodes_free: int | None
    device: int
    in_memory: bool = False


def existing_ancestor(path: str) -> str:
    """Return the path itself, or the nearest existing folder above it."""
    at = os.path.abspath(path)
    while not os.path.exists(at):
        at = os.path.dirname(at)
    return at


def kept_free(disk: Disk) -> int:
    """Return how many bytes of a disk no job may use: other programs need some, too."""
    return min(disk.size // _KEPT_SHARE, _MOST_KEPT)


def round_up(size: int, block: int) -> int:
    """Bytes that a file of `size` bytes occupies on disk."""
    return -(-max(size, 0) // block) * block


def disk_of(path: str) -> tuple[Disk, int, int]:
    """Return the disk that holds `path` (or will hold it), its st_dev and its block size."""
    at = existing_ancestor(path)
    try:
        figures = os.statvfs(at)
        device = os.stat(at).st_dev
    except OSError as error:
        raise disk_error(error, at) from error
    return _disk(at, figures, device), device, figures.f_frsize or 4096


def _disk(path: str, figures: os.statvfs_result, device: int, *, in_memory: bool = False) -> Disk:
    unit = figures.f_frsize or figures.f_bsize
    # Some file systems (btrfs, NFS) count no inodes and report 0 of 0.
    inodes = figures.f_favail if figures.f_files else None
    used = figures.f_blocks - figures.f_bfree
    return Disk(
        path, figures.f_blocks * unit, used * unit, figures.f_bavail * unit, inodes, device, in_memory
    )


def limited_folders(state_dir: str, env: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """Return the limited folders with their limit and its source: ``quota --limit`` or ``NBDATA_QUOTA``.

    ``NBDATA_QUOTA=SIZE[:PATH]`` sets one in the environment. PATH defaults to the home folder.
    """
    limits = {path: (limit, "%quota --limit") for path, limit in _kept(state_dir).items()}
    outside = env.get("NBDATA_QUOTA", "")
    if outside:
        size, _, path = outside.partition(":")
        home = env.get("HOME") or os.path.expanduser("~")
        folder = os.path.realpath(canonical(path or home, cwd=home, name="NBDATA_QUOTA").rstrip("/") or "/")
        limit = parse_size(size, option="NBDATA_QUOTA")
        if folder not in limits or limit < limits[folder][0]:
            limits[folder] = (limit, "NBDATA_QUOTA")
    return limits


def _kept(state_dir: str) -> dict[str, int]:
    return _read(_file(state_dir)) or {}


def _file(state_dir: str) -> str:
    return os.path.join(state_dir, "limits.json")


def _read(path: str) -> dict[str, int] | None:
    """Return the limits in a file, by folder; None if it is not nbdata's."""
    try:
        with open(path, encoding="utf-8", opener=through_no_link) as file:
            data = json.load(file)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        return None
    except OSError as error:
        raise taken(path) or disk_error(error, path) from error
    if not isinstance(data, dict):
        return None
    valid = all(os.path.isabs(folder) and type(limit) is int for folder, limit in data.items())
    return data if valid else None


def set_limit(state_dir: str, path: str, limit: int | None) -> None:
    """Set a limit on a folder; None removes it.

    Raises
    ------
    BadOption
        If there is no limit to remove.
    AccessDenied
        If the file of the limits is not nbdata's: it is not replaced.
    """
    folder = os.path.realpath(path.rstrip("/") or "/")
    with file_lock(os.path.join(runtime_folder(), "limits.lock")):  # or two changes at once could lose one
        limits = _read(_file(state_dir))
        if limits is None:
            raise AccessDenied(
                "the file has no limits that nbdata wrote",
                path=_file(state_dir),
                remedy="Delete it, or move it away if it is yours",
            )
        if limit is None:
            if limits.pop(folder, None) is None:
                known = f"Limits are on {', '.join(limits)}" if limits else "No folder has one"
                raise BadOption(f"there is no limit on {folder}", remedy=known)
        else:
            limits[folder] = limit
        try:
            os.makedirs(state_dir, mode=0o700, exist_ok=True)
            fd, fresh = tempfile.mkstemp(dir=state_dir, prefix="limits")
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(limits, file, indent=1)
                file.flush()
                fsync(fd)
            os.replace(fresh, _file(state_dir))
        except OSError as error:
            raise disk_error(error, state_dir) from error


def domains(path: str, limited: Mapping[str, tuple[int, str]]) -> list[Domain]:
    """Return each domain that limits writes at `path`: its disk, and each limited folder around it."""
    disk, device, _ = disk_of(path)
    real = os.path.realpath(path.rstrip("/") or "/")
    around = [
        Domain(folder, None, limit, source)
        for folder, (limit, source) in limited.items()
        if is_inside(real, folder)
    ]
    return [Domain(disk.path, device, disk.free, "free on the disk"), *around]


def used_below(folder: str) -> int:
    """Bytes that all files below a folder occupy. Hard links count once."""
    total, seen = 0, set[tuple[int, int]]()
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as scan:
                entries = list(scan)
        except OSError:  # it has vanished, or is not readable
            continue
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(info.st_mode):
                pending.append(entry.path)
            elif info.st_nlink > 1:
                if (info.st_dev, info.st_ino) in seen:
                    continue
                seen.add((info.st_dev, info.st_ino))
            total += info.st_blocks * 512
    return total


def writable_disks() -> list[Disk]:
    """Return each mounted disk that this user can write to, once per device, largest free space first."""
    disks: dict[int, Disk] = {}
    for path, kind in dict(
        mounted_disks()
    ).items():  # of two mounts at the same place, the last one is visible
        if (
            kind in _PSEUDO
            or path.startswith(_SYSTEM)
            or not os.access(path, os.W_OK)
            or not os.path.isdir(path)
        ):
            continue
        try:
            device = os.stat(path).st_dev
            # A mount hidden by another mount above it appears as a folder of that one.
            in_memory = kind in _MEMORY and os.path.ismount(path)
            disk = _disk(path, os.statvfs(path), device, in_memory=in_memory)
        except OSError:
            continue
        known = disks.get(device)
        if disk.size and (known is None or len(path) < len(known.path)):
            disks[device] = disk
    return sorted(disks.values(), key=lambda d: -d.free)


def mount_points() -> set[str]:
    """Return the folders on which a file system is mounted, also a part of one that is mounted elsewhere too."""
    return {path for path, _ in mounted_disks()}


def mounted_disks() -> list[tuple[str, str]]:
    """Return the folders on which a file system is mounted, each with the type of that."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as lines:
            rows = [line.split(" ") for line in lines]
    except OSError:  # not Linux: check the usual folders
        return [("/", "?"), (os.path.expanduser("~"), "?"), (tempfile.gettempdir(), "?")]
    return [(_unescaped(row[1]), row[2]) for row in rows if len(row) > 2]


def _unescaped(text: str) -> str:
    """Replace the octal escapes of blanks and backslashes in a mount point."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
