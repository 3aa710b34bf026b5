"""The objects of a pull that other processes fetch: they write temporaries and sync them, this process names them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping

from nbdata.disk import exchanged
from nbdata.engine.job.dealing import PartReport
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.job.same_machine import here
from nbdata.engine.planning.mirror import looks
from nbdata.engine.pull.plan import MOVES, PullRow
from nbdata.engine.pull.ranges import RANGE, DealtFetch, has_ranges, reports_of
from nbdata.errors import UnsafeMember
from nbdata.report import Plan, Row
from nbdata.transfer.committer import Committer, PendingFile
from nbdata.transfer.fetch import BIG
from nbdata.transfer.index import Index, Record
from nbdata.transfer.staged_files import StagedFile
from nbdata.verbs.pull import Pull

__all__ = ["DealtPull", "is_left", "may_be_dealt"]


def may_be_dealt(row: Row) -> bool:
    """True if another process may fetch an object: only one for which the plan has reserved room."""
    return row.action in MOVES and row.action != "compare" and row.size >= 0


def is_left(results: Results, op: Pull, item: PullRow, final: str) -> bool:
    """Whether an object gets no name, because the file was edited since it was planned to be replaced."""
    if item.seen is None or op.overwrite == "always":
        return False
    with contextlib.suppress(OSError):  # it was deleted
        if looks(os.lstat(final)) != item.seen:
            reason = "the file was edited here while the pull ran; --overwrite always replaces it"
            results.left(Row(item.path, "conflict", item.info.size, {"reason": reason}))
            return True
    return False


class DealtPull(DealtPlan):
    """See `DealtPlan`.

    Parameters
    ----------
    index : Index
    committer : Committer
        Gives the files their names. The workers' temporaries are beside its own, below its mark.
    ranged : callable or None
        Prepares an object whose ranges are dealt, and returns None if that failed. None: the store has no ranges.
    """

    def __init__(
        self,
        run: Run,
        plan: Plan,
        results: Results,
        index: Index,
        committer: Committer,
        ranged: Callable[[PullRow], DealtFetch | None] | None,
    ) -> None:
        super().__init__(run, plan, results, MOVES)
        self._index, self._committer, self._target = index, committer, committer.target
        self._ranged, self._number = ranged, 0
        self._fetches: dict[int, DealtFetch] = {}  # objects of which ranges are out: few more than parts

    def facts(self, rows: list[Row]) -> dict[str, object]:
        facts = {"root": self.plan.details["root"], "left_out": [], "token": self._target.token}
        return facts | here(self.run) if any(row.action == RANGE for row in rows) else facts

    def rows(self) -> Iterator[Row]:
        for row in filter(may_be_dealt, self.plan.rows):
            item = PullRow.of(row)
            if self._ranged is None or not has_ranges(self.run, item.info):
                yield row
            elif (fetch := self._ranged(item)) is not None:
                self._number += 1
                self._fetches[self._number] = fetch
                yield from fetch.rows(row.path, self._number)
                self._forget_ended()

    def _forget_ended(self) -> None:
        self._fetches = {number: fetch for number, fetch in self._fetches.items() if fetch.is_out}

    def begin(self, rows: list[Row]) -> list[Row]:
        """Make the folders of objects that are about to be dealt; return those for which that worked."""
        ready = []
        for row in rows:
            if row.action == RANGE:
                ready.append(row)
                continue
            try:
                self._target.prepare(row.path)
            except Exception as error:
                self.results.fail(row.path, error)
            else:
                ready.append(row)
        self._target.sync_folders()
        return ready

    def known(self, path: str) -> Record | None:
        return self._index.get(path)

    def may_repeat(self, rows: Collection[Row]) -> bool:
        """An object that is fetched in parts has one temporary, in which a late worker would still write."""
        return all(row.size < BIG and row.action != RANGE for row in rows)

    def take(self, rows: Mapping[str, Row], part: PartReport) -> None:
        for number, of, error in reports_of(rows, part.details, part.error):
            if error is None:
                self._fetches[number].took(of)
            else:
                self._fetches[number].lost(of, error)
        self._forget_ended()
        super().take(rows, part)

    def record(self, rows: Mapping[str, Row], part: PartReport) -> None:
        """Commit the files of a part. They are recorded once they have their names."""
        ready = []
        for file in part.staged:
            try:
                if (pending := self._pending(PullRow.of(rows[file.path]), file)) is not None:
                    ready.append(pending)
            except Exception as error:
                self.results.fail(file.path, error)
        self._committer.commit_all(ready)

    def _pending(self, item: PullRow, file: StagedFile) -> PendingFile | None:
        """Return the file to commit; None if it gets no name."""
        if "/" in file.name or not (file.shared or file.name.startswith(self._target.token)):
            raise UnsafeMember("a worker reported a file that is not of this job", path=file.name)
        final, staging = self._target.prepare(item.path)
        temporary = f"{staging}/{file.name}"
        at, name = self._target.relative(temporary)
        found = os.lstat(name, dir_fd=at)
        if (found.st_ino, found.st_size, found.st_mtime_ns) != (file.inode, file.size, file.mtime_ns):
            raise exchanged(final)
        assert isinstance(self.run.operation, Pull)
        if is_left(self.results, self.run.operation, item, final):
            return None
        item.claimed, item.verified, item.present = item.needed, file.verified, file.present
        return PendingFile(
            item.path,
            temporary,
            final,
            file.size,
            found,
            synced=True,
            tag=file.tag,
            shared=file.shared,
            of=item,
        )
