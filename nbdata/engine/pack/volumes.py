"""The volumes of an archive: which are there, which of them are still right, and where new ones are written."""

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

__all__ = ["Kept", "Standing", "VolumeWriter", "record_of", "recorded", "refuse_target", "standing"]

# Bytes of a volume that a store without multipart uploads takes, since it is in memory until it is sent.
_IN_MEMORY = 64 << 20
# The same of all volumes that are written, and wait for what is behind them.
_WAITING = 128 << 20


class Kept(NamedTuple):
    """What is recorded of a volume.

    Attributes
    ----------
    start, end : int
        What it holds of the stream.
    md5 : str
        Of its bytes, in hex; empty if nobody asked for it.
    digest : str
        Of what it was made of, and how.
    """

    start: int
    end: int
    md5: str
    digest: str


def record_of(kept: Kept, made: ObjectInfo, size: int) -> Record:
    """The record of a volume that is whole; an upload does not know its size."""
    said = f"volume {kept.start} {kept.end} {kept.md5 or '-'} {kept.digest}"
    return Record(f"{said}\n{validator(made)}", size, -1, 0, 0)


def recorded(record: Record | None, there: ObjectInfo | None) -> Kept | None:
    """What is recorded of a volume, if it is there as it was recorded; else None."""
    if record is None or there is None:
        return None
    said, _, tag = record.tag.partition("\n")
    words = said.split(" ")
    if len(words) != 5 or not tag or tag != validator(there) or record.size != there.size:
        return None
    return Kept(int(words[1]), int(words[2]), words[3].strip("-"), words[4])


class Standing(NamedTuple):
    """What is there of an archive, by name.

    Attributes
    ----------
    there : dict
        Volumes and their checksums.
    otherwise : dict
        The same of the archive in one file, if it is made in volumes, and the other way round.
    """

    there: dict[str, ObjectInfo]
    otherwise: dict[str, ObjectInfo]


def standing(run: Run, op: Pack, folder: Location) -> Standing:
    """What is there when a run begins."""
    names, prefix = op.archive_names, folder.key
    found = Standing({}, {})
    for info in listing(run.control, folder.store, prefix + names.name):
        name = info.key[len(prefix) :]
        if names.is_one(name):
            found.there[name] = info
        elif names.other_form.is_one(name):
            found.otherwise[name] = info
    return found


def refuse_target(op: Pack, folder: Location, largest: int, waiting: int) -> None:
    """BadOption if no volume can be written there.

    Parameters
    ----------
    largest : int
        Bytes that a volume may have.
    waiting : int
        Bytes of those that may be written and have no name yet: till a zip is whole, or a large member is proven.
    """
    store, path = folder.store, op.target
    if store.read_only:
        raise BadOption(
            "the target can only be read", path=folder.place, remedy="Write to a store, or to the disk"
        )
    if isinstance(store, LocalStore):
        if os.path.isdir(path) and not op.archive_names.numbered:
            raise BadOption(
                "the target is a folder", path=path, expected="the name of an archive",
                remedy="Choose another name",
            )  # fmt: skip
    elif not store.multipart and largest > _IN_MEMORY:
        raise BadOption(
            f"{folder.place.partition('://')[0]}:// takes whole objects only, so that a volume has to be in memory",
            expected="--volume-size 64MiB at most",
            remedy="Say --volume-size 64MiB, or pack to the disk, and push that",
        )
    elif not store.multipart and waiting > _WAITING:
        zipped = op.archive == "zip"
        raise BadOption(
            f"{folder.place.partition('://')[0]}:// takes whole objects only, so that all volumes "
            + ("of a zip" if zipped else "that a large member reaches over")
            + f" have to be in memory until {'it is whole' if zipped else 'that is known to be right'}",
            expected="128 MiB at most",
            got=format_size(waiting),
            remedy="Pack to the disk, and push that" + ("" if zipped else "; or say --verify none"),
        )


class VolumeWriter(GrowingOutputs):
    """Writes volumes and their checksums to one folder.

    Parameters
    ----------
    run : Run
        As the target's end sees it.
    folder : Location
    most : int
        Bytes of a volume, about.
    needed : int
        Bytes of the disk that are reserved.
    """

    def __init__(self, run: Run, op: Pack, folder: Location, most: int, needed: int) -> None:
        super().__init__(run, folder, op.archive_names.folder, verify=op.verify, most=most, needed=needed)
        self._names = op.archive_names

    def abort_left(self) -> None:
        """Give up the uploads of volumes that a killed run has left, also those that it could not note any more."""
        self.give_up_left(self._names.name, lambda name: self._names.number(name) is not None)

    def write_sidecar(self, name: str, md5: str, there: ObjectInfo | None) -> None:
        """Write the checksum of a volume beside it, unless it is there and right."""
        data = format_checksums([Entry(name, "md5", md5)]).encode("utf-8", "surrogateescape")
        key, store, control = self._folder.key + name + SIDECAR, self._folder.store, self._run.control
        if there is not None and there.size == len(data):
            with contextlib.suppress(NotFound):
                if retrying(control, lambda: store.read_bytes(key)) == data:
                    return
        send_whole(
            control, store, key, partial(OutgoingBytes, [memoryview(data)]), len(data),
            partial(SentHasher, key, "none" if self._verify == "none" else "auto"),
        )  # fmt: skip
