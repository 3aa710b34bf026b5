"""The records of one part of a job, in memory: the process that holds the index appends them there."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from nbdata.transfer.index import Index, Record

__all__ = ["PartIndex"]


class PartIndex(Index):
    """Stands for the index of a job in the performer of a part.

    Parameters
    ----------
    known : dict of str to Record
        The records of the part's objects, as far as they have any.

    Attributes
    ----------
    made : dict of str to Record or None
        The records that the part has made.
    """

    def __init__(self, known: Mapping[str, Record]) -> None:
        # Nothing of the base class is set up: it has no file.
        self.problem = ""
        self._known: dict[str, Record | None] = dict(known)
        self._lock = threading.Lock()
        self.made: dict[str, Record | None] = {}

    def open(self, identity: tuple[int, int], *, needed: bool = True) -> None:
        """Do nothing: the records are in memory."""

    def get(self, path: str) -> Record | None:
        """Return the record of a relative path, or None."""
        return self._known.get(path)

    def put(self, records: Mapping[str, Record | None]) -> None:
        """Keep records for the report of the part."""
        with self._lock:
            self._known.update(records)
            self.made.update(records)

    def announce(self, *_: object, **__: object) -> None:
        """Do nothing: the coordinator has announced the whole part before it dealt it."""

    def sync(self) -> None:
        """Do nothing: the coordinator's index is durable."""

    def close(self) -> None:
        """Do nothing: there is no file."""
