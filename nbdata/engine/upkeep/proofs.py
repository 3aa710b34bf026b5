"""Says what nbdata made in its own folders, where others could have put something there."""

from __future__ import annotations

import os
import re
from collections.abc import Set as AbstractSet

from nbdata.made_folders import MadeFolders, names_prove
from nbdata.paths import CONVERTING
from nbdata.seals import Seals
from nbdata.transfer.marks import is_marked
from nbdata.transfer.part_records import PartRecord, is_partial
from nbdata.transfer.staging import Staging

__all__ = ["is_made", "strange_files", "whole_folder"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A folder that is deleted with all that is in it, and what follows.
_WHOLE = re.compile(
    rf"((?:.*/)?\.nbdata(?:-[0-9]+)?/(?:{CONVERTING}|(?:cache|kept|blocks)-[0-9a-f]{{16}}))/."
)


def whole_folder(path: str) -> str:
    """Return the folder around a path that is deleted with all that is in it; '' if there is none."""
    found = _WHOLE.match(path)
    return found[1] if found is not None else ""


def is_made(path: str, made: MadeFolders) -> bool:
    """True if nbdata made a folder, or nobody else can have put it there."""
    try:
        fd = os.open(path, _FOLDER)
    except OSError:
        return False
    try:
        return made.has(os.path.basename(path), fd)
    finally:
        os.close(fd)


def strange_files(own: str, given: AbstractSet[str], seals: Seals) -> set[str]:
    """Return those of the names that nbdata gives in an own folder whose files nothing proves to be nbdata's.

    Where nobody else can have given its name to the folder, the names prove enough. Elsewhere a temporary has its mark
    beside it, and a partial a sealed record. An empty file is no loss.
    """
    folder = Staging(own)
    try:
        if names_prove(folder.fd):
            return set()
        return {name for name in given if not _is_proven(folder, name, seals)}
    finally:
        folder.close()


def _is_proven(folder: Staging, name: str, seals: Seals) -> bool:
    try:
        if not os.lstat(name, dir_fd=folder.fd).st_size:
            return True
    except FileNotFoundError:
        return True
    if is_partial(name):
        return PartRecord(folder, name.rstrip("s") + "s").is_proven(seals)
    return is_marked(folder.path, name)
