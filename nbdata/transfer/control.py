"""What moving code needs of the job it works for; `nbdata.engine.job.task.Task` is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from nbdata.errors import NbdataError

__all__ = ["Control", "Pulse"]


class Pulse(NamedTuple):
    """How far a job is, as counts that only grow.

    Attributes
    ----------
    units : int
        Objects and further requests that went well.
    moved : int
        Bytes, also those that came to nothing.
    retries : int
        Requests that were made again.
    pushed_back : int
        How often a store had too much.
    """

    units: int
    moved: int
    retries: int
    pushed_back: int


class Control(Protocol):
    """Stop, wait and count."""

    def is_set(self) -> bool:
        """Whether the work is to end."""

    def add(self, abort: Callable[[], None]) -> None:
        """Register what wakes a blocking call."""

    def remove(self, abort: Callable[[], None]) -> None:
        """Forget it."""

    def checkpoint(self) -> None:
        """Wait while paused; raise Cancelled if the work is to end."""

    def sleep(self, seconds: float) -> None:
        """Wait, or raise Cancelled."""

    def advance(
        self,
        *,
        files: int = 0,
        bytes: int = 0,  # noqa: A002
        present: int = 0,
        failures: int = 0,
    ) -> None:
        """Add to what is done; `present` are bytes that need not move, since they were there."""

    def tried_again(self, error: Exception) -> None:
        """Count a request that is made again, for such an error."""

    @property
    def rate(self) -> int | None:
        """Bytes a second that may move; None for no limit."""

    @property
    def block(self) -> int:
        """Bytes that are moved at a time between two looks at this: few where the rate is low."""

    def pulse(self) -> Pulse:
        """What was counted so far."""

    def pushed_back(self) -> None:
        """Count that a store had too much."""

    def expect_more(self, *, files: int, bytes: int) -> None:  # noqa: A002
        """Add to what is to be done, where that is known."""

    def fail(self, error: NbdataError) -> None:
        """End the work soon, as failed; every checkpoint raises Cancelled from now on."""

    def phase(self, text: str) -> None:
        """Say in a word what it does now."""
