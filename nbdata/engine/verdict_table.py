"""The table of what a check found wrong, worst first, for cells and terminals."""

from __future__ import annotations

import heapq
from typing import Any

from nbdata.report import Report, Row

__all__ = ["wrong_table"]

# Rows that are shown; the report's rows have all.
_SHOWN = 30
# The worst first; what went well is only counted.
_ORDER = ("mismatch", "missing", "failed", "unrepresentable", "refused", "conflict", "unverifiable", "extra")
# Digits of a digest that are shown: all of an MD5, and of longer ones as many as tell two of them apart.
_DIGITS = 32


def wrong_table(report: Report) -> list[dict[str, Any]]:
    """At most one table: the first files that are not right, with what was expected of them and what came."""
    bad = sum(report.counts.get(name, 0) for name in _ORDER)
    if not bad:
        return []

    def rank(row: Row) -> tuple[int, str]:
        return _ORDER.index(row.action), row.path

    shown = heapq.nsmallest(_SHOWN, (row for row in report.rows if row.action in _ORDER), key=rank)
    more = f"; the first {_SHOWN} of {bad:,}, the report's rows have all" if bad > _SHOWN else ""
    return [
        {
            "caption": f"what is not ok{more}",
            "head": ["", "path", "expected", "got", "why"],
            "rows": [[row.action, _printable(row.path), *_digests(row), _why(row)] for row in shown],
            "failures": True,
        }
    ]


def _digests(row: Row) -> list[str]:
    expected = str(row.detail.get("expected", ""))
    got = "no file" if row.action == "missing" else str(row.detail.get("got", ""))
    differ = expected[:_DIGITS] != got[:_DIGITS]
    return [text[:_DIGITS] + "…" if differ and len(text) > _DIGITS else text for text in (expected, got)]


def _why(row: Row) -> str:
    """The reason, without the digests, which have columns of their own."""
    reason = str(row.detail.get("reason", ""))
    if row.action == "mismatch":
        reason = reason.partition(" (expected ")[0]
        if row.detail.get("source"):
            reason += f", says {row.detail['source']}"
    return _printable(reason)


def _printable(text: str) -> str:
    """On one line, and without what a terminal would obey."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
