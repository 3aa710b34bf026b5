"""Plan and perform pack into shards and FFRecord files; see `archive` for archives, and `files` for plain files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.job.same_machine import on_this_machine
from nbdata.engine.pack import archive, files, own_files
from nbdata.engine.pack.content import WINDOW, RecordContent, ShardContent
from nbdata.engine.pack.dealt import DealtPack, SentSource
from nbdata.engine.pack.layout import Cut, Layout, cuts, order_of
from nbdata.engine.pack.own_files import OwnFiles
from nbdata.engine.pack.records import RecordLayout, record_cuts
from nbdata.engine.pack.source import NewKeys, Order, PackSource, open_source
from nbdata.engine.pack.windows import Fetching
from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.planning.both_ends import both_ends
from nbdata.engine.planning.decide import copied, decide_copy
from nbdata.engine.planning.target_path import refuse_file
from nbdata.errors import BadOption, NotFound
from nbdata.reading.fetcher import WIDTH
from nbdata.reading.shards.packing import refuse_own_source, refuse_shuffled_files
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted
from nbdata.space.limits import disk_of, round_up
from nbdata.stores.base import Location, ObjectInfo, Store
from nbdata.stores.http.servers import servers_of
from nbdata.stores.local import LocalStore
from nbdata.transfer.parted_send import PartedSend
from nbdata.transfer.retry import listing
from nbdata.transfer.send import hashed_parts, send_whole, upload_part_size
from nbdata.transfer.worker_pool import WorkerPool
from nbdata.verbs.pack import Pack
from nbdata.verification.sent_checker import MultipartChecker, SentHasher
from nbdata.writing.growing_file import GrowingFile
from nbdata.writing.manifest import Digests, Manifest, ShardRow, digests

__all__ = ["perform", "plan"]

_MOVES = ("pack", "overwrite")
# Shards or parts of shards in progress at a time: each holds `WINDOW` bytes.
_WORKERS = 8
# Largest FFRecord file for a store without multipart uploads: it is in memory, as its header is made last.
_IN_MEMORY = 64 << 20
# Bytes per write to a file.
_BUFFER = 1 << 20
# Records of a pack belong to no local folder.
_NOWHERE = (0, 0)


class _Kept(NamedTuple):
    """Results of the plan that are kept for performing it."""

    source: PackSource
    order: Order


def plan(run: Run) -> Plan:
    """Assign samples to shards, and find the shards that already match.

    Reads the target's listing and the source; shards without an index are read completely. Writes only the index of the
    source.
    """
    op = run.operation
    assert isinstance(op, Pack)
    refuse_file(op.local_target())
    if op.archive is not None:
        return archive.plan(run)
    if op.made == "files":
        return files.plan(run)
    at_source, at_target = both_ends(run)
    source = open_source(at_source)
    if not len(source):
        raise NotFound("there are no samples in this source", path=op.places()[0])
    if op.shard_count is not None and op.shard_count > len(source):
        raise BadOption(
            f"--shard-count {op.shard_count}: there are only {counted(len(source), 'samples')}",
            remedy="Make fewer shards",
        )
    refuse_shuffled_files(op, source.key, range(len(source)))
    order = order_of(at_source, op, source)
    if op.keys is not None:
        source, order = NewKeys(source, order, op.keys), range(len(order))
    run.kept = _Kept(source, order)
    names = op.names
    there = _existing(at_target, op)
    folder = at_target.open(names.folder)
    refuse_own_source(names, [folder], source.shards, op.target)
    index = run.index(*op.places(), _NOWHERE, servers_of(source.stores, [folder.store]))
    own = OwnFiles(op, index, _listed(run, op, folder))
    out, rows = Plan("pack", *op.places()), run.row_file("plan")
    block = disk_of(op.names.folder)[2] if op.local_target() else 0
    samples = renamed = unguarded = number = 0
    made = record_cuts(op, source, order) if op.made == "ffrecord" else cuts(op, source, order)
    for number, cut in enumerate(made, 1):
        if names.most is not None and number > names.most:
            raise BadOption(
                f"{op.target} has numbers for {counted(names.most, 'shards')}, and more are needed",
                remedy="Use a larger range of numbers, or a larger --shard-size",
            )
        name = names.name(number - 1)
        planned_info = _said(name, cut)
        existing = there.pop(name, None)
        own.look(name, existing)
        action, reason, _ = decide_copy(
            planned_info, existing, index.get(name), overwrite=op.overwrite, size_only=False
        )
        action = "pack" if action == "copy" else action
        detail = {**cut._asdict(), "reason": reason, "etag": existing.etag if existing is not None else ""}
        if action in _MOVES:
            out.files += 1
            out.bytes += cut.size
            if block:
                out.needed += round_up(cut.size, block)
                out.inodes += 1
        out.count(action, cut.size)
        rows.add(Row(name, action, cut.size, detail))
        samples += cut.samples
        renamed += cut.renamed
        unguarded += cut.unguarded
    own.refuse_others()
    if there:
        raise BadOption(
            f"{counted(len(there), 'shards', 'are')} there with higher numbers, such as {min(there)}, from an earlier "
            "run: a loader that reads the whole folder would get their samples too",
            path=op.target,
            remedy="Delete them, or give the new shards another name",
        )
    rows.close()
    out.rows = rows.rows()
    out.details = {"samples": samples}
    out.notes.append(
        f"{counted(samples, 'samples')} in {counted(number, 'shards' if op.made == 'shards' else 'files')}"
    )
    count, first = source.left_out
    if count:
        out.notes.append(f"{counted(count, 'files', 'belong')} to no sample, such as {first[0]}")
    out.notes += source.notes
    if renamed:
        out.notes.append(
            f"{counted(renamed, 'samples', 'have')} the key of their neighbour, and are called KEY~2 and so on"
        )
    out.notes += files.unguarded_note(unguarded)
    return out


def _said(name: str, cut: Cut) -> ObjectInfo:
    """The description of a shard as it will be; the digest of its samples is its version."""
    return ObjectInfo(name, cut.size, f'"samples {cut.digest}"')


def _existing(run: Run, op: Pack) -> dict[str, ObjectInfo]:
    """The existing shards, by name."""
    folder = run.open(op.names.folder)
    if folder.store.read_only:
        raise BadOption(
            "the target is read-only", path=folder.place, remedy="Write to a store, or to the disk"
        )
    prefix = folder.key
    found: dict[str, ObjectInfo] = {}
    for info in listing(run.control, folder.store, prefix + op.names.before):
        name = info.key[len(prefix) :]
        if op.names.is_one(name):
            found[name] = info
    return found


def _listed(run: Run, op: Pack, folder: Location) -> Callable[[str, ObjectInfo], bool]:
    """Return whether the index beside the shards lists one; BadOption if another file has the name of the index."""
    if op.made != "shards":
        return lambda *_: False
    manifest = Manifest(run.control, folder.store, folder.key + op.names.manifest)
    manifest.refuse_others(op.names.is_one)
    return manifest.lists


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    assert isinstance(run.operation, Pack)
    if run.operation.archive is not None:
        return archive.perform(run, planned)
    if run.operation.made == "files":
        return files.perform(run, planned)
    if run.as_part is not None:
        kind = _RecordPackingPart if run.operation.made == "ffrecord" else _PackingPart
        return kind(run, planned).run_part()
    return (_RecordPacking if run.operation.made == "ffrecord" else _Packing)(run, planned).run_all()


class _Packing:
    """Performs one pack into shards."""

    def __init__(self, run: Run, planned: Plan) -> None:
        assert isinstance(run.operation, Pack)
        self._run, self._op, self._plan, self._control = run, run.operation, planned, run.control
        stores = list(self._open())
        self._results = Results(run)
        self._results.notes.extend(planned.notes)
        _, at_target = both_ends(run)
        self._target = at_target.open(self._op.names.folder)
        servers = servers_of(stores, [self._target.store])
        self._index = run.index(*self._op.places(), _NOWHERE, servers)
        self._uploads = BegunUploads(at_target, self._op.names.folder, self._target.store)
        self._fetching = Fetching(
            run.control, stores, verify=self._op.verify, width=self._op.concurrency or WIDTH
        )
        self._lock = threading.Lock()
        self._digests: dict[str, Digests] = {}  # of each new shard, for the manifest
        self._unverified = 0
        self._dealt: DealtPack | None = None

    def _open(self) -> Iterable[Store]:
        """Find the samples; return their stores."""
        assert isinstance(self._run.kept, _Kept)
        self._source, self._order = self._run.kept
        return self._source.stores

    def run_all(self) -> Report:
        self._index.open(_NOWHERE, needed=False)
        try:
            if self._run.dealer is not None:
                self._dealt = self._for_workers()
            self._pack()
            if self._run.dealer is not None and self._dealt is not None:
                self._run.dealer.deal(self._dealt)
                self._unverified += self._dealt.unverified
            if self._op.made == "shards" and self._results.counts.get(Outcome.SKIPPED):
                self._results.notes.append(
                    "no index was written, because the content of the skipped shards is not known"
                )
            elif not self._results.failures:
                self._end()
            for key, error in self._source.damaged:
                self._results.fail(key, error)
        finally:
            self._fetching.close()
            self._uploads.close()
            self._index.close()
        self._unverified += self._fetching.unverified
        if self._unverified and self._op.verify != "none":
            self._results.notes.append(
                f"{counted(self._unverified, 'objects')} had no checksum in the store to compare with"
            )
        self._results.notes += filter(None, [self._index.problem])
        return self._results.report(samples=self._plan.details["samples"])

    def _pack(self) -> None:
        workers = min(self._op.concurrency or _WORKERS, _WORKERS)
        WorkerPool(self._control, workers, sends=True).run(self._units())

    def _for_workers(self) -> DealtPack:
        return DealtPack(
            self._run,
            self._plan,
            self._results,
            _MOVES,
            self._index,
            self._source,
            self._order,
            self._target.store,
            self._digests,
            numbered=self._op.made == "ffrecord",
        )

    def _units(self) -> Iterator[Callable[[], None]]:
        """Yield the work of this process: all of it, unless it is dealt."""
        for row in self._plan.rows:
            if row.action not in _MOVES:
                self._results.left(row)
                continue
            if self._dealt is not None and self._dealt.takes(row):
                continue
            cut = Cut(*(row.detail[name] for name in Cut._fields))
            yield from self._make(row.path, cut)

    def _make(self, name: str, cut: Cut) -> Iterator[Callable[[], None]]:
        """Yield the work units that make one shard."""
        content = ShardContent(
            Layout(*self._samples(name, cut)), self._fetching, self._control, self._op.verify
        )
        if self._in_parts(cut):
            yield from self._parts(name, cut, content, self._part_size(cut))
        else:
            yield partial(self._whole, name, cut, content)

    def _samples(self, name: str, cut: Cut) -> tuple[PackSource, Order, Cut]:
        """Return the samples of a shard: a source that has them, their order there, and their place in that."""
        return self._source, self._order, cut

    def _in_parts(self, cut: Cut) -> bool:
        return self._target.store.multipart and cut.size > WINDOW

    def _part_size(self, cut: Cut) -> int:
        return upload_part_size(cut.size, self._op.part_size or WINDOW, self._target.store)

    def _hasher(self, key: str) -> SentHasher:
        return SentHasher(key, self._op.verify if self._op.verify in ("none", "md5") else "auto")

    def _whole(self, name: str, cut: Cut, content: ShardContent) -> None:
        key = self._target.key + name
        hashers: list[SentHasher] = []

        def hasher() -> SentHasher:
            hashers.append(self._hasher(key))
            return hashers[-1]

        try:
            own_files.making(self._index, [name])
            info, verified = send_whole(
                self._control, self._target.store, key, content.outgoing, cut.size, hasher
            )
            self._done(name, cut, content, info, verified, hashers[-1].hexdigest())
        except Exception as error:
            self._results.fail(name, error)

    def _parts(
        self, name: str, cut: Cut, content: ShardContent, part_size: int, held: int = 0
    ) -> Iterator[Callable[[], None]]:
        control, key = self._control, self._target.key + name
        if content.in_order:
            content.step = part_size  # a resent part is not fetched again
        upload = self._uploads.open(
            key,
            cut.size,
            MultipartChecker(key, self._op.verify),
            announce=partial(own_files.making, self._index, [name]),
        )
        parts = hashed_parts(control, content.outgoing, partial(self._hasher, key))
        sending = PartedSend(
            control, upload, cut.size, part_size, parts, in_order=content.in_order, held=held
        )

        def finish() -> None:
            try:
                info, verified = sending.finish()
                self._done(name, cut, content, info, verified, part_size=min(part_size, cut.size))
            except Exception as error:
                self._results.fail(name, error)

        yield from sending.units(finish)

    def _done(
        self,
        name: str,
        cut: Cut,
        content: ShardContent,
        info: ObjectInfo,
        verified: bool,
        md5: str = "",
        part_size: int = 0,
    ) -> None:
        self._index.put({name: copied(_said(name, cut), info)})
        if self._run.reservation is not None:
            self._run.reservation.note_written(cut.size, 1)
        self._results.add(name, Outcome.PACKED, cut.size, moved=True, verified=verified, samples=cut.samples)
        self._control.advance(files=1)
        with self._lock:
            self._digests[name] = digests(info.etag, md5, 0 if info.encrypted else part_size)
            self._unverified += content.unverified

    def _end(self) -> None:
        """Write the manifest beside the shards, unless it is there already."""
        manifest = Manifest(self._control, self._target.store, self._target.key + self._op.names.manifest)
        rows = (
            ShardRow(
                row.path, row.size, row.detail["samples"], self._digests.get(row.path), row.detail["etag"]
            )
            for row in self._plan.rows
        )
        manifest.write(self._op.names.before.rstrip("-_."), rows, self._op.verify)


class _PackingPart(_Packing):
    """Performs a part of a pack, whose samples came with it."""

    def _open(self) -> Iterable[Store]:
        facts = self._plan.details
        self._run.listed.update(
            (place, above) for place, above in facts["listed"].items() if above is not None
        )
        at_source, _ = both_ends(self._run)
        self._stores = [at_source.open(place).store for place in facts["places"]]
        return self._stores

    def _samples(self, name: str, cut: Cut) -> tuple[PackSource, Order, Cut]:
        sent = self._plan.details["shards"][name]
        source = SentSource(sent, self._stores)
        return source, range(len(source)), cut._replace(first=sent["first"])

    def run_part(self) -> Report:
        """Pack the shards; return a report of them."""
        assert self._run.as_part is not None
        beside = self._plan.details["here"]
        try:
            with on_this_machine(self._run, beside) if beside is not None else contextlib.nullcontext():
                self._pack()
        finally:
            self._fetching.close()
            self._uploads.close()
        self._run.as_part.details = {
            "digests": self._digests,
            "unverified": self._unverified + self._fetching.unverified,
        }
        return self._results.report()


class _RecordPacking(_Packing):
    """Performs one pack into FFRecord files. The beginning of each file is written last."""

    def _make(self, name: str, cut: Cut) -> Iterator[Callable[[], None]]:
        layout = RecordLayout(*self._samples(name, cut), named=not self._op.no_names)
        content = RecordContent(layout, self._fetching, self._control, self._op.verify)
        if isinstance(self._target.store, LocalStore):
            yield partial(self._file, name, cut, content, layout)
        elif self._in_parts(cut):
            part_size = self._part_size(cut)
            held = 0 if layout.known else -(-layout.begin // part_size)
            content.held = min(held * part_size, cut.size)
            if held and not content.in_order:
                yield content.prepare
            yield from self._parts(name, cut, content, part_size, held)
        else:
            if not layout.known:
                refuse_large(self._target.place, cut)
                content.held = cut.size
            yield partial(self._whole, name, cut, content)

    def _file(self, name: str, cut: Cut, content: RecordContent, layout: RecordLayout) -> None:
        """Write a file to the disk; its space is reserved."""
        store, folder, control = self._target.store, self._target.key, self._control
        try:
            assert isinstance(store, LocalStore)
            # A worker that was thought dead may come back to it.
            apart = self._run.as_part is not None
            file = GrowingFile(store, folder, name, lambda _size: None, apart=apart)
            sent = 0
            try:
                file.leave_room(layout.begin)
                with contextlib.closing(
                    content.outgoing(layout.begin, cut.size - layout.begin, SentHasher(name, "none"))
                ) as coming:
                    buffer = memoryview(bytearray(_BUFFER))
                    while count := coming.readinto(buffer):
                        file.write(buffer[:count])
                        sent += count
                file.put_first(layout.header())
                control.advance(bytes=layout.begin)
                sent += layout.begin
                own_files.making(self._index, [name])
                file.finish()
            except BaseException:
                control.advance(bytes=-sent)
                file.give_up()
                raise
            assert file.made is not None
            self._done(name, cut, content, file.made, verified=False)
        except Exception as error:
            self._results.fail(name, error)

    def _end(self) -> None:
        """Do nothing: a file describes its own content, so no manifest is needed."""


class _RecordPackingPart(_PackingPart, _RecordPacking):
    """Performs a part of a pack into FFRecord files."""


def refuse_large(place: str, cut: Cut) -> None:
    """Raise BadOption for a file that must be in memory until its header is known, and is too large for that."""
    if cut.size > _IN_MEMORY:
        raise BadOption(
            f"{place.partition('://')[0]}:// takes whole objects only, so that an FFRecord file has to be in memory",
            expected="--shard-size 64MiB at most",
            got=f"{cut.size:,} bytes",
            remedy="Use --shard-size 64MiB, or pack to the disk, and push that",
        )
