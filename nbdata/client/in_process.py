"""An operation that this process carries out itself, because it calls the caller's code, and its progress."""

from __future__ import annotations

import abc
import time

from nbdata.operation import slots
from nbdata.report import Plan, Report

__all__ = ["InProcessRun", "Progress"]

# Seconds between two updates of the display.
_SHOW_EVERY = 0.5


class Progress:
    """The display of one run; shows nothing if it is quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self._display, self._shown = slots.display(), time.monotonic()

    @property
    def is_due(self) -> bool:
        """True if the last update was long enough ago."""
        return not self.quiet and time.monotonic() - self._shown > _SHOW_EVERY

    def tell(self, text: str) -> None:
        """Show a line; an empty one removes it."""
        if not self.quiet:
            self._shown = time.monotonic()
            self._display.tell(text)

    def end(self, text: str, report: Report | None) -> None:
        """Show the last line in place of the progress."""
        if not self.quiet:
            self._display.tell("")
            self._display.end(text, report)


class InProcessRun(abc.ABC):
    """Base of these operations; see `nbdata.operation.InProcess`."""

    #: What to do after an interruption.
    again: str

    @abc.abstractmethod
    def plan(self) -> Plan:
        """See `nbdata.operation.Operation.plan`."""

    @abc.abstractmethod
    def perform(self, progress: Progress) -> Report:
        """Do the work."""

    def run(self, *, quiet: bool) -> Report:
        """Do the work, and show the progress and the result."""
        progress, began = Progress(quiet=quiet), time.monotonic()
        try:
            report = self.perform(progress)
        except KeyboardInterrupt:
            progress.end(f"interrupted; {self.again}", None)
            raise KeyboardInterrupt(self.again) from None
        except BaseException:
            progress.tell("")
            raise
        report.seconds = time.monotonic() - began
        progress.end(report.line, report)
        return report
