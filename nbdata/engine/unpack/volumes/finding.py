"""The volumes of one archive: find them, and pass them from the plan to the run."""

from __future__ import annotations

import hashlib
import json
import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from nbdata.archives.decompress import detect
from nbdata.archives.multi_volume import HEAD, continued_after
from nbdata.archives.suspects import refuse_empty
from nbdata.archives.tar import EMPTY_ARCHIVE
from nbdata.archives.tar_headers import is_header
from nbdata.archives.volumes import (
    choose_set,
    guess_format,
    is_later_part,
    numbered_sets,
    set_prefix,
    set_titles,
)
from nbdata.archives.whole import TAIL, begins_archive, ends_archive
from nbdata.archives.zip_end import ends_zip
from nbdata.engine.job.run import Run
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.engine.unpack.volumes.checksum_files import ChecksumFiles
from nbdata.engine.unpack.volumes.missing import listed_volume, refuse_missing
from nbdata.engine.unpack.volumes.stored_volume import StoredVolume
from nbdata.errors import (
    AccessDenied,
    BadArchive,
    BadOption,
    NotFound,
)
from nbdata.integrity.checksum_names import owner_of
from nbdata.integrity.expectations import Expected
from nbdata.paths import as_folder, glob_base, has_glob
from nbdata.redaction import redacted
from nbdata.report import Row
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.part_records import validator
from nbdata.transfer.retry import listing
from nbdata.transfer.sources import find, head_of
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = [
    "Candidates",
    "VolumeList",
    "find_volumes",
    "look_around",
    "rows_of",
    "siblings",
    "volumes_of",
]

_HEAD = 512
# Bytes that may be the end record of a zip archive.
_END = 22 + 0xFFFF


@dataclass(frozen=True)
class VolumeList:
    """The volumes of one archive, in the order in which they are joined.

    Attributes
    ----------
    title : str
        The name of the archive in messages.
    format : str or None
        The format by its name; None if the name says nothing.
    volumes : tuple of StoredVolume
    recorded : tuple of str
        The fingerprints from a record, if volumes are gone.
    checksums : ChecksumFiles or None
        The checksum files beside them.
    """

    title: str
    format: str | None
    volumes: tuple[StoredVolume, ...]
    recorded: tuple[str, ...] = ()
    checksums: ChecksumFiles | None = None

    @property
    def size(self) -> int | None:
        """Bytes of all volumes; None if the store does not say for each."""
        sizes = [v.size for v in self.volumes]
        return None if None in sizes else sum(s for s in sizes if s is not None)

    def fingerprints(self) -> list[str]:
        """A fingerprint for each volume, which covers it and all volumes before it.

        If the store reports no version, the fingerprint is unique and never matches again.
        """
        if self.recorded:
            return list(self.recorded)
        fingerprints, digest = [], hashlib.sha256()
        for volume in self.volumes:
            known = validator(volume.info) or secrets.token_hex(8)
            digest.update(json.dumps([volume.name, volume.info.size, known]).encode())
            fingerprints.append(digest.hexdigest()[:16])
        return fingerprints

    def volume_at(self, offset: int) -> int:
        """The number of the volume that holds a byte; the last if sizes are not known."""
        return min(bisect_right(self._ends, offset), len(self.volumes) - 1)

    @cached_property
    def _ends(self) -> list[int]:
        if self.size is None:
            return [0] * len(self.volumes)
        return list(accumulate(v.size or 0 for v in self.volumes))

    def is_steady(self) -> bool:
        """True if sizes are known, all bytes are read, and the store reports a version of each volume."""
        known = self.size is not None and not any(volume.skipped for volume in self.volumes)
        return known and all(validator(volume.info) for volume in self.volumes)

    def begun_at(self, offset: int) -> int:
        """The start of the volume that holds a byte; 0 if sizes are not known."""
        return max((end for end in self._ends if end <= offset), default=0)

    def is_local(self) -> bool:
        """True if all volumes are on disks of this machine."""
        return all(volume.local for volume in self.volumes)

    def verified(self) -> bool:
        """True if wholly read volumes are compared with checksums: those of the store, or published ones."""
        return any(volume.verified for volume in self.volumes)

    def keys_in(self, store: Store) -> set[str]:
        """The keys of the volumes that are in a store."""
        return {volume.info.key for volume in self.volumes if volume.lies_in(store)}

    def begins_behind(self, offset: int) -> bool:
        """True if a volume begins there or later; also if sizes are not known and there are several volumes."""
        if self.size is None:
            return len(self.volumes) > 1
        return any(end - (v.size or 0) >= offset for v, end in zip(self.volumes, self._ends, strict=True))

    def ends(self) -> list[int]:
        """The end offset of each volume; sizes must be known."""
        return self._ends

    def detect(self) -> str:
        """Detect the format by the first 512 bytes, rarely by more; raise BadArchive if there is none."""
        head = self._head(_HEAD)
        try:
            detected = detect(head, self.title)
        except BadArchive:
            if self.size is None or not ends_zip(self.volumes[-1].tail(_END)):
                raise
            detected = "zip"  # a program or something else is before it
        # An archive that begins with two zero blocks has ended; only more zeros, or damage, can follow.
        if not any(head) and (self.size or 0) > EMPTY_ARCHIVE and not any(self._head(2 * _HEAD)):
            raise BadArchive(
                "not an archive",
                path=self.title,
                expected="tar, gzip, bzip2, xz, zstd or zip",
                got="zeros at its beginning, as in a download that reserved its space and did not finish",
                remedy="Fetch it again and compare digests",
                details={"offset": 0},
            )
        return detected

    def _head(self, count: int) -> bytes:
        head = b""
        for volume in self.volumes:
            head += volume.head(count - len(head))
            if len(head) == count:
                break
        return head


# -- finding --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """The entries at a source that may be volumes.

    Attributes
    ----------
    store : Store
    entries : dict of str to ObjectInfo
        By name, relative to the folder.
    first : str or None
        The named volume; None for a folder or a glob.
    checksums : ChecksumFiles or None
        The checksum file that lists the volumes, if the source is one.
    whole : frozenset of str
        Entries that are called like volumes, but are whole archives.
    """

    store: Store
    entries: dict[str, ObjectInfo]
    first: str | None = None
    checksums: ChecksumFiles | None = None
    whole: frozenset[str] = frozenset()

    @property
    def titles(self) -> list[str]:
        """The titles of the archives in a folder or among the matches of a glob."""
        return [] if self.first is not None else set_titles(self.entries, whole=self.whole)


def look_around(run: Run, source: str, titles: Sequence[str] = ()) -> Candidates:
    """List a folder, the matches of a glob, or the entries that may belong to the set of a volume.

    `titles` are those of archives that an earlier run of the command found: an entry of this name was a whole one.
    """
    location = run.open(glob_base(source) if has_glob(source) else source)
    single = None if has_glob(source) or location.is_folder else head_of(run, location)
    if single is not None:
        folder = location.key[: location.key.rfind("/") + 1]
        first = location.key[len(folder) :]
        entries = siblings(run, location.store, folder, first)
        entries.setdefault(first, single)
        return Candidates(location.store, entries, first, whole=_whole(run, location.store, entries, first))
    matches = find(run, source if has_glob(source) else as_folder(source))
    entries = {e.path: e.info for e in matches.entries}
    if not has_glob(source):  # sets do not span folders, and unpacked files may lie below
        here = {name: info for name, info in entries.items() if "/" not in name}
        entries = here if set_titles(here) else entries
    whole = _whole(run, location.store, entries, titles=titles)
    return Candidates(location.store, entries, whole=whole)


def _whole(
    run: Run,
    store: Store,
    entries: Mapping[str, ObjectInfo],
    first: str | None = None,
    titles: Sequence[str] = (),
) -> frozenset[str]:
    """Find the entries that are called like volumes of one archive, but are an archive each.

    Of a set, the first bytes of its second entry are read; more only if an archive begins there. With `first`, only the
    set of that entry counts. `titles` are as for `look_around`.
    """
    whole = set[str]()
    for names in numbered_sets([*entries]):
        whole.update({*names}.intersection(titles))
        volumes = [StoredVolume(run.control, store, name, entries[name]) for name in names]
        if (first is None or first in names) and not whole.issuperset(names) and _are_whole(volumes):
            whole.update(names)
    return frozenset(whole)


def _are_whole(volumes: Sequence[StoredVolume]) -> bool:
    """True if the first volumes and the last one each begin as an archive does, and the first one ends as one.

    A single volume is read only if its name fits both a later part and a whole archive.
    """
    if len(volumes) == 1 and not is_later_part(volumes[0].name):
        return False
    looked = [*volumes[1:2], *volumes[2:][-1:], volumes[0]]
    if not all(begins_archive(volume.head(HEAD)) for volume in looked):
        return False
    return ends_archive(volumes[0].head(HEAD), volumes[0].tail(TAIL))


def find_volumes(
    run: Run, source: str | tuple[str, ...], names: Sequence[str] = (), around: Candidates | None = None
) -> VolumeList:
    """Find the volumes that a source means; reads listings, and first bytes where names leave a doubt.

    A list is taken as it is, in its order. Otherwise the volumes are ordered by number: those of the set that the named
    volume belongs to, or of the only set in the folder or among the matches of the glob.

    Parameters
    ----------
    names : sequence of str
        The title of the set to choose among several; none or one.
    around : Candidates, optional
        The entries there, if they were listed already.

    Raises
    ------
    MissingVolume
        If the set has a hole, or one of several volumes is empty.
    BadOption
        If several sets are there, or they are volumes of GNU tar's own.
    NotFound
        If there is none.
    """
    if not isinstance(source, str):
        return _listed(run, source, around.checksums if around is not None else None)
    around = around or look_around(run, source)
    store, entries, first = around.store, around.entries, around.first
    if names and first is not None:
        raise BadOption(
            "--set is for a SOURCE that may hold several archives",
            path=first,
            expected="a folder or a glob",
            got="a volume",
            remedy="Leave it out",
        )
    chosen = choose_set(entries, first=first, title=names[0] if names else None, whole=around.whole)
    checksums = ChecksumFiles.beside(run, store, entries, chosen.names)
    assert isinstance(run.operation, UntarVolumes)
    if run.operation.verify != "none":
        refuse_missing(entries, chosen, checksums)
    volumes = tuple(StoredVolume(run.control, store, name, entries[name]) for name in chosen.names)
    refuse_empty(volumes, chosen.stem)
    if chosen.format in (None, "tar"):
        volumes = _continued(volumes)
    return VolumeList(chosen.stem, chosen.format, volumes, checksums=checksums)


def _continued(volumes: tuple[StoredVolume, ...]) -> tuple[StoredVolume, ...]:
    """The volumes without the headers that GNU tar's ``--multi-volume`` repeats, if it has made them.

    The second and the last volume show this: nearly all begin within a file.
    """
    numbers = {1, len(volumes) - 1} if len(volumes) > 1 else set[int]()
    if not any(continued_after(volumes[number].head(HEAD)) for number in numbers):
        return volumes
    return (volumes[0], *map(_without_headers, volumes[1:]))


def _without_headers(volume: StoredVolume) -> StoredVolume:
    """A later volume of GNU tar's own without the headers that it repeats; BadArchive if it begins with no header."""
    head = volume.head(HEAD)
    if any(head[:_HEAD]) and not is_header(head[:_HEAD]):
        raise BadArchive(
            "a volume of a multi-volume archive of GNU tar begins without a header",
            path=volume.name,
            expected="a header that says which file it continues",
            remedy="Its beginning is missing, or it belongs elsewhere: fetch it again",
        )
    return volume.without(continued_after(head))


def _listed(run: Run, places: tuple[str, ...], checksums: ChecksumFiles | None) -> VolumeList:
    if not places:
        raise BadOption("the list of volumes is empty", remedy="Name at least one volume")
    volumes = []
    if twice := [place for place, count in Counter(places).items() if count > 1]:
        raise BadOption(
            f"{redacted(twice[0])} is in the list of volumes twice",
            expected="each volume once, in order",
            remedy="Leave the second one out",
        )
    for place in places:
        location = run.open(place)
        info = listed_volume(run, location, place)
        volumes.append(StoredVolume(run.control, location.store, location.key.rpartition("/")[2], info))
    _refuse_sidecars(volumes)
    title = _titled([volume.name for volume in volumes])
    refuse_empty(volumes, title)
    checksums = checksums or _beside_listed(run, volumes)
    return VolumeList(title, guess_format(title), _continued(tuple(volumes)), checksums=checksums)


def _refuse_sidecars(volumes: Sequence[StoredVolume]) -> None:
    """Refuse a list with the checksum file of a volume in it: a pattern easily takes both."""
    names = {volume.name for volume in volumes}
    for name in sorted(names):
        if owner_of(name) in names:
            raise BadOption(
                f"{name} is in the list of volumes, and is a checksum file",
                expected="volumes alone",
                remedy="Leave it out: checksum files beside the volumes are found by themselves",
            )


def _beside_listed(run: Run, volumes: Sequence[StoredVolume]) -> ChecksumFiles | None:
    """The checksum files beside volumes that a list names; None if these are in several folders."""
    (store, key), first = volumes[0].place, volumes[0].name
    folder = key[: len(key) - len(first)]
    if not all(one.lies_in(store) and one.info.key == folder + one.name for one in volumes):
        return None
    entries = siblings(run, store, folder, first)
    entries.setdefault(first, volumes[0].info)
    return ChecksumFiles.beside(run, store, entries, [volume.name for volume in volumes])


def _titled(names: list[str]) -> str:
    """A title for the archive of a list: not the name of a volume, as messages would seem to mean that volume."""
    prefixes = {set_prefix(name) for name in names}
    common = min(prefixes).rstrip("._-") if len(prefixes) == 1 else ""
    if len(names) == 1 or not common:
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
    return common


def siblings(run: Run, store: Store, folder: str, name: str) -> dict[str, ObjectInfo]:
    """The entries of the folder that may belong to one set with `name`."""
    prefix = folder + set_prefix(name)
    entries = {}
    try:
        for info in listing(run.control, store, prefix):
            run.control.checkpoint()
            if "/" not in info.key[len(folder) :]:
                entries[info.key[len(folder) :]] = info
    except (BadOption, NotFound, AccessDenied):
        if not store.lists_by_page:  # an index page may be missing, or a signature covers one object
            raise
    return entries


# -- from a plan to its execution -----------------------------------------------------------------


def rows_of(volumes: VolumeList, start: int, digests: Mapping[int, Expected]) -> Iterator[Row]:
    """Yield a plan row per volume; those that end at `start` or before are ``unpacked`` and are not read.

    `digests` are the published ones, by the number of the volume.
    """
    for number, (volume, end) in enumerate(zip(volumes.volumes, volumes.ends(), strict=True)):
        action = "read" if end > start or not start else "unpacked"
        detail = detail_of(volume.info)
        if volume.gone:
            detail |= {"gone": True}
        if volume.skipped:
            detail |= {"skipped": volume.skipped}
        if published := digests.get(number):
            detail |= {"published": [published.algorithm, published.digest, published.source]}
        yield Row(volume.name, action, volume.info.size, detail)


def volumes_of(
    run: Run, op: UntarVolumes, rows: Iterable[Row], title: str, recorded: Iterable[str] = ()
) -> VolumeList:
    """The volumes that the rows of a plan name."""
    volumes, source = [], op.source
    one = (
        run.open(glob_base(source) if has_glob(source) else source).store if isinstance(source, str) else None
    )
    for number, row in enumerate(rows):
        store = one or run.open(source[number]).store
        published = row.detail.get("published")
        volume = StoredVolume(
            run.control,
            store,
            row.path,
            info_of(row),
            gone="gone" in row.detail,
            skipped=row.detail.get("skipped", 0),
            published=Expected(*published) if published else None,
            verify=op.verify != "none",
        )
        volumes.append(volume)
    return VolumeList(title, None, tuple(volumes), tuple(recorded))
