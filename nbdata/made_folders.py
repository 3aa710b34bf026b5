"""Proves which folders nbdata made: only those are deleted with all that is in them.

A name proves nothing. Who owns the folder around can give it to any folder there, also to one that they may not look
into. So a folder that nbdata makes has a file ``.made`` with a seal (`nbdata.seals`) of its name and its inode. Another
folder has another inode, so that a copied file proves nothing there.
"""

from __future__ import annotations

import os

from nbdata.own_files import new_record, read_small
from nbdata.seals import Seals

__all__ = ["MADE", "MadeFolders"]

#: The file that proves a folder.
MADE = ".made"
# The most bytes of it.
_MOST = 64


class MadeFolders:
    """Seals the folders that this user's nbdata makes, and knows them again."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def seal(self, fd: int, name: str) -> None:
        """Seal an open folder, which this process has made with this name."""
        with open(new_record(MADE, fd), "w", encoding="ascii") as file:
            file.write(self._seals.of(*_said(fd, name)))

    def has(self, fd: int, name: str) -> bool:
        """True if this user's nbdata has made an open folder, and has given it this name."""
        try:
            seal = read_small(MADE, _MOST, at=fd).decode("ascii", "replace")
        except OSError:
            return False
        return self._seals.holds(seal, *_said(fd, name))


def _said(fd: int, name: str) -> tuple[str, str, int]:
    # Not the device: its number changes with each start of a container, and on network disks.
    return "folder", name, os.fstat(fd).st_ino
