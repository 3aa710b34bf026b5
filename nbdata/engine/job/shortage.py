"""Handles a disk that fills while a job runs: a foreground job fails with the numbers, a background job waits for room.

A waiting job gives its reservation and its lock back, so that others can make room. It starts again when the rest of
its work fits: verbs resume when they are run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from nbdata.disk import NO_INODES, QUOTA
from nbdata.engine.job.run import Run
from nbdata.engine.job.task import Task
from nbdata.errors import ROOM_THEN_AGAIN, NbdataError, NotEnoughSpace
from nbdata.paths import is_inside
from nbdata.report import Plan
from nbdata.runtime import runtime_folder
from nbdata.sizes import format_size
from nbdata.space.ledger import Ledger, Room, not_enough
from nbdata.space.limits import limited_folders
from nbdata.verbs.options import Storing

__all__ = ["Shortage", "numbered"]

# Seconds between two checks of the room, and how often they double while retries commit nothing to the disk.
_LOOK_EVERY, _DOUBLINGS = 2.0, 7


class Shortage:
    """Handles the shortage for one job.

    Parameters
    ----------
    task : Task
    plan : callable
        Plans the rest of the job's work anew. Its rows go into the given folder.
    """

    def __init__(self, task: Task, plan: Callable[[str], Plan]) -> None:
        self._task, self._plan = task, plan
        self._fruitless = 0
        self.times = 0

    def after(self, error: NotEnoughSpace, run: Run) -> None:
        """Wait for room; raises the error to report if the job must not wait."""
        where = run.operation.local_target()
        if where is None or not (run.moving or self.times) or _is_ours(error, run):
            raise error  # refused before anything moved, or not for lack of room at the target
        room = _room(run, where)
        background = self._task.snapshot().background and not run.operation.bound
        if not background:
            explained = self._told(error, run, where, room)
            explained.remedy = (explained.remedy or "").replace(ROOM_THEN_AGAIN, run.operation.with_room)
            raise explained from error
        needed, inodes = self._left(error, run)
        trusted = needed > 0 and not (isinstance(run.operation, Storing) and run.operation.ignore_space)
        least = needed if trusted else room.free + 1
        self._fruitless = (
            0 if run.reservation is not None and run.reservation.has_written else self._fruitless + 1
        )
        self.times += 1
        more = f"needs {_words(run, needed)}, and " if needed else ""
        free = f"{format_size(room.free)} may be used"
        if error.details.get("source") == QUOTA:
            free = f"{QUOTA} is used up"
        elif error.message == NO_INODES:
            free = NO_INODES
        if room.inodes_free is not None and inodes > room.inodes_free:
            more = (
                f"needs {inodes:,} files and folders (inodes), of which {room.inodes_free:,} are free, and "
            )

        def fits() -> bool:
            now = _room(run, where)
            return now.free >= least and (now.inodes_free is None or now.inodes_free >= max(inodes, 1))

        self._task.stand_by(
            f"no space: it {more}{free}; it continues when there is space{run.operation.room_elsewhere}",
            fits,
            every=_LOOK_EVERY * 2 ** min(max(self._fruitless - 1, 0), _DOUBLINGS),
        )

    def _told(self, error: NotEnoughSpace, run: Run, where: str, room: Room) -> NotEnoughSpace:
        """Return the error with its numbers: a foreground user should not have to look them up."""
        if "needed" in error.details or run.reservation is None:
            return error
        # A reservation that grew in steps may exceed the need by up to a step.
        needed, inodes = self._left(error, run) if run.reservation.grown else run.reservation.outstanding
        if error.details.get("source") == QUOTA:
            error.message += f": it still needs {_words(run, needed)}"
        elif needed > room.free or (room.inodes_free is not None and inodes > room.inodes_free):
            return not_enough(
                where, needed, inodes, room, happened=error.message, less=run.operation.with_less,
                at_least=_may_need_more(run),
            )  # fmt: skip
        numbered(error, run, where, needed)
        return error

    def _left(self, error: NotEnoughSpace, run: Run) -> tuple[int, int]:
        """Return bytes and files still to be written; of partly fetched objects only the rest."""
        folder = os.path.join(run.folder, "left")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            planned = self._plan(folder)
        except (NbdataError, OSError):
            return (0, 0) if run.reservation is None else run.reservation.outstanding
        return max(planned.needed, int(error.details.get("needed", 0))), planned.inodes


def _may_need_more(run: Run) -> bool:
    return run.reservation is not None and run.reservation.at_least


def _words(run: Run, needed: int) -> str:
    return f"{'at least ' if _may_need_more(run) else ''}{format_size(needed)}"


def numbered(error: NotEnoughSpace, run: Run, where: str, needed: int) -> None:
    """Add the numbers to an error of the disk, if it has none."""
    room = _room(run, where)
    numbers: dict[str, object] = {
        "needed": needed,
        "free": room.free,
        "limit": None,
        "source": room.domain.source,
        "root": room.domain.root,
        "disks": [],
    }
    error.details = numbers | error.details


def _room(run: Run, where: str) -> Room:
    limited = limited_folders(run.context.state_dir, run.context.env)
    return Ledger().room(where, limited)[0]


def _is_ours(error: NotEnoughSpace, run: Run) -> bool:
    """True if the full disk holds nbdata's own files beside the target, such as rows."""
    path = error.path or ""
    return any(is_inside(path, folder) for folder in (runtime_folder(), run.context.state_dir) if folder)
