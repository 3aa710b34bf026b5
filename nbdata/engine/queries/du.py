"""du: sum up the bytes and the number of all objects, by folder; `filling` does this for folders of the disk.

A listing gives the keys of a folder consecutively, so only the folders around the current key are open. The row of a
folder is written after its last key, as in the du of Unix.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbdata.engine.job.run import Run
from nbdata.engine.queries.filling import fills, local_folder
from nbdata.engine.queries.listed import listed
from nbdata.redaction import printable
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted, format_size
from nbdata.verbs.listing import Du

__all__ = ["perform", "plan"]

# Number of table rows in the report itself, besides the total.
_SHOWN = 50


def plan(run: Run) -> Plan:
    """Return an empty plan: nothing is moved."""
    del run
    return Plan("du")


@dataclass
class _Folder:
    """A folder whose keys are being listed."""

    name: str
    path: str
    objects: int = 0
    size: int = 0

    def row(self, kind: str = "folder") -> Row:
        return Row(self.path, kind, self.size, {"objects": self.objects})


def perform(run: Run, planned: Plan) -> Report:
    """List everything, and add it up."""
    del planned
    op = run.operation
    assert isinstance(op, Du)
    if (on_disk := local_folder(run, op.place)) is not None:
        return fills(run, op, on_disk)
    rows, shown = run.row_file("report"), list[Row]()
    total, unknown = _Folder("", ""), 0
    around: list[_Folder] = []  # nested, outermost first

    def leave(depth: int) -> None:
        while len(around) > depth:
            row = around.pop().row()
            if rows.count < _SHOWN:
                shown.append(row)
            rows.add(row)

    found = listed(run, op.place, recursive=True)
    for path, info in found.entries:
        names = path.split("/")[:-1][: op.depth]
        same = 0
        while same < min(len(names), len(around)) and names[same] == around[same].name:
            same += 1
        leave(same)
        for name in names[same:]:
            around.append(_Folder(name, f"{around[-1].path if around else ''}{name}/"))
        for folder in (total, *around):
            folder.objects += 1
            folder.size += max(info.size, 0)
        unknown += info.size < 0
    leave(0)
    told = f"the first {len(shown)} of {rows.count:,}; report.rows has all" if rows.count > len(shown) else ""
    rows.add(total.row("total"))
    rows.close()
    said = counted(total.objects, "objects")
    report = Report(
        "du",
        op.place,
        headline=f"{format_size(total.size)} in {said}",
        details={"base": found.base, "objects": total.objects, "bytes": total.size},
    )
    if shown:
        cells = [[format_size(r.size), f"{r.detail['objects']:,}", printable(r.path)] for r in shown]
        last = [format_size(total.size), f"{total.objects:,}", "total"]
        head = ["size", "objects", "folder"]
        report.tables = [{"caption": told, "head": head, "rows": cells, "foot": [last]}]
    if unknown:
        report.notes.append(f"the store does not report the size of {unknown:,} of the objects")
    report.notes += filter(None, [found.note])
    report.rows = rows.rows()
    found.fail(run, report)
    return report
