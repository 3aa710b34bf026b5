"""Plan and perform delete."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from functools import partial

from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.planning.rows import detail_of
from nbdata.errors import BadOption, NbdataError
from nbdata.paths import has_glob
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted, format_size
from nbdata.stores.base import Location
from nbdata.transfer.retry import listing, retrying
from nbdata.transfer.selection import Looked, Selection
from nbdata.transfer.sources import find
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.delete import Delete

__all__ = ["perform", "plan"]

# Objects that one request deletes, in stores that can do that.
_TOGETHER = 1000


def plan(run: Run) -> Plan:
    """List what would be deleted; deletes nothing."""
    op = run.operation
    assert isinstance(op, Delete)
    planned = Plan("delete", op.source)
    found, looked = find(run, op.source), Looked()
    rows = run.row_file("plan")
    for entry in Selection(op).apply(looked.at(found.entries)):
        run.control.checkpoint()
        planned.count("delete", entry.info.size)
        rows.add(Row(entry.path, "delete", entry.info.size, detail_of(entry.info)))
    rows.close()
    planned.rows = rows.rows()
    if not planned.actions and (why := Selection(op).none_left(looked)):
        planned.notes.append(why)
    # What stands for folders goes with all that is in them.
    whole = found.single is None and not Selection(op).given and not has_glob(op.source)
    run.kept = found.location if whole else None
    return planned


def perform(run: Run, planned: Plan) -> Report:
    """Delete the planned objects, a thousand at a time.

    Raises
    ------
    BadOption
        Without ``--yes``; nothing is deleted then.
    """
    op = run.operation
    assert isinstance(op, Delete)
    results = Results(run)
    results.notes.extend(planned.notes)
    rows = planned.rows
    if len(rows) and not op.yes:
        size = sum(max(row.size, 0) for row in rows)
        raise BadOption(
            f"this would delete {counted(len(rows), 'objects')} ({format_size(size)}); nothing was deleted",
            path=op.source,
            remedy="Look at --dry-run, and add --yes",
        )
    store = run.open(op.source).store if len(rows) else None

    def delete(some: list[Row]) -> None:
        assert store is not None
        try:
            retrying(run.control, lambda: store.delete([row.detail["key"] for row in some]))
        except NbdataError as error:
            if len(some) == 1:
                results.fail(some[0].path, error, outcome=Outcome.NOT_DELETED, size=some[0].size)
                return
            for row in some:  # one by one: the others go, and the error names the one that does not
                run.control.checkpoint()
                delete([row])
            return
        for row in some:
            results.add(row.path, Outcome.DELETED, row.size)

    run_units(run.control, (partial(delete, some) for some in _batches(iter(rows))), workers=op.concurrency)
    if isinstance(run.kept, Location) and len(rows) and not results.failures:
        _remove_folders(run, run.kept, {row.detail["key"].rpartition("/")[0] for row in rows})
    report = results.report()
    gone = sum(max(row.size, 0) for row in report.rows if row.action == Outcome.DELETED)
    if report.counts.get(Outcome.DELETED):
        report.headline = f"{counted(report.counts[Outcome.DELETED], 'objects')} deleted, {format_size(gone)}"
    return report


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(itertools.islice(rows, _TOGETHER)):
        yield batch


def _remove_folders(run: Run, location: Location, folders: set[str]) -> None:
    """Remove the folders that are empty now; in stores without folders, the objects that stand for them."""
    store = location.store
    if store.flat:
        markers = (
            info.key
            for info in listing(run.control, store, location.key)
            if info.key.endswith("/") and info.size <= 0
        )
        while some := list(itertools.islice(markers, _TOGETHER)):
            retrying(run.control, lambda some=some: store.delete(some))  # type: ignore[misc]
        return
    for folder in _with_those_above(folders, location.key.rstrip("/")):
        run.control.checkpoint()
        with contextlib.suppress(NbdataError, OSError):  # something is in it
            store.remove_folder(folder)


def _with_those_above(folders: set[str], top: str) -> Iterator[str]:
    """Yield folders, and those above them up to `top`, with a slash: each once, and after all that are in it."""
    ordered = sorted((f"{folder}/" for folder in folders if folder), reverse=True)
    for number, folder in enumerate(ordered):
        following = ordered[number + 1] if number + 1 < len(ordered) else ""
        while folder.startswith(top) and not following.startswith(folder):
            yield folder
            above = folder[:-1].rpartition("/")[0]
            if not above:
                break
            folder = f"{above}/"
