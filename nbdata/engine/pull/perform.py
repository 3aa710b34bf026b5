"""pull: performed as `nbdata.engine.pull.plan` has planned it; here objects in one piece, and the end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.disk import disk_error
from nbdata.engine.job.run import Run
from nbdata.engine.planning.mirror import delete_planned
from nbdata.engine.planning.rows import info_of
from nbdata.engine.pull.parts import PartedObjects
from nbdata.engine.pull.plan import MOVES, plan, plan_of
from nbdata.engine.pull.pulling import Pulling
from nbdata.engine.pull.small import Small, SmallObjects
from nbdata.errors import ChecksumMismatch, NbdataError, SourceChanged
from nbdata.report import Plan, Report, Row
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.fetch import fetch_whole
from nbdata.transfer.gathering import BATCH
from nbdata.transfer.index import Record
from nbdata.transfer.landing import Landed
from nbdata.transfer.part_records import Begun, validator
from nbdata.transfer.partials import Partial
from nbdata.transfer.reader import Check
from nbdata.transfer.selection import Selection
from nbdata.verification.same_bytes import same_bytes

__all__ = ["perform", "plan", "plan_of"]

# Of an object in one piece that many bytes are kept when it is broken off: what is less is sooner fetched again.
_KEPT = 256 << 10
# Errors after which what was fetched is of no use.
_USELESS = (ChecksumMismatch, SourceChanged)


def perform(run: Run, planned: Plan, *, promised: Callable[[ObjectInfo], Check] | None = None) -> Report:
    """Do what the plan says.

    Parameters
    ----------
    promised : callable, optional
        Gives the check of an object, where somebody else than its store vouches for the bytes.
    """
    return _Performing(Pulling(run, planned, promised)).run_all()


class _Performing:
    """One pull while it is performed."""

    def __init__(self, pulling: Pulling) -> None:
        self._pulling = pulling
        self._parted = PartedObjects(pulling, self._whole)
        self._small = SmallObjects(pulling, self._whole)

    def run_all(self) -> Report:
        pulling = self._pulling
        try:
            with pulling.landing as landing:
                pulling.index.open(landing.target.identity, needed=False)
                pulling.begun = Begun(landing.target.staging(pulling.root))
                pulling.crew.run(self._units())
                landing.flush()
                if pulling.op.delete:
                    delete_planned(pulling.run, pulling.plan, pulling.root, pulling.index, pulling.outcome)
                self._forget_stale()
        finally:
            self._parted.close()
            pulling.index.close()
        pulling.note()
        return pulling.outcome.report()

    def _units(self) -> Iterator[Callable[[], None]]:
        pulling = self._pulling
        batch: list[Small] = []
        for row in pulling.plan.rows:
            if row.action not in MOVES:
                pulling.outcome.left(row)
                continue
            if row.detail.get("edited"):
                pulling.edited.add(row.path)
            info = info_of(row)
            gathered = self._small.has(row, info)
            if gathered:
                batch.append((row, info))
            if batch and (len(batch) == BATCH or not gathered):
                yield self._small.handed(batch)
                batch = []
            if gathered:
                continue
            if row.action != "compare" and self._parted.has(row, info):
                yield partial(self._parted.take, row, info)
            else:
                yield partial(self._whole, row, info)
        if batch:
            yield self._small.handed(batch)

    def _whole(self, row: Row, info: ObjectInfo, failed: Exception | None = None) -> None:
        """Fetch an object in one piece, or compare it first; `failed` is why a first try did not do it."""
        pulling = self._pulling
        try:
            final, staging = pulling.landing.target.prepare(row.path)
            if row.action == "compare" and (same := self._same_bytes(final, info)):
                known = pulling.index.get(row.path)
                ours = known is not None and known.ours
                pulling.index.put({row.path: Record.of(validator(info), info.size if ours else -1, same)})
                pulling.edited.discard(row.path)
                pulling.outcome.add(row.path, "unchanged", info.size)
                pulling.run.control.advance(files=1, present=info.size)
                return
            if row.action == "compare":
                needed = info.size - row.detail.get("present", 0)
                pulling.space.claim(needed)
                row.detail["needed"] = needed
                pulling.replaced.add(row.path)
                if self._parted.has(row, info):
                    self._parted.take(row, info)
                    return
            if row.path in pulling.begun:  # of no use, or it would be continued
                if pulling.begun.is_other(row.path, pulling.op.source, info):
                    pulling.anew(row.path)
                Partial.remove(Partial.data_of(staging, row.path))
            pulling.claimed[row.path] = row.detail["needed"]
            expected = max(0, info.size)
            pulling.landing.reserve(expected)
            try:
                fd, temporary = pulling.landing.target.temporary(staging)
            except NbdataError:
                pulling.landing.release(expected)
                raise
            try:
                os.fchmod(fd, pulling.landing.target.file_mode)
                verified = fetch_whole(
                    pulling.run.control,
                    pulling.store,
                    info,
                    fd,
                    pulling.check,
                    claim=pulling.space.claim,
                    failed=failed,
                )
                size = os.fstat(fd).st_size
                if info.size < 0:
                    pulling.claimed[row.path] = size
            except BaseException as error:
                pulling.landing.release(expected)
                if not self._keep(row.path, info, staging, temporary, fd, error):
                    # Another machine may have taken it for that of a dead job.
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(temporary)
                raise
            finally:
                os.close(fd)
            pulling.verified[row.path] = verified
            landed = Landed(row.path, temporary, final, size, tag=validator(info), reserved=expected)
            pulling.landing.land(landed)
        except Exception as error:
            pulling.failed(row.path, error)

    def _keep(
        self, path: str, info: ObjectInfo, staging: str, temporary: str, fd: int, error: BaseException
    ) -> bool:
        """Whether what there is of an object in one piece was kept for the next run."""
        count, store = os.fstat(fd).st_size, self._pulling.store
        sure = store.ranges and store.refuses_first and not isinstance(error, _USELESS)
        if not sure or not _KEPT <= count < info.size:
            return False
        return Partial.keep(staging, path, self._pulling.op.source, info, temporary, count)

    def _same_bytes(self, path: str, info: ObjectInfo) -> os.stat_result | None:
        """How the local file looked before it was read, if it holds the bytes that the store vouches for.

        What changes it later, or while it is read, makes it another than was recorded.
        """
        try:
            # What was a file when it was planned may be a named pipe by now, which would wait for its writer.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise disk_error(error, path) from error
        control, store = self._pulling.run.control, self._pulling.store
        try:
            before = os.fstat(fd)
            return before if same_bytes(control, store, info, fd, path) else None
        finally:
            os.close(fd)

    def _forget_stale(self) -> None:
        """Remove what earlier runs began of objects that the source has no more.

        Only after everything has landed can that be told: then no partial of this source is of use.
        """
        pulling = self._pulling
        if not pulling.outcome.failures and not Selection.of(pulling.op).given:
            for data in Begun(pulling.landing.target.staging(pulling.root)).of_source(pulling.op.source):
                Partial.remove(data)
