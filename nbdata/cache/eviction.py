"""Chooses the object that leaves a cache, from the epochs that training loops tell.

A loop uses each object of its selection once an epoch. So what it has just used is needed last, and what it has not
used for a whole epoch is not in its selection. When room is needed,

1. the longest unused object goes, if every loop has gone through a whole epoch since anybody used it;
2. otherwise an object that no loop needs in its present epoch: each has used it in that epoch, or did not use it in
   its last whole one. Of these, the longest unused goes;
3. otherwise the most recently used object.

While no consumer tells its epochs, the least recently used object goes, as is right for objects that differ in how
often they are used. A loop that used nothing during a whole epoch of another loop does not count until it uses
something again.
"""

from __future__ import annotations

import itertools
import zlib
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from nbdata.protocols import Epoch

__all__ = ["MOST_LOOPS", "EvictionOrder"]

#: The most loops that are remembered; of more, the longest unused is forgotten.
MOST_LOOPS = 32
# Bits of a set of names, 512 KiB: with a million names, a fifth of all others seems to be in it, too.
_BITS = 1 << 22


class _Names:
    """A set of names in bounded memory; it may seem to have a name that was not added."""

    def __init__(self) -> None:
        self._bits = bytearray(_BITS // 8)

    def add(self, name: str) -> None:
        bit = zlib.crc32(name.encode()) % _BITS
        self._bits[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, name: str) -> bool:
        bit = zlib.crc32(name.encode()) % _BITS
        return bool(self._bits[bit >> 3] >> (bit & 7) & 1)


@dataclass(slots=True, eq=False)
class _Loop:
    """One loop. Times count the events of the cache, from 1."""

    epoch: Epoch
    began: int  # its epoch
    last: int  # the last event of one of its consumers
    used: _Names = field(default_factory=_Names)  # in its epoch
    passed: int = 0  # when its last whole epoch began; 0: it had none
    had: _Names | None = None  # the objects of its last whole epoch
    resting: bool = False  # True if it used nothing during a whole epoch of another loop

    def needs(self, name: str) -> bool:
        """Whether it will use an object in its epoch, as far as is known."""
        return name not in self.used and (self.had is None or name in self.had)


class EvictionOrder:
    """The objects that may leave a cache, and which of them goes next; not for several threads.

    An eviction takes constant time, apart from the number of loops.
    """

    def __init__(self) -> None:
        self._clock = itertools.count(1)
        self._idle: OrderedDict[str, int] = OrderedDict()  # with the time of the last use, the oldest first
        self._unneeded: OrderedDict[str, None] = OrderedDict()  # some of them, of rule 2 when they were added
        self._loops: dict[Hashable, _Loop] = {}
        self._loop_of: dict[Hashable, _Loop] = {}  # of consumers that are in an epoch
        self._stale_before = 0

    def __len__(self) -> int:
        return len(self._idle)

    # -- what consumers do ------------------------------------------------------------------------

    def note_epoch(self, consumer: Hashable, epoch: Epoch) -> None:
        """Note that a consumer's loop begins an epoch, or that it is over. All its consumers tell the same ones."""
        loop = self._loops.get(epoch.loop)
        if epoch.over:
            self._loop_of.pop(consumer, None)
            if loop is not None and loop.epoch.name == epoch.name and loop.epoch.whole:
                loop.epoch = loop.epoch._replace(whole=False)  # told by one consumer, it is over for all
                loop.passed, loop.had, loop.used = loop.began, loop.used, _Names()
                self._count_loops()
            return
        now = next(self._clock)
        if loop is None:
            if len(self._loops) == MOST_LOOPS:
                self._drop_loop(min(self._loops, key=lambda name: self._loops[name].last))
            loop = self._loops[epoch.loop] = _Loop(epoch, now, now)
            self._count_loops()
        elif loop.epoch.name != epoch.name:
            loop.epoch, loop.began, loop.used = epoch, now, _Names()
        elif not epoch.whole:  # one of its consumers begins in the middle
            loop.epoch = loop.epoch._replace(whole=False)
        self._loop_of[consumer] = loop
        self.touch(consumer)

    def _drop_loop(self, name: Hashable) -> None:
        loop = self._loops.pop(name)
        for consumer in [consumer for consumer, one in self._loop_of.items() if one is loop]:
            del self._loop_of[consumer]

    def touch(self, consumer: Hashable) -> None:
        """Note that a consumer is at work."""
        loop = self._loop_of.get(consumer)
        if loop is not None:
            loop.last = next(self._clock)
            if loop.resting:
                self._count_loops()

    def use(self, consumer: Hashable, name: str) -> None:
        """Note that a consumer uses an object, which must not go until `add`."""
        self.touch(consumer)
        loop = self._loop_of.get(consumer)
        if loop is not None:
            loop.used.add(name)
        self.discard(name)

    def leave(self, consumer: Hashable) -> None:
        """Note that a consumer is gone. Its loop may continue with others."""
        self._loop_of.pop(consumer, None)

    def _count_loops(self) -> None:
        """Decide which loops count, and what is stale: last used before each of them began a whole epoch."""
        latest = max((loop.passed for loop in self._loops.values()), default=0)
        for loop in self._loops.values():
            loop.resting = loop.last < latest
        self._stale_before = min(
            (loop.passed for loop in self._loops.values() if not loop.resting), default=0
        )

    # -- the objects ------------------------------------------------------------------------------

    def add(self, name: str) -> None:
        """Let an object go from now on. This counts as its last use."""
        self.discard(name)
        self._idle[name] = next(self._clock)
        if self._loops and self._is_unneeded(name):
            self._unneeded[name] = None

    def discard(self, name: str) -> None:
        """Keep an object, or forget that it is there."""
        self._idle.pop(name, None)
        self._unneeded.pop(name, None)

    def victim(self) -> str | None:
        """Return the object that goes next; None if there is none."""
        if not self._idle:
            return None
        oldest = next(iter(self._idle))
        if not self._loop_of or self._idle[oldest] < self._stale_before:
            return oldest
        while self._unneeded:
            name = next(iter(self._unneeded))
            if self._is_unneeded(name):
                return name
            del self._unneeded[name]  # a loop has begun an epoch since
        return next(reversed(self._idle))

    def _is_unneeded(self, name: str) -> bool:
        return not any(loop.needs(name) for loop in self._loops.values() if not loop.resting)
