"""Proves the splits of a converted data set by the seals of their records, and keeps closed ones closed."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import Any

from nbdata.acls import Replaced, give_group, replaced_file, replaced_folder, without_group
from nbdata.client.converting.split_files import RECORD
from nbdata.formats.ffrecord import SUFFIX
from nbdata.optional_calls import set_mode
from nbdata.own_files import is_own_file, read_small
from nbdata.seals import Seals

__all__ = [
    "close_as",
    "has_only_its_files",
    "is_changed",
    "is_proven",
    "is_sealed",
    "read_record",
    "sealed_values",
    "version",
]

# The most bytes of a record: of the most files that a split has.
_MOST_BYTES = 1 << 20
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def sealed_values(record: dict[str, Any], name: str) -> tuple[object, ...]:
    """Return the values that the seal of a finished split is of: its name, and all that its record says."""
    return "converted", name, {key: value for key, value in record.items() if key != "seal"}


def is_sealed(record: dict[str, Any], name: str, seals: Seals) -> bool:
    """True if this user's nbdata has made the record, for a split of this name."""
    try:
        return seals.holds(record.get("seal"), *sealed_values(record, name))
    except RecursionError:
        return False


def is_proven(folder: str, name: str, seals: Seals) -> bool:
    """True if this user's nbdata has finished the split in a folder, and its files are still as they were."""
    record = read_record(os.path.join(folder, RECORD))
    return (
        is_sealed(record, name, seals)
        and not is_changed(folder, record)
        and has_only_its_files(folder, record)
    )


def is_changed(final: str, record: dict[str, Any]) -> bool:
    """True if something else lies in the place of a file of a sealed record, or a file of another owner."""
    for one in record["files"]:
        path = os.path.join(final, one["name"])
        if os.path.lexists(path) and (
            version(path) != [one["size"], one["mtime_ns"]] or not _is_of_this_user(path)
        ):
            return True
    return False


def _is_of_this_user(path: str) -> bool:
    """True if a file has the owner of this user's files; False if nothing can be written beside it to know that."""
    try:
        return is_own_file(path)
    except OSError:
        return False


def has_only_its_files(final: str, record: dict[str, Any]) -> bool:
    """True if a split has all files of its sealed record, and no other FFRecord files, which would be read too."""
    names = {one["name"] for one in record["files"]}
    there = set[str]()
    for above in {os.path.dirname(name) for name in names}:
        with contextlib.suppress(OSError):
            there |= {os.path.join(above, name) for name in os.listdir(os.path.join(final, above))}
    return {name for name in there if name.endswith(SUFFIX)} == names


def version(path: str) -> list[int] | None:
    """Return the size in bytes and the time in nanoseconds of a regular file; None for anything else."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns] if stat.S_ISREG(status.st_mode) else None


def read_record(path: str) -> dict[str, Any]:
    try:
        record = json.loads(read_small(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def close_as(replaced: int, split: int, default: bytes | None) -> None:
    """Let nobody do more with a new split than with the one that it replaces; both are open folders.

    Their files need not have the same names. So each new one is no more open than any of the old ones; likewise the
    folders. The group stays where all had the same one.

    Parameters
    ----------
    default : bytes or None
        The access control list for new files of the folder around them.
    """
    folders, files = list[Replaced](), list[Replaced]()
    for _, _, names, fd in os.fwalk(".", dir_fd=replaced):
        folders.append(replaced_folder(fd, default=default))
        found = (replaced_file(name, dir_fd=fd, default=default) for name in names)
        files += [one for one in found if one is not None]
    for _, _, names, fd in os.fwalk(".", dir_fd=split):
        _close(fd, folders)
        for name in names:
            file = os.open(name, _FILE, dir_fd=fd)
            try:
                _close(file, files)
            finally:
                os.close(file)


def _close(fd: int, replaced: list[Replaced]) -> None:
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    for one in replaced:
        mode &= one.mode | 0o7700
    groups = {one.group for one in replaced}
    if len(groups) > 1 or not all(give_group(fd, group) for group in groups):
        mode = without_group(mode)
    set_mode(fd, mode)
