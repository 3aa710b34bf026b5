"""md5check: plan and perform. With ``--write`` see `nbdata.engine.check.manifest` and `sidecars`."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from nbdata.engine.check import manifest, sidecars
from nbdata.engine.check.datasets import DataSet, list_data
from nbdata.engine.check.expected import Vouching, vouching
from nbdata.engine.check.repair import Repair, promised_by
from nbdata.engine.check.small_files import batches, right_files
from nbdata.engine.check.verdict_table import in_order, wrong_table
from nbdata.engine.job.run import Outcome, Run
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.errors import BadOption, ChecksumMismatch, NotFound
from nbdata.integrity.checksum_names import is_checksum_file
from nbdata.integrity.digests import new_digest
from nbdata.integrity.expectations import Expected
from nbdata.integrity.verdicts import Verdict, judge
from nbdata.paths import glob_base
from nbdata.redaction import redacted
from nbdata.report import Plan, Report, Row
from nbdata.stores.local import LocalStore
from nbdata.transfer.selection import Entry
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.md5check import Md5check
from nbdata.verification.hashing import biggest_first, hash_object, hashing_workers, note_size
from nbdata.verification.vouched import Answer, compare

__all__ = ["perform", "plan"]


def plan(run: Run) -> Plan:
    """Find what is expected of each file; reads listings and checksum files, no data, and writes nothing.

    Raises
    ------
    NotFound
        If nothing could be verified: nobody vouches for any of the files that are meant.
    """
    op = run.operation
    assert isinstance(op, Md5check)
    data = list_data(run, op.source)
    if op.write:
        return sidecars.plan(run, op, data) if op.write == "sidecars" else manifest.plan(run, op, data)
    if data.single and op.against is None and is_checksum_file(data.single):
        raise BadOption(
            "this is a checksum file, PATH is what is to be checked", path=redacted(op.source),
            remedy=f"Write the folder of the files as PATH, and --against {redacted(op.source)}",
        )  # fmt: skip
    known = vouching(run, op, data)
    notes = [*known.notes, *data.left_out]
    out = Plan("md5check", *op.places(), notes=notes, details={"biggest": 0})
    repair_plan = op.repair is not None and run.only_plan
    rows = run.row_file("checks" if repair_plan else "plan")
    missing: list[str] = []
    for entry in data.selected(op, known.missing, missing, ChainMap[str, Any](known.expected, known.objects)):
        row = _row(entry, known)
        out.count(row.action, row.size)
        rows.add(row)
        if row.action == "check":
            note_size(out, row.size)
    for name in missing:
        out.count("missing", 0)
        rows.add(_missing(name, known))
    rows.close()
    out.rows = rows.rows()
    if not out.actions.keys() & {"check", "mismatch", "missing"}:
        raise _nothing_known(op, data, known, sum(count for count, _ in out.actions.values()))
    out.details |= {"root": "/" + data.folder.key, "single": data.single}
    if repair_plan:
        return _Checking(run, op, out).plan_repair()
    return out


def _missing(path: str, known: Vouching) -> Row:
    """A file that somebody vouches for and that is not there."""
    detail: dict[str, Any] = {
        "source": known.place,
        "reason": f"is missing; a checksum of it is in {known.place}",
    }
    if (expected := known.lost.get(path)) is not None:
        detail |= {"algorithm": expected.algorithm, "expected": expected.digest, "source": expected.source}
    elif (there := known.objects.get(path)) is not None:
        detail["object"] = {"size": there.size, **detail_of(there)}
    return Row(path, "missing", 0, detail)


def _row(entry: Entry, known: Vouching) -> Row:
    """What is to be done with one file."""
    path, info = entry.path, entry.info
    detail = detail_of(info)
    expected = known.expected.get(path)
    if expected is not None:
        detail |= {"algorithm": expected.algorithm, "expected": expected.digest, "source": expected.source}
        return Row(path, "check", info.size, detail)
    if known.by_itself:
        return Row(path, "check", info.size, detail | {"source": "its own store"})
    there = known.objects.get(path)
    if there is not None:
        detail |= {"source": known.place, "object": {"size": there.size, **detail_of(there)}}
        if 0 <= info.size != there.size >= 0:
            sizes = {"expected": f"{there.size} bytes", "got": f"{info.size} bytes", "algorithm": "size"}
            return Row(path, "mismatch", info.size, detail | sizes | {"reason": "the size differs"})
        return Row(path, "check", info.size, detail)
    if path in known.extra:
        return Row(
            path, "extra", info.size, detail | {"reason": f"{known.place} knows others, but not this one"}
        )
    reason = known.reasons.get(path, "no checksum of it was found")
    return Row(path, "unverifiable", info.size, detail | {"reason": reason})


def _nothing_known(op: Md5check, data: DataSet, known: Vouching, selected: int) -> NotFound:
    """The error when there is nothing to compare with."""
    if not selected:
        what = "there are no files to check" if not data.names else "no file passes PATH and the filters"
        return NotFound(
            what,
            path=redacted(op.source),
            remedy="Check the spelling; '*' stays in a folder, '**' crosses folders",
        )
    files = f"any of the {selected:,} files" if selected != 1 else "the file"
    more = f"; {known.notes[0]}" if known.notes and not known.by_itself else ""
    remedy = "Name them with --against: a folder, a manifest or s3://…"
    if op.against is not None:
        remedy = "Check that --against names the folder that belongs to PATH"
    elif op.algorithm != "auto":
        remedy = "Use --algorithm auto, which takes what there is"
    elif isinstance(data.folder.store, LocalStore):
        remedy += "; or make some with --write"
    return NotFound(
        f"nothing vouches for {files}: looked for {known.looked_for}{more}",
        path=redacted(op.source),
        remedy=remedy,
    )


def perform(run: Run, planned: Plan) -> Report:
    """Hash what has an expectation, and judge."""
    op = run.operation
    assert isinstance(op, Md5check)
    if op.write == "sidecars":
        return sidecars.perform(run, op, planned)
    if op.write:
        return manifest.perform(run, op, planned)
    return _Checking(run, op, planned).run_all()


class _Checking:
    """One check while it is performed."""

    def __init__(self, run: Run, op: Md5check, planned: Plan) -> None:
        self.run, self.op, self.plan = run, op, planned
        self.outcome = Outcome(run)
        self.outcome.notes += planned.notes
        self.store = run.open(glob_base(op.source)).store
        self.other = self.store if op.against is None else run.open(glob_base(op.against)).store
        # What is wrong is not judged yet, where it is to be repaired.
        self.wrong = run.row_file("wrong") if op.repair is not None else None
        self._reason = ""

    def run_all(self) -> Report:
        self._check_all()
        if self.wrong is not None and self.wrong.count:
            self._repair()
        counts = self.outcome.counts
        for verdict, why in (
            ("unverifiable", "nothing is known that they could be compared with"),
            ("extra", "not on a list that names others of their folder"),
        ):
            if counts.get(verdict):
                self.outcome.notes.append(
                    f"{counts[verdict]:,} {verdict}: {why}; the report's rows name them"
                )
        report = self.outcome.report(algorithm=self.op.algorithm, against=redacted(self.op.against or ""))
        report.counts, report.tables = in_order(report.counts), wrong_table(report)
        return report

    def _check_all(self) -> None:
        run_units(self.run.control, self._units(), workers=hashing_workers(self.op.concurrency, self.store))
        if self.wrong is not None:
            self.wrong.close()
        counts = self.outcome.counts
        wrong = self.wrong is not None and self.wrong.count
        if counts.get("unverifiable") and not counts.keys() - {"unverifiable", "extra"} and not wrong:
            raise NotFound(
                f"nothing could be verified: {self._reason}", path=redacted(self.op.source),
                remedy="Say with --against where checksums are: a folder of them or a manifest",
            )  # fmt: skip

    def _units(self) -> Iterator[Callable[[], None]]:
        for rows, small in batches(biggest_first(self.plan), self.store):
            row = rows[0]
            if small:
                yield partial(self._check_small, rows)
            elif row.action == "check":
                yield partial(self._check, row)
            elif row.action == "mismatch":
                self._mismatch(row, row.detail, read=-1)
            elif row.action == "missing":
                self._lost(row, row.detail)
            else:
                self.outcome.add(row.path, row.action, row.size, **_told(row.detail))

    def _check_small(self, rows: list[Row]) -> None:
        assert isinstance(self.store, LocalStore)
        ok, right, size = str(Verdict.OK), list[Row](), 0
        for row, found in right_files(self.run.control, self.store, rows, self.op.algorithm):
            if found is None:
                self._check(row)
                continue
            algorithm, digest = found
            told = {"expected": digest, "got": digest, "algorithm": algorithm, "source": row.detail["source"]}
            right.append(Row(row.path, ok, row.size, told))
            size += row.size
        self.run.control.advance(files=len(right), bytes=size)
        self.outcome.add_moved(right)

    def _check(self, row: Row) -> None:
        try:
            answer = self._answer(row)
        except Exception as error:
            self.outcome.fail(row.path, error, size=row.size)
            return
        self.run.control.advance(files=1)
        self._judged(row, answer, str(answer.verdict))

    def _judged(self, row: Row, answer: Answer, good: str) -> None:
        """Record what a file was found to be; `good` is the word if it is right."""
        detail = _said(row, answer)
        if answer.verdict is Verdict.MISMATCH:
            self._mismatch(row, detail, read=answer.read)
            return
        if answer.verdict is Verdict.UNVERIFIABLE:
            self._reason, good = answer.reason, str(answer.verdict)
        size = answer.read if answer.read >= 0 else row.size
        self.outcome.add(row.path, good, size, moved=answer.read >= 0, **_told(detail))

    def _answer(self, row: Row) -> Answer:
        info, detail, control = info_of(row), row.detail, self.run.control
        if "object" in detail or "expected" not in detail:
            promised = promised_by(row) if "object" in detail else info
            return compare(control, self.store, info, self.other, promised, self.op.algorithm)
        expected = Expected(detail["algorithm"], detail["expected"], detail["source"])
        hashed = hash_object(control, self.store, info, lambda: [new_digest(expected.algorithm)])
        verdict = judge(expected, hashed.digests[0])
        reason = "" if verdict is Verdict.OK else f"the {expected.algorithm} differs"
        return Answer(verdict, expected.digest, hashed.digests[0], expected.algorithm, reason, hashed.size)

    def _mismatch(self, row: Row, detail: dict[str, Any], *, read: int) -> None:
        if self.wrong is not None:
            self.wrong.add(Row(row.path, "mismatch", row.size, row.detail | {"found": detail}))
            return
        expected, got = detail["expected"], detail["got"]
        error = ChecksumMismatch(detail["reason"], path=row.path, expected=expected, got=got)
        reason = str(ChecksumMismatch(detail["reason"], expected=expected, got=got))
        size = read if read >= 0 else row.size
        self.outcome.fail(
            row.path,
            error,
            outcome="mismatch",
            size=size,
            moved=read >= 0,
            **_told(detail) | {"reason": reason},
        )

    def _lost(self, row: Row, detail: dict[str, Any]) -> None:
        if self.wrong is not None:
            self.wrong.add(Row(row.path, "missing", row.size, row.detail | {"found": detail}))
            return
        error = NotFound("the file is missing", path=row.path)
        self.outcome.fail(row.path, error, outcome="missing", **_told(detail))

    # -- --repair -------------------------------------------------------------------------------

    def plan_repair(self) -> Plan:
        """What would be pulled again: the files are read, and nothing is written."""
        self._check_all()
        assert self.wrong is not None
        details = self.plan.details
        repair = Repair(self.run, self.op, self.other, details["root"], details["single"], self.wrong)
        out = Plan("md5check", *self.op.places(), notes=self.plan.notes)
        rows = self.run.row_file("plan")
        for row in self.outcome.report().rows:
            out.count(row.action, row.size)
            rows.add(row)
        for path, row in sorted(repair.rows.items()):
            reason = repair.reasons.get(path)
            action = "repair" if reason is None else row.action
            why = row.action if reason is None else f"cannot be repaired: {reason}"
            out.count(action, row.size)
            rows.add(Row(path, action, row.size, _told(row.detail["found"]) | {"reason": why}))
        rows.close()
        out.rows = rows.rows()
        out.files, out.bytes, out.present = repair.plan.files, repair.plan.bytes, repair.plan.present
        out.needed, out.inodes = repair.plan.needed, repair.plan.inodes
        if out.files:
            out.notes.append(f"{out.files:,} would be pulled again from {repair.place}")
        return out

    def _repair(self) -> None:
        """Pull what is wrong again, and check it once more."""
        assert self.wrong is not None
        details = self.plan.details
        repair = Repair(self.run, self.op, self.other, details["root"], details["single"], self.wrong)
        repair.perform()
        self.wrong = None  # what is wrong now, is
        self.run.control.phase("checks them once more")
        rows = [repair.rows[path] for path in sorted(repair.rows)]
        units = (partial(self._again, row, details["root"], repair) for row in rows)
        run_units(self.run.control, units, workers=hashing_workers(self.op.concurrency, self.store))
        repaired = self.outcome.counts.get("repaired", 0)
        left = f"; {len(rows) - repaired:,} could not be" if repaired < len(rows) else ""
        self.outcome.notes.append(f"{repaired:,} repaired from {repair.place}{left}")

    def _again(self, row: Row, root: str, repair: Repair) -> None:
        found = row.detail["found"]
        if (reason := repair.reasons.get(row.path)) is not None:
            told = found | {"reason": f"{found['reason']}; not repaired: {reason}"}
            if row.action == "missing":
                self._lost(row, told)
            else:
                self._mismatch(row, told, read=-1)
            return
        kept = {n: v for n, v in row.detail.items() if n in ("algorithm", "expected", "object", "source")}
        try:
            info = self.store.head(os.path.join(root, row.path).lstrip("/"))
            now = Row(row.path, "check", info.size, detail_of(info) | kept)
            answer = self._answer(now)
        except Exception as error:
            self.outcome.fail(row.path, error, size=row.size)
            return
        self._judged(now, answer, "repaired")


def _said(row: Row, answer: Answer) -> dict[str, Any]:
    """What an answer says of a file, for its row."""
    return {
        "expected": answer.expected,
        "got": answer.got,
        "algorithm": answer.algorithm,
        "reason": answer.reason,
        "source": row.detail["source"],
    }


def _told(detail: dict[str, Any]) -> dict[str, Any]:
    """What the report's rows say of a file."""
    return {
        name: detail[name]
        for name in ("expected", "got", "algorithm", "source", "reason")
        if detail.get(name)
    }
