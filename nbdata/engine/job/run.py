"""What one verb's plan and perform are given: the operation, its context, its stores, where rows go."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from nbdata.engine.job.leases import Leases
from nbdata.engine.job.spool import RowFile
from nbdata.engine.job.staged import Staged
from nbdata.operation import Context, Operation
from nbdata.space.ledger import Reservation
from nbdata.stores.base import Location
from nbdata.stores.resolve import open_place
from nbdata.transfer.control import Control
from nbdata.transfer.index import Index

__all__ = ["Run"]


@dataclass
class Run:
    """One operation on its way.

    Attributes
    ----------
    operation, context
        What, and whose.
    control : Control
        Stop, wait and count; a Task, or a stand-in while only planning.
    folder : str
        A private folder for spooled rows.
    reservation : Reservation or None
        The disk space that is held for it, while it is performed.
    leases : Leases or None
        Where it hands out items, while it is performed.
    staged : Staged or None
        How processes reach the cache that it keeps, while it is performed.
    bindings : dict
        Objects of this process: ``fs``.
    only_plan : bool
        Whether the plan is all that is asked for.
    moving : bool
        Whether it has begun to do what was planned.
    kept : object
        What planning has found out, and performing uses.
    """

    operation: Operation
    context: Context
    control: Control
    folder: str
    bindings: dict[str, object] = field(default_factory=dict)
    reservation: Reservation | None = None
    leases: Leases | None = None
    staged: Staged | None = None
    only_plan: bool = False
    moving: bool = False
    kept: object = None
    _files: list[RowFile] = field(default_factory=list, init=False, repr=False)
    _opened: dict[str, Location] = field(default_factory=dict, init=False, repr=False)
    _index: Index | None = field(default=None, init=False, repr=False)

    def open(self, place: str) -> Location:
        """The store and key of a place, with this run's credentials, stopped when this run is.

        The same ones each time: a store may have learnt something, such as a region, or signatures of what it listed.
        """
        found = self._opened.get(place)
        if found is None:
            found = open_place(place, self.context, stop=self.control, fs=self.bindings.get("fs"))
            self._opened[place] = found
        return found

    def index(self, source: str, target: str, identity: tuple[int, int] | None) -> Index:
        """The records of a source and target; the same ones for who performs as for who planned: they may be many."""
        known, self._index = self._index, None
        if known is None or not known.is_of(source, target, identity):
            known = Index(self.context.state_dir, source, target, identity)
            self._index = known
        return known

    def row_file(self, name: str) -> RowFile:
        """A new file for rows."""
        file = RowFile(os.path.join(self.folder, f"{name}.rows"))
        self._files.append(file)
        return file

    def part(self, operation: Operation, name: str) -> Run:
        """A run of one of several operations that this one is made of, with a folder of its own; closed with this."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        part = replace(self, operation=operation, folder=folder)
        part._files, part._opened = self._files, self._opened
        return part

    def close(self) -> None:
        """Close the files of rows that an error left open; what was recorded until then can be read."""
        for file in self._files:
            file.close()
