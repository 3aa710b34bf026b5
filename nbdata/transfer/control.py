"""The interface between the code that moves bytes and its job; `nbdata.engine.job.task.Task` implements it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from nbdata.errors import NbdataError
from nbdata.transfer.bad_entries import BadEntries

__all__ = ["Control", "Pulse"]


class Pulse(NamedTuple):
    """The progress of a job, as counts that only grow.

    Attributes
    ----------
    units : int
        Successful transfers of objects, and other successful requests.
    moved : int
        Bytes, including those of failed transfers.
    retries : int
        Requests that were repeated.
    pushed_back : int
        How often a store reported overload.
    """

    units: int
    moved: int
    retries: int
    pushed_back: int


class Control(Protocol):
    """Stops, pauses and counts the work."""

    def is_set(self) -> bool:
        """Whether the work must stop."""

    def add(self, abort: Callable[[], None]) -> None:
        """Register a function that interrupts a blocking call."""

    def remove(self, abort: Callable[[], None]) -> None:
        """Unregister `abort`."""

    def checkpoint(self) -> None:
        """Wait while paused. Raises Cancelled if the work must stop."""

    def sleep(self, seconds: float) -> None:
        """Wait. Raises Cancelled if the work must stop."""

    def advance(
        self,
        *,
        files: int = 0,
        bytes: int = 0,  # noqa: A002
        present: int = 0,
        failures: int = 0,
    ) -> None:
        """Add to the progress. `present` are bytes that need not move because they exist already."""

    def tried_again(self, error: Exception) -> None:
        """Count a repeated request, and its error."""

    @property
    def rate(self) -> int | None:
        """The limit in bytes per second; None for no limit."""

    @property
    def block(self) -> int:
        """Bytes to move between two checks of the control: few if the rate is low."""

    def pulse(self) -> Pulse:
        """The counts so far."""

    @property
    def bad_entries(self) -> BadEntries:
        """The entries of listings that could not be used."""

    def listed(self, count: int) -> None:
        """Count entries that listings have yielded, also those that are not selected."""

    def pushed_back(self) -> None:
        """Count that a store reported overload."""

    def expect_more(self, *, files: int, bytes: int) -> None:  # noqa: A002
        """Add to the expected total, if that is known."""

    def fail(self, error: NbdataError) -> None:
        """Make the work fail soon: every checkpoint raises Cancelled from now on."""

    def phase(self, text: str) -> None:
        """Show in a few words what the work does now."""
