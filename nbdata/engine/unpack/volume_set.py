"""The volumes that a line of untar_volumes means, with what is recorded of them and how far that holds."""

from __future__ import annotations

import os
from dataclasses import dataclass

from nbdata.engine.job.run import Run
from nbdata.engine.unpack.checkpoints import Checkpoint, Earlier
from nbdata.engine.unpack.volume_deletion import RecordedSet
from nbdata.engine.unpack.volumes import VolumeList, find_volumes
from nbdata.engine.unpack.written import Written
from nbdata.errors import MissingVolume
from nbdata.transfer.index import Index
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["ArchiveSet", "find_archive", "look_at", "recorded_set", "root_of"]


@dataclass(frozen=True)
class ArchiveSet:
    """The volumes, what they have written, and how far that is.

    Attributes
    ----------
    complete : bool
        All is there: they need not be read.
    checkpoint : Checkpoint or None
        Where to go on; None: at the start.
    earlier : Earlier or None
        What has become of what lies before it.
    """

    volumes: VolumeList
    written: Written
    complete: bool = False
    checkpoint: Checkpoint | None = None
    earlier: Earlier | None = None


def find_archive(run: Run, op: UntarVolumes) -> ArchiveSet:
    """The volumes, and what they have written.

    Where an earlier run of this line deleted volumes, the record says which set that was.
    """
    if op.list:
        return ArchiveSet(find_volumes(run, op.source), _written(run, op, []))
    recorded = recorded_set(run, op)
    volumes = recorded.found(run, op.source) if recorded is not None else None
    if volumes is None:
        return look_at(run, op, find_volumes(run, op.source))
    found = look_at(run, op, volumes)
    passed = found.checkpoint.restart.compressed if found.checkpoint is not None else -1
    ends = volumes.ends()
    missing = [v.name for v, end in zip(volumes.volumes, ends, strict=True) if v.gone and end > passed]
    if missing and not found.complete:
        if found.checkpoint is None:
            find_volumes(run, op.source)  # says what is missing, where that shows
        shown = ", ".join(missing[:10]) + (" …" if len(missing) > 10 else "")
        raise MissingVolume(
            f"missing volume{'s' if len(missing) > 1 else ''} {shown}", path=volumes.title,
            expected="all volumes from which not everything is unpacked",
            remedy="Fetch the missing part again", details={"missing": missing},
        )  # fmt: skip
    return found


def look_at(run: Run, op: UntarVolumes, volumes: VolumeList, *, thorough: bool = False) -> ArchiveSet:
    """With what is recorded of these volumes, and is so still."""
    root, gone = root_of(op.target), bool(volumes.recorded)
    written = _written(run, op, volumes.fingerprints())
    again = op.overwrite == "always" and not gone
    if not again and written.is_complete() and written.look(root).whole:
        return ArchiveSet(volumes, written, complete=True)
    checkpoint = Checkpoint.of(written)
    if checkpoint is None or not (gone or checkpoint.fits(op.overwrite, op.format)):
        return ArchiveSet(volumes, written)
    earlier = Earlier.look(written, checkpoint, root, thorough=thorough)
    if not (gone or earlier.sound):
        return ArchiveSet(volumes, written)
    return ArchiveSet(volumes, written, checkpoint=checkpoint, earlier=earlier)


def root_of(target: str | None) -> str:
    return (target or "").rstrip("/") or "/"


def _index(run: Run, op: UntarVolumes) -> Index:
    root = root_of(op.target)
    try:
        found = os.stat(root)
        identity = (found.st_dev, found.st_ino)
    except OSError:
        identity = None
    source = op.source if isinstance(op.source, str) else "\0".join(op.source)
    return Index(run.context.state_dir, source, root, identity)


def _written(run: Run, op: UntarVolumes, fingerprints: list[str]) -> Written:
    options: list[object] = [sorted(op.members), op.strip_components]
    return Written(_index(run, op), fingerprints, options, skip_written=op.skip_written)


def recorded_set(run: Run, op: UntarVolumes) -> RecordedSet | None:
    """The volumes as they were before this line deleted the first of them; None if it has not."""
    return RecordedSet.of(_written(run, op, []))
