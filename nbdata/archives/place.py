"""Places in an archive from which reading can go on later: in the tar stream, and in what it is compressed to."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

__all__ = ["EVERYTHING", "Place", "Restart", "Restarts"]

#: Farther than any stream is long.
EVERYTHING = 1 << 63
# Restart points that are held; of more, every second one is dropped.
_HELD = 1024


class Restart(NamedTuple):
    """Where decompressing may begin: an offset in the compressed bytes, and the same in those that come out.

    `state` is what a decoder has to know that begins within a stream; empty at the beginning of one.
    """

    compressed: int = 0
    expanded: int = 0
    state: str = ""


class Restarts:
    """The restart points that a decompressor came by; it notes them, and another thread asks.

    Parameters
    ----------
    start : Restart
        Where it began.
    """

    def __init__(self, start: Restart) -> None:
        self._points = [start]
        self._verified = start.expanded
        self._lock = threading.Lock()

    def begins(self, point: Restart) -> None:
        """A member, stream, frame or block begins here, which needs nothing of what is before it."""
        with self._lock:
            self._points.append(point)
            if len(self._points) > _HELD:
                del self._points[1:-1:2]

    def ended(self, expanded: int) -> None:
        """A member, stream, frame or block has ended here, and its checksum is right."""
        with self._lock:
            self._verified = expanded

    @property
    def verified(self) -> int:
        """Up to where the expanded bytes are known to be what was compressed."""
        return self._verified

    def before(self, expanded: int) -> Restart:
        """The last restart point from which this offset can be reached; those before it are forgotten."""
        with self._lock:
            found = bisect_right(self._points, expanded, key=lambda point: point.expanded) - 1
            del self._points[: max(found, 0)]
            return self._points[0]


@dataclass
class Place:
    """Where in a tar stream its next header is, and what a reader has to know to go on there.

    Attributes
    ----------
    offset : int
        Of the header, in the tar stream.
    pax_headers : dict
        Global headers in force.
    holes : int
        Bytes of sparse files that came out without being in the stream.
    unmatched : list of str or None
        Patterns of members that matched nothing yet; None at the start: all.
    earlier : iterable of (path, kind, linkname)
        What the members before have put where, in their order; read once.
    forgotten : bool
        Whether `earlier` lacks files: then a hard link may lead to one that is not in it.
    """

    offset: int = 0
    pax_headers: dict[str, str] = field(default_factory=dict)
    holes: int = 0
    unmatched: list[str] | None = None
    earlier: Iterable[tuple[str, str, str]] = ()
    forgotten: bool = False

    def copy(self) -> Place:
        """As it is now, without `earlier`."""
        unmatched = None if self.unmatched is None else list(self.unmatched)
        return replace(self, pax_headers=dict(self.pax_headers), unmatched=unmatched, earlier=())
