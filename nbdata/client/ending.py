"""What a finished job gives to who waits for it: apart from the engine, which the import of a client must not load."""

from __future__ import annotations

from typing import Protocol

from nbdata.errors import AgentUnavailable, Cancelled, NbdataError, TransferFailed
from nbdata.report import Report, Snapshot

__all__ = ["FutureMethods", "conclude"]


def conclude(report: Report, error: BaseException | None, on_error: str) -> Report:
    """The Report, or the error that a finished job raises for who waits for it."""
    if error is None or (on_error == "report" and isinstance(error, TransferFailed)):
        return report
    if isinstance(error, TransferFailed):
        error.report = report
    raise error


class _Waitable(Protocol):
    def snapshot(self) -> Snapshot: ...
    def wait(self, timeout: float | None = None) -> Report: ...
    def done(self) -> bool: ...


class FutureMethods:
    """What a job has of `concurrent.futures.Future`, made of its `snapshot` and `wait`."""

    def done(self: _Waitable) -> bool:
        """Whether the job is over, one way or another."""
        return self.snapshot().finished

    def result(self: _Waitable, timeout: float | None = None) -> Report:
        """The Report, or raises the error."""
        return self.wait(timeout)

    def exception(self: _Waitable, timeout: float | None = None) -> NbdataError | None:
        """The error that `result` would raise, or None."""
        try:
            self.wait(timeout)
        except Cancelled:
            raise
        except AgentUnavailable as error:
            if not self.done():  # it only could not be asked
                raise
            return error
        except NbdataError as error:
            return error
        return None
