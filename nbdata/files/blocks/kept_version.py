"""One version of an object that is open in a mount: where its blocks are, and what is known of them."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence

from nbdata.files.blocks.version_file import VersionFile, blocks_of
from nbdata.stores.base import ObjectInfo

__all__ = ["KeptVersion"]


class KeptVersion:
    """One version of an object that is open in this mount; safe to use from many threads.

    Attributes
    ----------
    name : str
        Of its file.
    info : ObjectInfo
    users : int
        Open files, and work that waits.
    proven : bool
        Whether the whole object was compared with its checksum, and each block is one of those.
    """

    def __init__(self, name: str, info: ObjectInfo, file: VersionFile | None, *, proven: bool) -> None:
        self.name, self.info, self.file, self.proven = name, info, file, proven
        self.lock = threading.Lock()
        self.users = 0
        self.count = blocks_of(info.size)
        self.pending = dict[int, bytes]()
        self.coming = dict[int, threading.Event]()
        # Of the blocks that were given out here: their CRCs, and whether any were.
        self._crcs, self._given = array("I", bytes(4 * self.count)), bytearray(self.count)
        # Whether it is kept no more, because it was wrong, or its file is gone.
        self.gone = False
        # Called to learn what the comparisons of the open files have shown.
        self.settlings = set[Callable[[], None]]()
        self._torn = False  # whether two readings of a block differed

    def has(self, number: int) -> bool:
        """Whether a block need not be fetched."""
        if number in self.pending:
            return True
        file = self.file
        try:
            return file is not None and file.has(number)
        except OSError:
            return False

    def known(self, number: int) -> int | None:
        """Return the CRC that a block must have, if it was compared with the checksum; else None."""
        try:
            return self.file.known(number) if self.proven and self.file is not None else None
        except OSError:
            return None

    def given(self, number: int, crc: int) -> None:
        """Note that a block is given out."""
        if self._given[number] and self._crcs[number] != crc:
            self._torn = True
        self._given[number], self._crcs[number] = 1, crc

    def tear(self) -> None:
        """Note that the blocks are not all that was given out: two readings of one differ, or some bytes went past."""
        self._torn = True

    def crcs(self) -> Sequence[int] | None:
        """Return the CRCs of all blocks, if each was given out here, and always the same; else None."""
        return list(self._crcs) if all(self._given) and not self._torn else None
