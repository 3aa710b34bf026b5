"""The volumes of an archive: find existing ones, check their records, and write new ones."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import NamedTuple

from nbdata.engine.job.run import Run
from nbdata.engine.planning.growing_outputs import GrowingOutputs
from nbdata.errors import BadOption, NotFound
from nbdata.integrity.checksum_files import Entry, format_checksums
from nbdata.sizes import format_size
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator
from nbdata.transfer.retry import listing, retrying
from nbdata.transfer.send import send_whole
from nbdata.verbs.archive_names import SIDECAR
from nbdata.verbs.pack import Pack
from nbdata.verification.sent_checker import SentHasher
from nbdata.writing.outgoing import OutgoingBytes

__all__ = ["Existing", "Kept", "VolumeWriter", "existing", "record_of", "recorded", "refuse_target"]

# Largest volume for a store without multipart uploads: the volume is in memory until it is sent.
_IN_MEMORY = 64 << 20
# The same limit for the total of written volumes that wait for later data.
_WAITING = 128 << 20


class Kept(NamedTuple):
    """The record of a volume.

    Attributes
    ----------
    start, end : int
        Its range of the stream.
    md5 : str
        MD5 of its bytes in hex; empty if not asked for.
    digest : str
        Digest of its content, and of the way it was made.
    """

    start: int
    end: int
    md5: str
    digest: str


def record_of(kept: Kept, made: ObjectInfo, size: int) -> Record:
    """The index record of a complete volume; `size` is given, as the answer to an upload lacks it."""
    line = f"volume {kept.start} {kept.end} {kept.md5 or '-'} {kept.digest}"
    return Record(f"{line}\n{validator(made)}", size, -1, 0, 0)


def recorded(record: Record | None, there: ObjectInfo | None) -> Kept | None:
    """The data recorded for a volume, if it exists unchanged; else None."""
    if record is None or there is None:
        return None
    line, _, tag = record.tag.partition("\n")
    words = line.split(" ")
    if len(words) != 5 or not tag or tag != validator(there) or record.size != there.size:
        return None
    return Kept(int(words[1]), int(words[2]), words[3].strip("-"), words[4])


class Existing(NamedTuple):
    """The existing files of an archive, by name.

    Attributes
    ----------
    there : dict
        Volumes and their checksums.
    otherwise : dict
        The same for the other form: the archive in one file if it is made in volumes, and vice versa.
    """

    there: dict[str, ObjectInfo]
    otherwise: dict[str, ObjectInfo]


def existing(run: Run, op: Pack, folder: Location) -> Existing:
    """The existing files of the archive when a run begins."""
    names, prefix = op.archive_names, folder.key
    known = Existing({}, {})
    for info in listing(run.control, folder.store, prefix + names.name):
        name = info.key[len(prefix) :]
        if names.is_one(name):
            known.there[name] = info
        elif names.other_form.is_one(name):
            known.otherwise[name] = info
    return known


def refuse_target(op: Pack, folder: Location, largest: int, waiting: int) -> None:
    """Raise BadOption if no volume can be written to the target.

    Parameters
    ----------
    largest : int
        Most bytes of a volume.
    waiting : int
        Most bytes of written volumes without a name: until a zip is complete, or a large member is verified.
    """
    store, path = folder.store, op.target
    if store.read_only:
        raise BadOption(
            "the target is read-only", path=folder.place, remedy="Write to a store, or to the disk"
        )
    if isinstance(store, LocalStore):
        if os.path.isdir(path) and not op.archive_names.numbered:
            raise BadOption(
                "the target is a folder",
                path=path,
                expected="the name of an archive",
                remedy="Choose another name",
            )
    elif not store.multipart and largest > _IN_MEMORY:
        raise BadOption(
            f"{folder.place.partition('://')[0]}:// takes whole objects only, so that a volume has to be in memory",
            expected="--volume-size 64MiB at most",
            remedy="Use --volume-size 64MiB, or pack to the disk, and push that",
        )
    elif not store.multipart and waiting > _WAITING:
        zipped = op.archive == "zip"
        raise BadOption(
            f"{folder.place.partition('://')[0]}:// takes whole objects only, so that all volumes "
            + ("of a zip" if zipped else "that a large member reaches over")
            + f" have to be in memory until {'it is whole' if zipped else 'that is known to be right'}",
            expected="128 MiB at most",
            got=format_size(waiting),
            remedy="Pack to the disk, and push that" + ("" if zipped else "; or use --verify none"),
        )


class VolumeWriter(GrowingOutputs):
    """Writes volumes and their checksums to one folder.

    Parameters
    ----------
    run : Run
        The run with the target's storage options.
    folder : Location
    most : int
        Approximate bytes of a volume.
    needed : int
        Bytes reserved on the disk.
    """

    def __init__(self, run: Run, op: Pack, folder: Location, most: int, needed: int) -> None:
        super().__init__(run, folder, op.archive_names.folder, verify=op.verify, most=most, needed=needed)
        self._names = op.archive_names

    def abort_left(self) -> None:
        """Abort the uploads of volumes that a killed run has left, including unrecorded ones."""
        self.give_up_left(self._names.name, lambda name: self._names.number(name) is not None)

    def write_sidecar(self, name: str, md5: str, there: ObjectInfo | None) -> None:
        """Write the checksum of a volume beside it, unless it is there and correct."""
        data = format_checksums([Entry(name, "md5", md5)]).encode("utf-8", "surrogateescape")
        key, store, control = self._folder.key + name + SIDECAR, self._folder.store, self._run.control
        if there is not None and there.size == len(data):
            with contextlib.suppress(NotFound):
                if retrying(control, lambda: store.read_bytes(key)) == data:
                    return
        if isinstance(
            store, LocalStore
        ):  # as a volume: what a killed run leaves of it is removed by the next
            output = self.begin(name + SIDECAR)
            try:
                output.write(data)
                self.finish(output)
            finally:
                self.drop(output)
            return
        send_whole(
            control,
            store,
            key,
            partial(OutgoingBytes, [memoryview(data)]),
            len(data),
            partial(SentHasher, key, "none" if self._verify == "none" else "auto"),
        )
