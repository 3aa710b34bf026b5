"""push: what its parts share while it is performed: options, store, index, and what becomes of a file that was sent."""

from __future__ import annotations

import os
import stat
import threading

from nbdata.engine.job.run import Outcome, Run
from nbdata.engine.push.listed_file import differs
from nbdata.engine.push.plan import identity_of
from nbdata.report import Plan, Row
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator
from nbdata.transfer.pool import Crew
from nbdata.verbs.push import Push

__all__ = ["Pushing"]


class Pushing:
    """One push."""

    def __init__(self, run: Run, planned: Plan) -> None:
        assert isinstance(run.operation, Push)
        self.run, self.op, self.plan = run, run.operation, planned
        self.outcome = Outcome(run)
        self.outcome.notes.extend(planned.details["left_out"] if planned.actions else planned.notes)
        self.identity = identity_of(planned.details["root"])
        self.index = run.index(self.op.source, self.op.target, self.identity)
        self.target = run.open(self.op.target)
        self.crew = Crew(run.control, self.op.concurrency, typical=planned.typical, sends=True)
        self._unverified = 0
        self._kept: dict[str, int] = {}  # reasons for which sources were not deleted
        self._lock = threading.Lock()

    def announce(self, row: Row, before: os.stat_result) -> None:
        """Note that an object is about to be another: else a file that was sent just before the end would look as if
        somebody had changed the object.
        """
        self.index.announce({row.path: ""}, {row.path: before})

    def sent(self, row: Row, before: os.stat_result, info: ObjectInfo, verified: bool) -> None:
        """The object of a file is there: record it, and do what is asked for about the file."""
        self.index.put({row.path: Record.of(validator(info), row.size, before)})
        self.outcome.add(row.path, "sent", row.size, moved=True, verified=verified)
        self.run.control.advance(files=1)
        self._unverified += not verified
        if self.run.reservation is not None:
            self.run.reservation.landed(row.size, 1)
        if self.op.delete_source:
            self.delete_source(row, before, verified)

    def delete_source(self, row: Row, before: os.stat_result, verified: bool) -> None:
        """Delete a file, if the target is known to have it and nobody has changed it meanwhile."""
        path = row.detail["file"]
        if not verified:
            self._keep("the upload could not be verified")
            return
        try:
            now = os.lstat(path)
            same = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino) and not differs(now, before)
            if stat.S_ISLNK(now.st_mode):
                self._keep("links; neither they nor what they lead to is deleted")
            elif same:
                os.unlink(path)
            else:
                self._keep("changed after it was sent")
        except FileNotFoundError:
            return
        except OSError as error:
            self._keep(f"cannot be deleted ({os.strerror(error.errno or 0)})")

    def _keep(self, reason: str) -> None:
        with self._lock:
            self._kept[reason] = self._kept.get(reason, 0) + 1

    def note(self) -> None:
        """Say of all what was kept, and what could not be verified or remembered."""
        if self.op.delete_source and (same := self.plan.actions.get("unchanged", [0])[0]):
            self._kept["the target has them unchanged, as far as can be told without a checksum"] = same
        self.outcome.notes += [f"{count:,} kept: {reason}" for reason, count in self._kept.items()]
        if self._unverified and self.op.verify != "none":
            self.outcome.notes.append(
                f"{self._unverified:,} could not be verified: the store answered no checksum"
            )
        self.outcome.notes += filter(None, [self.index.problem])
