"""Find the volumes that an untar_volumes command means, with their records and the state of the target."""

from __future__ import annotations

from dataclasses import dataclass

from nbdata.engine.job.run import Run
from nbdata.engine.unpack.targets.checkpoints import Checkpoint, Earlier
from nbdata.engine.unpack.targets.target import Target
from nbdata.engine.unpack.volumes.deletion import RecordedSet
from nbdata.engine.unpack.volumes.finding import Candidates, VolumeList, find_volumes
from nbdata.engine.unpack.written import Written
from nbdata.errors import MissingVolume
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["ArchiveSet", "find_archive", "look_at", "recorded_set"]


@dataclass(frozen=True)
class ArchiveSet:
    """The volumes of an archive, the records of what they wrote, and the progress.

    Attributes
    ----------
    complete : bool
        Everything is there: the volumes need not be read.
    checkpoint : Checkpoint or None
        Where to resume; None to begin at the start.
    earlier : Earlier or None
        The state of the members before the checkpoint.
    """

    volumes: VolumeList
    written: Written
    complete: bool = False
    checkpoint: Checkpoint | None = None
    earlier: Earlier | None = None


def find_archive(run: Run, op: UntarVolumes, target: Target, around: Candidates | None = None) -> ArchiveSet:
    """Find the volumes, and what was written from them into the target; `around` lists the source, if known.

    If an earlier run of this command deleted volumes, the record says which set that was.
    """
    if op.list:
        return ArchiveSet(find_volumes(run, op.source, op.set, around), _written(op, target, []))
    recorded = recorded_set(op, target)
    volumes = recorded.remaining(run, op.source, around) if recorded is not None else None
    if volumes is None:
        return look_at(op, target, find_volumes(run, op.source, op.set, around))
    archive_set = look_at(op, target, volumes)
    passed = archive_set.checkpoint.restart.compressed if archive_set.checkpoint is not None else -1
    ends = volumes.ends()
    missing = [v.name for v, end in zip(volumes.volumes, ends, strict=True) if v.gone and end > passed]
    if missing and not archive_set.complete:
        if archive_set.checkpoint is None:
            find_volumes(
                run, op.source, op.set, around
            )  # raises MissingVolume with the names, if it can know them
        shown = ", ".join(missing[:10]) + (" …" if len(missing) > 10 else "")
        raise MissingVolume(
            f"missing volume{'s' if len(missing) > 1 else ''} {shown}",
            path=volumes.title,
            expected="all volumes that are not completely unpacked",
            remedy="Fetch the missing part again",
            details={"missing": missing},
        )
    return archive_set


def look_at(op: UntarVolumes, target: Target, volumes: VolumeList, *, thorough: bool = False) -> ArchiveSet:
    """Combine these volumes with those of their records that still hold."""
    gone = bool(volumes.recorded)
    written = _written(op, target, volumes.fingerprints())
    again = op.overwrite == "always" and not gone
    if not again and written.is_complete() and target.look(written).whole:
        return ArchiveSet(volumes, written, complete=True)
    checkpoint = Checkpoint.of(written)
    if checkpoint is None or not (gone or checkpoint.fits(op.overwrite, op.format)):
        return ArchiveSet(volumes, written)
    earlier = target.earlier(written, checkpoint, thorough=thorough)
    if not (gone or earlier.sound):
        return ArchiveSet(volumes, written)
    return ArchiveSet(volumes, written, checkpoint=checkpoint, earlier=earlier)


def _written(op: UntarVolumes, target: Target, fingerprints: list[str]) -> Written:
    options: list[object] = [
        sorted(op.members),
        op.strip_components,
        *([sorted(op.exclude)] if op.exclude else []),
        *([{"shard_size": op.most_bytes}] if op.shards is not None else []),
    ]
    return Written(target.index(), fingerprints, options, skip_written=op.skip_written)


def recorded_set(op: UntarVolumes, target: Target) -> RecordedSet | None:
    """The volumes as they were before this command deleted the first one; None if it has deleted none."""
    return RecordedSet.of(_written(op, target, []))
