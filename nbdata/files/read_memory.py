"""The memory that all open files of this process may use together, for bytes read ahead or that may be read again."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

from nbdata.sizes import parse_size
from nbdata.threads import ForkLock

__all__ = ["MEMORY", "Holder", "ReadMemory"]

_DEFAULT = 64 << 20
_NAME = "NBDATA_READ_MEMORY"
# A file that was read in the last so many seconds has a right to its part of the memory; others give theirs back.
_LATELY = 1.0


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
    other files still hold. Files that are read at the same time get equal parts of it; those that were read longest ago
    give theirs back first.
    """

    def __init__(self) -> None:
        self._lock = ForkLock()
        # When each was read; the one read last comes last.
        self._files: WeakKeyDictionary[Holder, float] = WeakKeyDictionary()

    def share(self, holder: Holder, needed: int, wanted: int) -> tuple[int, int]:
        """Return how many bytes a file may hold, at least `needed`, at most `wanted`; and its part of the memory.

        Raises
        ------
        BadOption
            If ``NBDATA_READ_MEMORY`` is no size.
        """
        limit, now = _limit(os.environ), time.monotonic()
        with self._lock:
            self._files.pop(holder, None)
            others = list[tuple[Holder, bool]]()
            for other, moment in list(self._files.items()):
                if other.held:
                    others.append((other, now - moment < _LATELY))
                else:
                    self._files.pop(other, None)
            used = sum(other.held for other, _ in others)
            part = limit // (1 + sum(lately for _, lately in others))
            wanted = max(needed, min(wanted, part))
            holder.held = share = max(needed, min(wanted, limit - used))
            self._files[holder] = now
        for other, lately in others:
            if used + (needed if lately else wanted) <= limit:
                break
            used -= other.held
            other.let_go()
        return share, part

    def holds(self, holder: Holder, size: int) -> None:
        """Note how much a file holds now."""
        with self._lock:
            holder.held = size
            if size and holder not in self._files:
                self._files[holder] = time.monotonic()

    @property
    def used(self) -> int:
        """Bytes that all open files hold."""
        with self._lock:
            return sum(one.held for one in list(self._files))


def _limit(env: Mapping[str, str]) -> int:
    return parse_size(env.get(_NAME) or _DEFAULT, option=_NAME)


#: The memory of this process.
MEMORY = ReadMemory()
