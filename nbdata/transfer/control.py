"""What moving code needs of the job it works for; `nbdata.engine.task.Task` is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nbdata.errors import NbdataError

__all__ = ["Control"]


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

    def advance(self, *, files: int = 0, bytes: int = 0, failures: int = 0, retries: int = 0) -> None:  # noqa: A002
        """Add to what is done."""

    def expect_more(self, *, files: int, bytes: int) -> None:  # noqa: A002
        """Add to what is to be done, where that is known."""

    def fail(self, error: NbdataError) -> None:
        """End the work soon, as failed; every checkpoint raises Cancelled from now on."""

    def phase(self, text: str) -> None:
        """Say in a word what it does now."""
