"""Moments as people write them: a date, or how long ago (``7d``).

Dates are those of ISO 8601; without an offset they are UTC, as most machines in clouds and all stores count.
"""

from __future__ import annotations

import re
import time
from datetime import date, datetime, timedelta, timezone
from typing import Any

from nbdata.errors import BadOption

__all__ = ["MOMENTS", "is_duration", "moment_of", "moment_text", "seconds_of"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(?:\d{1,7}[smhdw])+")
_PART = re.compile(r"(\d+)([smhdw])")
MOMENTS = "how long ago, such as 90m, 12h, 7d or 2w; or a date such as 2026-11-20 or 2026-11-20T12:00Z"
"""What a user may write."""


def is_duration(text: str) -> bool:
    """Whether a text says how long ago: numbers of seconds, minutes, hours, days and weeks (``1d12h``)."""
    return _DURATION.fullmatch(text) is not None


def seconds_of(text: str) -> float:
    """Return the seconds since 1970 of a date, or of a date and time. ValueError if it is none."""
    moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def moment_of(text: str, now: float | None = None) -> float:
    """Return the seconds since 1970 of a date, or of the moment so long before `now` (default: by this clock)."""
    if not is_duration(text):
        return seconds_of(text)
    ago = sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    return (time.time() if now is None else now) - ago


def moment_text(value: Any) -> str | None:
    """Return a moment as text; None if it is none. In Python it may be a date, a datetime or a timedelta (ago) too.

    Raises
    ------
    BadOption
        If a datetime has no time zone.
    """
    if isinstance(value, timedelta) and value >= timedelta(0):
        return f"{round(value.total_seconds())}s"
    if isinstance(value, datetime) and value.tzinfo is None:
        raise BadOption("this datetime has no time zone", remedy="Make it with datetime.now(timezone.utc)")
    text = value.isoformat() if isinstance(value, date) else value
    if not isinstance(text, str):
        return None
    try:
        moment_of(text.strip())
    except ValueError:
        return None
    return text.strip()
