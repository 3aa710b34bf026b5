"""push: performed as `nbdata.engine.push.plan` has planned it; here files in one piece."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.engine.job.run import Run
from nbdata.engine.planning.remote_target import delete_planned
from nbdata.engine.push.listed_file import open_listed, still_same
from nbdata.engine.push.parts import PartedFiles
from nbdata.engine.push.plan import MOVES, plan
from nbdata.engine.push.pushing import Pushing
from nbdata.engine.push.small import SmallFiles
from nbdata.errors import Cancelled, NbdataError
from nbdata.report import Plan, Report, Row
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.file_source import FileSource
from nbdata.transfer.gathering import BATCH
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator
from nbdata.transfer.send import BIG, send_whole, withdrawn
from nbdata.verification.same_bytes import same_bytes
from nbdata.verification.sent import SentHasher

__all__ = ["perform", "plan"]


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    return _Performing(Pushing(run, planned)).run_all()


class _Performing:
    """One push while it is performed."""

    def __init__(self, pushing: Pushing) -> None:
        self._pushing = pushing
        self._parted = PartedFiles(pushing)
        self._small = SmallFiles(pushing, self._whole)

    def run_all(self) -> Report:
        pushing = self._pushing
        pushing.index.open(pushing.identity, needed=False)
        try:
            pushing.crew.run(self._units())
            if pushing.op.delete:
                delete_planned(
                    pushing.run, pushing.plan, pushing.target, pushing.index, pushing.outcome, "sent"
                )
        finally:
            self._parted.close()
            pushing.index.close()
        pushing.note()
        return pushing.outcome.report()

    def _units(self) -> Iterator[Callable[[], None]]:
        pushing = self._pushing
        batch: list[Row] = []
        together = pushing.run.control.rate is None
        for row in pushing.plan.rows:
            if row.action not in MOVES:
                pushing.outcome.left(row)
                continue
            gathered = (
                together and row.action != "compare" and row.size <= pushing.target.store.writes_together
            )
            if gathered:
                batch.append(row)
            if batch and (len(batch) == BATCH or not gathered):
                yield self._small.handed(batch)
                batch = []
            if gathered:
                continue
            if row.action != "compare" and self._parted.has(row):
                yield from self._parted.units(row)
            else:
                yield partial(self._whole, row)
        if batch:
            yield self._small.handed(batch)

    def _whole(self, row: Row, failed: NbdataError | None = None, wrong: ObjectInfo | None = None) -> None:
        """Send a file in one piece, or compare it, whatever its size.

        `failed` is why a first try did not do it, and `wrong` what the store made of that.
        """
        pushing = self._pushing
        try:
            fd, before = open_listed(row)
            try:
                if row.action == "compare" and self._same_bytes(fd, row):
                    there = ObjectInfo(row.detail["key"], row.size, row.detail["etag"])
                    pushing.index.put({row.path: Record.of(validator(there), row.size, before)})
                    pushing.outcome.add(row.path, "unchanged", row.size)
                    pushing.run.control.advance(files=1, present=row.size)
                    if pushing.op.delete_source:
                        pushing.delete_source(row, before, verified=True)
                    return
                if self._parted.has(row):
                    for unit in self._parted.units(row):
                        unit()
                    return
                key, store = row.detail["key"], pushing.target.store
                pushing.announce(row, before)

                def unchanged() -> None:
                    still_same(fd, before, row.detail["file"])

                made, wrong = wrong, None  # who sends it again sees to that
                info, verified = send_whole(
                    pushing.run.control,
                    store,
                    key,
                    partial(
                        FileSource,
                        pushing.run.control,
                        fd,
                        unchanged=unchanged,
                        # Larger ones are in no page cache the second time.
                        ahead=store.refuses and pushing.op.verify != "none" and row.size < BIG,
                    ),
                    row.size,
                    partial(SentHasher, key, pushing.op.verify),
                    failed=failed,
                    wrong=made,
                )
                unchanged()
            finally:
                os.close(fd)
            pushing.sent(row, before, info, verified)
        except Exception as error:
            if wrong is not None and isinstance(error, NbdataError) and not isinstance(error, Cancelled):
                told = withdrawn(pushing.run.control, pushing.target.store, row.detail["key"], wrong)
                error.remedy = ". ".join(filter(None, [error.remedy, told]))
            pushing.outcome.fail(row.path, error)

    def _same_bytes(self, fd: int, row: Row) -> bool:
        """Whether the object that stands at the target holds the bytes of the file."""
        there = ObjectInfo(row.detail["key"], row.size, row.detail["etag"])
        return same_bytes(
            self._pushing.run.control, self._pushing.target.store, there, fd, row.detail["file"]
        )
