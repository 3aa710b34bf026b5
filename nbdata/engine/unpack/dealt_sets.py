"""Several archives that the workers of a cluster unpack: each archive is a part.

An archive has its own folder below the target, and records of its own, as if a command of its own unpacked it. So the
worker does all of it: it locks and writes these records, gives the final names, and takes over the room that the
coordinator reserved for the archive. The coordinator holds the lock of the target and makes the one Report. In the way
of a pull, it would have to give the names itself, which needs another rule for each kind of member: links, folders,
what comes twice, what is behind a checkpoint.

So a worker must be on the coordinator's machine: see `nbdata.engine.job.same_machine`. It leaves the rows of its
report, which may be a million, in the folder of the job.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nbdata.engine.job.dealing import Part, PartReport
from nbdata.engine.job.run import Run
from nbdata.engine.job.same_machine import ELSEWHERE, here, on_this_machine
from nbdata.engine.job.spool import read_page
from nbdata.engine.unpack.one_set import unpack_set
from nbdata.engine.unpack.several_sets import SeveralSets, Taken, locked, operation_of, place_of
from nbdata.engine.unpack.targets.resolve import target_of
from nbdata.errors import NbdataError
from nbdata.report import Plan, Report, Row, Rows
from nbdata.space.ledger import Ledger
from nbdata.space.limits import limited_folders
from nbdata.transfer.index import Record
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["DealtSets", "deal_each", "unpack_part"]

# The beginning of the names of folders in which workers leave rows.
_ROWS = "part-"
# The only file in them.
_REPORT = "report.rows"


def deal_each(run: Run, planned: Plan, sets: SeveralSets) -> Report:
    """Have the workers unpack the archives; an error of one does not stop the others."""
    assert run.dealer is not None
    taken = Taken(run, sets)
    run.dealer.deal(DealtSets(run, planned, sets, taken))
    return taken.report()


class DealtSets:
    """The archives of a command; see `nbdata.engine.job.dealing.Dealt`.

    Parameters
    ----------
    run : Run
    plan : Plan
    sets : SeveralSets
    taken : Taken
        Gets their reports.
    """

    most = 1

    def __init__(self, run: Run, plan: Plan, sets: SeveralSets, taken: Taken) -> None:
        self._run, self.plan, self._sets, self._taken = run, plan, sets, taken

    def facts(self, rows: list[Row]) -> dict[str, object]:
        """Return what all parts need: the coordinator, its folders and its reservation."""
        return {
            **here(self._run),
            "state": self._run.context.state_dir,
            "reservation": self._run.reservation.name if self._run.reservation is not None else "",
        }

    def rows(self) -> Iterator[Row]:
        """Yield a row for each archive, which holds its plan."""
        for title, folder, _, planned in self._sets.sets:
            detail = {
                "folder": folder,
                "details": planned.details,
                "volumes": list(planned.rows),
                "needed": planned.needed,
                "inodes": planned.inodes,
                "at_least": planned.at_least,
            }
            yield Row(title, "unpack", planned.bytes, detail)

    def begin(self, rows: list[Row]) -> list[Row]:
        """Return the rows: nothing has to be prepared."""
        return rows

    def known(self, path: str) -> Record | None:
        """Return None: the worker reads the records itself."""

    def may_repeat(self, rows: Collection[Row]) -> bool:
        """Return False: the second worker would wait for the first one, which holds the records."""
        return False

    def take(self, rows: Mapping[str, Row], part: PartReport) -> None:
        """Merge the report of an archive."""
        (title,) = rows
        results = self._taken.results
        results.notes += [note for note in part.about if note not in results.notes]
        name = str(part.details.get("rows", ""))
        folder = os.path.join(self._run.folder, name)
        try:
            if part.error is not None:
                if ELSEWHERE in part.error.details:
                    raise part.error
                self._taken.fail(title, part.error)
                return
            if not name.startswith(_ROWS) or "/" in name or part.rows or part.records or part.staged:
                raise NbdataError("a worker reported something else than one archive", path=title)
            report = Report(
                verb="untar_volumes",
                files=part.files,
                bytes=part.bytes,
                present=part.present,
                failures=part.details["failures"],
                notes=part.details["notes"],
                details=part.details["report"],
            )
            report.rows = Rows(0, lambda offset: read_page(os.path.join(folder, _REPORT), offset))
            self._taken.take(title, report, part.details["missed"])
        finally:
            if name.startswith(_ROWS) and "/" not in name:
                with contextlib.suppress(OSError):  # it goes with the folder of the job
                    os.unlink(os.path.join(folder, _REPORT))
                    os.rmdir(folder)


def unpack_part(run: Run, planned: Plan) -> Report:
    """Unpack one archive in a worker.

    Raises
    ------
    NbdataError
        If the worker does not see the coordinator's folders; or the error of the archive.
    """
    op, part, facts = run.operation, run.as_part, planned.details
    assert isinstance(op, UntarVolumes)
    assert part is not None
    (row,) = planned.rows
    with on_this_machine(run, facts):
        return _unpack(run, op, part, row, facts)


def _unpack(run: Run, op: UntarVolumes, part: Part, row: Row, facts: dict[str, Any]) -> Report:
    made = tempfile.mkdtemp(prefix=_ROWS, dir=facts["folder"])
    part.details["rows"] = os.path.basename(made)
    of_set = operation_of(op, row.path, row.detail["folder"])
    run.listed[place_of(of_set)] = place_of(op)
    alone = replace(
        run,
        operation=of_set,
        context=replace(run.context, state_dir=facts["state"]),
        folder=made,
        moving=True,
    )
    alone.kept = target_of(alone, of_set)
    missed = list[str]()
    try:
        with locked(alone), _reserved(alone, row, facts):
            report = unpack_set(alone, _plan_in(row, of_set), unmatched=missed)
    finally:
        alone.close()
    part.details |= {
        "report": report.details,
        "notes": report.notes,
        "failures": report.failures,
        "missed": missed,
    }
    return report


def _plan_in(row: Row, op: UntarVolumes) -> Plan:
    """Return the plan of an archive."""
    planned = Plan("untar_volumes", *op.places(), details=row.detail["details"], needed=row.detail["needed"])
    rows = list(map(Row._make, row.detail["volumes"]))
    planned.rows = Rows(len(rows), lambda _: (rows, None))
    return planned


@contextlib.contextmanager
def _reserved(run: Run, row: Row, facts: dict[str, Any]) -> Iterator[None]:
    """Hold the room that the archive needs, out of what the coordinator has reserved."""
    op, where = run.operation, run.operation.local_target()
    assert isinstance(op, UntarVolumes)
    if where is None:
        yield
        return
    with Ledger().reserve(
        where,
        row.detail["needed"],
        row.detail["inodes"],
        limited_folders(run.context.state_dir, run.context.env),
        force=op.ignore_space,
        less=op.with_less,
        at_least=row.detail["at_least"],
        out_of=facts["reservation"],
    ) as run.reservation:
        yield
