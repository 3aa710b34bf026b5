"""Counts of what was read so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Counts"]


@dataclass
class Counts:
    """The counts of one process's reading.

    Attributes
    ----------
    samples, bytes : int
        Samples handed out, and their bytes.
    waited : float
        Seconds in which `fetch` waited for bytes.
    seconds : float
        From the first call of `fetch` to the end of the last one.
    unverified : int
        Objects that had no checksum in the store to compare with; 0 with ``verify="none"``. Files on a disk, which
        keeps no checksums, do not count.
    cached, fetched : int
        Bytes that were read from a cache on the disk, and bytes of objects that had to be fetched to it for that.
    """

    samples: int = 0
    bytes: int = 0
    waited: float = 0.0
    seconds: float = 0.0
    unverified: int = 0
    cached: int = 0
    fetched: int = 0

    @classmethod
    def of(cls, members: Iterable[Counts]) -> Counts:
        """Add counts up; of `seconds` take the longest, since they passed at the same time."""
        every = list(members)
        return cls(
            sum(one.samples for one in every),
            sum(one.bytes for one in every),
            sum(one.waited for one in every),
            max((one.seconds for one in every), default=0.0),
            sum(one.unverified for one in every),
            sum(one.cached for one in every),
            sum(one.fetched for one in every),
        )
