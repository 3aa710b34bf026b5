"""Finds volumes that a list names and that are not there: names alone do not show that the last one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nbdata.archives.volumes import VolumeSet, choose_set
from nbdata.engine.job.run import Run
from nbdata.errors import AccessDenied, BadOption, MissingVolume, NotFound
from nbdata.integrity.checksum_files import parse_checksums
from nbdata.integrity.checksum_names import is_manifest, owner_of
from nbdata.redaction import redacted
from nbdata.sizes import counted
from nbdata.stores.base import Location, ObjectInfo, Store
from nbdata.transfer.reader import Reader
from nbdata.transfer.retry import retrying

__all__ = ["listed_volume", "refuse_missing"]

# Bytes of the largest list that is read, and the most lists.
_LARGEST, _LISTS = 4 << 20, 3
# Lists that are looked for where the folder is not listed.
_USUAL = ("MD5SUMS", "SHA256SUMS")
# Volumes that an error names.
_NAMED = 10


def refuse_missing(run: Run, store: Store, entries: Mapping[str, ObjectInfo], chosen: VolumeSet) -> None:
    """Raise MissingVolume if a checksum file beside the volumes lists one that is not there.

    Parameters
    ----------
    entries : mapping of str to ObjectInfo
        What is there, by name.
    chosen : VolumeSet
        The volumes of the archive, without a hole.
    """
    if chosen.scheme == "single":
        return
    first = chosen.names[0]
    base = entries[first].key[: len(entries[first].key) - len(first)]
    inner = first[: first.rfind("/") + 1]
    sidecars = {name: owner_of(name) for name in entries}
    listed = {owner: name for name, owner in sidecars.items() if owner and owner not in entries}
    for name, info in _manifests(run, store, entries, base, inner):
        with Reader(run.control, store, info, 0, info.size) as reader:
            found = parse_checksums(b"".join(map(bytes, reader.blocks())))
        for entry in found.entries:
            if entry.name is not None and inner + entry.name.removeprefix("./") not in entries:
                listed.setdefault(inner + entry.name.removeprefix("./"), name)
    if not listed:
        return
    try:
        both = choose_set([*entries, *listed], first=first)
    except BadOption:  # one of the names is another spelling of a volume
        return
    if missing := [name for name in both.names if name not in entries]:
        why = f"{listed[missing[0]]} lists {'them' if len(missing) > 1 else 'it'}"
        raise _missing(
            missing, chosen.stem, counted(len(chosen.names), "volumes"), why,
            "Fetch the missing part again; if there is none, correct that list",
        )  # fmt: skip


def _manifests(
    run: Run, store: Store, entries: Mapping[str, ObjectInfo], base: str, inner: str
) -> Iterator[tuple[str, ObjectInfo]]:
    """Yield the lists beside the volumes, with their names."""
    found = {
        name: info for name, info in entries.items() if name[: len(inner)] == inner and is_manifest(name)
    }
    for name in _USUAL if not found else ():
        try:
            found[inner + name] = retrying(run.control, lambda key=base + inner + name: store.head(key))  # type: ignore[misc]
        except (AccessDenied, BadOption, NotFound):
            continue
    sound = [(name, info) for name, info in sorted(found.items()) if 0 < info.size <= _LARGEST]
    yield from sound[:_LISTS]


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
        f"missing volume{'s' if len(names) > 1 else ''} {shown}: {why}", path=path, got=got or None, remedy=remedy,
        details={"missing": names[: _NAMED + 1]},
    )  # fmt: skip
