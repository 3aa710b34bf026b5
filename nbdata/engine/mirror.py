"""``--delete``: what a mirror would remove, and when it must not."""

from __future__ import annotations

import os

from nbdata.engine.spool import RowFile
from nbdata.errors import BadOption
from nbdata.report import Plan, Row
from nbdata.stores.local import LocalStore
from nbdata.transfer.index import Index
from nbdata.transfer.selection import glob_filter
from nbdata.verbs.pull import Pull

__all__ = ["plan_local_deletions"]


def plan_local_deletions(op: Pull, root: str, kept: set[str], index: Index, out: Plan, rows: RowFile) -> None:
    """Add to the plan each local file within the filters that the source does not have.

    Raises
    ------
    BadOption
        If that would delete a file which this pull never wrote, unless ``--force``.
    """
    passes = glob_filter(op.include, op.exclude)
    prefix = root.lstrip("/") + "/"
    for info in LocalStore().list(prefix):
        path = info.key[len(prefix) :]
        if path in kept or not passes(path):
            continue
        if not op.force and index.get(path) is None:
            raise BadOption(
                "--delete would delete a file that this pull never wrote",
                path=os.path.join(root, path),
                remedy="Use --force if the whole folder is meant to be a mirror, or a folder of its own",
            )
        out.count("delete", info.size)
        rows.add(Row(path, "delete", info.size, {}))
