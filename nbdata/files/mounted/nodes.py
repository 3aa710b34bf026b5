"""The files and folders that the kernel knows by number: what they are, until it forgets them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from nbdata.files.mounted import wire
from nbdata.stores.base import ObjectInfo

__all__ = ["Node", "Nodes"]


@dataclass(slots=True)
class Node:
    """A file or folder that the kernel knows.

    Attributes
    ----------
    path : str
        Relative to the mounted folder.
    info : ObjectInfo or None
        The version of the file that the kernel was told of; None for a folder.
    sound : bool
        Whether all bytes that the kernel may hold of it were compared with the checksum in the store.
    times : int
        How often the kernel was told its number.
    """

    path: str
    info: ObjectInfo | None = None
    sound: bool = False
    times: int = 0


class Nodes:
    """The numbers that the kernel was told and has not forgotten; safe to use from many threads.

    There are as many as the kernel remembers, which drops them when memory is short.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = {wire.ROOT: Node("")}

    def known(self, number: int) -> Node | None:
        """Return what has a number, None if the kernel was not told it, or has forgotten it."""
        return self._known.get(number)

    def get(self, number: int) -> Node:
        """Return what has a number.

        Raises
        ------
        OSError
            ESTALE if the kernel was not told this number.
        """
        try:
            return self._known[number]
        except KeyError:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from None

    def looked_up(self, found: Iterable[tuple[int, str, ObjectInfo | None]]) -> None:
        """Note that the kernel is told numbers once more, each with its path and version."""
        with self._lock:
            for number, path, info in found:
                node = self._known.get(number)
                if node is None:
                    node = self._known[number] = Node(path)
                node.info = info
                node.times += 1

    def forget(self, gone: Iterable[tuple[int, int]]) -> None:
        """Note that the kernel forgets numbers that it was told so many times."""
        with self._lock:
            for number, times in gone:
                node = self._known.get(number)
                if node is not None:
                    node.times -= times
                    if node.times <= 0 and number != wire.ROOT:
                        del self._known[number]
