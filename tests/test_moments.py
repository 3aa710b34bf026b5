"""Moments as people write them."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest

from nbdata.errors import BadOption
from nbdata.moments import is_duration, moment_of, moment_text

NOW = 1_795_800_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0),
        ("1970-01-02T00:00Z", 86_400),
        ("1970-01-01T12:00", 43_200),
        ("1970-01-01T12:00+02:00", 36_000),
        ("30s", NOW - 30),
        ("90m", NOW - 5_400),
        ("12h", NOW - 43_200),
        ("7d", NOW - 604_800),
        ("2w", NOW - 1_209_600),
        ("1d12h", NOW - 129_600),
    ],
)
def test_a_moment_is_a_date_or_how_long_ago(text: str, seconds: float) -> None:
    assert moment_of(moment_text(f" {text} ") or "", NOW) == seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (date(2026, 11, 20), "2026-11-20"),
        (datetime(2026, 11, 20, 12, tzinfo=timezone.utc), "2026-11-20T12:00:00+00:00"),
        (timedelta(days=7), "604800s"),
    ],
)
def test_python_may_give_a_date_or_a_duration_as_such(value: object, text: str) -> None:
    assert moment_text(value) == text


@pytest.mark.parametrize(
    "value",
    [
        "",
        "7",
        "7 days",
        "7D",
        "-7d",
        "yesterday",
        "2026-13-01",
        "9" * 400 + "d",
        "d",
        7,
        None,
        b"7d",
        timedelta(days=-1),
    ],
)
def test_anything_else_is_none(value: object) -> None:
    assert moment_text(value) is None


def test_a_datetime_needs_a_time_zone() -> None:
    with pytest.raises(BadOption, match="no time zone"):
        moment_text(datetime(2026, 11, 20))


def test_durations_are_told_from_dates() -> None:
    assert [*map(is_duration, ("7d", "1d12h", "2026-11-20", "20261120"))] == [True, True, False, False]
