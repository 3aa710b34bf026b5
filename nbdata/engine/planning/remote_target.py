"""A target in a store: its keys, its existing objects, and the deletions of a mirror."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.planning.existing_objects import ExistingObjects
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound
from nbdata.paths import is_ours
from nbdata.redaction import redacted
from nbdata.report import Plan, Row
from nbdata.sizes import counted
from nbdata.stores.base import Location, ObjectInfo
from nbdata.transfer.index import Index
from nbdata.transfer.part_records import validator
from nbdata.transfer.retry import listing, retrying
from nbdata.transfer.selection import Filters
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.options import Mirroring

__all__ = [
    "delete_planned",
    "existing_objects",
    "is_another",
    "is_text",
    "key_at",
    "name_at",
    "plan_deletions",
]


def name_at(target: Location, only: str, *, mirror: bool) -> str:
    """Return the key of a single object; empty for many objects, or if all objects in the folder matter.

    Parameters
    ----------
    only : str
        The name of the single object, or empty.
    mirror : bool
        Whether other objects in the folder are deleted.
    """
    if not only:
        return ""
    if target.is_folder or target.store.is_folder(target.key + "/"):
        return "" if mirror else key_at(target, only)
    return target.key


def _prefix(target: Location) -> str:
    # Two slashes at the end are an empty name, as in a pull.
    return target.key if not target.key or target.key.endswith("/") else target.key + "/"


def key_at(target: Location, path: str) -> str:
    """Return the key of a relative path."""
    return _prefix(target) + path


def is_text(key: str) -> bool:
    """True if a name is UTF-8, as keys must be: names on a disk may hold any bytes."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def existing_objects(
    run: Run, target: Location, name: str, *, overwrite: str, delete: bool
) -> ExistingObjects:
    """List the existing objects at the target."""
    if target.store.read_only:
        raise BadOption(
            "the target is read-only",
            path=target.place,
            remedy="Write to a store, by its own protocol: s3://, gs://, az:// …",
        )
    nothing = overwrite == "always" and not delete
    return ExistingObjects(run.folder, () if nothing else _listed(run, target, name))


def _listed(run: Run, target: Location, name: str) -> Iterator[ObjectInfo]:
    try:
        if name:
            yield retrying(run.control, lambda: target.store.head(name))
        else:
            yield from listing(run.control, target.store, _prefix(target))
    except NotFound as error:
        if error.details.get("bucket"):
            raise
        if name and target.store.flat:
            # Only a listing shows a missing bucket, but not everyone who may write may list.
            with contextlib.suppress(AccessDenied):
                next(listing(run.control, target.store, name), None)


def plan_deletions(
    run: Run,
    target: Location,
    remote: ExistingObjects,
    index: Index,
    out: Plan,
    add: Callable[[Row], None],
    *,
    spared: Callable[[str], bool] | None = None,
    pulled: Index | None = None,
) -> None:
    """Add to the plan each object within the filters that the source lacks.

    Parameters
    ----------
    remote : ExistingObjects
        The existing objects, without those to keep.
    spared : callable, optional
        Returns whether the source's contents at a relative path are unknown, so that the object stays.
    pulled : Index, optional
        The records of a pull of the target into the source: what was pulled may be deleted as what was written.

    Raises
    ------
    BadOption
        If that would delete an object that this command never wrote, or that was changed since, unless ``--force``.
    """
    op = run.operation
    assert isinstance(op, Mirroring)
    passes = Filters(op).passes
    stay = 0
    for info in remote.others():
        key = info.key
        path = key[len(_prefix(target)) :]
        marker = key.endswith("/") and info.size <= 0  # a console's marker for a folder is not data
        if marker or is_ours(path) or not passes(path):
            continue
        if spared is not None and spared(path):
            stay += 1
            continue
        records = [index.get(path), None if pulled is None else pulled.get(path)]
        # Not of an object that was only compared with the source: another program wrote it.
        tags = [record.tag.rpartition("\n")[2] for record in records if record is not None and record.ours]
        # A store that tells no versions leaves its records without tags, as a killed run does.
        changed = bool(tags) and bool(validator(info)) and validator(info) not in tags
        if not op.force and (changed or not tags):
            what = "was changed in the store since then" if changed else f"this {op.verb} never wrote"
            raise BadOption(
                f"--delete would delete an object that {what}",
                path=f"{redacted(out.target).rstrip('/')}/{path}",
                remedy="Use --force if the whole prefix is meant to be a mirror, or a prefix of its own",
            )
        out.count("delete", info.size)
        add(Row(path, "delete", info.size, detail_of(info)))
    if stay:
        out.notes.append(f"not deleted: {counted(stay, 'objects')} at or below what was left out")


def delete_planned(
    run: Run, planned: Plan, target: Location, index: Index, results: Results, moved: str
) -> None:
    """Delete the planned objects that did not change, only if everything else succeeded.

    `moved` is the verb's word for that.
    """
    if results.failures:
        results.notes.append(f"nothing was deleted, because not everything was {moved}")
        return
    op = run.operation
    assert isinstance(op, Mirroring)

    def delete(row: Row) -> None:
        key = row.detail["key"]
        if not op.force and _is_changed(run, target, info_of(row)):
            changed = NbdataError("changed since the plan was made, so it was not deleted", path=key)
            results.fail(row.path, changed, outcome=Outcome.NOT_DELETED, size=row.size)
            return
        retrying(run.control, lambda: target.store.delete([key]))
        index.put({row.path: None})
        results.add(row.path, Outcome.DELETED, row.size)

    deletions = (partial(delete, row) for row in planned.rows if row.action == "delete")
    run_units(run.control, deletions, workers=op.concurrency)


def _is_changed(run: Run, target: Location, listed: ObjectInfo) -> bool:
    """Whether an object is another one than was listed: a plan may be hours old when its deletions begin."""
    try:
        return is_another(retrying(run.control, lambda: target.store.head(listed.key)), listed)
    except (NotFound, AccessDenied):  # gone already; or this user may list and delete, but not read
        return False


def is_another(answered: ObjectInfo, listed: ObjectInfo) -> bool:
    """True if an answer and a listing show different versions; some listings have no ETags."""
    if 0 <= answered.size != listed.size >= 0:
        return True
    pairs = [
        (answered.version, listed.version),
        (answered.etag.strip('"'), listed.etag.strip('"')),
        (answered.modified and int(answered.modified), listed.modified and int(listed.modified)),
    ]
    return next((ours != theirs for ours, theirs in pairs if ours and theirs), False)
