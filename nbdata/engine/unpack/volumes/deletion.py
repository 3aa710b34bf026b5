"""Delete the volumes of an archive, and find the set again when some of them are gone.

A volume is deleted when nothing needs it any more: all of its content is on the disk under final names, and that
is recorded. The order is: make the unpacked files durable; make a checkpoint or the completion record durable;
record the whole set durably; then delete the volumes. After any interruption, the same command finds the set in
the record, counts the missing volumes as unpacked, and resumes with the rest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.unpack.volumes.checksum_files import ChecksumFiles
from nbdata.engine.unpack.volumes.finding import Candidates, VolumeList, siblings
from nbdata.engine.unpack.volumes.stored_volume import StoredVolume
from nbdata.engine.unpack.written import Written, own_data, own_record
from nbdata.errors import Cancelled, NbdataError, NotFound, UnsafeMember
from nbdata.integrity.checksum_names import is_checksum_file
from nbdata.paths import as_folder, glob_base, has_glob, is_inside
from nbdata.runtime import runtime_folder
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.part_records import validator
from nbdata.transfer.sources import find, head_of
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["Deletion", "RecordedSet", "may_delete_amid"]


def may_delete_amid(run: Run, volumes: VolumeList) -> bool:
    """True if volumes may be deleted before the last one was read.

    False if a store reports no version, or if the records are lost together with the machine.
    """
    kept = not is_inside(os.path.realpath(run.context.state_dir), os.path.realpath(runtime_folder()))
    return kept and volumes.is_steady()


@dataclass(frozen=True)
class RecordedSet:
    """A set of volumes as it was before the first one was deleted.

    Attributes
    ----------
    title : str
    format : str or None
    named : bool
        Whether the source names one volume, which stands for the set beside it.
    volumes : tuple of (name, size, validator, fingerprint)
    """

    title: str
    format: str | None
    named: bool
    volumes: tuple[tuple[str, int, str, str], ...]

    @classmethod
    def of(cls, written: Written) -> RecordedSet | None:
        """The recorded set of a command, or None."""
        data: Any = own_data(written.index.get(written.own("volumes")))
        try:
            return cls(data["title"], data["format"], data["named"], tuple(tuple(v) for v in data["volumes"]))
        except (KeyError, TypeError):  # there is none, or it is of another version
            return None

    @property
    def fingerprints(self) -> list[str]:
        """As of `VolumeList.fingerprints`."""
        return [fingerprint for *_, fingerprint in self.volumes]

    def remaining(
        self, run: Run, source: str | tuple[str, ...], around: Candidates | None = None
    ) -> VolumeList | None:
        """The set with its remaining volumes, if some are gone and nothing replaced them; else None."""
        names = [name for name, *_ in self.volumes]
        store, there, checksums = _there(run, source, names, named=self.named)
        if not isinstance(source, str) and around is not None:
            checksums = around.checksums
        volumes = []
        for number, (name, size, known, _) in enumerate(self.volumes):
            info = there[number]
            if info is not None and (info.size, validator(info)) != (size, known):
                return None
            gone = info is None
            if not isinstance(source, str):
                store = run.open(source[number]).store
            volumes.append(StoredVolume(run.control, store, name, info or ObjectInfo(name, size), gone=gone))
        if None not in there:
            return None
        return VolumeList(self.title, self.format, tuple(volumes), tuple(self.fingerprints), checksums)


def _there(
    run: Run, source: str | tuple[str, ...], names: list[str], *, named: bool
) -> tuple[Store, list[ObjectInfo | None], ChecksumFiles | None]:
    """The store of the volumes, its description of each, None for those that are gone; and their checksum files."""
    if not isinstance(source, str):
        places = [run.open(place) for place in source]
        return places[0].store, [head_of(run, at) for at in places], None
    if named:
        location = run.open(source)
        folder = location.key[: location.key.rfind("/") + 1]
        entries = siblings(run, location.store, folder, location.key[len(folder) :])
        checksums = ChecksumFiles.beside(run, location.store, entries, names)
        return location.store, [entries.get(name) for name in names], checksums
    store = run.open(glob_base(source) if has_glob(source) else source).store
    wanted: dict[str, ObjectInfo | None] = dict.fromkeys(names)
    sums = dict[str, ObjectInfo]()
    try:
        for entry in find(run, source if has_glob(source) else as_folder(source)).entries:
            if entry.path in wanted:
                wanted[entry.path] = entry.info
            elif is_checksum_file(entry.path):
                sums[entry.path] = entry.info
    except NotFound as error:
        if error.details.get("bucket"):
            raise
    return store, list(wanted.values()), ChecksumFiles.beside(run, store, sums, names)


class Deletion:
    """Deletes volumes as soon as the caller says that nothing needs them.

    Parameters
    ----------
    run : Run
    volumes : VolumeList
    written : Written
        Its index has to be open when something is to be deleted.
    results : Results
        Receives an entry for each deleted volume.

    Attributes
    ----------
    count : int
        Number of deleted volumes.
    """

    def __init__(self, run: Run, volumes: VolumeList, written: Written, results: Results) -> None:
        self._run, self._volumes, self._written, self._results = run, volumes, written, results
        self._next = self.count = self._kept = 0
        self._refused = False
        self._durable = False  # whether the set and the records before it are durable

    def up_to(self, offset: int) -> None:
        """Delete the volumes that end at this offset or before: a durable record allows it.

        If the store refuses, deletion waits until `rest`: the archive is unpacked all the same.
        """
        ends = self._volumes.ends()
        try:
            while self._next < len(ends) and ends[self._next] <= offset and not self._refused:
                self._delete_next()
        except Cancelled:
            raise
        except NbdataError:
            self._refused = True

    def rest(self) -> None:
        """Delete all remaining volumes; the completion is already recorded durably."""
        while self._next < len(self._volumes.volumes):
            self._delete_next()
        if self._kept:
            self._results.notes.append(f"{self._kept:,} kept: below a link; nothing there is deleted")

    def _delete_next(self) -> None:
        self._run.control.checkpoint()
        volume = self._volumes.volumes[self._next]
        if not volume.gone:
            self._record()
            try:
                deleted = volume.delete()
            except UnsafeMember as error:
                self._kept += 1
                path = volume.local or volume.name
                self._results.add(path, Outcome.KEPT, volume.info.size, reason=error.message)
            else:
                if deleted:
                    self.count += 1
                    self._results.add(volume.name, Outcome.DELETED, volume.info.size)
                else:
                    self._results.notes.append(
                        f"{volume.name} changed since it was read, and was not deleted"
                    )
        self._next += 1

    def _record(self) -> None:
        if self._durable:
            return
        if not self._volumes.recorded:
            self._written.index.put({self._written.own("volumes"): own_record(self._set())})
        self._written.index.sync()
        self._durable = True

    def _set(self) -> dict[str, object]:
        """The data for `RecordedSet.of`."""
        volumes = self._volumes
        fingerprints = self._written.fingerprints
        return {
            "title": volumes.title,
            "format": volumes.format,
            "named": self._is_named(),
            "volumes": [
                [v.name, v.info.size, validator(v.info), fingerprint]
                for v, fingerprint in zip(volumes.volumes, fingerprints, strict=True)
            ],
        }

    def _is_named(self) -> bool:
        op = self._run.operation
        if not isinstance(op, UntarVolumes) or not isinstance(op.source, str) or has_glob(op.source):
            return False
        key = self._run.open(op.source).key
        return any(volume.info.key == key for volume in self._volumes.volumes)
