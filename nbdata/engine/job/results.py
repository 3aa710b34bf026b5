"""Records the outcome of each object in a run, and makes the Report from that."""

from __future__ import annotations

import threading
from typing import Any

from nbdata.disk import file_error
from nbdata.engine.job.dealing import Outcomes, PartReport
from nbdata.engine.job.outcomes import BAD, Outcome
from nbdata.engine.job.run import Run
from nbdata.errors import NbdataError, NotEnoughSpace, StoreUnavailable
from nbdata.guarded_folders import TargetLost
from nbdata.redaction import redacted, shortened
from nbdata.report import Report, Row
from nbdata.verbs.options import Storing

__all__ = ["Results"]

# Most failures that a report itself names; its rows have all.
_NAMED = 100
# Failures that are named first; the others follow in the order in which they happened.
_WORST = (Outcome.MISMATCH, Outcome.MISSING)
# Successive objects without an answer from the store, after which the whole job ends.
_UNANSWERED = 16


class Results(Outcomes):
    """The outcomes of all objects: counts, failures and rows, added by many threads.

    Applies ``--on-error``: with *stop*, the first failure ends the run. Two kinds of failure always end it: a full
    disk, and a store that has not answered for many successive objects.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._lock = threading.Lock()
        self._rows = run.row_file("report")
        self._unanswered = 0
        self._ranks: list[int] = []
        if run.as_part is not None:
            run.as_part.outcomes = self
        self._take_bad_entries()  # before anything is deleted

    def add(self, path: str, outcome: Outcome, size: int = 0, *, moved: bool = False, **detail: Any) -> None:
        """Record one object; `moved` says that its bytes were moved."""
        with self._lock:
            self.counts[outcome] = self.counts.get(outcome, 0) + 1
            if moved:
                self.files += 1
                self.bytes += size
                self._unanswered = 0
                self._count_verified(detail)
            self._name(path, outcome, detail)
        self._rows.add(Row(path, outcome, size, detail))

    def _name(self, path: str, outcome: Outcome, detail: dict[str, Any]) -> None:
        """Name a failure in the report, unless it names enough."""
        if outcome in BAD and len(self.failures) < _NAMED:
            self.failures.append([shortened(path), str(detail.get("reason", outcome))])
            self._ranks.append(_WORST.index(outcome) if outcome in _WORST else len(_WORST))

    def tally(self, text: str, count: int = 1) -> None:
        """Count something for the note ``COUNT text``."""
        with self._lock:
            self.tallies[text] = self.tallies.get(text, 0) + count

    def sum(self, name: str, count: int) -> None:
        """Add to a detail of the report."""
        with self._lock:
            self.sums[name] = self.sums.get(name, 0) + count

    def merge(self, part: PartReport) -> None:
        """Add the outcomes of a part."""
        with self._lock:
            for row in part.rows:
                self.counts[row.action] = self.counts.get(row.action, 0) + 1
                if row.action in BAD:
                    self._name(row.path, Outcome(row.action), row.detail)
            self.files += part.files
            self.bytes += part.bytes
            self.present += part.present
            self.verified[True] += part.verified
            self.verified[False] += part.unverified
            self.notes += [note for note in (*part.notes, *part.about) if note not in self.notes]
        for text, count in part.tallies.items():
            self.tally(text, count)
        for name, count in part.sums.items():
            self.sum(name, count)
        self._rows.extend(part.rows)

    def add_moved(self, rows: list[Row]) -> None:
        """Record many objects at once that succeeded and whose bytes were moved."""
        with self._lock:
            for row in rows:
                self.counts[row.action] = self.counts.get(row.action, 0) + 1
                self.bytes += row.size
                self._count_verified(row.detail)
            self.files += len(rows)
            self._unanswered = 0
        self._rows.extend(rows)

    def _count_verified(self, detail: dict[str, Any]) -> None:
        if "verified" in detail:
            self.verified[bool(detail["verified"])] += 1

    def answered(self) -> None:
        """Note that the store answered for an object that is not recorded."""
        with self._lock:
            self._unanswered = 0

    def left(self, row: Row) -> None:
        """Record a row of the plan whose bytes do not move; deletions are recorded when they are done."""
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
        """Record a failure; raises it if it ends the run.

        Its reason is the error's text, unless `detail` has a better one. A call that the system refused is a failure of
        this object; any other unexpected error is a fault of nbdata, and raised.
        """
        error = file_error(error, path)
        self._run.control.checkpoint()  # a failure caused by a stop does not count
        if error.path is not None:  # keys of some stores are URLs with a password
            error.path = redacted(error.path)
        detail_of_error = {"reason": str(error), "error": type(error).__name__, **detail}
        self.add(path, outcome, size, moved=moved, **detail_of_error)
        self._run.control.advance(failures=1)
        if isinstance(error, StoreUnavailable):
            with self._lock:
                self._unanswered += 1
        op = self._run.operation
        on_error = op.on_error if isinstance(op, Storing) else "raise"
        if (
            isinstance(error, (NotEnoughSpace, TargetLost))
            or on_error == "stop"
            or self._unanswered >= _UNANSWERED
        ):
            raise error

    def _take_bad_entries(self) -> None:
        """Record the entries of listings that could not be used."""
        for row in self._run.control.bad_entries.take():
            self.fail(row.path, NbdataError(row.detail["reason"]), outcome=Outcome.UNREADABLE)

    def report(self, **details: object) -> Report:
        """Make the Report of all that was recorded, and close the rows."""
        self._take_bad_entries()
        self._rows.close()
        source, target = self._run.operation.places()
        bad = any(self.counts.get(name) for name in BAD)
        told = [f"{count:,} {text}" for text, count in self.tallies.items()]
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
            verified=self.verified[True],
            unverified=self.verified[False],
            failures=[self.failures[n] for n in worst],
            notes=[*self.notes, *told],
            details={**self.sums, **details},
        )
        report.rows = self._rows.rows()
        return report
