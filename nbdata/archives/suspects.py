"""Which volumes of a set are likely damaged: empty ones, and those whose size is unlike the others'.

A volume that lacks its end moves all that follows. So the damage is often noticed in a volume behind it, which is
good, or at the end of what it still holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from nbdata.archives.stream import FAULT, FOLLOWED, TRUNCATED, WHAT_THEN, VolumeSource
from nbdata.errors import BadArchive, MissingVolume

__all__ = ["name_suspects", "odd_sized", "refuse_empty"]

_NAMED = 3
# Bytes that may be decoded together, so that a fault is told at their beginning.
_BLOCK = 1 << 20


def refuse_empty(volumes: Sequence[VolumeSource], title: str) -> None:
    """MissingVolume if a set of several volumes has an empty one; a size that is not known is none of these."""
    empty = [volume.name for volume in volumes if volume.size == 0]
    if not empty or len(volumes) < 2:
        return
    shown = ", ".join(empty[:_NAMED]) + (" …" if len(empty) > _NAMED else "")
    raise MissingVolume(
        f"empty volume{'s' if len(empty) > 1 else ''} {shown}",
        path=title,
        remedy="Fetch it again: a transfer that failed leaves such a file",
        details={"missing": empty},
    )


def odd_sized(volumes: Sequence[VolumeSource], *, before: int | None = None) -> list[VolumeSource]:
    """Volumes that are smaller than most others; none where the archive was not cut into equal ones.

    ``split`` makes all but the last equal.

    Parameters
    ----------
    volumes : sequence of VolumeSource
        The whole set, in order.
    before : int, optional
        Only those that begin before this offset.
    """
    sizes = [volume.size for volume in volumes if volume.size is not None]
    if len(sizes) < max(len(volumes), 3):
        return []
    common = max(sizes)
    odd = [number for number, size in enumerate(sizes[:-1]) if size < common]
    if sizes.count(common) <= max(len(odd), 1):
        return []
    begins = [0, *accumulate(sizes)]
    return [volumes[number] for number in odd if before is None or begins[number] < before]


def name_suspects(error: BadArchive, volumes: Sequence[VolumeSource]) -> None:
    """Have the error of `bad_data` say which of several volumes may be to blame, and what to do."""
    details, remedy = error.details, error.remedy
    fault = details.get(FAULT)
    if fault is None or len(volumes) < 2:
        return
    # An offset that lies in a volume counts the bytes of the volumes; they are decoded by the block.
    odd = odd_sized(volumes, before=details["offset"] + _BLOCK if "volume" in details else None)
    if odd:
        shown = ", ".join(f"{volume.name} ({volume.size:,} bytes)" for volume in odd[:_NAMED])
        shown += " …" if len(odd) > _NAMED else ""
        are, them = ("are", "them") if len(odd) > 1 else ("is", "it")
        common = max(volume.size or 0 for volume in volumes)
        blame = (
            f"Most likely {shown} {are} too short: others have {common:,}. Fetch {them} again; {WHAT_THEN}"
        )
    else:
        if fault == TRUNCATED:
            which = "The last volumes may be missing, or one is too short or out of order"
        elif "volume" in details:
            which = "That volume, or one before or just behind it, is damaged, too short or out of order"
        else:
            which = "One of the volumes is damaged, too short or out of order"
        blame = f"{which}: md5check --repair finds it and fetches it again; {WHAT_THEN}"
    error.remedy = f"{blame}. {remedy}" if fault == FOLLOWED and remedy else blame
    details["odd_sized"] = [volume.name for volume in odd]
    error.scrub()
