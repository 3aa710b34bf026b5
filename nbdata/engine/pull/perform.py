"""pull: performs the plan. Small objects come many at a time, big ones in parts, the others in one piece."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from nbdata.disk import disk_error
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.job.same_machine import on_this_machine
from nbdata.engine.planning.growing_space import GrowingSpace
from nbdata.engine.planning.mirror import delete_planned
from nbdata.engine.pull.dealt import DealtPull, is_left, may_be_dealt
from nbdata.engine.pull.plan import MOVES, PullRow, identity_of, plan
from nbdata.engine.pull.ranges import RANGE, DealtFetch, fetch_range
from nbdata.errors import ChecksumMismatch, SourceChanged
from nbdata.optional_calls import fdatasync
from nbdata.report import Plan, Report, Row
from nbdata.seals import Seals
from nbdata.space.limits import disk_of
from nbdata.stores.base import ObjectInfo
from nbdata.stores.http.servers import servers_of
from nbdata.stores.sessions import Answer, Read
from nbdata.transfer.batcher import BATCH, MAX_BYTES, Batcher
from nbdata.transfer.committer import Committer, PendingFile
from nbdata.transfer.fetch import BIG, PartedFetch, fetch_whole
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import NOTED, PART, Begun, part_size_for, validator
from nbdata.transfer.partials import Partial
from nbdata.transfer.reader import Check, RangesIgnored
from nbdata.transfer.retry import retrying
from nbdata.transfer.selection import Selection
from nbdata.transfer.sources import folder_part, known_as
from nbdata.transfer.staged_files import StagedFiles
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verbs.pull import Pull
from nbdata.verification.checker import Checker, decided, right
from nbdata.verification.same_bytes import same_bytes

__all__ = ["FETCHED", "perform", "plan"]

#: Outcomes of an object that was fetched, and of one that replaced a locally edited file.
FETCHED = (Outcome.FETCHED, Outcome.OVERWRITTEN)
# Least bytes of an interrupted object in one piece that are kept: fewer are faster to fetch again.
_KEPT = 256 << 10
_Fetch = TypeVar("_Fetch", bound=PartedFetch)
# Errors after which the fetched bytes are useless.
_USELESS = (ChecksumMismatch, SourceChanged)


def perform(run: Run, planned: Plan, *, promised: Callable[[ObjectInfo], Check] | None = None) -> Report:
    """Perform the plan.

    Parameters
    ----------
    promised : callable, optional
        Returns the check of an object, if another source than its store gives the checksum.
    """
    with contextlib.ExitStack() as guarded:
        if run.as_part is not None and "coordinator" in planned.details:
            guarded.enter_context(on_this_machine(run, planned.details))
        return _Pulling(run, planned, promised).run_all()


class _Pulling:
    """One pull while it is performed."""

    def __init__(
        self, run: Run, planned: Plan, promised: Callable[[ObjectInfo], Check] | None = None
    ) -> None:
        assert isinstance(run.operation, Pull)
        self._run, self._op, self._plan, self._promised = run, run.operation, planned, promised
        self._control = run.control
        self._root: str = planned.details["root"]
        self._results = Results(run)
        self._results.notes.extend(planned.details["left_out"] if planned.actions else planned.notes)
        self._store, self._source = (
            run.open(folder_part(self._op.source)).store,
            known_as(run, self._op.source),
        )
        servers = servers_of([self._store])
        self._index = run.index(self._op.source, self._root, identity_of(self._root), servers)
        self._space = GrowingSpace(run, disk_of(self._root)[2], 0)
        self._workers = WorkerPool(run.control, self._op.concurrency, typical=planned.typical)
        self._small = Batcher[PullRow](run.control, self._workers, self._gather, self._whole)
        self._committer = self._new_committer()
        self._target = self._committer.target
        self._begun: Begun  # objects that earlier runs began; known once the target is entered
        self._seals = Seals(run.context.state_dir)
        self._unfinished: dict[str, Partial] = {}  # by path: objects whose parts were begun
        self._lock = threading.Lock()
        self._unguarded = self._unverified = 0

    def _new_committer(self) -> Committer | StagedFiles:
        run = self._run
        if run.as_part is not None:
            return StagedFiles(
                self._root,
                run.control,
                token=run.as_part.token,
                umask=run.context.umask,
                staged=run.as_part.staged,
                opened=run.folders,
            )
        return Committer(
            self._root,
            run.control,
            umask=run.context.umask,
            committed=self._committed,
            announce=lambda batch: self._index.announce({file.path: file.tag for file in batch}),
            made=self._folder_made,
            # A kill also loses the bytes of a part in flight that were not noted yet.
            most=lambda: self._workers.wanted * (PART - NOTED),
            opened=run.folders,
        )

    def run_all(self) -> Report:
        try:
            with self._committer as committer:
                self._index.open(committer.target.identity, needed=False)
                self._begun = Begun(self._target.opened(self._target.staging(self._root)))
                self._workers.run(self._units())
                if self._run.dealer is not None and isinstance(committer, Committer):
                    ranged = partial(self._prepared, kind=DealtFetch) if self._store.ranges else None
                    dealt = DealtPull(self._run, self._plan, self._results, self._index, committer, ranged)
                    self._run.dealer.deal(dealt)
                committer.flush()
                if self._op.delete:
                    delete_planned(self._run, self._plan, self._root, self._index, self._results)
                self._forget_stale()
        finally:
            for parts in self._unfinished.values():  # for the next run
                parts.close()
            self._index.close()
        self._note()
        return self._results.report()

    def _units(self) -> Iterator[Unit]:
        """Yield the work of this process: all of it, unless it is dealt."""
        batch: list[PullRow] = []
        for row in self._plan.rows:
            if row.action == RANGE:
                yield partial(fetch_range, self._run, self._store, self._target, row)
                continue
            if row.action not in MOVES:
                self._results.left(row)
                continue
            if self._run.dealer is not None and may_be_dealt(row):
                continue
            item = PullRow.of(row)
            gathered = self._is_small(item)
            if gathered:
                batch.append(item)
            if batch and (len(batch) == BATCH or not gathered):
                yield self._small.unit(batch)
                batch = []
            if gathered:
                continue
            if item.action != "compare" and self._has_parts(item):
                yield partial(self._begin_parts, item)
            else:
                yield partial(self._whole, item)
        if batch:
            yield self._small.unit(batch)

    def _check(self, info: ObjectInfo) -> Check:
        """Return the check of an object in one piece: by its store, or by a promised checksum."""
        return self._promised(info) if self._promised is not None else self._checker(info).check()

    def _checker(self, info: ObjectInfo) -> Checker:
        """Return the checker for the checksums of its store."""
        return Checker(self._control, self._store, info, self._op.verify)

    def _anew(self, item: PullRow) -> None:
        """Add a note that an object was fetched again because its source changed."""
        self._results.notes.append(
            f"{item.path}: the source changed since it was begun, so it was fetched anew"
        )

    # -- in one piece -------------------------------------------------------------------------

    def _whole(self, item: PullRow) -> None:
        """Fetch an object in one piece, or compare it first."""
        info = item.info
        try:
            final, staging = self._target.prepare(item.path)
            if item.action == "compare":
                if (same := self._same_bytes(final, info)) is not None:
                    self._is_unchanged(item, same)
                    return
                if item.guarded:
                    self._results.left(Row(item.path, "conflict", info.size, {"reason": item.reason}))
                    return
                self._claim(item)
                if self._has_parts(item):
                    self._begin_parts(item)
                    return
            if item.path in self._begun:  # useless, or it would be resumed
                if self._begun.is_other(item.path, self._source, info):
                    self._anew(item)
                Partial.remove_of(self._target.opened(staging), item.path)
            item.claimed = item.needed
            self._fetch_whole(item, final, staging)
        except Exception as error:
            self._results.fail(item.path, error)

    def _fetch_whole(self, item: PullRow, final: str, staging: str) -> None:
        info, expected = item.info, max(0, item.info.size)
        self._committer.reserve(expected)
        try:
            fd, temporary = self._target.temporary(staging)
        except BaseException:
            self._committer.release(expected)
            raise
        try:
            item.verified = fetch_whole(
                self._control, self._store, info, fd, self._check, claim=self._space.claim, tries=item.tries
            )
            self._target.set_mode(fd, final)
            written = os.fstat(fd)
            size = written.st_size
            if info.size < 0:
                item.claimed = size
        except BaseException as error:
            self._committer.release(expected)
            if not self._keep(item, staging, temporary, fd, error):
                self._target.discard(temporary)
            raise
        finally:
            os.close(fd)
        if is_left(self._results, self._op, item, final):
            self._committer.release(expected)
            self._target.discard(temporary)
            return
        self._committer.commit(
            PendingFile(
                item.path,
                temporary,
                final,
                size,
                written,
                tag=validator(info),
                reserved=expected,
                of=item,
            )
        )

    def _keep(self, item: PullRow, staging: str, temporary: str, fd: int, error: BaseException) -> bool:
        """Keep the bytes of an interrupted object in one piece for the next run; return True if kept."""
        count, store = os.fstat(fd).st_size, self._store
        sure = store.ranges and store.refuses_first and not isinstance(error, _USELESS)
        if not sure or not _KEPT <= count < item.info.size:
            return False
        folder, name = self._target.opened(staging), os.path.basename(temporary)
        return Partial.keep(folder, item.path, self._source, item.info, name, count, self._seals)

    def _same_bytes(self, path: str, info: ObjectInfo) -> os.stat_result | None:
        """Return the local file's stat from before it was read, if its bytes match the store's checksum.

        A change during or after reading makes the file differ from that stat, which is recorded.
        """
        try:
            # A planned file may be a named pipe by now; opening that would wait for its writer.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno == errno.ELOOP:  # or a link, which is replaced
                return None
            raise disk_error(error, path) from error
        try:
            before = os.fstat(fd)
            return before if same_bytes(self._control, self._store, info, fd, path) else None
        finally:
            os.close(fd)

    def _is_unchanged(self, item: PullRow, same: os.stat_result) -> None:
        known = self._index.get(item.path)
        size = item.info.size if known is not None and known.ours else -1
        self._index.put({item.path: Record.of(validator(item.info), size, same)})
        self._results.add(item.path, Outcome.UNCHANGED, item.info.size)
        self._control.advance(files=1, present=item.info.size)

    def _claim(self, item: PullRow) -> None:
        """Reserve room for an object that differs from the existing file: none was planned for it so far."""
        item.needed = item.info.size - item.present
        self._space.claim(item.needed)
        item.differs = True

    # -- many small ones ----------------------------------------------------------------------

    def _is_small(self, item: PullRow) -> bool:
        """True if an object is small enough to be fetched together with many others."""
        return (
            0 <= item.info.size <= self._store.reads_together
            and item.action != "compare"
            and not item.present
            and self._promised is None
            and self._control.rate is None
            and item.path not in self._begun
            and decided(item.info, self._op.verify)
        )

    def _gather(self) -> None:
        session = self._store.reading(self._small.width, MAX_BYTES)
        self._small.run_session(session, lambda item: Read(item, item.info), self._answered)

    def _answered(self, answer: Answer[Read[PullRow]]) -> None:
        """Handle the bytes of a small object, in memory, or their absence."""
        item, body = answer.request.of, answer.data
        try:
            verified = None
            if answer.told is not None:
                verified = right(answer.told, self._op.verify, body)
            if verified is None:
                self._small.alone(item, answer.error)
                return
            final, staging = self._target.prepare(item.path)
            item.claimed, item.verified = item.needed, verified
            if not is_left(self._results, self._op, item, final):
                temporary, written = self._target.written(staging, body, item.path)
                size, tag = item.info.size, validator(item.info)
                self._committer.commit(
                    PendingFile(item.path, temporary, final, size, written, tag=tag, of=item)
                )
                self._control.advance(bytes=item.info.size)
        except ChecksumMismatch as error:
            self._small.alone(item, error)
            return
        except Exception as error:
            self._results.fail(item.path, error)
        self._workers.done += 1
        self._control.checkpoint()

    # -- in parts -----------------------------------------------------------------------------

    def _has_parts(self, item: PullRow) -> bool:
        """True if an object needs a partial: all big ones, and those of which an earlier run left bytes."""
        size = item.info.size
        # If nothing identifies the version, parts of different versions could be mixed.
        big = self._store.ranges and size >= BIG and part_size_for(size) < size
        return (big and bool(validator(item.info))) or item.present > 0

    def _begin_parts(self, item: PullRow) -> None:
        """Prepare an object in parts, and submit its missing parts to the workers."""
        if (fetch := self._prepared(item, PartedFetch)) is not None:
            self._workers.submit(fetch.units())

    def _prepared(self, item: PullRow, kind: type[_Fetch]) -> _Fetch | None:
        """Open the partial of an object; None if that failed."""
        info = described = item.info
        try:
            final, staging = self._target.prepare(item.path)
            if self._op.verify != "none":  # listings show neither checksums nor whether the ETag is an MD5
                described = retrying(self._control, lambda: self._store.head(info.key))
            checker = self._checker(described) if self._promised is None else None
            parts = Partial(
                self._target.opened(staging),
                item.path,
                self._source,
                info,
                self._seals,
                layout=checker.layout if checker is not None else None,
                ours=self._target.check,
                marked=partial(self._part_written, item),
            )
            self._target.sync_folders()
        except Exception as error:
            self._results.fail(item.path, error)
            return None
        if parts.restarted:
            self._anew(item)

        def check(_: ObjectInfo) -> Check:
            return self._check(described) if checker is None else checker.check(parts.part_size)

        fetch = kind(
            self._control,
            self._store,
            info,
            parts,
            check,
            done=lambda verified: self._parts_done(item, fetch, parts, final, verified),
            failed=lambda error: self._parts_failed(item, fetch, parts, error),
        )
        self._unfinished[item.path] = parts
        item.claimed = item.needed
        return fetch

    def _parts_done(
        self, item: PullRow, fetch: PartedFetch, parts: Partial, final: str, verified: bool
    ) -> None:
        try:
            self._target.set_mode(parts.fd, final)
            fdatasync(parts.fd)
            written = os.fstat(parts.fd)
        except OSError as error:
            self._parts_failed(item, fetch, parts, error)
            return
        self._unfinished.pop(item.path).close()
        if is_left(self._results, self._op, item, final):
            return
        item.verified, item.present = verified, fetch.present
        if fetch.dropped:
            self._results.notes.append(
                f"{item.path}: nothing proved the bytes that were there, so it was fetched anew"
            )
        size, tag = item.info.size, validator(item.info)
        self._committer.commit(
            PendingFile(
                item.path, parts.data, final, size, written, synced=True, tag=tag, shared=True, of=item
            )
        )

    def _parts_failed(self, item: PullRow, fetch: PartedFetch, parts: Partial, error: Exception) -> None:
        del self._unfinished[item.path]
        if isinstance(error, RangesIgnored):
            parts.discard()
            self._control.advance(present=-fetch.present)
            item.present = 0
            self._part_written(item, item.claimed - item.needed)
            self._whole(item)
            return
        parts.close()
        if isinstance(error, ChecksumMismatch):
            parts.discard()
        self._results.fail(item.path, error)

    def _part_written(self, item: PullRow, size: int) -> None:
        """Release the room of that many bytes of a big object, which the disk now counts as used."""
        with self._lock:
            size = min(size, item.claimed)
            item.claimed -= size
        if self._run.reservation is not None:
            self._run.reservation.note_written(size)

    # -- committed files ----------------------------------------------------------------------

    def _folder_made(self, _: str) -> None:
        """Release the reserved room of a folder, which the disk now counts as used."""
        if self._run.reservation is not None:
            self._run.reservation.note_written(self._space.block, made=1)

    def _committed(self, batch: list[PendingFile]) -> None:
        """Record files that are durable under their final names; called by the committing thread."""
        records: dict[str, Record | None] = {}
        for file in batch:
            if file.error is None and file.stat is not None:
                records[file.path] = Record.of(file.tag, file.size, file.stat)
        if records:
            self._index.put(records)
        for file in batch:
            item: PullRow = file.of
            if file.error is not None:
                self._results.fail(file.path, file.error)
                continue
            if file.shared:  # a big one: its record of parts is not needed any more
                staging, _, name = file.temporary.rpartition("/")
                Partial.forget_record(self._target.opened(staging), name)
                self._results.present += item.present
            self._unverified += not item.verified
            self._unguarded += not file.tag
            self._results.add(file.path, FETCHED[item.edited], file.size, moved=True, verified=item.verified)
            self._control.advance(files=1)
            if self._run.reservation is not None:
                self._run.reservation.note_written(item.claimed, 1, made=int(not item.differs))

    def _forget_stale(self) -> None:
        """Remove what earlier runs began of objects that the source no longer has.

        This is known only after everything is committed: then no partial of this source is needed. A repair looks at
        some of its objects only.
        """
        whole = self._promised is None and self._run.as_part is None and not Selection(self._op).given
        if whole and not self._results.failures:
            folder = self._target.opened(self._target.staging(self._root))
            for data in Begun(folder).of_source(self._source):
                Partial.remove(folder, data)

    def _note(self) -> None:
        """Add notes about objects that could not be guarded, verified or recorded."""
        if self._unguarded:
            self._results.notes.append(
                f"{self._unguarded:,} came without version, ETag or time from the store, so a change during "
                "the transfer would not be noticed"
            )
        if self._unverified and self._op.verify != "none":
            self._results.notes.append(
                f"{self._unverified:,} could not be verified: the store has no checksum for them"
            )
        self._results.notes += filter(None, [self._index.problem])
