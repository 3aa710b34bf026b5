"""The input of a verb's plan and perform: the operation, its context, its stores, and a place for rows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from nbdata.engine.job.dealing import Dealer, Part
from nbdata.engine.job.leases import Leases
from nbdata.engine.job.shared_cache import SharedCache
from nbdata.engine.job.spool import RowFile
from nbdata.guarded_folders import NamedFolders
from nbdata.operation import Context, Operation
from nbdata.space.ledger import Reservation
from nbdata.stores.base import Location, Store
from nbdata.stores.resolve import open_place
from nbdata.transfer.control import Control
from nbdata.transfer.index import Index

__all__ = ["Run"]


@dataclass
class Run:
    """One operation while it is planned and performed.

    Attributes
    ----------
    operation, context
        The operation, and the context of its client.
    control : Control
        Stops, pauses and counts; a Task, or a stand-in while only planning.
    folder : str
        A private folder for spooled rows.
    reservation : Reservation or None
        The reserved disk space, during performing.
    leases : Leases or None
        The items that it hands out, during performing.
    cache : SharedCache or None
        Access of processes to the cache that it keeps, during performing.
    dealer : Dealer or None
        Deals the work to the workers of a cluster, if requested, during performing.
    as_part : Part or None
        Set if this run performs one part of a job, and another process holds its lock, index and reservation.
    bindings : dict
        Objects of this process: ``fs``.
    only_plan : bool
        Whether only the plan was requested.
    moving : bool
        Whether performing the plan has begun.
    kept : object
        Results of planning that performing uses.
    listed : dict of str to str
        Places that a file lists or an archive names, and the folder above them. Only that was named by the user.
    folders : NamedFolders
        The folders on the disk that it writes in, from planning on.
    stores : list of Store
        All stores that it has used, at either end.
    end : str
        Which end it opens, if the ends have credentials of their own; see `nbdata.engine.planning.both_ends`.
    opened : dict of (end, place) to Location
        The places that it has opened. A worker keeps those in stores from one part of a job to the next.
    """

    operation: Operation
    context: Context
    control: Control
    folder: str
    bindings: dict[str, object] = field(default_factory=dict)
    reservation: Reservation | None = None
    leases: Leases | None = None
    cache: SharedCache | None = None
    dealer: Dealer | None = None
    as_part: Part | None = None
    only_plan: bool = False
    moving: bool = False
    kept: object = None
    listed: dict[str, str] = field(default_factory=dict)
    folders: NamedFolders = field(default_factory=NamedFolders)
    stores: list[Store] = field(default_factory=list)
    end: str = ""
    opened: dict[tuple[str, str], Location] = field(default_factory=dict, repr=False)
    _files: list[RowFile] = field(default_factory=list, init=False, repr=False)
    _index: Index | None = field(default=None, init=False, repr=False)

    def open(self, place: str) -> Location:
        """Return the store and key of a place, with this run's credentials; they stop when this run stops.

        The same place gives the same store each time: it may have learned a region, or signatures of listed objects.
        """
        location = self.opened.get((self.end, place))
        if location is None:
            location = open_place(
                place,
                self.context,
                stop=self.control,
                fs=self.bindings.get("fs"),
                named=self.listed.get(place),
                opened=self.folders,
            )
            self.opened[self.end, place] = location
            self.stores.append(location.store)
        return location

    def store_notes(self) -> list[str]:
        """Return what its stores cannot do, each once."""
        return list(dict.fromkeys(note for store in self.stores for note in store.notes()))

    def index(self, source: str, target: str, identity: tuple[int, int] | None, servers: str) -> Index:
        """Return the records of a source and target; planning and performing share them, since they may be many.

        `servers` are those of the stores: see `nbdata.stores.http.servers.servers_of`.
        """
        if self.as_part is not None:
            return self.as_part.index
        known, self._index = self._index, None
        if known is None or not known.is_of(source, target, identity, servers):
            known = Index(self.context.state_dir, source, target, identity, servers)
            self._index = known
        return known

    def row_file(self, name: str) -> RowFile:
        """Make a new file for rows."""
        file = RowFile(os.path.join(self.folder, f"{name}.rows"))
        self._files.append(file)
        return file

    def part(self, operation: Operation, name: str) -> Run:
        """Make a run of one operation out of several in this one, with its own folder; closed with this one."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        part = replace(self, operation=operation, folder=folder, dealer=None)
        part._files = self._files
        return part

    def close(self) -> None:
        """Close row files that an error left open; rows recorded until then can be read."""
        for file in self._files:
            file.close()
