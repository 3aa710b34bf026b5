"""Tells whether two statuses are of one file, also on disks that give it another number (inode) at each look."""

from __future__ import annotations

import os

__all__ = ["same_file"]

# File systems that keep the numbers of files. FAT and some in user space do not.
_STEADY = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """True if these are statuses of one file.

    A new file may get the inode of a deleted one, so the owner and the size are compared too. Some disks (FAT, some of
    FUSE) number a file anew when it is looked at again: there it is the time, which nobody else can set. On others it
    proves nothing, since all files of an archive may have one time.
    """
    if (one.st_uid, one.st_size) != (other.st_uid, other.st_size):
        return False
    same_time = one.st_mtime_ns == other.st_mtime_ns
    return os.path.samestat(one, other) or (same_time and _numbers_anew(other.st_dev))


def _numbers_anew(device: int) -> bool:
    """True unless the disk with this number (st_dev) is known to keep the numbers of its files."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [line.split(" ") for line in lines]
    except OSError:  # not Linux
        return True
    # Its type comes behind a single hyphen, which no other field can be: see proc_pid_mountinfo(5).
    kinds = {fields[fields.index("-") + 1] for fields in mounts if fields[2] == number}
    return not kinds or not kinds <= _STEADY
