"""Read from a store's error whether and when to try again."""

from __future__ import annotations

from typing import Any

from nbdata.errors import NbdataError

__all__ = ["pushed_back", "retry_after", "worth_retrying"]


def worth_retrying(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    return isinstance(error, NbdataError) and bool(error.details.get("retry"))


def pushed_back(error: BaseException) -> bool:
    """Whether an error means that the store is overloaded: it said so, or it did not respond in time."""
    if not isinstance(error, NbdataError):
        return False
    return error.details.get("status") in (429, 503) or bool(error.details.get("silent"))


def retry_after(error: BaseException) -> float | None:
    """Seconds to wait, as the store requested, or None."""
    value: Any = error.details.get("retry_after") if isinstance(error, NbdataError) else None
    return float(value) if value is not None else None
