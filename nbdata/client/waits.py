"""Measures how long a consumer of items waited, and for what."""

from __future__ import annotations

from dataclasses import dataclass

from nbdata.protocols import Item

__all__ = ["Waits"]


@dataclass
class Waits:
    """Seconds that a consumer waited for items.

    Attributes
    ----------
    first : float
        Waiting for the first item: listing, and the time until its bytes came.
    room : float
        Waiting until an item in use was given back and its room was free for the next.
    store : float
        Waiting for the bytes of items for which there was room.
    """

    first: float = 0.0
    room: float = 0.0
    store: float = 0.0

    @property
    def seconds(self) -> float:
        """The total."""
        return self.first + self.room + self.store

    def add(self, asked: float, came: float, item: Item) -> None:
        """Note when `item` was requested and when it came (``time.monotonic``, which all processes share)."""
        if item.number == 0:
            self.first += came - asked
            return
        began = min(max(item.began, asked), came)
        self.room += began - asked
        self.store += came - began
