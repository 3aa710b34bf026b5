"""Finds volumes that a list names and that are not there: names alone do not show that the last one is missing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from nbdata.archives.volumes import VolumeSet, choose_set
from nbdata.engine.job.run import Run
from nbdata.engine.unpack.volumes.checksum_files import ChecksumFiles
from nbdata.errors import BadOption, MissingVolume, NotFound
from nbdata.integrity.checksum_names import owner_of
from nbdata.redaction import redacted
from nbdata.sizes import counted
from nbdata.stores.base import Location, ObjectInfo
from nbdata.transfer.retry import retrying

__all__ = ["listed_volume", "refuse_missing"]

# Volumes that an error names, and names in lists that are looked at.
_NAMED, _LOOKED_AT = 10, 100_000


def refuse_missing(
    entries: Mapping[str, ObjectInfo], chosen: VolumeSet, checksums: ChecksumFiles | None
) -> None:
    """Raise MissingVolume if a checksum file beside the volumes lists one that is not there.

    Parameters
    ----------
    entries : mapping of str to ObjectInfo
        What is there, by name.
    chosen : VolumeSet
        The volumes of the archive, without a hole.
    checksums : ChecksumFiles or None
        The checksum files beside them.
    """
    if chosen.scheme == "single":
        return
    sidecars = {name: owner_of(name) for name in entries}
    listed = {owner: name for name, owner in sidecars.items() if owner and owner not in entries}
    for name, source in itertools.islice(checksums.listed(), _LOOKED_AT) if checksums is not None else ():
        if name not in entries:
            listed.setdefault(name, source)
    if not listed:
        return
    try:
        both = choose_set([*entries, *listed], first=chosen.names[0])
    except BadOption:  # one of the names is another spelling of a volume
        return
    if missing := [name for name in both.names if name not in entries]:
        why = f"{listed[missing[0]]} lists {'them' if len(missing) > 1 else 'it'}"
        raise _missing(
            missing,
            chosen.stem,
            counted(len(chosen.names), "volumes"),
            why,
            "Fetch the missing part again; if there is none, correct that list, or use --verify none",
        )


def listed_volume(run: Run, location: Location, place: str) -> ObjectInfo:
    """Return a volume that the user's list names; MissingVolume if it is not there."""
    try:
        return retrying(run.control, lambda: location.store.head(location.key))
    except NotFound as error:
        if error.details.get("bucket"):
            raise
        shown, name = redacted(place), location.key.rpartition("/")[2]
        raise _missing(
            [name], shown, "", "the list names it", "Fetch it again, or correct the list"
        ) from error


def _missing(names: list[str], path: str, got: str, why: str, remedy: str) -> MissingVolume:
    shown = ", ".join(names[:_NAMED]) + (" and more" if len(names) > _NAMED else "")
    return MissingVolume(
        f"missing volume{'s' if len(names) > 1 else ''} {shown}: {why}",
        path=path,
        got=got or None,
        remedy=remedy,
        details={"missing": names[: _NAMED + 1]},
    )
