"""Report or error for the callers that wait for a job; outside the engine, which importing a client must not load."""

from __future__ import annotations

from typing import Protocol

from nbdata.errors import AgentUnavailable, Cancelled, NbdataError, TransferFailed
from nbdata.report import Report, Snapshot

__all__ = ["FutureMethods", "conclude"]


def conclude(report: Report, error: BaseException | None, on_error: str) -> Report:
    """Return the Report of a finished job, or raise its error as `on_error` says."""
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
    """The methods of `concurrent.futures.Future` for a job, built on its `snapshot` and `wait`."""

    def done(self: _Waitable) -> bool:
        """True if the job is over, with any outcome."""
        return self.snapshot().finished

    def result(self: _Waitable, timeout: float | None = None) -> Report:
        """Wait for the end; return the Report or raise the error."""
        return self.wait(timeout)

    def exception(self: _Waitable, timeout: float | None = None) -> NbdataError | None:
        """Wait for the end; return the error that `result` would raise, or None."""
        try:
            self.wait(timeout)
        except Cancelled:
            raise
        except AgentUnavailable as error:
            if not self.done():  # only the question failed
                raise
            return error
        except NbdataError as error:
            return error
        return None
