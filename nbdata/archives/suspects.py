"""Finds the volumes of a set that are likely damaged: empty ones, and ones with an unusual size.

A volume without its end shifts all data after it. The damage is then often noticed in a later volume that is intact,
or at the end of the remaining data.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import accumulate

from nbdata.archives.stream import FAULT, FOLLOWED, REPAIR, TRUNCATED, WHAT_THEN, WRONG_CHECKSUM, VolumeSource
from nbdata.errors import BadArchive, MissingVolume

__all__ = ["name_suspects", "odd_sized", "refuse_empty"]

_NAMED = 3
# Bytes that may be decoded together; a fault in them is reported at their start.
_BLOCK = 1 << 20


def refuse_empty(volumes: Sequence[VolumeSource], title: str) -> None:
    """Raise MissingVolume if a set of several volumes contains an empty one; unknown sizes do not count as empty."""
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
    """Return the volumes that are smaller than most others; empty if the archive was not cut into equal volumes.

    ``split`` makes all volumes equal except the last.

    Parameters
    ----------
    volumes : sequence of VolumeSource
        The whole set, in order.
    before : int, optional
        Only volumes that begin before this offset.
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


def name_suspects(error: BadArchive, volumes: Sequence[VolumeSource], place: str = "") -> None:
    """Add to an error of `bad_data` which of several volumes may be to blame, and what to do.

    Parameters
    ----------
    error : BadArchive
    volumes : sequence of VolumeSource
        The whole set, in order.
    place : str, optional
        The folder of the volumes, for the command that compares them with their checksums.
    """
    details, remedy = error.details, error.remedy
    fault = details.get(FAULT)
    if fault is None or len(volumes) < 2:
        return
    # If a volume contains the fault, the offset counts volume bytes, which are decoded in blocks.
    odd = odd_sized(volumes, before=details["offset"] + _BLOCK if "volume" in details else None)
    if odd:
        shown = ", ".join(f"{volume.name} ({volume.size:,} bytes)" for volume in odd[:_NAMED])
        shown += " …" if len(odd) > _NAMED else ""
        are, them = ("are", "them") if len(odd) > 1 else ("is", "it")
        common = max(volume.size or 0 for volume in volumes)
        blame = (
            f"Most likely {shown} {are} too short: others have {common:,}. Fetch {them} again; {WHAT_THEN}"
        )
    elif fault == WRONG_CHECKSUM:
        command = f"`md5check {shlex.quote(place)}`" if place else "md5check"
        blame = (
            "That checksum covers all bytes before it: any volume up to that one may be damaged or out of order, and "
            f"any file unpacked so far may be wrong. {command} tells which volume, if a checksum file lists them; "
            "fetch it again, and run this again"
        )
    else:
        if fault == TRUNCATED:
            which = "The last volumes may be missing, or one is too short or out of order"
        elif "volume" in details:
            which = "That volume, or one before or just behind it, is damaged, too short or out of order"
        else:
            which = "One of the volumes is damaged, too short or out of order"
        blame = f"{which}: {REPAIR}; {WHAT_THEN}"
    error.remedy = f"{blame}. {remedy}" if fault == FOLLOWED and remedy else blame
    details["odd_sized"] = [volume.name for volume in odd]
    error.scrub()
