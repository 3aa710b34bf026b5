"""Report or error for the callers that wait for a job; outside the engine, which importing a client must not load."""

from __future__ import annotations

from typing import Protocol

from nbdata.errors import AgentUnavailable, Cancelled, NbdataError, TransferFailed
from nbdata.option import checked, options_of
from nbdata.report import Report, Snapshot
from nbdata.verbs.options import Storing, refuse_slow

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
    def limit(self, rate: int | None) -> None: ...


class FutureMethods:
    """What all jobs do alike: the methods of `concurrent.futures.Future`, and the limit of the rate.

    They are built on `snapshot`, `wait` and `limit` of the job.
    """

    @property
    def max_rate(self: _Waitable) -> int | None:
        """The most bytes per second that it moves; None for no limit. It can be set while the job runs or waits."""
        return self.snapshot().max_rate

    @max_rate.setter
    def max_rate(self: _Waitable, rate: int | str | None) -> None:
        most = None if rate is None else int(checked("max-rate", rate, options_of(Storing)["max_rate"][1]))
        refuse_slow(most)
        self.limit(most)

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
