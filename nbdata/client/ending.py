"""What a finished job gives to who waits for it: apart from the engine, which the import of a client must not load."""

from __future__ import annotations

from nbdata.errors import TransferFailed
from nbdata.report import Report

__all__ = ["conclude"]


def conclude(report: Report, error: BaseException | None, on_error: str) -> Report:
    """The Report, or the error that a finished job raises for who waits for it."""
    if error is None or (on_error == "report" and isinstance(error, TransferFailed)):
        return report
    if isinstance(error, TransferFailed):
        error.report = report
    raise error
