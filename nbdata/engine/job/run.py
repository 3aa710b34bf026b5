"""What one verb's plan and perform are given: the operation, its context, its stores, where rows go."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

from nbdata.engine.job.leases import Leases
from nbdata.engine.job.spool import RowFile
from nbdata.errors import NbdataError, NotEnoughSpace, StoreUnavailable
from nbdata.operation import Context, Operation
from nbdata.redaction import redacted
from nbdata.report import Report, Row
from nbdata.space.ledger import Reservation
from nbdata.stores.base import Location
from nbdata.stores.resolve import open_place
from nbdata.transfer.control import Control
from nbdata.transfer.index import Index
from nbdata.verbs.options import Storing

__all__ = ["BAD", "Outcome", "Run"]

#: Outcomes that make a job a failed one.
BAD = ("failed", "conflict", "unrepresentable", "mismatch", "missing", "refused", "unreadable", "not deleted")
# Of these the worst are told first; the rest comes in the order in which it happened.
_WORST = ("mismatch", "missing")
# Objects in a row that the store did not answer for, after which the whole job ends.
_UNANSWERED = 16


@dataclass
class Run:
    """One operation on its way.

    Attributes
    ----------
    operation, context
        What, and whose.
    control : Control
        Stop, wait and count; a Task, or a stand-in while only planning.
    folder : str
        A private folder for spooled rows.
    reservation : Reservation or None
        The disk space that is held for it, while it is performed.
    leases : Leases or None
        Where it hands out items, while it is performed.
    bindings : dict
        Objects of this process: ``fs``.
    only_plan : bool
        Whether the plan is all that is asked for.
    moving : bool
        Whether it has begun to do what was planned.
    """

    operation: Operation
    context: Context
    control: Control
    folder: str
    bindings: dict[str, object] = field(default_factory=dict)
    reservation: Reservation | None = None
    leases: Leases | None = None
    only_plan: bool = False
    moving: bool = False
    _files: list[RowFile] = field(default_factory=list, init=False, repr=False)
    _opened: dict[str, Location] = field(default_factory=dict, init=False, repr=False)
    _index: Index | None = field(default=None, init=False, repr=False)

    def open(self, place: str) -> Location:
        """The store and key of a place, with this run's credentials, stopped when this run is.

        The same ones each time: a store may have learnt something, such as a region, or signatures of what it listed.
        """
        found = self._opened.get(place)
        if found is None:
            found = open_place(place, self.context, stop=self.control, fs=self.bindings.get("fs"))
            self._opened[place] = found
        return found

    def index(self, source: str, target: str, identity: tuple[int, int] | None) -> Index:
        """The records of a source and target; the same ones for who performs as for who planned: they may be many."""
        known, self._index = self._index, None
        if known is None or not known.is_of(source, target, identity):
            known = Index(self.context.state_dir, source, target, identity)
            self._index = known
        return known

    def row_file(self, name: str) -> RowFile:
        """A new file for rows."""
        file = RowFile(os.path.join(self.folder, f"{name}.jsonl"))
        self._files.append(file)
        return file

    def close(self) -> None:
        """Close the files of rows that an error left open; what was recorded until then can be read."""
        for file in self._files:
            file.close()


class Outcome:
    """What became of each object: counts, failures and rows, from many threads.

    Applies ``--on-error``: with *stop* the first failure ends the run. Some failures always do: a full disk,
    and a store that has not answered for many objects in a row.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._rows = run.row_file("report")
        self._unanswered = 0
        self.counts: dict[str, int] = {}
        self.failures: list[list[str]] = []
        self._ranks: list[int] = []
        self.files = self.bytes = 0
        self.present = 0  # of these bytes, those that had not to move, since an earlier run had moved them
        self.notes: list[str] = []

    def add(self, path: str, outcome: str, size: int = 0, *, moved: bool = False, **detail: Any) -> None:
        """Record one object; `moved` says that its bytes were."""
        with self._lock:
            self.counts[outcome] = self.counts.get(outcome, 0) + 1
            if moved:
                self.files += 1
                self.bytes += size
                self._unanswered = 0
            if outcome in BAD and len(self.failures) < 100:
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
        if row.action in ("unchanged", "moved away"):
            self.add(row.path, row.action, row.size)
        elif row.action != "delete":
            told = "skipped" if row.action == "skip" else row.action
            self.add(row.path, told, row.size, reason=row.detail.get("reason", row.action))
            if row.action not in ("skip", "left out"):
                self._run.control.advance(failures=1)

    def fail(
        self,
        path: str,
        error: Exception,
        *,
        outcome: str = "failed",
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
            counts=dict(self.counts),
            files=self.files,
            bytes=self.bytes,
            present=self.present,
            failures=[self.failures[n] for n in worst],
            notes=self.notes,
            details=dict(details),
        )
        report.rows = self._rows.rows()
        return report
