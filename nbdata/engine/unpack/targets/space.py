"""Plan the disk space of untar_volumes, and when volumes are deleted."""

from __future__ import annotations

import shlex
from dataclasses import replace

from nbdata.engine.job.run import Run
from nbdata.engine.planning.origin import origin_of
from nbdata.engine.unpack.volumes.deletion import may_delete_amid
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.history import Past, past_jobs
from nbdata.redaction import redacted
from nbdata.report import Plan
from nbdata.sizes import format_size
from nbdata.space.ledger import Ledger
from nbdata.space.limits import disk_of, domains, limited_folders, round_up
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["plan_deletion", "plan_space"]

_IN_STEPS = (
    "{} is not known beforehand, nor is whether it fits: space is reserved step by step while it grows"
)
# The unit at which a reader can start, by compression.
_PIECES = {
    "gz": "gzip member",
    "bz2": "bzip2 block",
    "xz": "xz stream",
    "zst": "Zstandard frame",
    "lz4": "LZ4 frame",
}


def plan_deletion(run: Run, volumes: VolumeList, out: Plan) -> None:
    """Set when the volumes are deleted: ``details["deletion"]`` is ``amid``, ``by piece`` or ``at the end``."""
    piece = _PIECES.get(out.details["format"])
    op = run.operation
    assert isinstance(op, UntarVolumes)
    # A store does not need the room of the volumes, and only at the end it is known which links lead to a file.
    # Shards may not hold every member.
    to_store = op.local_target() is None
    if (
        to_store
        or op.shards is not None
        or out.details["format"] == "zip"
        or not may_delete_amid(run, volumes)
    ):
        out.details["deletion"] = "at the end"
        out.notes.append("the volumes are deleted at the end, when everything is unpacked")
    elif piece is None:
        out.details["deletion"] = "amid"
        out.notes.append("each volume is deleted as soon as everything in it is unpacked")
    else:
        out.details["deletion"] = "by piece"
        out.notes.append(
            f"each volume is deleted as soon as everything in it is unpacked and another {piece} has begun, to go "
            "on from; what is compressed in one piece is deleted at the end"
        )


def plan_space(run: Run, volumes: VolumeList, out: Plan, root: str, there: list[int]) -> None:
    """Set how much space must be free; the files whose sizes are in `there` exist and need no more."""
    op, size, block = run.operation, volumes.size, disk_of(root)[2]
    assert isinstance(op, UntarVolumes)
    all_of_it = max(block, round_up(size or 0, block) - sum(round_up(one, block) for one in there))
    out.needed = all_of_it
    if op.max_expansion is not None:
        out.needed = min(out.needed, max(block, round_up(op.max_expansion, block)))
    if op.members or op.exclude:  # their size is known only while the archive is read
        out.needed, out.at_least = block, True
        out.notes.append(_IN_STEPS.format("what these members take"))
    elif out.details["format"] != "tar" or size is None:
        out.at_least = out.needed == all_of_it  # a smaller number is the limit of --max-expansion
        out.notes.append(_IN_STEPS.format("what it unpacks to"))
    elif out.details.get("deletion") == "amid" and _gives_back(run, volumes, root):
        out.needed, out.at_least = min(out.needed, _first(volumes, block)), True
        out.notes.append(
            "the volumes give room back as they are deleted: space is reserved step by step while it grows"
        )
    if out.needed == all_of_it and _gives_back(run, volumes, root):
        out.details["instead"] = _instead(run, op, volumes, out, root)


def _first(volumes: VolumeList, block: int) -> int:
    """Room to start with: the size of the first volume, which is deleted once unpacked; the lag is not known."""
    first = next((volume.info.size for volume in volumes.volumes if not volume.gone), 0)
    return max(block, round_up(first, block))


def _instead(run: Run, op: UntarVolumes, volumes: VolumeList, out: Plan, root: str) -> list[str]:
    """Alternatives that fit if the content does not fit beside its volumes; empty if it does."""
    block = disk_of(root)[2]
    free = Ledger().room(root, limited_folders(run.context.state_dir, run.context.env))[0].free
    held = sum(round_up(volume.info.size, block) for volume in volumes.volumes if not volume.gone)
    ways = list[str]()
    if out.needed <= free or op.delete_volumes:
        return ways
    plain = out.details["format"] == "tar"
    if plain and _first(volumes, block) <= free and may_delete_amid(run, volumes):
        line = op.line(redacted)
        ways.append(
            f"With {f'`{line} --delete-volumes`' if line else '--delete-volumes'} it fits: each volume goes as soon as "
            "it is unpacked"
        )
    if out.needed <= free + held:
        line = _from_store(op, past_jobs(run.context.state_dir))
        fits = "it fits" if plain else f"it has {format_size(held)} more"
        ways.append(
            f"Unpacked straight from their store, without the volumes on this disk, {fits}: delete them here, and run "
            + (f"`{line}`" if line else "untar_volumes with their URL as SOURCE")
        )
    return ways


def _from_store(op: UntarVolumes, jobs: list[Past]) -> str:
    """The command that unpacks the volumes from where they were pulled, if a job remembers it; else ''."""
    if not isinstance(op.source, str):
        return ""
    origin = origin_of(op.source, jobs)
    if origin is None:
        return ""
    return shlex.join([*shlex.split(replace(op, source=origin.url).line(redacted)), *origin.options])


def _gives_back(run: Run, volumes: VolumeList, root: str) -> bool:
    """True if deleting a volume frees room on every disk and in every limit that applies to the target."""
    limited = limited_folders(run.context.state_dir, run.context.env)
    wanted = _around(root, limited)
    places = [volume.local for volume in volumes.volumes if not volume.gone]
    return all(place is not None and wanted <= _around(place, limited) for place in places)


def _around(path: str, limited: dict[str, tuple[int, str]]) -> set[object]:
    return {d.root if d.device is None else d.device for d in domains(path, limited)}
