"""ls: list a place, with a row for each object and folder."""

from __future__ import annotations

from nbdata.engine.job.run import Run
from nbdata.engine.queries.listed import listed
from nbdata.paths import is_url
from nbdata.redaction import printable
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted, format_size
from nbdata.verbs.listing import Ls, time_text

__all__ = ["perform", "plan"]

# Number of table rows in the report itself.
_SHOWN = 50


def plan(run: Run) -> Plan:
    """Return an empty plan: nothing is moved."""
    del run
    return Plan("ls")


def perform(run: Run, planned: Plan) -> Report:
    """List the place; write rows to the disk as they come."""
    del planned
    op = run.operation
    assert isinstance(op, Ls)
    rows, shown = run.row_file("report"), list[Row]()
    objects = folders = size = unknown = 0
    cut = False
    found = listed(run, op.place, recursive=op.recursive)
    for path, info in found.entries:
        if op.max_files is not None and rows.count >= op.max_files:
            cut = True
            break
        folder = info.size < 0 and path.endswith("/")
        folders += folder
        objects += not folder
        unknown += info.size < 0 and not folder
        size += max(info.size, 0)
        detail: dict[str, object] = {} if info.modified is None else {"modified": info.modified}
        if info.etag and is_url(found.base):  # the ETag of a file is nbdata's own
            detail["etag"] = info.etag
        row = Row(path, "folder" if folder else "object", info.size, detail)
        if rows.count < _SHOWN:
            shown.append(row)
        rows.add(row)
    rows.close()
    report = Report(
        "ls",
        op.place,
        headline=_headline(objects, folders, size),
        details={
            "base": found.base,
            "objects": objects,
            "folders": folders,
            "bytes": size,
            "complete": not cut,
        },
    )
    if shown:
        head = ["size", "modified (UTC)", "name"]
        told = (
            f"the first {len(shown)} of {rows.count:,}; report.rows has all"
            if rows.count > len(shown)
            else ""
        )
        report.tables = [{"caption": told, "head": head, "rows": [_cells(row) for row in shown]}]
    if cut:
        report.notes.append(f"there is more: --max-files {op.max_files} ended the listing")
    if unknown:
        report.notes.append(f"the store does not report the size of {unknown:,} of the objects")
    report.notes += filter(None, [found.note])
    report.rows = rows.rows()
    found.fail(run, report)
    return report


def _headline(objects: int, folders: int, size: int) -> str:
    words = [f"{counted(objects, 'objects')}, {format_size(size)}"] if objects or not folders else []
    return ", ".join([counted(folders, "folders"), *words] if folders else words)


def _cells(row: Row) -> list[str]:
    at = row.detail.get("modified")
    return [
        "–" if row.size < 0 else format_size(row.size),
        "–" if at is None else time_text(at)[:16],
        printable(row.path or "./"),
    ]
