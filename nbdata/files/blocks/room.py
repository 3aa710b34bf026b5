"""The room that the disk and its limits leave to a cache: reserved in the ledger before anything is written."""

from __future__ import annotations

import os
from contextlib import ExitStack

from nbdata.errors import NotEnoughSpace
from nbdata.space.ledger import Ledger, Reservation
from nbdata.space.limits import limited_folders

__all__ = ["DiskRoom"]

# Bytes that are reserved at a time.
_STEP = 64 << 20


class DiskRoom:
    """Reserves room for one process, in steps; for one thread at a time.

    Parameters
    ----------
    path : str
        The folder that is written to.
    state_dir : str
        Where the limits on folders are.
    """

    def __init__(self, path: str, state_dir: str) -> None:
        self._path, self._state_dir = path, state_dir
        self._limited: dict[str, tuple[int, str]] = {}
        self._reserved: Reservation | None = None
        self._held = ExitStack()
        self._left = 0

    def take(self, size: int) -> bool:
        """Reserve bytes that are about to be written, with some for later; return False if there is no room.

        Raises
        ------
        NbdataError
            If the ledger cannot be read or written.
        """
        while self._left < size:
            for step in (max(size, _STEP), size):
                try:
                    self._reserve(step)
                    break
                except NotEnoughSpace:
                    continue
            else:
                return False
        self._left -= size
        assert self._reserved is not None
        self._reserved.note_written(size)
        return True

    def _reserve(self, size: int) -> None:
        limited = limited_folders(self._state_dir, os.environ)
        if self._reserved is None or limited != self._limited:  # a limit was set or lifted
            self.close()
            self._reserved = self._held.enter_context(
                Ledger().reserve(self._path, size, 0, limited, at_least=True)
            )
            self._limited = limited
        else:
            self._reserved.grow(size, fresh=True)
        self._left += size

    def freed(self) -> None:
        """Have limited folders counted anew: files were deleted."""
        if self._limited:
            Ledger().freed(self._path)

    def close(self) -> None:
        """Give back what was reserved and not written."""
        self._held.close()
        self._reserved, self._left = None, 0
