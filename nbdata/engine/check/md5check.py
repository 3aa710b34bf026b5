"""Plan and perform md5check. For ``--write`` see `nbdata.engine.check.manifest` and `sidecars`."""

from __future__ import annotations

import os
import shlex
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from nbdata.engine.check import manifest, sidecars
from nbdata.engine.check.datasets import DataSet, list_data
from nbdata.engine.check.known_checksums import KnownChecksums, known_checksums
from nbdata.engine.check.repair import Repair
from nbdata.engine.check.rows import CheckRow
from nbdata.engine.check.small_files import batches, right_files
from nbdata.engine.check.verdict_table import in_order, wrong_table
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.planning.origin import origin_of
from nbdata.errors import BadOption, ChecksumMismatch, NotFound
from nbdata.history import past_jobs
from nbdata.integrity.checksum_names import is_checksum_file
from nbdata.integrity.digests import new_digest
from nbdata.integrity.verdicts import Verdict, verdict_of
from nbdata.paths import glob_base
from nbdata.redaction import redacted
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted
from nbdata.stores.local import LocalStore
from nbdata.transfer.selection import Entry
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.md5check import Md5check
from nbdata.verification.comparison import Answer, compare
from nbdata.verification.hashing import biggest_first, hash_object, hashing_workers, note_size

__all__ = ["perform", "plan"]


def plan(run: Run) -> Plan:
    """Find the expected checksum of each file; reads listings and checksum files, no data, and writes nothing.

    Raises
    ------
    NotFound
        If nothing can be verified: none of the selected files has a known checksum.
    """
    op = run.operation
    assert isinstance(op, Md5check)
    data = list_data(run, op.source)
    if op.write:
        return sidecars.plan(run, op, data) if op.write == "sidecars" else manifest.plan(run, op, data)
    if data.single and op.against is None and is_checksum_file(data.single):
        raise BadOption(
            "this is a checksum file, but PATH must name the files to check",
            path=redacted(op.source),
            remedy=f"Write the folder of the files as PATH, and --against {redacted(op.source)}",
        )
    known = known_checksums(run, op, data)
    notes = [*known.notes, *data.left_out]
    out = Plan("md5check", *op.places(), notes=notes, details={"biggest": 0})
    repair_plan = op.repair is not None and run.only_plan
    rows = run.row_file("checks" if repair_plan else "plan")
    missing: list[str] = []
    for entry in data.selected(op, known.missing, missing, ChainMap[str, Any](known.expected, known.objects)):
        row = _row(entry, known)
        out.count(row.action, row.size)
        rows.add(row.row())
        if row.action == "check":
            note_size(out, row.size)
    if not (data.single or op.filtered):  # else the lines may be of other files
        for name, reason in known.unreadable.items():
            out.count("unreadable", 0)
            rows.add(CheckRow(name, "unreadable", None, reason=reason).row())
    for name in missing:
        out.count("missing", 0)
        rows.add(_missing(name, known).row())
    rows.close()
    out.rows = rows.rows()
    if not out.actions.keys() & {"check", "mismatch", "missing", "conflict"}:
        raise _nothing_known(run, data, known, sum(count for count, _ in out.actions.values()))
    out.details |= {"root": "/" + data.folder.key, "single": data.single, "by_repair": known.by_repair}
    if repair_plan:
        return _Checking(run, op, out).plan_repair()
    return out


def _missing(path: str, known: KnownChecksums) -> CheckRow:
    """The row of a missing file that has a checksum."""
    expected = known.lost.get(path)
    return CheckRow(
        path,
        "missing",
        None,
        expected.source if expected is not None else known.place,
        expected,
        known.objects.get(path) if expected is None else None,
        reason=f"is missing; a checksum of it is in {known.place}",
    )


def _row(entry: Entry, known: KnownChecksums) -> CheckRow:
    """The row of one file, with its action."""
    path, info = entry.path, entry.info
    if (expected := known.expected.get(path)) is not None:
        return CheckRow(path, "check", info, expected.source, expected)
    if known.by_itself:
        return CheckRow(path, "check", info, "its own store")
    if (there := known.objects.get(path)) is not None:
        item = CheckRow(path, "check", info, known.place, promised=there)
        if 0 <= info.size != there.size >= 0:
            item.action, sizes = "mismatch", (f"{there.size} bytes", f"{info.size} bytes")
            item.answer = Answer(Verdict.MISMATCH, *sizes, "size", "the size differs")
        return item
    if path in known.extra:
        return CheckRow(path, "extra", info, reason=f"is not listed in {known.place}, but other files are")
    if path in known.reasons:
        return CheckRow(path, "conflict", info, reason=known.reasons[path])
    return CheckRow(path, "unverifiable", info, reason="no checksum of it was found")


def _nothing_known(run: Run, data: DataSet, known: KnownChecksums, selected: int) -> NotFound:
    """The error when there is nothing to compare with."""
    op = run.operation
    assert isinstance(op, Md5check)
    if not selected:
        what = "there are no files to check" if not data.names else "no file passes PATH and the filters"
        return NotFound(
            what,
            path=redacted(op.source),
            remedy="Check the spelling; '*' stays in a folder, '**' crosses folders",
        )
    files = f"any of the {counted(selected, 'files')}" if selected != 1 else "the file"
    more = f"; {known.notes[0]}" if known.notes and not known.by_itself else ""
    remedy = "Name them with --against: a folder, a manifest or s3://…"
    if op.against is not None:
        remedy = "Check that --against names the folder that corresponds to PATH"
    elif op.algorithm != "auto":
        remedy = "Use --algorithm auto, which takes what there is"
    elif isinstance(data.folder.store, LocalStore):
        remedy += "; or make some with --write"
        origin = origin_of(glob_base(op.source), past_jobs(run.context.state_dir))
        if origin is not None:
            line = shlex.join(["md5check", op.source, "--against", origin.url, *origin.options])
            remedy = f"It was pulled from {origin.url}: `{line}` compares it with that"
    return NotFound(
        f"no checksum was found for {files}: looked for {known.looked_for}{more}",
        path=redacted(op.source),
        remedy=remedy,
    )


def perform(run: Run, planned: Plan) -> Report:
    """Hash the files with a known checksum, and compare."""
    op = run.operation
    assert isinstance(op, Md5check)
    if op.write == "sidecars":
        return sidecars.perform(run, op, planned)
    if op.write:
        return manifest.perform(run, op, planned)
    return _Checking(run, op, planned).run_all()


class _Checking:
    """Performs one check."""

    def __init__(self, run: Run, op: Md5check, planned: Plan) -> None:
        self.run, self.op, self.plan = run, op, planned
        self.results = Results(run)
        self.results.notes += planned.notes
        self.store = run.open(glob_base(op.source)).store
        self._against = op.repair if planned.details["by_repair"] else op.against
        self.other = self.store if self._against is None else run.open(glob_base(self._against)).store
        # With --repair, wrong files are collected first, and compared after the repair.
        self.wrong = run.row_file("wrong") if op.repair is not None else None
        self._reason = ""

    def run_all(self) -> Report:
        self._check_all()
        if self.wrong is not None and self.wrong.count:
            self._repair()
        counts = self.results.counts
        if self.run.as_part is not None:  # the whole job sums up
            return self.results.report()
        for verdict, why in (
            ("unverifiable", "no usable checksum is known"),
            ("extra", "not in a manifest that lists other files of their folder"),
        ):
            if counts.get(verdict):
                self.results.notes.append(
                    f"{counts[verdict]:,} {verdict}: {why}; the report's rows name them"
                )
        report = self.results.report(algorithm=self.op.algorithm, against=redacted(self._against or ""))
        report.counts, report.tables = in_order(report.counts), wrong_table(report)
        return report

    def _check_all(self) -> None:
        run_units(self.run.control, self._units(), workers=hashing_workers(self.op.concurrency, self.store))
        if self.run.dealer is not None:
            self.run.dealer.deal(_DealtCheck(self.run, self.plan, self.results, ("check",)))
        if self.wrong is not None:
            self.wrong.close()
        counts = self.results.counts
        wrong = self.wrong is not None and self.wrong.count
        if self.run.as_part is not None:
            return
        if counts.get(Outcome.UNVERIFIABLE) and not counts.keys() - {"unverifiable", "extra"} and not wrong:
            raise NotFound(
                f"nothing could be verified: {self._reason or 'the report names the reasons'}",
                path=redacted(self.op.source),
                remedy="Use --against to name the checksums: a folder of them, or a manifest",
            )

    def _units(self) -> Iterator[Callable[[], None]]:
        """Yield the work of this process: all of it, unless it is dealt."""
        dealt = self.run.dealer is not None
        here = (row for row in biggest_first(self.plan) if not (dealt and row.action == "check"))
        for rows, small in batches(map(CheckRow.of, here), self.store):
            row = rows[0]
            if small:
                yield partial(self._check_small, rows)
            elif row.action == "check":
                yield partial(self._check, row)
            elif row.answer is not None:
                self._mismatch(row, row.answer)
            elif row.action == "missing":
                self._missing(row)
            else:
                self._unchecked(row)

    def _check_small(self, rows: list[CheckRow]) -> None:
        assert isinstance(self.store, LocalStore)
        right, size = list[Row](), 0
        for row, verdict in right_files(self.run.control, self.store, rows, self.op.algorithm):
            if verdict is None:
                self._check(row)
                continue
            algorithm, digest = verdict
            detail = {"expected": digest, "got": digest, "algorithm": algorithm, "source": row.source}
            right.append(Row(row.path, Outcome.OK, row.size, detail))
            size += row.size
        self.run.control.advance(files=len(right), bytes=size)
        self.results.add_moved(right)

    def _check(self, row: CheckRow) -> None:
        try:
            answer = self._answer(row)
        except Exception as error:
            self.results.fail(row.path, error, size=row.size)
            return
        self.run.control.advance(files=1)
        self._record(row, answer)

    def _record(self, row: CheckRow, answer: Answer, good: Outcome = Outcome.OK) -> None:
        """Record the result for a file; `good` is the outcome if it matches."""
        if answer.verdict is Verdict.MISMATCH:
            self._mismatch(row, answer)
            return
        if answer.verdict is Verdict.UNVERIFIABLE:
            self._reason, good = answer.reason, Outcome.UNVERIFIABLE
        size = answer.read if answer.read >= 0 else row.size
        self.results.add(row.path, good, size, moved=answer.read >= 0, **row.told(answer))

    def _answer(self, row: CheckRow) -> Answer:
        control, info, expected = self.run.control, row.info, row.expected
        assert info is not None
        if expected is None:
            return compare(control, self.store, info, self.other, row.promised or info, self.op.algorithm)
        hashed = hash_object(control, self.store, info, lambda: [new_digest(expected.algorithm)])
        verdict = verdict_of(expected, hashed.digests[0])
        reason = "" if verdict is Verdict.OK else f"the {expected.algorithm} differs"
        return Answer(verdict, expected.digest, hashed.digests[0], expected.algorithm, reason, hashed.size)

    def _mismatch(self, row: CheckRow, answer: Answer) -> None:
        if self.wrong is not None:
            row.action, row.answer = "mismatch", answer
            self.wrong.add(row.row())
            return
        expected, got, read = answer.expected, answer.got, answer.read
        error = ChecksumMismatch(answer.reason, path=row.path, expected=expected, got=got)
        reason = str(ChecksumMismatch(answer.reason, expected=expected, got=got))
        self.results.fail(
            row.path,
            error,
            outcome=Outcome.MISMATCH,
            size=read if read >= 0 else row.size,
            moved=read >= 0,
            **row.told(answer) | {"reason": reason},
        )

    def _unchecked(self, row: CheckRow) -> None:
        """Record a file without a usable digest, or a checksum file with a line that cannot be used."""
        if row.action not in ("conflict", "unreadable"):
            self.results.add(row.path, Outcome(row.action), row.size, **row.told())
            return
        if row.action == "conflict":
            error = ChecksumMismatch(
                row.reason, remedy="Remove the wrong line or checksum file, and check again"
            )
        else:
            error = ChecksumMismatch(row.reason, remedy="Get this checksum file anew, or correct it")
        self.results.fail(row.path, error, outcome=Outcome(row.action), size=row.size)

    def _missing(self, row: CheckRow) -> None:
        if self.wrong is not None:
            self.wrong.add(row.row())
            return
        error = NotFound("the file is missing", path=row.path)
        self.results.fail(row.path, error, outcome=Outcome.MISSING, **row.told())

    # -- --repair -------------------------------------------------------------------------------

    def plan_repair(self) -> Plan:
        """Plan which files to pull again: reads the files, and writes nothing."""
        self._check_all()
        assert self.wrong is not None
        details = self.plan.details
        repair = Repair(self.run, self.op, self.other, details["root"], details["single"], self.wrong)
        out = Plan("md5check", *self.op.places(), notes=self.plan.notes)
        rows = self.run.row_file("plan")
        for row in self.results.report().rows:
            out.count(row.action, row.size)
            rows.add(row)
        sizes = {row.path: row.size for row in repair.plan.rows}  # a missing file has none here
        for path, wrong in sorted(repair.rows.items()):
            size = sizes.get(path, wrong.size)
            reason = repair.reasons.get(path)
            action = "repair" if reason is None else wrong.action
            why = wrong.action if reason is None else f"cannot be repaired: {reason}"
            out.count(action, size)
            rows.add(Row(path, action, size, wrong.told() | {"reason": why}))
        rows.close()
        out.rows = rows.rows()
        out.files, out.bytes, out.present = repair.plan.files, repair.plan.bytes, repair.plan.present
        out.needed, out.inodes = repair.plan.needed, repair.plan.inodes
        if out.files:
            out.notes.append(f"{out.files:,} would be pulled again from {repair.place}")
        return out

    def _repair(self) -> None:
        """Pull wrong files again, and check them once more."""
        assert self.wrong is not None
        details = self.plan.details
        repair = Repair(self.run, self.op, self.other, details["root"], details["single"], self.wrong)
        repair.perform()
        self.wrong = None  # files that are still wrong now are reported
        self.run.control.phase("checks them once more")
        rows = [repair.rows[path] for path in sorted(repair.rows)]
        units = (partial(self._again, row, details["root"], repair) for row in rows)
        run_units(self.run.control, units, workers=hashing_workers(self.op.concurrency, self.store))
        repaired = self.results.counts.get(Outcome.REPAIRED, 0)
        left = f"; {len(rows) - repaired:,} could not be" if repaired < len(rows) else ""
        self.results.notes.append(f"{repaired:,} repaired from {repair.place}{left}")

    def _again(self, row: CheckRow, root: str, repair: Repair) -> None:
        answer, why = row.answer, repair.reasons.get(row.path)
        if why is not None and answer is not None:
            reason = f"{answer.reason}; not repaired: {why}"
            self._mismatch(row, replace(answer, reason=reason, read=-1))
            return
        if why is not None:
            row.reason += f"; not repaired: {why}"
            self._missing(row)
            return
        try:
            info = self.store.head(os.path.join(root, row.path).lstrip("/"))
            now = CheckRow(row.path, "check", info, row.source, row.expected, row.promised)
            answer = self._answer(now)
        except Exception as error:
            self.results.fail(row.path, error, size=row.size)
            return
        self._record(now, answer, Outcome.REPAIRED)


class _DealtCheck(DealtPlan):
    """The files of a check that the workers of a cluster hash."""

    def rows(self) -> Iterator[Row]:
        return (row for row in biggest_first(self.plan) if row.action in self.moves)
