"""Which target a command means."""

from __future__ import annotations

from nbdata.engine.job.run import Run
from nbdata.engine.planning.both_ends import both_ends
from nbdata.engine.unpack.targets.folder.target import FolderTarget
from nbdata.engine.unpack.targets.shards.target import ShardsTarget
from nbdata.engine.unpack.targets.store.target import StoreTarget
from nbdata.engine.unpack.targets.target import Target
from nbdata.paths import is_url
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["source_run", "target_of"]


def target_of(run: Run, op: UntarVolumes) -> Target:
    """The target of a command; also for a command that only lists and has none."""
    if op.shards is not None:
        return ShardsTarget(run, op, op.shards)
    to_store = op.target is not None and is_url(op.target) and not op.list
    return StoreTarget(run, op, op.target or "") if to_store else FolderTarget(run, op)


def source_run(run: Run, op: UntarVolumes) -> Run:
    """The run with the storage options of the source."""
    return both_ends(run)[0] if op.target is not None and is_url(op.target) else run
