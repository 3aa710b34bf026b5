"""The volumes of an archive: which are there, which of them are still right, and where new ones are written."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

from nbdata.engine.job.run import Run
from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.planning.growing_space import GrowingSpace
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.integrity.checksum_files import Entry, format_checksums
from nbdata.sizes import format_size
from nbdata.space.limits import disk_of
from nbdata.stores.base import Location, ObjectInfo, Upload
from nbdata.stores.local import LocalStore
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator
from nbdata.transfer.retry import listing, retrying
from nbdata.transfer.send import send_whole
from nbdata.transfer.uploads import forget, remembered
from nbdata.verbs.archive_names import SIDECAR
from nbdata.verbs.pack import Pack
from nbdata.verification.sent_checker import SentHasher
from nbdata.writing.growing_file import GrowingFile, remove_left
from nbdata.writing.growing_shard import SENT_AT_A_TIME, GrowingShard, Target
from nbdata.writing.outgoing import OutgoingBytes

__all__ = ["Kept", "Volume", "VolumeWriter", "record_of", "recorded", "refuse_target", "standing"]

# Bytes of a volume that a store without multipart uploads takes, since it is in memory until it is sent.
_IN_MEMORY = 64 << 20
# The same of all volumes that are written, and wait for what is behind them.
_WAITING = 128 << 20


class Volume(Protocol):
    """One volume on its way; for one thread."""

    name: str
    size: int
    made: ObjectInfo | None
    verified: bool

    def write(self, data: bytes | memoryview, /) -> None:
        """Append some bytes."""

    def end(self) -> None:
        """All bytes are written."""

    def finish(self) -> object:
        """Give it its name."""


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


def standing(run: Run, op: Pack, folder: Location) -> dict[str, ObjectInfo]:
    """The volumes and checksums that are there, by name."""
    names, prefix = op.archive_names, folder.key
    found = {}
    for info in listing(run.control, folder.store, prefix + names.name):
        name = info.key[len(prefix) :]
        if names.is_one(name):
            found[name] = info
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


class VolumeWriter:
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
        self._run, self._op, self._folder = run, op, folder
        self._target = Target(
            run.control, folder, run.context.state_dir, run.context.env, op.verify, min(most, 5 << 40)
        )
        self._uploads = BegunUploads(run, op.archive_names.folder)
        # One for all volumes: several wait for the proof of an object that reaches over them.
        self._room = self._target.room()
        self._pool = ThreadPoolExecutor(SENT_AT_A_TIME, "nbdata-volumes")
        self._open: set[Volume] = set()
        self._lock = threading.Lock()
        self._space: GrowingSpace | None = None
        if isinstance(folder.store, LocalStore):
            self._space = GrowingSpace(run, disk_of(folder.place)[2], needed)

    def prepare(self, names: list[str]) -> None:
        """Make the folder, and remove what killed processes left there of these files."""
        if self._space is not None:
            path = "/" + self._folder.key
            LocalStore(umask=self._run.context.umask).make_parents(self._folder.key + names[0])
            remove_left(path, names.__getitem__, len(names))

    def abort_left(self) -> None:
        """Give up the uploads of volumes that a killed run has left, also those that it could not note any more."""
        folder, state = self._folder, self._run.context.state_dir
        known = remembered(state)
        left = retrying(
            self._run.control, lambda: list(folder.store.pending(folder.key + self._op.archive_names.name))
        )
        for key, upload_id in left:
            name = key[len(folder.key) :]
            begun = known.get(upload_id)
            if self._op.archive_names.number(name) is None or (begun is not None and begun.in_use()):
                continue
            with contextlib.suppress(NotFound):
                retrying(self._run.control, partial(folder.store.abort, key, upload_id))
            if begun is not None:
                forget(state, upload_id)

    def begin(self, name: str) -> Volume:
        """Begin a volume."""
        volume: Volume
        if self._space is not None:
            volume = GrowingFile("/" + self._folder.key, name, self._space.claim, self._run.context.umask)
        else:
            uploads = _Uploads(self._uploads, self._folder)
            volume = GrowingShard(self._target, name, self._pool, uploads, self._room)
        with self._lock:
            self._open.add(volume)
        return volume

    def finish(self, volume: Volume) -> ObjectInfo:
        """Give a volume its name."""
        volume.finish()
        assert volume.made is not None
        with self._lock:
            self._open.discard(volume)
        if self._space is not None:
            self._space.landed([volume.size], 1)
        return volume.made

    def delete(self, names: list[str]) -> None:
        """Delete volumes or checksums."""
        keys = [self._folder.key + name for name in names]
        if keys:
            retrying(self._run.control, lambda: self._folder.store.delete(keys))

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
            partial(SentHasher, key, "none" if self._op.verify == "none" else "auto"),
        )  # fmt: skip

    def close(self) -> None:
        """Give up what is not whole, and wait for that, but not for long."""
        with self._lock:
            left = list(self._open)
        for volume in left:
            if isinstance(volume, GrowingFile):
                volume.give_up()
            elif isinstance(volume, GrowingShard):
                volume.give_up(self._folder.store)
        self._pool.shutdown(wait=not self._run.control.is_set())
        self._uploads.close()


class _Uploads:
    """Uploads as a growing shard begins and ends them."""

    def __init__(self, uploads: BegunUploads, folder: Location) -> None:
        self._uploads, self._store = uploads, folder.store

    def begin(self, key: str) -> Upload:
        return self._uploads.begin(self._store, key, -1)

    def finished(self, key: str) -> None:
        self._uploads.finished(key)

    def abandon(self, key: str, upload: Upload) -> None:
        with contextlib.suppress(NbdataError):
            self._uploads.abandon(key, upload, None)
