"""A place in a store as the target of an archive."""

from __future__ import annotations

from functools import cached_property

from nbdata.engine.job.run import Run
from nbdata.engine.planning.both_ends import both_ends
from nbdata.engine.planning.existing_objects import ExistingObjects
from nbdata.engine.planning.remote_target import existing_objects, key_at
from nbdata.engine.unpack.targets.checkpoints import Checkpoint, Earlier
from nbdata.engine.unpack.targets.store.send_members import MemberSender
from nbdata.engine.unpack.targets.target import Target
from nbdata.engine.unpack.targets.unpacking import Unpacking
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.engine.unpack.written import Sound, Written, is_version
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.index import Record
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["StoreTarget"]


class StoreTarget(Target):
    """A place in a store, which is listed once.

    Attributes
    ----------
    location : Location
    """

    def __init__(self, run: Run, op: UntarVolumes, place: str) -> None:
        super().__init__(run, op)
        self._at_target = both_ends(run)[1]
        self.location = self._at_target.open(place)

    @cached_property
    def _objects(self) -> ExistingObjects:
        return existing_objects(self._at_target, self.location, "", overwrite="changed", delete=False)

    def _server(self) -> str:
        return self.location.store.server

    def look(self, written: Written) -> Sound:
        sound = Sound({}, {}, whole=True)
        for path, record in written.records():
            if self._is_there(path, record):
                sound.there[path] = record
            else:
                sound.whole = False
        return sound

    def earlier(self, written: Written, checkpoint: Checkpoint, *, thorough: bool) -> Earlier:
        del thorough
        return Earlier.in_store(written, checkpoint, self._is_there)

    def _is_there(self, path: str, record: Record) -> bool:
        """True if the object of a member is the recorded one."""
        return is_version(record, self._existing(path))

    def _existing(self, path: str) -> ObjectInfo | None:
        return self._objects.get(key_at(self.location, path))

    def refuse(self, volumes: VolumeList, written: Written) -> None:
        del volumes, written
        _ = self._objects  # a store that cannot be listed or written to ends the plan

    def unpack(self, archive: Unpacking) -> int:
        self.open_index(archive.written.index)
        sender = MemberSender(self._at_target, self.location, self._objects, archive)
        with sender, archive.opened():
            return sender.take_all()
