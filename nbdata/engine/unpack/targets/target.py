"""The targets of unpacking: a folder on the disk, a place in a store, or tar shards."""

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
from nbdata.engine.unpack.targets.checkpoints import Checkpoint, Earlier, Taking
from nbdata.engine.unpack.targets.folder.extraction import Extraction
from nbdata.engine.unpack.targets.shards.target import ShardsTarget
from nbdata.engine.unpack.targets.space import plan_space
from nbdata.engine.unpack.targets.store.send_members import MemberSender
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.engine.unpack.written import Sound, Written, is_version
from nbdata.own_files import own_folder
from nbdata.paths import is_url
from nbdata.report import Plan
from nbdata.transfer.committer import Committer
from nbdata.transfer.index import Index, Record
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["FolderTarget", "StoreTarget", "Target", "source_run", "target_of"]

# Records of a target in a store belong to no local folder.
_NOWHERE = (0, 0)


class Target(Protocol):
    """A target, with its existing content."""

    def index(self) -> Index:
        """The index of what was unpacked there from this source."""

    def open_index(self, index: Index) -> None:
        """Open the index for writing."""

    def prepare(self) -> None:
        """Make the target, so its records can be written."""

    def look(self, written: Written) -> Sound:
        """Compare everything this archive wrote with its records."""

    def earlier(self, written: Written, checkpoint: Checkpoint, *, thorough: bool) -> Earlier:
        """Compare the members before a checkpoint with their records; `thorough` also reads content where needed."""

    def refuse(self, written: Written) -> None:
        """Raise BadOption if existing content would be lost."""

    def refuse_own(self, volumes: VolumeList) -> None:
        """Raise BadOption if the output would replace its own source volumes."""

    def plan_space(self, volumes: VolumeList, out: Plan, there: list[int]) -> None:
        """Set the needed room in the plan; `there` lists the sizes of existing files."""

    def taking(
        self,
        written: Written,
        results: Results,
        volumes: VolumeList,
        volume: Callable[[], int],
        reserved: int,
    ) -> Taking:
        """The writer of members; `volume` returns the number of the last volume that was read from."""

    def tidy(self) -> None:
        """Remove leftovers of a run whose machine was lost after everything was done."""


class FolderTarget:
    """A folder on the disk."""

    def __init__(self, run: Run, op: UntarVolumes) -> None:
        self._run, self._op = run, op
        self._root = (op.target or "").rstrip("/") or "/"
        self._named = run.listed.get(op.target or "")

    def index(self) -> Index:
        try:
            found = os.stat(self._root)
            identity = (found.st_dev, found.st_ino)
        except OSError:
            identity = None
        return Index(self._run.context.state_dir, self._op.all_sources(), self._root, identity)

    def prepare(self) -> None:
        with Committer(
            self._root, self._run.control, umask=self._run.context.umask, committed=lambda _: None,
            named=self._named, opened=self._run.folders,
        ):  # fmt: skip
            pass

    def open_index(self, index: Index) -> None:
        found = os.stat(self._root)
        index.open((found.st_dev, found.st_ino))

    def look(self, written: Written) -> Sound:
        return written.look(self._root)

    def earlier(self, written: Written, checkpoint: Checkpoint, *, thorough: bool) -> Earlier:
        return Earlier.look(written, checkpoint, self._root, thorough=thorough)

    def refuse(self, written: Written) -> None:
        """Do nothing: each file is checked when its member comes."""

    def refuse_own(self, volumes: VolumeList) -> None:
        """Do nothing: see `refuse`."""

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
            overwrite=self._op.overwrite, reserved=reserved, volume=volume, named=self._named,
        )  # fmt: skip

    def tidy(self) -> None:
        if os.path.isdir(own_folder(self._root)):
            self.prepare()


class StoreTarget:
    """A place in a store, which is listed once."""

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
        """Do nothing: stores have no folders."""

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
        """List what is there: a store that cannot be listed or written to is told before the start."""
        del written
        _ = self._objects

    def refuse_own(self, volumes: VolumeList) -> None:
        """Do nothing: see `refuse`."""

    def plan_space(self, volumes: VolumeList, out: Plan, there: list[int]) -> None:
        """Nothing is written to the disk."""

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
        """Do nothing: unfinished uploads are recorded, and the next run or cleanup aborts them."""


def target_of(run: Run, op: UntarVolumes) -> Target:
    """The target of a command; also for a command that only lists and has none."""
    if op.shards is not None:
        return ShardsTarget(run, op, op.shards)
    to_store = op.target is not None and is_url(op.target) and not op.list
    return StoreTarget(run, op) if to_store else FolderTarget(run, op)


def source_run(run: Run, op: UntarVolumes) -> Run:
    """The run with the storage options of the source."""
    return both_ends(run)[0] if op.target is not None and is_url(op.target) else run
