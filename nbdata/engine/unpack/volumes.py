"""The volumes of one archive in a store: find them, read them as one stream with retries, and delete them."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate

from nbdata.archives.decompress import begins_archive, detect
from nbdata.archives.multi_volume import HEAD, continued_after
from nbdata.archives.stream import Readable
from nbdata.archives.suspects import refuse_empty
from nbdata.archives.tar import EMPTY_ARCHIVE
from nbdata.archives.volumes import (
    VolumeSet,
    choose_set,
    guess_format,
    is_later_part,
    set_prefix,
    set_titles,
)
from nbdata.engine.job.run import Run
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.engine.unpack.missing_volumes import listed_volume, refuse_missing
from nbdata.errors import (
    AccessDenied,
    BadArchive,
    BadOption,
    ChecksumMismatch,
    MissingVolume,
    NotFound,
)
from nbdata.paths import as_folder, glob_base, has_glob
from nbdata.redaction import redacted
from nbdata.report import Row
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.part_records import validator
from nbdata.transfer.reader import Reader
from nbdata.transfer.retry import listing, retrying
from nbdata.transfer.sources import find, head_of
from nbdata.verification.checker import stream_check

__all__ = [
    "Candidates",
    "StoredVolume",
    "VolumeList",
    "find_volumes",
    "look_around",
    "rows_of",
    "siblings",
    "volumes_of",
]

_HEAD = 512
_LOOK = 0.1  # seconds between two checks of a waiting reader whether to end


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
    """

    title: str
    format: str | None
    volumes: tuple[StoredVolume, ...]
    recorded: tuple[str, ...] = ()

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
        found, digest = [], hashlib.sha256()
        for volume in self.volumes:
            known = validator(volume.info) or secrets.token_hex(8)
            digest.update(json.dumps([volume.name, volume.info.size, known]).encode())
            found.append(digest.hexdigest()[:16])
        return found

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
        """Detect the format from the first 512 bytes, rarely a few more; raise BadArchive if there is none."""
        head = self._head(_HEAD)
        found = detect(head, self.title)
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
        return found

    def _head(self, count: int) -> bytes:
        head = b""
        for volume in self.volumes:
            head += volume.head(count - len(head))
            if len(head) == count:
                break
        return head


class StoredVolume:
    """One volume in a store; implements VolumeSource of `nbdata.archives.stream`.

    A read that fails with a retryable error is retried, and resumes at the offset that was reached.
    The bytes are those of the listed version, else reading raises SourceChanged. If the volume is read from first byte
    to last, it is compared with its stored checksum; on a mismatch, ChecksumMismatch is raised in place of the last
    bytes. A volume that is `gone` was deleted after all of its content had been unpacked; it only keeps its place in
    the set.

    Attributes
    ----------
    skipped : int
        Bytes at its beginning that are skipped: see `nbdata.archives.multi_volume`.
    size : int or None
        Bytes that are read.
    proven : bool
        Whether all of its bytes were read and match the stored checksum.
    """

    def __init__(
        self,
        control: Control,
        store: Store,
        name: str,
        info: ObjectInfo,
        *,
        gone: bool = False,
        skipped: int = 0,
    ) -> None:
        self._control, self._store = control, store
        self.name, self.info, self.gone, self.skipped = name, info, gone, skipped
        self.size = info.size - skipped if info.size >= 0 else None
        self.proven = False

    def without(self, count: int) -> StoredVolume:
        """The same volume, with `count` bytes at its beginning skipped."""
        return StoredVolume(self._control, self._store, self.name, self.info, gone=self.gone, skipped=count)

    @property
    def local(self) -> str | None:
        """Its path, if it is on a disk of this machine."""
        return f"/{self.info.key}" if isinstance(self._store, LocalStore) else None

    @property
    def place(self) -> tuple[Store, str]:
        """Its store and its key."""
        return self._store, self.info.key

    def lies_in(self, store: Store) -> bool:
        """True if its key names the same object in this store, too."""
        return store.same_objects(self._store)

    def open(self, offset: int, end: int | None = None, /) -> Readable:
        if self.gone:
            raise NotFound("this volume was deleted when it had been unpacked", path=self.name)
        end = None if end is None else end + self.skipped
        return _Reading(self._control, self._store, self, offset + self.skipped, end)

    def head(self, count: int) -> bytes:
        """The first bytes, at most `count`."""
        if self.size == 0:
            return b""
        return self.range(0, count if self.size is None else min(count, self.size))

    def range(self, start: int, end: int) -> bytes:
        """Read a few bytes; a cancel does not wait for a store that hangs in a read."""
        found: Future[bytes] = Future()

        def read() -> None:
            try:
                low, high = start + self.skipped, end + self.skipped
                with Reader(self._control, self._store, self.info, low, high) as reader:
                    found.set_result(b"".join(map(bytes, reader.blocks())))
            except BaseException as error:
                found.set_exception(error)

        try:
            threading.Thread(target=read, name="first-bytes", daemon=True).start()
        except RuntimeError:  # no more threads can be started
            read()
        while not wait([found], _LOOK).done:
            self._control.checkpoint()
        return found.result()

    def tail(self, count: int) -> bytes:
        """The last bytes, at most `count`; empty if the store does not report the size."""
        if not self.size:
            return b""
        return self.range(max(self.size - count, 0), self.size)

    def delete(self) -> bool:
        """Delete it, if it is still the version that was read."""

        def attempt() -> bool:
            try:
                now = self._store.head(self.info.key)
            except NotFound:
                return True
            if now.size != self.info.size or (self.info.etag and now.etag != self.info.etag):
                return False
            self._store.delete([self.info.key])
            return True

        return retrying(self._control, attempt)


class _Reading(Reader):
    """Reads a volume from an offset on; verified if that is the whole volume."""

    def __init__(
        self, control: Control, store: Store, volume: StoredVolume, start: int, end: int | None
    ) -> None:
        info, self._volume = volume.info, volume
        whole = start == 0 and end is None and info.size > 0
        check = partial(stream_check, control, store) if whole else None
        super().__init__(control, store, info, start, end, check=check)

    def readinto(self, buffer: memoryview, /) -> int:
        try:
            count = super().readinto(buffer)
        except ChecksumMismatch as error:
            raise ChecksumMismatch(
                "the bytes of a volume do not match its checksum in the store",
                path=self._info.key,
                expected=error.expected,
                got=error.got,
                remedy="Run the command again: it replaces the files of this volume. If it fails "
                "again, the volume is damaged in the store",
            ) from error
        if self.proven is not None:
            self._volume.proven = self.proven
        return count


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
    """

    store: Store
    entries: dict[str, ObjectInfo]
    first: str | None

    @property
    def titles(self) -> list[str]:
        """The titles of the archives in a folder or among the matches of a glob."""
        return [] if self.first is not None else set_titles(self.entries)


def look_around(run: Run, source: str) -> Candidates:
    """List a folder, the matches of a glob, or the entries that may belong to the set of a volume."""
    location = run.open(glob_base(source) if has_glob(source) else source)
    single = None if has_glob(source) or location.is_folder else head_of(run, location)
    if single is not None:
        folder = location.key[: location.key.rfind("/") + 1]
        first = location.key[len(folder) :]
        entries = siblings(run, location.store, folder, first)
        entries.setdefault(first, single)
        return Candidates(location.store, entries, first)
    found = find(run, source if has_glob(source) else as_folder(source))
    entries = {e.path: e.info for e in found.entries}
    if not has_glob(source):  # sets do not span folders, and unpacked files may lie below
        entries = {name: info for name, info in entries.items() if "/" not in name} or entries
    return Candidates(location.store, entries, None)


def find_volumes(
    run: Run, source: str | tuple[str, ...], names: Sequence[str] = (), around: Candidates | None = None
) -> VolumeList:
    """Find the volumes that a source means; reads only listings.

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
        return _listed(run, source)
    around = around or look_around(run, source)
    store, entries, first = around.store, around.entries, around.first
    if names and first is not None:
        raise BadOption(
            "--set is for a SOURCE that may hold several archives", path=first, expected="a folder or a glob",
            got="a volume", remedy="Leave it out",
        )  # fmt: skip
    try:
        chosen = choose_set(entries, first=first, title=names[0] if names else None)
    except MissingVolume:
        if first is None or not _is_whole(StoredVolume(run.control, store, first, entries[first])):
            raise
        chosen = VolumeSet(first, "single", (first,), guess_format(first))
    refuse_missing(run, store, entries, chosen)
    volumes = tuple(StoredVolume(run.control, store, name, entries[name]) for name in chosen.names)
    if _are_whole(chosen, volumes):
        if first is None:
            raise BadOption(
                f"{len(volumes)} archives are here, each whole: {chosen.names[0]} …",
                expected="one, or the volumes of one",
                remedy="Name the one you want; unpack each with a command of its own",
            )
        single_one = next(volume for volume in volumes if volume.name == first)
        return VolumeList(first, guess_format(first), (single_one,))
    refuse_empty(volumes, chosen.stem)
    if chosen.format in (None, "tar"):
        volumes = _continued(volumes)
    return VolumeList(chosen.stem, chosen.format, volumes)


def _continued(volumes: tuple[StoredVolume, ...]) -> tuple[StoredVolume, ...]:
    """The volumes without the headers that GNU tar's ``--multi-volume`` repeats, if it has made them.

    The second and the last volume show this: nearly all begin within a file.
    """
    told = {1, len(volumes) - 1} if len(volumes) > 1 else set[int]()
    if not any(continued_after(volumes[number].head(HEAD)) for number in told):
        return volumes
    return (volumes[0], *(volume.without(continued_after(volume.head(HEAD))) for volume in volumes[1:]))


def _is_whole(volume: StoredVolume) -> bool:
    """True if a volume of a set with a hole is a complete archive, though its name is that of a later part."""
    if not is_later_part(volume.name) or not begins_archive(volume.head(_HEAD)):
        return False
    return guess_format(volume.name) != "tar" or not any(volume.tail(2 * _HEAD))


def _are_whole(chosen: VolumeSet, volumes: tuple[StoredVolume, ...]) -> bool:
    """True if ambiguous names are those of separate complete archives rather than volumes of one."""
    if not chosen.perhaps_whole or len(volumes) < 2 or not begins_archive(volumes[1].head(_HEAD)):
        return False
    # A plain tar may be cut just where a header begins, but then the cut volume lacks the end blocks.
    return chosen.format != "tar" or not any(volumes[0].tail(2 * _HEAD))


def _listed(run: Run, places: tuple[str, ...]) -> VolumeList:
    if not places:
        raise BadOption("the list of volumes is empty", remedy="Name at least one volume")
    volumes = []
    if twice := [place for place, count in Counter(places).items() if count > 1]:
        raise BadOption(
            f"{redacted(twice[0])} is in the list of volumes twice", expected="each volume once, in order",
            remedy="Leave the second one out",
        )  # fmt: skip
    for place in places:
        location = run.open(place)
        info = listed_volume(run, location, place)
        volumes.append(StoredVolume(run.control, location.store, location.key.rpartition("/")[2], info))
    title = _titled([volume.name for volume in volumes])
    refuse_empty(volumes, title)
    return VolumeList(title, guess_format(title), _continued(tuple(volumes)))


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
    found = {}
    try:
        for info in listing(run.control, store, prefix):
            run.control.checkpoint()
            if "/" not in info.key[len(folder) :]:
                found[info.key[len(folder) :]] = info
    except (BadOption, NotFound, AccessDenied):
        if not store.lists_by_page:  # an index page may be missing, or a signature covers one object
            raise
    return found


# -- from a plan to its execution -----------------------------------------------------------------


def rows_of(volumes: VolumeList, start: int = 0) -> Iterator[Row]:
    """Yield a plan row per volume; those that end at `start` or before are ``unpacked`` and are not read."""
    for volume, end in zip(volumes.volumes, volumes.ends(), strict=True):
        action = "read" if end > start or not start else "unpacked"
        detail = detail_of(volume.info)
        if volume.gone:
            detail |= {"gone": True}
        if volume.skipped:
            detail |= {"skipped": volume.skipped}
        yield Row(volume.name, action, volume.info.size, detail)


def volumes_of(
    run: Run, source: str | tuple[str, ...], rows: Iterable[Row], title: str, recorded: Iterable[str] = ()
) -> VolumeList:
    """The volumes that the rows of a plan name."""
    volumes = []
    one = (
        run.open(glob_base(source) if has_glob(source) else source).store if isinstance(source, str) else None
    )
    for number, row in enumerate(rows):
        store = one or run.open(source[number]).store
        gone = "gone" in row.detail
        skipped = row.detail.get("skipped", 0)
        volumes.append(StoredVolume(run.control, store, row.path, info_of(row), gone=gone, skipped=skipped))
    return VolumeList(title, None, tuple(volumes), tuple(recorded))
