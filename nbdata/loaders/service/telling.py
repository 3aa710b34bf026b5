"""Measures who waits for whom in a service, and writes that for the panel: see `nbdata.services`."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import NamedTuple

from nbdata.loaders.service.address import Place
from nbdata.loaders.service.dealing import Consumer
from nbdata.loaders.service.making import Making
from nbdata.services import CONSUMERS, Consuming, ServiceStatus, tell

__all__ = ["Telling"]

# Seconds between two files, and how many files back rates and shares are measured.
_EVERY, _WINDOW = 1.0, 5


class _Mark(NamedTuple):
    """What had been counted at one moment."""

    at: float
    batches: int
    size: int
    waited: float
    consumers: dict[str, float]


class Telling:
    """The status of a service; used by the thread that serves.

    Parameters
    ----------
    making : Making
    place : Place
        Knows the file to write.
    """

    def __init__(self, making: Making, place: Place) -> None:
        self._making, self._place, self._began = making, place, time.time()
        self._batches = self._size = 0
        self._waited = 0.0
        self._used: dict[str, int] = {}
        self._hungry: dict[str, float] = {}  # seconds that each consumer has waited
        self._since = time.monotonic()
        self._blocked, self._waiting = False, list[str]()
        self._marks: deque[_Mark] = deque([self._mark(self._since)], _WINDOW + 1)
        self._due = 0.0
        self._last: ServiceStatus | None = None
        self._still = False  # whether the file tells it all, until something happens

    def sent(self, size: int) -> None:
        """Count a batch that was sent."""
        self._batches += 1
        self._size += size

    def used(self, consumer: Consumer, count: int) -> None:
        """Count batches that a consumer has used."""
        self._used[consumer.id] = self._used.get(consumer.id, 0) + count

    def look(self) -> None:
        """See who waits now, add up who has waited since the last call, and write the file if a second is over."""
        now = time.monotonic()
        passed, self._since = now - self._since, now
        self._still = False
        self._waited += passed * self._blocked
        for who in self._waiting:
            self._hungry[who] = self._hungry.get(who, 0.0) + passed
        making = self._making
        with making.lock:
            turn = making.current.turn
            self._waiting = [
                one.id for one in making.consumers.values() if one.asks and one.turn == turn and not one.out
            ]
            self._blocked = making.blocked
        if now >= self._due:
            self._due = now + _EVERY
            self._write(now)

    @property
    def seconds(self) -> float | None:
        """The seconds until `look` is to be called again, even if nothing happens; None if the file tells it all."""
        return None if self._still else max(0.0, self._due - time.monotonic())

    def _mark(self, now: float) -> _Mark:
        return _Mark(now, self._batches, self._size, self._waited, dict(self._hungry))

    def _write(self, now: float) -> None:
        making = self._making
        before, span = self._marks[0], now - self._marks[0].at
        with making.lock:
            connected = list(making.consumers.values())
            current = making.current
            epoch, held, used = current.epoch, current.held, current.used
        for gone in self._hungry.keys() - {one.id for one in connected}:
            del self._hungry[gone]
        for gone in self._used.keys() - {one.id for one in connected}:
            del self._used[gone]

        def share(seconds: float) -> float:
            return round(min(1.0, max(0.0, seconds / span)), 2) if span else 0.0

        length = making.length
        status = ServiceStatus(
            self._place.name,
            os.getpid(),
            self._place.where,
            current.mode,
            self._began,
            epoch=epoch,
            used=used,
            of=-1 if length is None else length,
            rate=round((self._batches - before.batches) / span, 1) if span else 0.0,
            byte_rate=round((self._size - before.size) / span) if span else 0.0,
            held=held,
            ahead=making.ahead,
            waits=share(self._waited - before.waited),
            count=len(connected),
            needed=making.needed,
            consumers=tuple(
                Consuming(
                    one.name,
                    self._used.get(one.id, 0),
                    share(self._hungry.get(one.id, 0.0) - before.consumers.get(one.id, 0.0)),
                )
                for one in connected[:CONSUMERS]
            ),
        )
        # While batches of the window are left behind, its rate can stay the same for a moment.
        self._still = status == self._last and before.batches == self._batches
        if status != self._last:
            self._last = status
            tell(self._place.status, status)
        self._marks.append(self._mark(now))
