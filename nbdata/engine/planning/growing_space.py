"""Disk space for work of unknown size: reserved in steps, each before it is written."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from nbdata.engine.job.run import Run
from nbdata.errors import ROOM_THEN_AGAIN, NotEnoughSpace
from nbdata.space.ledger import Reservation
from nbdata.space.limits import round_up
from nbdata.verbs.options import Storing

__all__ = ["GrowingSpace"]

# Bytes by which a reservation grows; smaller steps if room is tight.
_STEPS = (256 << 20, 32 << 20, 4 << 20, 0)
# Seconds after which the ledger measures a limited folder again for a refused job.
_SEEN_LATE = 2.5


class GrowingSpace:
    """The reservation of a run of unknown size; many threads may use it.

    Parameters
    ----------
    run : Run
    block : int
        Bytes per block of the disk.
    reserved : int
        Bytes reserved at the start.

    Attributes
    ----------
    block : int
        As given.
    make_room : callable or None
        Called if there is no room, before that is an error; returns True if it has made some.
    """

    def __init__(self, run: Run, block: int, reserved: int) -> None:
        self._run = run
        self._reservation, self.block, self._held = run.reservation, block, reserved
        op = run.operation
        self._bounded = not (isinstance(op, Storing) and op.ignore_space)
        self._claimed = self._step = 0
        self._lock = threading.Lock()
        self.make_room: Callable[[], bool] | None = None

    def claim(self, size: int, *, fresh: bool = False) -> None:
        """Reserve room for that many more bytes; NotEnoughSpace if there is none, and then nothing is reserved.

        `fresh` says that all bytes claimed before are committed to the disk (see `Reservation.grow`).
        """
        with self._lock:
            claimed = self._claimed + round_up(size, self.block)
            if claimed <= self._held or self._reservation is None or not self._bounded:
                self._claimed = claimed
            else:
                self._claim(claimed, fresh, self._reservation)

    def _claim(self, claimed: int, fresh: bool, reservation: Reservation) -> None:
        missing = claimed - self._held
        while True:  # in smaller steps if room is tight
            more = max(missing, _STEPS[self._step])
            try:
                reservation.grow(more, fresh=fresh, at_least=True)
            except NotEnoughSpace as error:
                if more == missing:
                    if not self._more_room(missing):
                        error.remedy = f"{ROOM_THEN_AGAIN}. {error.remedy or ''}".strip()
                        raise
                    break
                self._step += 1
            else:
                break
        self._held += more
        self._claimed = claimed

    def _more_room(self, missing: int) -> bool:
        """Make room, and reserve the missing bytes; False if that failed."""
        if self.make_room is None or self._reservation is None or not self.make_room():
            return False
        for pause in (0.0, _SEEN_LATE):
            self._run.control.sleep(pause)
            with contextlib.suppress(NotEnoughSpace):
                self._reservation.grow(missing, at_least=True)
                return True
        return False

    def note(self, size: int, files: int = 0) -> None:
        """Note bytes and files that are on the disk now."""
        if self._reservation is not None:
            self._reservation.note_written(size, files)

    def note_written(self, sizes: list[int], files: int) -> None:
        """Note whole files of these sizes that are on the disk now."""
        block = self.block
        self.note(sum([-(-size // block) for size in sizes]) * block, files)
