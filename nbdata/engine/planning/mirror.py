"""``--delete`` on the disk: which files a mirror would remove, when it must refuse, and the removal."""

from __future__ import annotations

import contextlib
import os
from functools import partial

from nbdata.disk import disk_error, sync_folder
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.job.spool import RowFile
from nbdata.engine.planning.left_out import LeftOut
from nbdata.errors import BadOption, NbdataError, UnsafeMember
from nbdata.guarded_folders import GuardedFolders
from nbdata.report import Plan, Row
from nbdata.sizes import counted
from nbdata.stores.local import LocalStore
from nbdata.transfer.index import Index
from nbdata.transfer.names import decoded
from nbdata.transfer.selection import Filters
from nbdata.verbs.pull import Pull

__all__ = ["delete_planned", "looks", "plan_local_deletions"]


def plan_local_deletions(
    op: Pull, root: str, kept: set[str], index: Index, out: Plan, rows: RowFile, left_out: LeftOut
) -> list[str]:
    """Add to the plan each local file within the filters that the source lacks.

    Files at or below the names of what was left out of the source stay, and the returned notes tell so.

    Raises
    ------
    BadOption
        If that would delete a file that this pull never wrote or that was edited since, unless ``--force``. A file
        that was only compared is not written: its record is not `Record.ours`.
    """
    passes = Filters(op).passes
    prefix = root.lstrip("/") + "/"
    prefix_path = "/" + prefix
    stay = 0
    for info in LocalStore().list(prefix):
        path = info.key[len(prefix) :]
        if path in kept or not passes(path):
            continue
        try:
            status = os.lstat(prefix_path + path)
        except (FileNotFoundError, NotADirectoryError):  # deleted since it was listed
            continue
        if left_out.covers(decoded(path) if op.encode_names else path):
            stay += 1
            continue
        record = None if op.force else index.get(path)
        written = record is not None and record.ours
        edited = record is not None and not record.local_same(status)
        if not op.force and (edited or not written):
            what = "was edited here since it was pulled" if written else "this pull never wrote"
            raise BadOption(
                f"--delete would delete a file that {what}",
                path=os.path.join(root, path),
                remedy="Use --force if the whole folder is meant to be a mirror, or a folder of its own",
            )
        out.count("delete", info.size)
        rows.add(Row(path, "delete", info.size, {"looks": looks(status)}))
    spared = [f"not deleted: {counted(stay, 'files')} at or below what was left out"] if stay else []
    return [*left_out.notes(folders=False), *spared]


def looks(status: os.stat_result) -> list[int]:
    """Return the inode, size and times of a file: they differ once it was edited or replaced, hours after the plan."""
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _may_go(force: bool, row: Row, status: os.stat_result) -> bool:
    return force or looks(status) == row.detail["looks"]


def delete_planned(run: Run, planned: Plan, root: str, index: Index, results: Results) -> None:
    """Delete the planned files that look as they did, only if everything else succeeded."""
    assert isinstance(run.operation, Pull)
    if results.failures:
        results.notes.append("nothing was deleted, because not everything was fetched")
        return
    gone: list[str] = []
    folders = GuardedFolders(root, opened=run.folders)
    try:
        for row in planned.rows:
            if row.action == "delete":
                run.control.checkpoint()
                path = os.path.join(root, row.path)
                try:
                    if not folders.unlink(path, partial(_may_go, run.operation.force, row)):
                        changed = NbdataError(
                            "changed since the plan was made, so it was not deleted", path=path
                        )
                        results.fail(row.path, changed, outcome=Outcome.NOT_DELETED, size=row.size)
                        continue
                except FileNotFoundError:
                    pass
                except UnsafeMember as error:
                    results.fail(row.path, error, outcome=Outcome.NOT_DELETED, size=row.size)
                    continue
                except OSError as error:
                    results.fail(row.path, disk_error(error, row.path))
                    continue
                gone.append(row.path)
                results.add(row.path, Outcome.DELETED, row.size)
    finally:
        # Sync first: a file that came back without a record would count as not ours, and never be deleted.
        for folder in {os.path.dirname(os.path.join(root, path)) for path in gone}:
            with contextlib.suppress(OSError):  # the folder is gone itself
                sync_folder(folder)
        index.put(dict.fromkeys(gone))
