"""Refuses a target folder that cannot be made or written to, before anything is written."""

from __future__ import annotations

import errno
import os

from nbdata.disk import disk_error
from nbdata.errors import BadOption
from nbdata.space.limits import existing_ancestor

__all__ = ["refuse_file", "refuse_unwritable"]


def refuse_file(folder: str | None) -> None:
    """Raise BadOption if a file, or a link to nothing, stands where a local target folder is to be, or above it.

    None: it is not local.
    """
    if folder is None:
        return
    ancestor = existing_ancestor(folder)
    _refuse_broken_link(ancestor, os.path.abspath(folder))
    if not os.path.isdir(ancestor):
        raise BadOption(
            "the target is a file"
            if ancestor == os.path.abspath(folder)
            else "a file stands in the target's path",
            path=ancestor,
            expected="a folder",
            remedy="Remove the file, or name another target",
        )


def _refuse_broken_link(ancestor: str, folder: str) -> None:
    """Raise BadOption if the first part of a path below its existing ancestor is a link to nothing."""
    name = os.path.relpath(folder, ancestor).partition("/")[0]
    link = os.path.join(ancestor, name)
    if folder != ancestor and os.path.islink(link):
        raise BadOption(
            "the target is a link whose target does not exist"
            if link == folder
            else "a link in the target's path has a target that does not exist",
            path=link,
            got=os.readlink(link),
            remedy="Make the folder to which it leads, or remove the link",
        )


def refuse_unwritable(where: str, *, below: bool = False) -> None:
    """Raise the disk's error if nothing may be written at `where`, a folder or a file that may not exist yet.

    With `below`, folders below it may allow what it does not itself; a read-only disk allows nothing.
    """
    at = existing_ancestor(where)
    at = at if os.path.isdir(at) else os.path.dirname(at)
    if os.access(at, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return
    read_only = os.statvfs(at).f_flag & os.ST_RDONLY
    if below and not read_only:
        return
    raise disk_error(OSError(errno.EROFS if read_only else errno.EACCES, ""), where)
