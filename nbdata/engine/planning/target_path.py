"""Refuses a target folder where a file stands, before anything is written."""

from __future__ import annotations

import os

from nbdata.errors import BadOption
from nbdata.space.limits import existing_ancestor

__all__ = ["refuse_file"]


def refuse_file(folder: str | None) -> None:
    """Raise BadOption if a file stands where a local target folder is to be, or above it; None: it is not local."""
    if folder is None:
        return
    ancestor = existing_ancestor(folder)
    if not os.path.isdir(ancestor):
        raise BadOption(
            "the target is a file"
            if ancestor == os.path.abspath(folder)
            else "a file stands in the target's path",
            path=ancestor,
            expected="a folder",
            remedy="Remove the file, or name another target",
        )
