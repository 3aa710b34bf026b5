"""The memory that all open files of this process may use together, for bytes read ahead or that may be read again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

from nbdata.sizes import parse_size
from nbdata.threads import ForkLock

__all__ = ["MEMORY", "Holder", "ReadMemory"]

_DEFAULT = 64 << 20
_NAME = "NBDATA_READ_MEMORY"


class Holder(Protocol):
    """An open file that holds bytes.

    Attributes
    ----------
    held : int
        Their number, which only `ReadMemory` raises. A file that is closed sets it to 0, without waiting: the garbage
        collector may close it while this very thread divides the memory.
    """

    held: int

    def let_go(self) -> None:
        """Drop what it holds, unless it is being read just now; does not wait."""


class ReadMemory:
    """Divides the memory among open files; safe to use from many threads.

    A file that is read always gets what it is asked for at that moment. What is left is for reading ahead, and for what
    other files still hold; those that were read longest ago give theirs back first.
    """

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._files: WeakKeyDictionary[Holder, None] = WeakKeyDictionary()  # the one read last comes last

    def share(self, holder: Holder, needed: int, wanted: int) -> int:
        """Return how many bytes a file may hold: at least `needed`, at most `wanted`.

        Raises
        ------
        BadOption
            If ``NBDATA_READ_MEMORY`` is no size.
        """
        limit = _limit(os.environ)
        with self._lock:
            self._files.pop(holder, None)
            others = list(self._files)
            for other in others:
                if not other.held:
                    self._files.pop(other, None)
            used = sum(other.held for other in others)
            holder.held = share = max(needed, min(wanted, limit - used))
            self._files[holder] = None
        for other in others:
            if used + wanted <= limit:
                break
            used -= other.held
            other.let_go()
        return share

    def holds(self, holder: Holder, size: int) -> None:
        """Note how much a file holds now."""
        with self._lock:
            holder.held = size
            if size and holder not in self._files:
                self._files[holder] = None

    @property
    def used(self) -> int:
        """Bytes that all open files hold."""
        with self._lock:
            return sum(one.held for one in list(self._files))


def _limit(env: Mapping[str, str]) -> int:
    return parse_size(env.get(_NAME) or _DEFAULT, option=_NAME)


#: The memory of this process.
MEMORY = ReadMemory()
