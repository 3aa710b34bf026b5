"""pack --format files: write each field of shards, FFRecord files or loose objects as a separate object or file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.pack import own_files
from nbdata.engine.pack.content import WINDOW, Outgoing, ShardContent, Windows
from nbdata.engine.pack.own_files import OwnFiles
from nbdata.engine.pack.paths import Clashes
from nbdata.engine.pack.source import Field, NewKeys, PackSource, open_source
from nbdata.engine.pack.windows import TWICE, Fetching, read_window
from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.planning.both_ends import both_ends
from nbdata.engine.planning.decide import copied, decide_copy
from nbdata.engine.planning.existing_objects import ExistingObjects
from nbdata.errors import BadOption, NotFound
from nbdata.formats.neighbours import Runs, key_of
from nbdata.reading.fetcher import WIDTH
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted
from nbdata.space.limits import disk_of, round_up
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.http.servers import servers_of
from nbdata.stores.local import LocalStore
from nbdata.transfer.names import unrepresentable
from nbdata.transfer.parted_send import PartedSend
from nbdata.transfer.retry import listing
from nbdata.transfer.send import hashed_parts, send_whole, upload_part_size
from nbdata.transfer.worker_pool import WorkerPool
from nbdata.verbs.pack import Pack
from nbdata.verification.sent_checker import MultipartChecker, SentHasher

__all__ = ["perform", "plan", "unguarded_note"]

_MOVES = ("pack", "overwrite")
# Workers; each holds `WINDOW` bytes.
_WORKERS = 16
# Number of small fields that one worker fetches together.
_TOGETHER = 64
# The remedy for two files with one path.
_CLASH = "Choose samples with --select, other names with --rename, or write shards to folders of their own"
# Records of a pack belong to no local folder.
_NOWHERE = (0, 0)


class _One(NamedTuple):
    """A field and its new path."""

    path: str
    sample: int
    place: int
    field: Field


def _fields(source: PackSource) -> Iterator[_One]:
    """All fields of all samples, in order."""
    runs = Runs()
    for number in range(len(source)):
        own = source.key(number)
        key = key_of(own, runs.number(own))
        for place, field in enumerate(source.fields(number)):
            yield _One(field.path or f"{key}.{field.name}", number, place, field)


def plan(run: Run) -> Plan:
    """Decide for each field whether to write it; reads the source's index and the target's listing."""
    op = run.operation
    assert isinstance(op, Pack)
    at_source, at_target = both_ends(run)
    source = open_source(at_source)
    if not len(source):
        raise NotFound("there are no samples in this source", path=op.places()[0])
    if op.keys is not None:
        source = NewKeys(source, range(len(source)), op.keys)
    run.kept = source
    folder = at_target.open(op.target)
    if folder.store.read_only:
        raise BadOption(
            "the target is read-only", path=folder.place, remedy="Write to a store, or to the disk"
        )
    there = ExistingObjects(run.folder, listing(run.control, folder.store, folder.key))
    whole = at_source.open(op.places()[0].rstrip("/") + "/").key if source.folder is not None else ""
    sources = _Sources(source, folder, whole)
    index = run.index(*op.places(), _NOWHERE, servers_of(source.stores, [folder.store]))
    own = OwnFiles(op, index, lambda *_: False)
    out, rows = Plan("pack", *op.places()), run.row_file("plan")
    block = disk_of(op.target)[2] if op.local_target() else 0
    clashes, count, unguarded = Clashes(folders=op.local_target() is not None, remedy=_CLASH), 0, 0
    for one in _fields(source):
        run.control.checkpoint()
        _refuse(one, sources)
        clashes.add(one.path)
        count += 1
        unguarded += not one.field.is_told_apart
        size = one.field.piece.size
        existing = there.get(folder.key + one.path)
        own.look(one.path, existing)
        action, reason, _ = decide_copy(
            _said(one), existing, index.get(one.path), overwrite=op.overwrite, size_only=False
        )
        action = "pack" if action == "copy" else action
        if action in _MOVES:
            out.files += 1
            out.bytes += size
            if block:
                out.needed += round_up(size, block)
                out.inodes += 1
        out.count(action, size)
        rows.add(Row(one.path, action, size, {"sample": one.sample, "place": one.place, "reason": reason}))
    clashes.refuse(lambda: (one.path for one in _fields(source)))
    own.refuse_others()
    rows.close()
    out.rows = rows.rows()
    out.details = {"samples": len(source)}
    if op.takes_samples or op.fields:
        out.notes.append(f"{counted(count, 'files')} of {counted(len(source), 'samples')}")
    count, first = source.left_out
    if count:
        out.notes.append(f"{counted(count, 'files', 'belong')} to no sample, such as {first[0]}")
    out.notes += source.notes
    out.notes += unguarded_note(unguarded)
    return out


def unguarded_note(count: int) -> list[str]:
    """The note about fields without a version at the source; empty if there are none."""
    note = (
        f"{counted(count, 'fields', 'come')} without version, ETag or time from the store, "
        "so they are packed again in each run"
    )
    return [note] if count else []


class _Sources:
    """Refuses files that would replace the source, or lie among its files."""

    def __init__(self, source: PackSource, folder: Location, whole: str) -> None:
        self._source, self._folder = source, folder
        self._local = isinstance(folder.store, LocalStore)
        self._above: str | None = None  # the last folder; `_real` is its real path
        self._real, self._prefix, self._whole = "", "", False
        own = [key for store, key in source.shards if folder.store.same_objects(store)]
        self._keys = set(map(self._key, own))
        if self._local:
            self._keys.update(os.path.realpath("/" + key).lstrip("/") for key in own)
        # For loose objects: whether the target may hold them (`_loose`), and whether the source is everything below the
        # prefix (`_whole`). If not, their keys are collected once a file would lie among them.
        self._loose = source.folder is not None and folder.store.same_objects(source.folder[0])
        if source.folder is not None:
            self._prefix = self._key(source.folder[1] + "x")[:-1]
            self._whole = source.folder[1] == whole

    def _key(self, key: str) -> str:
        """The key; on the disk, with the real path of the folder, so links are resolved."""
        if not self._local:
            return key
        above, _, name = key.rpartition("/")
        if above != self._above:
            self._above, self._real = above, os.path.realpath("/" + above).strip("/")
        return f"{self._real}/{name}".lstrip("/")

    def refuse(self, path: str) -> None:
        """Raise BadOption for a path that no file may have."""
        key = self._key(self._folder.key + path)
        if self._loose and key.startswith(self._prefix):
            if self._whole:
                raise BadOption(
                    f"the file {path!r} would lie among the files that are read",
                    path=self._folder.place,
                    remedy="Write to a folder that does not hold the source",
                )
            self._keys.update(self._key(one.field.piece.info.key) for one in _fields(self._source))
            self._loose = False
        if key in self._keys:
            raise BadOption(
                f"the file {path!r} would replace what it is read from",
                path=self._folder.place,
                remedy="Write to another folder",
            )


def _said(one: _One) -> ObjectInfo:
    """The description of a file as it will be."""
    digest = hashlib.blake2b(
        one.field.version.encode("utf-8", "surrogatepass"), digest_size=16, person=b"field"
    )
    return ObjectInfo(one.path, one.field.piece.size, f'"field {digest.hexdigest()}"')


def _refuse(one: _One, sources: _Sources) -> None:
    """Raise BadOption if a field cannot become a file."""
    if one.field.piece.size < 0:
        raise BadOption(
            "the store does not report the size of this object",
            path=one.field.piece.info.key,
            remedy="Pull the source, and pack it from the disk",
        )
    if (why := unrepresentable(one.path)) is not None:
        raise BadOption(
            f"the name {one.path!r} {why}",
            path=one.field.piece.info.key,
            remedy="Leave its sample out with --select, or give the field another name with --rename",
        )
    sources.refuse(one.path)


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    return _Writing(run, planned).run_all()


class _Single:
    """One field as the content of a file; see `nbdata.engine.pack.layout.Layout`."""

    def __init__(self, field: Field) -> None:
        self._field, self.largest = field, field.piece.size

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes | Field]]:
        """The part of the field between two offsets."""
        del start, end
        yield 0, self._field


class _Given:
    """Bytes in memory as the content of a file."""

    step = WINDOW

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def window(self, start: int, end: int) -> list[memoryview]:
        """The bytes between two offsets."""
        return [self._data[start:end]]


class _Writing:
    """Writes the files of one run."""

    def __init__(self, run: Run, planned: Plan) -> None:
        assert isinstance(run.operation, Pack)
        self._run, self._op, self._plan, self._control = run, run.operation, planned, run.control
        self._source: PackSource = run.kept  # type: ignore[assignment]
        self._results = Results(run)
        self._results.notes.extend(planned.notes)
        _, at_target = both_ends(run)
        self._target = at_target.open(self._op.target)
        servers = servers_of(self._source.stores, [self._target.store])
        self._index = run.index(*self._op.places(), _NOWHERE, servers)
        self._uploads = BegunUploads(at_target, self._op.target, self._target.store)
        self._fetching = Fetching(
            run.control, self._source.stores, verify=self._op.verify, width=self._op.concurrency or WIDTH
        )

    def run_all(self) -> Report:
        self._index.open(_NOWHERE, needed=False)
        try:
            workers = min(self._op.concurrency or _WORKERS, _WORKERS)
            WorkerPool(self._control, workers, sends=True).run(self._units())
            for key, error in self._source.damaged:
                self._results.fail(key, error)
        finally:
            self._fetching.close()
            self._uploads.close()
            self._index.close()
        if self._fetching.unverified and self._op.verify != "none":
            self._results.notes.append(
                f"{counted(self._fetching.unverified, 'objects')} had no checksum in the store to compare with"
            )
        self._results.notes += filter(None, [self._index.problem])
        return self._results.report(samples=self._plan.details["samples"])

    def _units(self) -> Iterator[Callable[[], None]]:
        """Yield units of work: small fields in batches, each large field by itself."""
        batch: list[_One] = []
        for row in self._plan.rows:
            if row.action not in _MOVES:
                self._results.left(row)
                continue
            sample, place = row.detail["sample"], row.detail["place"]
            one = _One(row.path, sample, place, self._source.fields(sample)[place])
            if one.field.piece.size > TWICE:
                yield from self._large(one)
                continue
            if batch and (
                len(batch) == _TOGETHER or sum(small.field.piece.size for small in batch) + row.size > WINDOW
            ):
                yield partial(self._small, batch)
                batch = []
            batch.append(one)
        if batch:
            yield partial(self._small, batch)

    def _small(self, batch: list[_One]) -> None:
        """Fetch some fields together, and write each."""
        pieces, at = list[tuple[int, bytes | Field]](), 0
        for one in batch:
            pieces.append((at, one.field))
            at += one.field.piece.size
        try:
            data, _ = read_window(pieces, 0, at, self._fetching, self._op.verify)
        except Exception:
            # Fetch each one by itself to see which one fails.
            for one in batch:
                self._whole(
                    one, ShardContent(_Single(one.field), self._fetching, self._control, self._op.verify)
                )
            return
        coming = iter(data)
        own_files.making(self._index, [one.path for one in batch])  # one sync for all
        for one in batch:
            self._write(one, _Given(next(coming) if one.field.piece.size else memoryview(b"")))

    def _hasher(self, key: str) -> SentHasher:
        return SentHasher(key, self._op.verify if self._op.verify in ("none", "md5") else "auto")

    def _whole(self, one: _One, content: Windows) -> None:
        try:
            own_files.making(self._index, [one.path])
        except Exception as error:
            self._results.fail(one.path, error)
        else:
            self._write(one, content)

    def _write(self, one: _One, content: Windows) -> None:
        key = self._target.key + one.path
        outgoing, hasher = partial(Outgoing, content, self._control), partial(self._hasher, key)
        self._make(
            one,
            partial(
                send_whole, self._control, self._target.store, key, outgoing, one.field.piece.size, hasher
            ),
        )

    def _make(self, one: _One, send: Callable[[], tuple[ObjectInfo, bool]]) -> None:
        try:
            self._done(one, *send())
        except Exception as error:
            self._results.fail(one.path, error)

    def _large(self, one: _One) -> Iterator[Callable[[], None]]:
        control, store, key = self._control, self._target.store, self._target.key + one.path
        content = ShardContent(_Single(one.field), self._fetching, control, self._op.verify)
        size = one.field.piece.size
        if not store.multipart or size <= WINDOW:
            yield partial(self._whole, one, content)
            return
        part_size = content.step = upload_part_size(size, self._op.part_size or WINDOW, store)
        upload = self._uploads.open(
            key,
            size,
            MultipartChecker(key, self._op.verify),
            announce=partial(own_files.making, self._index, [one.path]),
        )
        parts = hashed_parts(control, content.outgoing, partial(self._hasher, key))
        sending = PartedSend(control, upload, size, part_size, parts, in_order=True)
        yield from sending.units(partial(self._make, one, sending.finish))

    def _done(self, one: _One, info: ObjectInfo, verified: bool) -> None:
        self._index.put({one.path: copied(_said(one), info)})
        size = one.field.piece.size
        if self._run.reservation is not None:
            self._run.reservation.note_written(size, 1)
        local = isinstance(self._target.store, LocalStore)
        self._results.add(one.path, Outcome.PACKED, size, moved=True, verified=verified and not local)
        self._control.advance(files=1)
