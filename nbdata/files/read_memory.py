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
    """An open file that holds bytes."""

    def let_go(self) -> None:
        """Drop what it holds, unless it is being read just now; does not wait."""


class ReadMemory:
    """Divides the memory among open files; safe to use from many threads.

    A file that is read always gets what it is asked for at that moment. What is left is for reading ahead, and for what
    other files still hold; those that were read longest ago give theirs back first.
    """

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._held: WeakKeyDictionary[Holder, int] = WeakKeyDictionary()  # the one read last comes last

    def share(self, holder: Holder, needed: int, wanted: int) -> int:
        """Return how many bytes a file may hold: at least `needed`, at most `wanted`.

        Raises
        ------
        BadOption
            If ``NBDATA_READ_MEMORY`` is no size.
        """
        limit = _limit(os.environ)
        with self._lock:
            self._held.pop(holder, None)
            others = list(self._held.items())
            used = sum(held for _, held in others)
            self._held[holder] = share = max(needed, min(wanted, limit - used))
        for other, held in others:
            if used + wanted <= limit:
                break
            other.let_go()
            used -= held
        return share

    def holds(self, holder: Holder, size: int) -> None:
        """Note how much a file holds now."""
        with self._lock:
            if size:
                self._held[holder] = size
            else:
                self._held.pop(holder, None)

    @property
    def used(self) -> int:
        """Bytes that all open files hold."""
        with self._lock:
            return sum(self._held.values())


def _limit(env: Mapping[str, str]) -> int:
    return parse_size(env.get(_NAME) or _DEFAULT, option=_NAME)


#: The memory of this process.
MEMORY = ReadMemory()
