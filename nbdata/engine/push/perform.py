"""push: performs the plan. Small files go many at a time, big ones in parts, the others in one piece."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from functools import partial

from nbdata.disk import disk_error
from nbdata.engine.job.dealing import PartReport
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.planning.remote_target import delete_planned, is_another
from nbdata.engine.planning.small_uploads import BATCH, Content, Sending, SmallUploads
from nbdata.engine.push.listed_file import differs, open_listed, still_same
from nbdata.engine.push.plan import MOVES, PushRow, identity_of, plan
from nbdata.errors import (
    AccessDenied,
    Cancelled,
    ChecksumMismatch,
    NbdataError,
    NotFound,
    SourceChanged,
    UnsafeMember,
)
from nbdata.guarded_folders import GuardedFolders
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted, format_size
from nbdata.stores.base import ObjectInfo
from nbdata.stores.http.servers import servers_of
from nbdata.transfer.file_source import FileSource, blocks
from nbdata.transfer.index import Index, Record
from nbdata.transfer.part_records import PART, validator
from nbdata.transfer.parted_send import PartedSend
from nbdata.transfer.retry import retrying
from nbdata.transfer.send import (
    BIG,
    SentPart,
    hashed_parts,
    send_whole,
    upload_part_size,
    withdrawn,
)
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verbs.push import Push
from nbdata.verification.same_bytes import same_bytes
from nbdata.verification.sent_checker import MultipartChecker, SentHasher

__all__ = ["perform", "plan"]


def perform(run: Run, planned: Plan) -> Report:
    """Perform the plan."""
    return _Pushing(run, planned).run_all()


class _Pushing:
    """One push while it is performed."""

    def __init__(self, run: Run, planned: Plan) -> None:
        assert isinstance(run.operation, Push)
        self._run, self._op, self._plan, self._control = run, run.operation, planned, run.control
        self._results = Results(run)
        self._results.notes.extend(planned.details["left_out"] if planned.actions else planned.notes)
        self._identity = identity_of(planned.details["root"])
        self._target = run.open(self._op.target)
        self._store = self._target.store
        servers = servers_of([self._store])
        self._index = run.index(self._op.source, self._op.target, self._identity, servers)
        self._workers = WorkerPool(run.control, self._op.concurrency, typical=planned.typical, sends=True)
        self._small = SmallUploads[PushRow](
            run.control, self._workers, self._store, self._send_small, self._whole
        )
        self._uploads = BegunUploads(run, self._op.target, self._store, keep=True)
        self._sources = GuardedFolders(planned.details["root"], opened=run.folders)
        if self._op.delete_source:
            self._sources.hold()
        self._gone, self._freed = 0, 0  # deleted sources, and their bytes
        self._lock = threading.Lock()

    def run_all(self) -> Report:
        self._index.open(self._identity, needed=False)
        try:
            if self._run.dealer is not None:
                self._run.dealer.deal(_DealtPush(self._run, self._plan, self._results, self._index))
            else:
                self._workers.run(self._units())
            if self._op.delete:
                delete_planned(self._run, self._plan, self._target, self._index, self._results, "sent")
        finally:
            self._uploads.close()  # unfinished uploads are left for the next run, or aborted
            self._index.close()
        self._note()
        return self._results.report()

    def _units(self) -> Iterator[Unit]:
        """Yield the work for all files."""
        batch: list[PushRow] = []
        for row in self._plan.rows:
            if row.action not in MOVES:
                self._results.left(row)
                continue
            item = PushRow.of(row)
            gathered = (
                item.action != "compare" and self._small.takes(item.size) and not self._replaces_known(item)
            )
            if gathered:
                batch.append(item)
            if batch and (len(batch) == BATCH or not gathered):
                yield self._small.unit(batch)
                batch = []
            if gathered:
                continue
            if item.action != "compare" and self._has_parts(item):
                yield from self._parts(item)
            else:
                yield partial(self._whole, item)
        if batch:
            yield self._small.unit(batch)

    def _hasher(self, item: PushRow) -> SentHasher:
        return SentHasher(item.key, self._op.verify)

    # -- in one piece -------------------------------------------------------------------------

    def _whole(self, item: PushRow) -> None:
        """Send a file of any size in one piece, or compare it."""
        wrong = item.wrong
        try:
            fd, before = open_listed(item.file, item.size, item.mtime_ns)
            try:
                if item.action == "compare":
                    if same_bytes(self._control, self._store, item.there, fd, item.file):
                        self._is_unchanged(item, before)
                        return
                    if item.guarded:
                        self._results.left(Row(item.path, "conflict", item.size, {"reason": item.reason}))
                        return
                if self._has_parts(item):
                    for unit in self._parts(item):
                        unit()
                    return
                self._refuse_changed(item)
                self._announce(item, before)

                def unchanged() -> None:
                    still_same(fd, before, item.file)

                wrong = None  # sending it again deals with that
                info, verified = send_whole(
                    self._control,
                    self._store,
                    item.key,
                    partial(
                        FileSource,
                        self._control,
                        fd,
                        unchanged=unchanged,
                        # Larger files are not in the page cache the second time.
                        ahead=self._store.refuses and self._op.verify != "none" and item.size < BIG,
                    ),
                    item.size,
                    partial(self._hasher, item),
                    tries=item.tries,
                    wrong=item.wrong,
                )
                unchanged()
            finally:
                os.close(fd)
            self._sent(item, before, info, verified)
        except Exception as error:
            if wrong is not None and isinstance(error, NbdataError) and not isinstance(error, Cancelled):
                told = withdrawn(self._control, self._store, item.key, wrong)
                error.remedy = ". ".join(filter(None, [error.remedy, told]))
            self._results.fail(item.path, error)

    def _is_unchanged(self, item: PushRow, before: os.stat_result) -> None:
        known = not self._op.delete_source or self._is_still_there(item)
        record = self._index.get(item.path)
        size = item.size if record is not None and record.ours else -1
        self._index.put({item.path: Record.of(validator(item.there), size, before)})
        self._control.advance(files=1, present=item.size)
        if self._may_go(item, before, verified=known):
            self._results.add(item.path, Outcome.UNCHANGED, item.size)

    def _is_still_there(self, item: PushRow) -> bool:
        """Whether the store still has the object that was listed; False if this user may not ask.

        Raises
        ------
        SourceChanged
            If it was deleted or replaced meanwhile: the file may be the only copy now.
        """
        told: ObjectInfo | None
        try:
            told = retrying(self._control, lambda: self._store.head(item.key))
        except AccessDenied:
            return False
        except NotFound:
            told = None
        if told is None or is_another(told, item.there):
            what = "changed" if told is not None else "was deleted"
            raise SourceChanged(
                f"the object {what} in the store after it was listed",
                path=item.key,
                remedy="Run the command again",
            )
        return True

    # -- many small ones ----------------------------------------------------------------------

    def _send_small(self, item: PushRow) -> Sending:
        """Send a small file; see `Sending`."""
        try:
            data, before = self._read_small(item)
            hasher = self._hasher(item)
            hasher.update(memoryview(data))
            self._announce(item, before)
            info, verified = yield Content(data, hasher)
            self._control.advance(bytes=item.size)
            self._sent(item, before, info, verified)
        except Exception as error:
            self._results.fail(item.path, error)

    def _read_small(self, item: PushRow) -> tuple[bytes, os.stat_result]:
        """Return the bytes of a small file, and its stat."""
        fd, before = open_listed(item.file, item.size, item.mtime_ns)
        data = b""
        try:
            while len(data) <= item.size and (piece := os.read(fd, item.size + 1 - len(data))):
                data += piece
        except OSError as error:
            os.close(fd)
            raise disk_error(error, item.file) from error
        try:
            still_same(fd, before, item.file)
        finally:
            os.close(fd)
        if len(data) != item.size:
            raise SourceChanged("the file changed while it was sent", path=item.file)
        return data, before

    # -- in parts -----------------------------------------------------------------------------

    def _has_parts(self, item: PushRow) -> bool:
        """True if a file is sent in parts."""
        return self._store.multipart and item.size > PART

    def _parts(self, item: PushRow) -> Iterator[Unit]:
        """Yield the units of work for a file in parts."""
        try:
            fd, before = open_listed(item.file, item.size, item.mtime_ns)
        except Exception as error:
            self._results.fail(item.path, error)
            return
        control, key = self._control, item.key
        upload = self._uploads.open(
            key,
            item.size,
            MultipartChecker(key, self._op.verify),
            announce=partial(self._announce, item, before),
        )
        upload.at_end.callback(os.close, fd)
        sending = PartedSend(
            control,
            upload,
            item.size,
            upload_part_size(item.size, self._op.part_size, self._store),
            hashed_parts(control, partial(FileSource, control, fd), partial(self._hasher, item)),
            there=partial(self._there, fd, item),
        )

        def refuse(_digests: list[str]) -> None:
            still_same(fd, before, item.file)
            self._refuse_changed(item)

        def finish() -> None:
            try:
                info, verified = sending.finish(refuse)
            except Exception as error:
                self._results.fail(item.path, error)
            else:
                self._results.present += sending.present
                self._sent(item, before, info, verified)

        yield from sending.units(finish)

    def _there(self, fd: int, item: PushRow, start: int, size: int, answer: str) -> SentPart | None:
        """Return the part that an earlier run sent, if its ETag is the MD5 of the bytes that belong there."""
        hasher = SentHasher(item.key, "auto")
        for block in blocks(self._control, fd, start, size, item.file):
            hasher.update(block)
        try:
            verified = hasher.verify(answer)
        except ChecksumMismatch:
            return None
        return SentPart(answer, hasher.hexdigest(), verified) if verified else None

    # -- sent files ---------------------------------------------------------------------------

    def _replaces_known(self, item: PushRow) -> bool:
        """True if the object to replace was pulled or pushed, so that no other one there may be replaced."""
        known = item.pulled or self._index.get(item.path) is not None
        return item.action == "overwrite" and self._op.overwrite == "changed" and known

    def _refuse_changed(self, item: PushRow) -> None:
        """Raise SourceChanged if a known object is another one than was listed: a plan may be hours old."""
        if not self._replaces_known(item):
            return
        try:
            told = retrying(self._control, lambda: self._store.head(item.key))
        except (NotFound, AccessDenied):
            return
        if is_another(told, ObjectInfo(item.key, -1, item.etag or "")):
            raise SourceChanged(
                "the object was changed in the store while the push ran",
                path=item.key,
                remedy="Pull it first, or replace it with --overwrite always",
            )

    def _announce(self, item: PushRow, before: os.stat_result) -> None:
        """Note that an object is about to be replaced.

        Without the note, a file that was sent just before the end would look as if another program had changed the
        object.
        """
        self._index.announce({item.path: ""}, {item.path: before}, new=item.pulled)

    def _sent(self, item: PushRow, before: os.stat_result, info: ObjectInfo, verified: bool) -> None:
        """Record the object of a sent file, and delete the file if requested."""
        self._index.put({item.path: Record.of(validator(info), item.size, before)})
        self._control.advance(files=1)
        if self._run.reservation is not None:
            self._run.reservation.note_written(item.size, 1)
        if self._may_go(item, before, verified, moved=True):
            self._results.add(item.path, Outcome.SENT, item.size, moved=True, verified=verified)
        if not verified and self._op.verify != "none":
            self._results.tally("could not be verified: the store returned no checksum")

    def _may_go(self, item: PushRow, before: os.stat_result, verified: bool, *, moved: bool = False) -> bool:
        """Delete a file that the target has, if requested; if the disk refuses, record that and return False."""
        if not self._op.delete_source:
            return True
        try:
            self._delete_source(item, before, verified)
        except OSError as refused:
            error = disk_error(refused, item.file)
            reason = f"the target has it, but it cannot be deleted here: {error.message}"
            told = {"reason": reason, "error": type(error).__name__}
            self._results.add(
                item.path, Outcome.NOT_DELETED, item.size, moved=moved, verified=verified, **told
            )
            self._control.advance(failures=1)
            if self._op.on_error == "stop":
                self._control.fail(error)
            return False
        return True

    def _delete_source(self, item: PushRow, before: os.stat_result, verified: bool) -> None:
        """Delete a file if the target is known to have it and it was not changed meanwhile."""
        if not verified:
            self._keep("the upload could not be verified")
            return
        kept = "changed after it was sent"

        def unchanged(now: os.stat_result) -> bool:
            nonlocal kept
            if stat.S_ISLNK(now.st_mode):
                kept = "links; neither the links nor their targets are deleted"
                return False
            same = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)
            return same and not differs(now, before)

        try:
            deleted = self._sources.unlink(item.file, unchanged)
        except FileNotFoundError:
            return
        except UnsafeMember:  # a folder above it was replaced by a link
            kept, deleted = "below a link; nothing there is deleted", False
        if not deleted:
            self._keep(kept)
            return
        with self._lock:
            self._gone += 1
            self._freed += item.size

    def _keep(self, reason: str) -> None:
        self._results.tally(f"kept: {reason}")

    def _note(self) -> None:
        """Add notes about files that were deleted or kept, and objects that could not be verified or recorded."""
        if self._op.delete_source and (same := self._plan.actions.get("unchanged", [0])[0]):
            text = "kept: the target seems to have them unchanged, but has no checksum to prove it"
            self._results.tally(text, same)
        if self._gone:
            what = f"{counted(self._gone, 'files')} ({format_size(self._freed)})"
            self._results.notes.append(f"deleted on the disk: {what}")
        self._results.notes += filter(None, [self._index.problem])


class _DealtPush(DealtPlan):
    """The files of a push that the workers of a cluster send."""

    def __init__(self, run: Run, plan: Plan, results: Results, index: Index) -> None:
        super().__init__(run, plan, results, MOVES)
        self._index = index

    def begin(self, rows: list[Row]) -> list[Row]:
        """Note which objects are about to be replaced; see `_Pushing._announce`."""
        for pulled in (False, True):
            looks = {}
            for item in map(PushRow.of, rows):
                if item.pulled == pulled and (pulled or self._index.get(item.path) is not None):
                    with contextlib.suppress(OSError):  # its worker tells what is wrong
                        looks[item.path] = os.stat(item.file)
            self._index.announce(dict.fromkeys(looks, ""), looks, new=pulled)
        return rows

    def known(self, path: str) -> Record | None:
        return self._index.get(path)

    def record(self, rows: Mapping[str, Row], part: PartReport) -> None:
        self._index.put(part.records)
        if self.run.reservation is not None:
            for path in part.records:
                self.run.reservation.note_written(rows[path].size, 1)
