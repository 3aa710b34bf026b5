"""What an error of a store says about another try."""

from __future__ import annotations

from typing import Any

from nbdata.errors import NbdataError

__all__ = ["pushed_back", "retry_after", "worth_retrying"]


def worth_retrying(error: BaseException) -> bool:
    """Whether the same request may well succeed a moment later."""
    return isinstance(error, NbdataError) and bool(error.details.get("retry"))


def pushed_back(error: BaseException) -> bool:
    """Whether an error says that the store has too much to do, or was silent as one that has."""
    if not isinstance(error, NbdataError):
        return False
    return error.details.get("status") in (429, 503) or bool(error.details.get("silent"))


def retry_after(error: BaseException) -> float | None:
    """Seconds that the store asked to wait, or None."""
    value: Any = error.details.get("retry_after") if isinstance(error, NbdataError) else None
    return float(value) if value is not None else None
