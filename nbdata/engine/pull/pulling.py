"""pull: what its parts share while it is performed: options, store, target, and the books of what is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable

from nbdata.engine.job.run import Outcome, Run
from nbdata.engine.planning.growing_space import GrowingSpace
from nbdata.engine.planning.sources import folder_part
from nbdata.engine.pull.plan import identity_of
from nbdata.report import Plan
from nbdata.space.limits import disk_of
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.index import Record
from nbdata.transfer.landing import Landed, Landing
from nbdata.transfer.part_records import NOTED, PART, Begun
from nbdata.transfer.partials import Partial
from nbdata.transfer.pool import Crew
from nbdata.transfer.reader import Check
from nbdata.verbs.pull import Pull
from nbdata.verification.verify import Judge

__all__ = ["FETCHED", "Pulling"]

#: What is told of an object that was fetched, and of one that took the place of what was edited here.
FETCHED = ("fetched", "overwritten (edited here)")


class Pulling:
    """One pull.

    Parameters
    ----------
    run : Run
    planned : Plan
    promised : callable, optional
        See `nbdata.engine.pull.perform.perform`.

    Attributes
    ----------
    landing : Landing
        Entered by who performs the pull.
    begun : Begun
        What was begun in its target; from then on.
    claimed : dict of str to int
        By path, bytes that are reserved for a file that is under way.
    verified : dict of str to bool
        The same: whether its bytes were compared with something.
    present : dict of str to int
        The same: bytes that an earlier run had fetched.
    edited : set of str
        The same: those that take the place of what somebody edited here.
    replaced : set of str
        The same: those that were compared with what stood there, and found to differ.
    """

    begun: Begun

    def __init__(
        self, run: Run, planned: Plan, promised: Callable[[ObjectInfo], Check] | None = None
    ) -> None:
        assert isinstance(run.operation, Pull)
        self.run, self.op, self.plan, self.promised = run, run.operation, planned, promised
        self.root: str = planned.details["root"]
        self.outcome = Outcome(run)
        if not planned.actions:
            self.outcome.notes.extend(planned.notes)
        self.index = run.index(self.op.source, self.root, identity_of(self.root))
        self.store = run.open(folder_part(self.op.source)).store
        self.space = GrowingSpace(run, disk_of(self.root)[2], 0)
        self.crew = Crew(run.control, self.op.concurrency, typical=planned.typical)
        self.landing = Landing(
            self.root,
            run.control,
            umask=run.context.umask,
            landed=self._landed,
            landing=lambda batch: self.index.announce({file.path: file.tag for file in batch}),
            made=self._folder_made,
            # Of a part that is under way a kill loses what was not noted yet, beside that.
            most=lambda: self.crew.wanted * (PART - NOTED),
        )
        self.claimed: dict[str, int] = {}
        self.verified: dict[str, bool] = {}
        self.present: dict[str, int] = {}
        self.replaced: set[str] = set()
        self.edited: set[str] = set()
        self._lock = threading.Lock()
        self._unguarded = self._unverified = 0

    def check(self, info: ObjectInfo) -> Check:
        """Of an object in one piece, or by what somebody promised."""
        return self.promised(info) if self.promised is not None else self.judge(info).check()

    def judge(self, info: ObjectInfo) -> Judge:
        """What its store vouches for."""
        return Judge(self.run.control, self.store, info, self.op.verify)

    def anew(self, path: str) -> None:
        """Tell that what was begun of an object is of no use."""
        self.outcome.notes.append(f"{path}: the source changed since it was begun, so it was fetched anew")

    def failed(self, path: str, error: Exception) -> None:
        """An object that was under way will not land."""
        self.claimed.pop(path, None)
        self.verified.pop(path, None)
        self.replaced.discard(path)
        self.edited.discard(path)
        self.outcome.fail(path, error)

    def part_landed(self, path: str, size: int) -> None:
        """So many bytes of a big object are on the disk: room for them is no longer to be kept, while they use it."""
        with self._lock:
            size = min(size, self.claimed[path])
            self.claimed[path] -= size
        if self.run.reservation is not None:
            self.run.reservation.landed(size)

    def _folder_made(self) -> None:
        """An inode that the disk shows as used now need not be kept for it any more."""
        if self.run.reservation is not None:
            self.run.reservation.landed(0, made=1)

    def _landed(self, batch: list[Landed]) -> None:
        """From the committing thread: these are durable under their final names."""
        records: dict[str, Record | None] = {}
        for file in batch:
            if file.error is None and file.stat is not None:
                records[file.path] = Record.of(file.tag, file.size, file.stat)
        if records:
            self.index.put(records)
        for file in batch:
            if file.error is not None:
                self.outcome.fail(file.path, file.error)
                continue
            if file.synced:  # a big one: its record of parts is of no more use
                Partial.forget_record(file.temporary)
            verified = self.verified.pop(file.path, False)
            self._unverified += not verified
            told = FETCHED[file.path in self.edited]
            self.edited.discard(file.path)
            self.outcome.add(file.path, told, file.size, moved=True, verified=verified)
            self.outcome.present += self.present.pop(file.path, 0)
            self._unguarded += not file.tag
            self.run.control.advance(files=1)
            if self.run.reservation is not None:
                replaced = file.path in self.replaced  # and no inode was planned for it
                self.run.reservation.landed(self.claimed.pop(file.path, 0), 1, made=int(not replaced))
                self.replaced.discard(file.path)

    def note(self) -> None:
        """Say of all what could not be guarded, verified or remembered."""
        if self._unguarded:
            self.outcome.notes.append(
                f"{self._unguarded:,} came unguarded: the store tells neither version, ETag nor time of them, so a "
                "change would not show"
            )
        if self._unverified and self.op.verify != "none":
            self.outcome.notes.append(
                f"{self._unverified:,} could not be verified: the store vouches for no checksum"
            )
        self.outcome.notes += filter(None, [self.index.problem])
