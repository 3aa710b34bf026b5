"""What a run records of each object, and the Report that it makes of that."""

from __future__ import annotations

import threading
from typing import Any

from nbdata.engine.job.outcomes import BAD, Outcome
from nbdata.engine.job.run import Run
from nbdata.errors import NbdataError, NotEnoughSpace, StoreUnavailable
from nbdata.redaction import redacted
from nbdata.report import Report, Row
from nbdata.verbs.options import Storing

__all__ = ["Results"]

# Failures that a report names at first hand; its rows have all.
_NAMED = 100
# Of these the worst are told first; the rest comes in the order in which it happened.
_WORST = (Outcome.MISMATCH, Outcome.MISSING)
# Objects in a row that the store did not answer for, after which the whole job ends.
_UNANSWERED = 16


class Results:
    """What became of each object: counts, failures and rows, from many threads.

    Applies ``--on-error``: with *stop* the first failure ends the run. Some failures always do: a full disk,
    and a store that has not answered for many objects in a row.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._rows = run.row_file("report")
        self._unanswered = 0
        self.counts: dict[str, int] = {}  # by outcome; a verb may put other counts beside them
        self.failures: list[list[str]] = []
        self._ranks: list[int] = []
        self.files = self.bytes = 0
        self.present = 0  # of these bytes, those that had not to move, since an earlier run had moved them
        self.notes: list[str] = []

    def add(self, path: str, outcome: Outcome, size: int = 0, *, moved: bool = False, **detail: Any) -> None:
        """Record one object; `moved` says that its bytes were."""
        with self._lock:
            self.counts[outcome] = self.counts.get(outcome, 0) + 1
            if moved:
                self.files += 1
                self.bytes += size
                self._unanswered = 0
            if outcome in BAD and len(self.failures) < _NAMED:
                self.failures.append([path, str(detail.get("reason", outcome))])
                self._ranks.append(_WORST.index(outcome) if outcome in _WORST else len(_WORST))
        self._rows.add(Row(path, outcome, size, detail))

    def add_moved(self, rows: list[Row]) -> None:
        """Record many objects that went well, and whose bytes were moved, at once."""
        with self._lock:
            for row in rows:
                self.counts[row.action] = self.counts.get(row.action, 0) + 1
                self.bytes += row.size
            self.files += len(rows)
            self._unanswered = 0
        self._rows.extend(rows)

    def answered(self) -> None:
        """The store has answered for an object of which nothing is recorded."""
        with self._lock:
            self._unanswered = 0

    def left(self, row: Row) -> None:
        """Record a row of the plan whose bytes are not to be moved; deletions are recorded when they are done."""
        if row.action == "delete":
            return
        outcome = Outcome.SKIPPED if row.action == "skip" else Outcome(row.action)
        if outcome in (Outcome.UNCHANGED, Outcome.MOVED_AWAY):
            self.add(row.path, outcome, row.size)
            return
        self.add(row.path, outcome, row.size, reason=row.detail.get("reason", row.action))
        if outcome in BAD:
            self._run.control.advance(failures=1)

    def fail(
        self,
        path: str,
        error: Exception,
        *,
        outcome: Outcome = Outcome.FAILED,
        size: int = 0,
        moved: bool = False,
        **detail: Any,
    ) -> None:
        """Record a failure; raises it if the run is to end here.

        Its reason is the error's text, unless `detail` has a better one.
        """
        if not isinstance(error, NbdataError):
            raise error
        self._run.control.checkpoint()  # what failed because of a stop is no failure
        if error.path is not None:  # a key of some stores is a URL with a password
            error.path = redacted(error.path)
        told = {"reason": str(error), "error": type(error).__name__, **detail}
        self.add(path, outcome, size, moved=moved, **told)
        self._run.control.advance(failures=1)
        if isinstance(error, StoreUnavailable):
            with self._lock:
                self._unanswered += 1
        op = self._run.operation
        on_error = op.on_error if isinstance(op, Storing) else "raise"
        if isinstance(error, NotEnoughSpace) or on_error == "stop" or self._unanswered >= _UNANSWERED:
            raise error

    def report(self, **details: object) -> Report:
        """The Report of all that was recorded; closes the rows."""
        self._rows.close()
        source, target = self._run.operation.places()
        bad = any(self.counts.get(name) for name in BAD)
        worst = sorted(range(len(self.failures)), key=self._ranks.__getitem__)
        report = Report(
            verb=self._run.operation.verb,
            source=source,
            target=target,
            state="FAILED" if bad else "DONE",
            counts={str(name): count for name, count in self.counts.items()},
            files=self.files,
            bytes=self.bytes,
            present=self.present,
            failures=[self.failures[n] for n in worst],
            notes=self.notes,
            details=dict(details),
        )
        report.rows = self._rows.rows()
        return report
