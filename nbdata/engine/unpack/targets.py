"""Where an archive is unpacked to: a folder of the disk, a place in a store, or tar shards."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import Protocol

from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.planning.both_ends import both_ends
from nbdata.engine.planning.existing_objects import ExistingObjects
from nbdata.engine.planning.remote_target import existing_objects, key_at
from nbdata.engine.unpack.checkpoints import Checkpoint, Earlier, Taking
from nbdata.engine.unpack.extract import Extraction
from nbdata.engine.unpack.send_members import MemberSender
from nbdata.engine.unpack.shards_target import ShardsTarget
from nbdata.engine.unpack.space import plan_space
from nbdata.engine.unpack.volumes import VolumeList
from nbdata.engine.unpack.written import Sound, Written, is_version
from nbdata.paths import OWN_FOLDER, is_url
from nbdata.report import Plan
from nbdata.transfer.committer import Committer
from nbdata.transfer.index import Index, Record
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["FolderTarget", "StoreTarget", "Target", "source_run", "target_of"]

# No local folder belongs to the records of a target in a store.
_NOWHERE = (0, 0)


class Target(Protocol):
    """A target, and what is known of what stands there."""

    def index(self) -> Index:
        """The records of what was unpacked there from this source."""

    def open_index(self, index: Index) -> None:
        """Begin to write records."""

    def prepare(self) -> None:
        """Make the target, so that records of it can be written."""

    def look(self, written: Written) -> Sound:
        """What has become of all that this archive wrote."""

    def earlier(self, written: Written, checkpoint: Checkpoint, *, thorough: bool) -> Earlier:
        """What has become of the members before a checkpoint; with `thorough` content is read where that must be."""

    def refuse(self, written: Written) -> None:
        """BadOption if something stands there that would be lost."""

    def refuse_own(self, volumes: VolumeList) -> None:
        """BadOption if what is written would replace volumes that it is made of."""

    def plan_space(self, volumes: VolumeList, out: Plan, there: list[int]) -> None:
        """Say in the plan how much room is needed, of which `there` are the sizes of what is there."""

    def taking(
        self,
        written: Written,
        results: Results,
        volumes: VolumeList,
        volume: Callable[[], int],
        reserved: int,
    ) -> Taking:
        """What puts members there; `volume` is the number of the volume up to which the archive was read."""

    def tidy(self) -> None:
        """Take away what a run has left there whose machine was lost when all was done."""


class FolderTarget:
    """A folder of the disk."""

    def __init__(self, run: Run, op: UntarVolumes) -> None:
        self._run, self._op = run, op
        self._root = (op.target or "").rstrip("/") or "/"

    def index(self) -> Index:
        try:
            found = os.stat(self._root)
            identity = (found.st_dev, found.st_ino)
        except OSError:
            identity = None
        return Index(self._run.context.state_dir, self._op.all_sources(), self._root, identity)

    def prepare(self) -> None:
        with Committer(
            self._root, self._run.control, umask=self._run.context.umask, committed=lambda _: None
        ):
            pass

    def open_index(self, index: Index) -> None:
        found = os.stat(self._root)
        index.open((found.st_dev, found.st_ino))

    def look(self, written: Written) -> Sound:
        return written.look(self._root)

    def earlier(self, written: Written, checkpoint: Checkpoint, *, thorough: bool) -> Earlier:
        return Earlier.look(written, checkpoint, self._root, thorough=thorough)

    def refuse(self, written: Written) -> None:
        """Each file is looked at when its member comes."""

    def refuse_own(self, volumes: VolumeList) -> None:
        """The same."""

    def plan_space(self, volumes: VolumeList, out: Plan, there: list[int]) -> None:
        plan_space(self._run, volumes, out, self._root, there)

    def taking(
        self,
        written: Written,
        results: Results,
        volumes: VolumeList,
        volume: Callable[[], int],
        reserved: int,
    ) -> Taking:
        del volumes
        return Extraction(
            self._run, self._root, written, results,
            overwrite=self._op.overwrite, reserved=reserved, volume=volume,
        )  # fmt: skip

    def tidy(self) -> None:
        if os.path.isdir(os.path.join(self._root, OWN_FOLDER)):
            self.prepare()


class StoreTarget:
    """A place in a store, whose listing is read once."""

    def __init__(self, run: Run, op: UntarVolumes) -> None:
        self._run, self._op = run, op
        self._at_target = at_target = both_ends(run)[1]
        assert op.target is not None
        self._place = at_target.open(op.target)

    @cached_property
    def _objects(self) -> ExistingObjects:
        return existing_objects(self._at_target, self._place, "", overwrite="changed", delete=False)

    def index(self) -> Index:
        assert self._op.target is not None
        return Index(self._run.context.state_dir, self._op.all_sources(), self._op.target, _NOWHERE)

    def prepare(self) -> None:
        """Stores make no folders."""

    def open_index(self, index: Index) -> None:
        index.open(_NOWHERE)

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
        return is_version(record, self._objects.get(key_at(self._place, path)))

    def refuse(self, written: Written) -> None:
        """Each object is looked at when its member comes."""

    def refuse_own(self, volumes: VolumeList) -> None:
        """The same."""

    def plan_space(self, volumes: VolumeList, out: Plan, there: list[int]) -> None:
        """Nothing stands on the disk."""

    def taking(
        self,
        written: Written,
        results: Results,
        volumes: VolumeList,
        volume: Callable[[], int],
        reserved: int,
    ) -> Taking:
        del reserved
        return MemberSender(
            self._run, self._at_target, self._place, self._objects, written, results, volumes, volume,
            open_index=self.open_index,
        )  # fmt: skip

    def tidy(self) -> None:
        """What is unfinished is remembered, and given up by the next run or by cleanup."""


def target_of(run: Run, op: UntarVolumes) -> Target:
    """The target of a line; also that of one that has none, as it only lists."""
    if op.shards is not None:
        return ShardsTarget(run, op, op.shards)
    to_store = op.target is not None and is_url(op.target) and not op.list
    return StoreTarget(run, op) if to_store else FolderTarget(run, op)


def source_run(run: Run, op: UntarVolumes) -> Run:
    """The run as the volumes' end sees it, with its own storage options."""
    return both_ends(run)[0] if op.target is not None and is_url(op.target) else run
