"""``md5check --repair``: pull wrong or missing files again from another place, and check them once more.

It is a pull like any other, into the same place: existing parts are used, room is reserved before any byte is
fetched, and a file is replaced only by a complete one. The bytes are compared with the checksum that the check expects,
instead of the source's checksum. So a wrong copy never replaces another.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable
from functools import partial

from nbdata.engine.check.rows import CheckRow
from nbdata.engine.job.run import Run
from nbdata.engine.pull.perform import FETCHED, perform
from nbdata.engine.pull.plan import plan_of
from nbdata.errors import AccessDenied, NotFound
from nbdata.redaction import redacted
from nbdata.report import Plan, Row
from nbdata.stores.base import Location, ObjectInfo, Store
from nbdata.transfer.reader import Check
from nbdata.transfer.retry import retrying, told_part_size
from nbdata.transfer.selection import Entry
from nbdata.transfer.sources import Found
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.md5check import Md5check
from nbdata.verbs.options import Fetching, Storing
from nbdata.verbs.pull import Pull
from nbdata.verification.checker import check_for, digest_check, of_parts, stored_checksum

__all__ = ["Repair"]


class Repair:
    """The pull of the files that a check found wrong.

    Parameters
    ----------
    run : Run
        The run of the check.
    op : Md5check
    other : Store
        The store of the objects that files are compared with, if any.
    root, single : str
        The local folder of PATH, and the name of the file there if PATH is a file.
    wrong : iterable of Row
        The files with their expected checksums.

    Attributes
    ----------
    reasons : dict of str to str
        Why a file cannot be or was not fetched again.
    """

    def __init__(
        self, run: Run, op: Md5check, other: Store, root: str, single: str, wrong: Iterable[Row]
    ) -> None:
        assert op.repair is not None
        self._check, self._op, self._other = run, op, other
        self.place = redacted(op.repair)
        self.rows = {row.path: CheckRow.of(row) for row in wrong}
        self.reasons: dict[str, str] = {}
        self._by_key: dict[str, CheckRow] = {}
        objects = self._find(op.repair, single)
        source = op.repair if objects.single is not None else op.repair.rstrip("/") + "/"
        target = os.path.join(root, single) if objects.single is not None else root.rstrip("/") + "/"
        operation = Pull(
            source=source,
            target=target,
            overwrite="always",
            **{**op.options_in(Fetching, Storing), "on_error": "report"},
        )
        folder = os.path.join(run.folder, "repair")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._run = Run(
            operation,
            run.context,
            run.control,
            folder,
            run.bindings,
            reservation=run.reservation,
            only_plan=run.only_plan,
            folders=run.folders,
        )
        try:
            self.plan: Plan = plan_of(self._run, objects)
        finally:
            self._run.close()
        for row in self.plan.rows:
            if row.action not in ("fetch", "overwrite"):
                self.reasons[row.path] = row.detail.get("reason", row.action)

    # -- where they come from -------------------------------------------------------------------

    def _find(self, source: str, single: str) -> Found:
        """Look up the objects of the wrong files one by one: they are few, even in a large data set."""
        location = self._check.open(source)
        store, prefix = location.store, location.key
        if single and not location.is_folder and (info := self._head(store, prefix, single)) is not None:
            self._by_key[info.key] = self.rows[single]
            return Found(location, info, iter([Entry(posixpath.basename(info.key), info)]))
        prefix = prefix if location.is_folder else prefix + "/"
        objects: dict[str, ObjectInfo] = {}

        def ask(path: str) -> None:
            info = self._head(store, prefix + path, path)
            if info is not None:
                objects[path] = info
                self._by_key[info.key] = self.rows[path]

        run_units(
            self._check.control,
            (partial(ask, path) for path in sorted(self.rows)),
            workers=self._op.concurrency,
        )
        folder = Location(store, prefix, location.place.rstrip("/") + "/")
        return Found(folder, None, iter([Entry(path, objects[path]) for path in sorted(objects)]))

    def _head(self, store: Store, key: str, path: str) -> ObjectInfo | None:
        try:
            return retrying(self._check.control, lambda: store.head(key))
        except (NotFound, AccessDenied) as error:
            if isinstance(error, NotFound) and error.details.get("bucket"):
                raise
            self.reasons[path] = (
                f"{self.place} does not have it"
                if isinstance(error, NotFound)
                else f"{self.place}: {error.message}"
            )
            return None

    # -- doing it -------------------------------------------------------------------------------

    def perform(self) -> None:
        """Fetch the files; `reasons` then names those that were not fetched.

        Raises
        ------
        NotEnoughSpace
            If they do not fit; then nothing was fetched.
        """
        if not self.plan.files:
            return
        if self._run.reservation is not None and not self._op.ignore_space:
            self._run.reservation.grow(self.plan.needed)
        self._check.control.expect_more(files=self.plan.files, bytes=2 * self.plan.bytes)
        self._check.control.phase(f"pulls {self.plan.files:,} again")
        try:
            report = perform(self._run, self.plan, promised=self._promised)
        finally:
            self._run.close()
        for row in report.rows:
            if row.action not in FETCHED:
                self.reasons[row.path] = row.detail.get("reason", row.action)

    def _promised(self, info: ObjectInfo) -> Check:
        row = self._by_key[info.key]
        if row.expected is not None:
            return digest_check(info, row.expected.algorithm, row.expected.digest)
        promised = row.promised
        assert promised is not None
        described = retrying(self._check.control, lambda: self._other.head(promised.key))
        part_size = None
        if (
            stored_checksum(described, self._op.algorithm) is None
            and of_parts(described, self._op.algorithm) is not None
        ):
            part_size = told_part_size(self._check.control, self._other, described)
        return check_for(described, self._op.algorithm, part_size)
