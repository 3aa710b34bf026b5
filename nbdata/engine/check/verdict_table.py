"""Make the table of wrong files of a check, worst first, for notebook cells and terminals."""

from __future__ import annotations

import heapq
from typing import Any

from nbdata.report import Report, Row

__all__ = ["in_order", "wrong_table"]

# Number of rows shown; the report's rows have all.
_SHOWN = 30
# Worst first; good outcomes are only counted.
_BAD = (
    "mismatch",
    "missing",
    "failed",
    "unrepresentable",
    "refused",
    "conflict",
    "unreadable",
    "unverifiable",
    "extra",
)
# Digits of a digest that are shown, to keep a file on one line; the rows have all digits.
_DIGITS = 16
_PATH = 60


def in_order(counts: dict[str, int]) -> dict[str, int]:
    """Sort the counts: good outcomes first, then the others with the worst first."""
    return dict(sorted(counts.items(), key=lambda item: _BAD.index(item[0]) if item[0] in _BAD else -1))


def wrong_table(report: Report) -> list[dict[str, Any]]:
    """At most one table: the first wrong files, with the expected and the actual digest."""
    bad = sum(report.counts.get(name, 0) for name in _BAD)
    if not bad:
        return []

    def rank(row: Row) -> tuple[int, str]:
        return _BAD.index(row.action), row.path

    shown = heapq.nsmallest(_SHOWN, (row for row in report.rows if row.action in _BAD), key=rank)
    more = f"; the first {_SHOWN} of {bad:,}, the report's rows have all" if bad > _SHOWN else ""
    return [
        {
            "caption": f"files that are not ok{more}",
            "head": ["", "path", "expected", "got", "why"],
            "rows": [[row.action, _path(row), *_digests(row), _why(row)] for row in shown],
            "failures": True,
        }
    ]


def _path(row: Row) -> str:
    """The path; a long one is cut to its end, which says more than its beginning."""
    path = _printable(row.path)
    return path if len(path) <= _PATH else f"…{path[1 - _PATH :]}"


def _digests(row: Row) -> list[str]:
    expected = str(row.detail.get("expected", ""))
    got = "no file" if row.action == "missing" else str(row.detail.get("got", ""))
    differ = expected[:_DIGITS] != got[:_DIGITS]
    return [text[:_DIGITS] + "…" if differ and len(text) > _DIGITS else text for text in (expected, got)]


def _why(row: Row) -> str:
    """The source of the verdict, or the reason; digests have separate columns."""
    reason = str(row.detail.get("reason", ""))
    source = row.detail.get("source")
    if row.action not in ("mismatch", "missing") or not source:
        return _printable(reason)
    claim = (
        f"{row.detail.get('algorithm', '')} of {source}" if row.action == "mismatch" else f"named by {source}"
    )
    _, cut, more = reason.partition("; not repaired: ")
    return _printable(claim + cut + more.partition(" (expected ")[0])


def _printable(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
