"""Plan and perform copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from nbdata.engine.copy.copier import Copier
from nbdata.engine.copy.ends import Copied, Ends
from nbdata.engine.job.dealing import PartReport
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.planning.both_ends import both_ends
from nbdata.engine.planning.decide import copied, decide_copy
from nbdata.engine.planning.remote_target import (
    delete_planned,
    existing_objects,
    key_at,
    name_at,
    plan_deletions,
)
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.errors import BadOption, NbdataError
from nbdata.paths import glob_base, is_ours
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.http.servers import servers_of
from nbdata.transfer.index import Index
from nbdata.transfer.names import unrepresentable
from nbdata.transfer.selection import Entry, Looked, Selection
from nbdata.transfer.sources import Found, find
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.copy import Copy

__all__ = ["perform", "plan"]

_MOVES = ("copy", "overwrite")
# Records of a copy belong to no local folder.
_NOWHERE = (0, 0)


@dataclass(slots=True, eq=False)
class CopyRow:
    """One object in the plan of a copy.

    Attributes
    ----------
    path : str
        Relative to the source.
    action : str
        See `nbdata.engine.planning.decide`.
    info : ObjectInfo
        The listed object.
    target : str
        Its key at the target.
    reason : str
        Why it is not copied, or ''.
    announced : bool
        Whether it is recorded that the object at the target is being replaced.
    """

    path: str
    action: str
    info: ObjectInfo
    target: str
    reason: str = ""
    announced: bool = False

    def row(self) -> Row:
        """Convert to a row of the plan."""
        detail = detail_of(self.info) | {"target": self.target}
        if self.reason:
            detail["reason"] = self.reason
        return Row(self.path, self.action, self.info.size, detail)

    @classmethod
    def of(cls, row: Row) -> CopyRow:
        """Convert from a row of the plan."""
        return cls(row.path, row.action, info_of(row), row.detail["target"])


def plan(run: Run) -> Plan:
    """Decide for each selected object; reads both listings and the index, writes nothing."""
    op = run.operation
    assert isinstance(op, Copy)
    at_source, at_target = both_ends(run)
    found = find(at_source, op.source)
    target = at_target.open(op.target)
    only = found.single.key.rpartition("/")[2] if found.single is not None else ""
    name = name_at(target, only, mirror=op.delete)
    source_objects = _SourceObjects(found, target, name, mirror=op.delete)
    remote = existing_objects(at_target, target, name, overwrite=op.overwrite, delete=op.delete)
    servers = servers_of([found.location.store], [target.store])
    index = run.index(op.source, op.target, _NOWHERE, servers)
    out = Plan("copy", *op.places())
    rows = run.row_file("plan")
    looked = Looked()
    for entry in Selection(op).apply(looked.at(source_objects.entries())):
        key = name or key_at(target, entry.path)
        item = CopyRow(entry.path, "unrepresentable", entry.info, key, _unfit(target, entry.path) or "")
        there = remote.get(key)
        if op.delete:
            remote.keep(key)
        if not item.reason:
            item.action, item.reason, _ = decide_copy(
                entry.info, there, index.get(entry.path), overwrite=op.overwrite, size_only=op.size_only
            )
        if item.action in _MOVES:
            out.files += 1
            out.bytes += max(entry.info.size, 0)
        out.count(item.action, entry.info.size)
        rows.add(item.row())
    if op.delete:
        plan_deletions(run, target, remote, index, out, rows.add)
    if source_objects.left_out:
        out.notes.append(
            f"{counted(source_objects.left_out, 'objects', 'lie')} in the target itself and are left out"
        )
    if not out.actions and (why := Selection(op).none_left(looked)):
        out.notes.append(why)
        out.empty = True
    rows.close()
    out.rows = rows.rows()
    return out


class _SourceObjects:
    """The objects of the source, without a target inside it: else each run would copy the output of the last."""

    def __init__(self, found: Found, target: Location, name: str, *, mirror: bool) -> None:
        self._found, self._inside = found, ""
        self.left_out = 0
        if not target.store.same_objects(found.location.store):
            return
        prefix = key_at(target, "")
        if found.single is not None:
            here, there = found.single.key, name or prefix + found.single.key.rpartition("/")[2]
        else:
            here, there = found.location.key, prefix
        if here == there:
            raise BadOption("source and target are the same", path=target.place, remedy="Name another target")
        if mirror and not name and here.startswith(prefix):
            raise BadOption(
                "--delete would delete the source, which lies in the target",
                path=target.place,
                remedy="Name a target beside the source, or leave out --delete",
            )
        if found.single is None and prefix.startswith(here):
            self._inside = prefix

    def entries(self) -> Iterator[Entry]:
        """Yield the entries to select from."""
        for entry in self._found.entries:
            if self._inside and entry.info.key.startswith(self._inside):
                self.left_out += 1
            else:
                yield entry


def _unfit(target: Location, path: str) -> str | None:
    """The reason why an object cannot be in the target, or None."""
    if is_ours(path):
        return "lies below .nbdata, nbdata's own folder"
    return (target.store.unfit(path) or None) if target.store.flat else unrepresentable(path)


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    return _Copying(run, planned).run_all()


class _Copying:
    """Performs one copy."""

    def __init__(self, run: Run, planned: Plan) -> None:
        assert isinstance(run.operation, Copy)
        self.run, self.op, self.plan = run, run.operation, planned
        self.results = Results(run)
        self.results.notes.extend(planned.notes)
        at_source, at_target = both_ends(run)
        self.target = at_target.open(self.op.target)
        self.uploads = BegunUploads(at_target, self.op.target, self.target.store)
        source = at_source.open(glob_base(self.op.source)).store
        servers = servers_of([source], [self.target.store])
        self.index = run.index(self.op.source, self.op.target, _NOWHERE, servers)
        self.ends = Ends(run.control, self.op, source, self.target.store, self.uploads)
        self.copier = Copier(self.ends)
        self.results.sum("by_store", 0)

    def run_all(self) -> Report:
        self.index.open(_NOWHERE, needed=False)
        try:
            if self.run.dealer is not None:
                self.run.dealer.deal(_DealtCopy(self.run, self.plan, self.results, self.index))
            else:
                run_units(self.run.control, self._units(), workers=self.op.concurrency)
            if self.op.delete:
                delete_planned(self.run, self.plan, self.target, self.index, self.results, "copied")
        finally:
            self.uploads.close()
            self.index.close()
        self.results.notes += filter(None, [*self.ends.notes, self.index.problem])
        return self.results.report()

    def _units(self) -> Iterator[Callable[[], None]]:
        """Yield the work for all objects."""
        for row in self.plan.rows:
            if row.action in _MOVES:
                item = CopyRow.of(row)
                yield from (partial(self._announced, item, unit) for unit in self._copy(item))
            else:
                self.results.left(row)

    def _copy(self, item: CopyRow) -> Iterator[Callable[[], None]]:
        """Yield the work for one object."""
        try:
            parts = self.copier.in_parts(item.info, item.target)
        except (NbdataError, OSError) as error:
            self.results.fail(item.path, error)
            return
        if parts is None:
            yield partial(self._end, item, partial(self.copier.whole, item.info, item.target))
        else:
            yield from parts.sending.units(partial(self._end, item, parts.finish))

    def _end(self, item: CopyRow, finish: Callable[[], Copied]) -> None:
        try:
            made = finish()
        except Exception as error:
            self.results.fail(item.path, error)
        else:
            self._done(item, made)

    def _announced(self, item: CopyRow, unit: Callable[[], None]) -> None:
        """Record that an object is being replaced, and then do that.

        Without it, a copy that was killed before its record would look as if both objects had been changed.
        """
        if not item.announced:
            self.index.announce({item.path: ""})
            item.announced = True
        unit()

    def _done(self, item: CopyRow, made: Copied) -> None:
        self.index.put({item.path: copied(item.info, made.info)})
        by = "store" if made.by_store else "stream"
        self.results.add(
            item.path, Outcome.COPIED, item.info.size, moved=True, verified=not made.unproven, by=by
        )
        self.run.control.advance(files=1)
        self.results.sum("by_store", made.by_store)
        if made.unproven and self.op.verify != "none":
            self.results.tally(f"could not be verified: {made.unproven}")


class _DealtCopy(DealtPlan):
    """The objects of a copy that the workers of a cluster copy."""

    def __init__(self, run: Run, plan: Plan, results: Results, index: Index) -> None:
        super().__init__(run, plan, results, _MOVES)
        self.index = index

    def begin(self, rows: list[Row]) -> list[Row]:
        self.index.announce({row.path: "" for row in rows})
        return rows

    def record(self, rows: Mapping[str, Row], part: PartReport) -> None:
        self.index.put(part.records)
