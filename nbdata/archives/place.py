"""Places in an archive from which reading can resume: in the tar stream and in the compressed bytes."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

__all__ = ["EVERYTHING", "Place", "Restart", "Restarts"]

#: An offset beyond the end of any stream.
EVERYTHING = 1 << 63
# Number of restart points kept; if there are more, every second one is dropped.
_HELD = 1024


class Restart(NamedTuple):
    """A place where decompression may begin: an offset in the compressed bytes and the matching expanded offset.

    `state` is what a decoder needs to begin within a stream; empty at the beginning of a stream.
    """

    compressed: int = 0
    expanded: int = 0
    state: str = ""


class Restarts:
    """Restart points that a decompressor has passed; the decompressor adds them and another thread reads them.

    Parameters
    ----------
    start : Restart
        Where the decompressor began.
    """

    def __init__(self, start: Restart) -> None:
        self._points = [start]
        self._verified = start.expanded
        self._lock = threading.Lock()

    def begins(self, point: Restart) -> None:
        """Note that a member, stream, frame or block begins here and does not depend on earlier data."""
        with self._lock:
            self._points.append(point)
            if len(self._points) > _HELD:
                del self._points[1:-1:2]

    def ended(self, expanded: int) -> None:
        """Note that a member, stream, frame or block has ended here and that its checksum is right."""
        with self._lock:
            self._verified = expanded

    @property
    def verified(self) -> int:
        """Offset in the expanded bytes up to which checksums have been verified."""
        return self._verified

    def before(self, expanded: int) -> Restart:
        """Return the last restart point from which this offset can be reached; earlier points are dropped."""
        with self._lock:
            found = bisect_right(self._points, expanded, key=lambda point: point.expanded) - 1
            del self._points[: max(found, 0)]
            return self._points[0]


@dataclass
class Place:
    """Where the next header is in a tar stream, and the state that a reader needs to resume there.

    Attributes
    ----------
    offset : int
        Offset of the header in the tar stream.
    pax_headers : dict
        Global headers in effect.
    holes : int
        Expanded bytes of sparse files that are not stored in the stream.
    unmatched : list of str or None
        Patterns that have matched no member so far; None at the start means all.
    earlier : iterable of (path, kind, linkname)
        Path, kind and link target of each earlier member, in order; can be read only once.
    forgotten : bool
        Whether files are missing from `earlier`; a hard link may then lead to a file that is not listed.
    """

    offset: int = 0
    pax_headers: dict[str, str] = field(default_factory=dict)
    holes: int = 0
    unmatched: list[str] | None = None
    earlier: Iterable[tuple[str, str, str]] = ()
    forgotten: bool = False

    def copy(self) -> Place:
        """Copy the current state, without `earlier`."""
        unmatched = None if self.unmatched is None else list(self.unmatched)
        return replace(self, pax_headers=dict(self.pax_headers), unmatched=unmatched, earlier=())
