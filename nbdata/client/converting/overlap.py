"""Checks whether a conversion would replace what it reads."""

from __future__ import annotations

import contextlib
import os

from nbdata.errors import BadOption

__all__ = ["refuse_overlap"]


def refuse_overlap(source: str, final: str) -> None:
    """Raise BadOption if INPUT is, lies in or holds the final folder of a split, whatever their names."""
    if _holds(source, final) or _holds(final, source):
        name = os.path.basename(final)
        raise BadOption(
            f"INPUT and the folder of split {name!r} overlap: the conversion would replace what it reads",
            path=final,
            remedy="Give NAME another folder, beside INPUT",
        )


def _holds(folder: str, path: str) -> bool:
    """True if a folder is a path, or one of the folders above it: through links and mounts, too."""
    below, path = "", os.path.realpath(path)
    while path != below:
        with contextlib.suppress(OSError):  # it does not exist yet
            if os.path.samefile(folder, path):
                return True
        below, path = path, os.path.dirname(path)
    return False
