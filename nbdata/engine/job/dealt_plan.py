"""The rows of a plan that a dealer has performed in parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from nbdata.engine.job.dealing import MOST, PartReport
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.errors import NbdataError
from nbdata.report import Plan, Row
from nbdata.transfer.index import Record

__all__ = ["DealtPlan"]


class DealtPlan:
    """The rows of a plan that are dealt in parts, and the merging of their reports. Verbs extend it; see `Dealt`.

    Parameters
    ----------
    run : Run
    plan : Plan
    results : Results
    moves : tuple of str
        The actions whose rows are dealt. All other rows are recorded as they are passed.
    """

    most = MOST

    def __init__(self, run: Run, plan: Plan, results: Results, moves: tuple[str, ...]) -> None:
        self.run, self.plan, self.results, self.moves = run, plan, results, moves

    def facts(self, rows: list[Row]) -> dict[str, object]:
        return self.plan.details

    def rows(self) -> Iterator[Row]:
        for row in self.plan.rows:
            if row.action in self.moves:
                yield row
            else:
                self.run.control.checkpoint()
                self.results.left(row)

    def begin(self, rows: list[Row]) -> list[Row]:
        return rows

    def known(self, path: str) -> Record | None:
        return None

    def may_repeat(self, rows: Collection[Row]) -> bool:
        return True

    def record(self, rows: Mapping[str, Row], part: PartReport) -> None:
        """Record what a part has moved."""

    def take(self, rows: Mapping[str, Row], part: PartReport) -> None:
        for path in (*(row.path for row in part.rows), *part.records, *(file.path for file in part.staged)):
            if path not in rows:
                raise NbdataError("a worker reported an object that was not in its part", path=path)
        self.record(rows, part)
        self.results.merge(part)
        if part.error is not None:
            raise part.error
