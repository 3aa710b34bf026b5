"""What the plan of untar_volumes says about space, and about when volumes are deleted."""

from __future__ import annotations

from nbdata.engine.run import Run
from nbdata.engine.volume_deletion import may_delete_amid
from nbdata.engine.volumes import VolumeList
from nbdata.report import Plan
from nbdata.space.limits import disk_of, domains, limited_folders, round_up

__all__ = ["plan_deletion", "plan_space"]

# What a reader can begin with, by compression.
_PIECES = {"gz": "gzip member", "bz2": "bzip2 block", "xz": "xz stream", "zst": "Zstandard frame"}


def plan_deletion(run: Run, volumes: VolumeList, out: Plan) -> None:
    """Say when the volumes are deleted: ``details["deletion"]`` is ``amid``, ``by piece`` or ``at the end``."""
    piece = _PIECES.get(out.details["format"])
    if not may_delete_amid(run, volumes):
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
    """How much must be free: of what `there` is, the sizes of its files, nothing more is needed."""
    size, block = volumes.size, disk_of(root)[2]
    out.needed = max(block, round_up(size or 0, block) - sum(round_up(one, block) for one in there))
    if out.details["format"] != "tar" or size is None:
        out.notes.append(
            "what it unpacks to is not known beforehand: space is reserved step by step while it grows"
        )
    elif out.details.get("deletion") == "amid" and _gives_back(run, volumes, root):
        # How far the members lag behind is not known, but the first volume goes when it is unpacked, not before.
        first = next((volume.info.size for volume in volumes.volumes if not volume.gone), 0)
        out.needed = min(out.needed, max(block, round_up(first, block)))
        out.notes.append(
            "the volumes give room back as they are deleted: space is reserved step by step while it grows"
        )


def _gives_back(run: Run, volumes: VolumeList, root: str) -> bool:
    """Whether deleting a volume makes room in every disk and limit that the target is in."""
    limited = limited_folders(run.context.state_dir, run.context.env)
    wanted = _around(root, limited)
    places = [volume.local for volume in volumes.volumes if not volume.gone]
    return all(place is not None and wanted <= _around(place, limited) for place in places)


def _around(path: str, limited: dict[str, tuple[int, str]]) -> set[object]:
    return {d.root if d.device is None else d.device for d in domains(path, limited)}
