"""The targets of unpacking: what a folder, a place in a store and tar shards have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from nbdata.engine.job.run import Run
from nbdata.engine.planning.both_ends import both_ends
from nbdata.engine.unpack.targets.checkpoints import Checkpoint, Earlier
from nbdata.engine.unpack.targets.unpacking import Unpacking
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.engine.unpack.written import Sound, Written
from nbdata.paths import is_url
from nbdata.report import Plan
from nbdata.transfer.index import Index
from nbdata.transfer.sources import servers_at
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["Target"]

# Records of objects belong to no local folder.
_NOWHERE = (0, 0)


class Target(ABC):
    """Where one archive is unpacked to, with its existing content; planning makes it, and performing uses it."""

    def __init__(self, run: Run, op: UntarVolumes) -> None:
        self._run, self._op = run, op

    def index(self) -> Index:
        """The index of what was unpacked there from this source."""
        state, op = self._run.context.state_dir, self._op
        return Index(state, op.all_sources(), op.target or "", _NOWHERE, self._servers)

    @cached_property
    def _servers(self) -> str:
        """The servers of the volumes and of the target, by which its records are known."""
        op, run = self._op, self._run
        places = [op.source] if isinstance(op.source, str) else op.source
        at_source = both_ends(run)[0] if op.target is not None and is_url(op.target) else run
        return f"{servers_at(at_source, places)}\n\n{self._server()}"

    def _server(self) -> str:
        """The server of a target in a store."""
        return ""

    def open_index(self, index: Index) -> None:
        """Open the index for writing."""
        index.open(_NOWHERE)

    @abstractmethod
    def look(self, written: Written) -> Sound:
        """Compare everything this archive wrote with its records."""

    @abstractmethod
    def earlier(self, written: Written, checkpoint: Checkpoint, *, thorough: bool) -> Earlier:
        """Compare the members before a checkpoint with their records; `thorough` also reads content where needed."""

    def refuse(self, volumes: VolumeList, written: Written) -> None:  # noqa: B027
        """Raise BadOption if existing content or a volume would be lost, as far as planning can know it."""

    def plan_space(self, volumes: VolumeList, out: Plan, there: list[int]) -> None:  # noqa: B027
        """Set the needed room on the disk in the plan; `there` lists the sizes of existing files."""

    @abstractmethod
    def unpack(self, archive: Unpacking) -> int:
        """Put all members there; return the offset up to which reading found only members that were there already."""

    def prepare(self) -> None:  # noqa: B027
        """Make the target, so its records can be written; in stores nothing has to be made."""

    def tidy(self) -> None:  # noqa: B027
        """Remove leftovers of a run whose machine was lost after everything was done.

        In stores, unfinished uploads are recorded, and the next run or cleanup aborts them.
        """
