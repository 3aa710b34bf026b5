"""The files and folders that the kernel knows by number: which paths they have, until it forgets them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable

from nbdata.files.mounted import wire

__all__ = ["Nodes"]


class Nodes:
    """The numbers that the kernel was told and has not forgotten; safe to use from many threads.

    There are as many as the kernel remembers, which drops them when memory is short.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths = {wire.ROOT: ""}
        self._times: dict[int, int] = {}  # how often each was told

    def path(self, number: int) -> str:
        """Return the path of a number, relative to the mounted folder.

        Raises
        ------
        OSError
            ESTALE if the kernel was not told this number.
        """
        try:
            return self._paths[number]
        except KeyError:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from None

    def looked_up(self, number: int, path: str) -> None:
        """Note that the kernel is told a number once more."""
        self.all_looked_up([(number, path)])

    def all_looked_up(self, found: Iterable[tuple[int, str]]) -> None:
        """Note that the kernel is told several numbers once more."""
        with self._lock:
            for number, path in found:
                self._paths[number] = path
                self._times[number] = self._times.get(number, 0) + 1

    def forget(self, gone: Iterable[tuple[int, int]]) -> None:
        """Note that the kernel forgets numbers that it was told so many times."""
        with self._lock:
            for number, times in gone:
                left = self._times.get(number, 0) - times
                if left > 0:
                    self._times[number] = left
                elif number != wire.ROOT:
                    self._times.pop(number, None)
                    self._paths.pop(number, None)
