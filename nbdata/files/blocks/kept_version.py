"""One version of an object that is open in a mount: where its blocks are, and what is known of them."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence

from nbdata.files.blocks.version_file import VersionFile, blocks_of
from nbdata.stores.base import ObjectInfo

__all__ = ["KeptVersion"]

# Blocks of a page of `_Given`: memory goes with what was read, not with a size that a store claims.
_PAGE = 4096


class _Given:
    """The CRCs of the blocks that were given out."""

    def __init__(self, count: int) -> None:
        self._count = count
        # By page: the CRCs, and whether each block was given out.
        self._pages: dict[int, tuple[array[int], bytearray]] = {}

    def get(self, number: int) -> int | None:
        """Return the CRC that a block had; None if it was not given out."""
        page, at = divmod(number, _PAGE)
        found = self._pages.get(page)
        return found[0][at] if found is not None and found[1][at] else None

    def set(self, number: int, crc: int) -> None:
        """Note a block."""
        page, at = divmod(number, _PAGE)
        found = self._pages.get(page)
        if found is None:
            size = min(_PAGE, self._count - page * _PAGE)
            found = self._pages.setdefault(page, (array("I", bytes(4 * size)), bytearray(size)))
        found[0][at] = crc
        found[1][at] = 1

    def all(self) -> array[int] | None:
        """Return the CRCs of all blocks; None if one was not given out."""
        found = array("I")
        for page in range(-(-self._count // _PAGE)):
            crcs, given = self._pages.get(page, (None, None))
            if crcs is None or not all(given or ()):
                return None
            found += crcs
        return found


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
        self._given = _Given(self.count)
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
        if self._given.get(number) not in (None, crc):
            self._torn = True
        self._given.set(number, crc)

    def tear(self) -> None:
        """Note that the blocks are not all that was given out: two readings of one differ, or some bytes went past."""
        self._torn = True

    def crcs(self) -> Sequence[int] | None:
        """Return the CRCs of all blocks, if each was given out here, and always the same; else None."""
        return None if self._torn else self._given.all()
