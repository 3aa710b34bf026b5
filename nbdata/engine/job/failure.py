"""The error of a job that went to its end with failures, in words that fit what they are."""

from __future__ import annotations

import re

from nbdata.errors import TransferFailed
from nbdata.redaction import printable
from nbdata.report import Report

__all__ = ["failure_of"]

# Outcomes that make a job a failed one, the worst first, and how one and many of them are said.
_SAID = {
    "mismatch": ("does not match", "do not match"),
    "missing": ("is missing", "are missing"),
    "failed": ("failed", "failed"),
    "conflict": ("is a conflict", "are conflicts"),
    "unrepresentable": ("cannot be represented", "cannot be represented"),
    "refused": ("was refused", "were refused"),
    "unreadable": ("cannot be read", "cannot be read"),
    "not deleted": ("was not deleted", "were not deleted"),
}


def _names(reason: str, path: str) -> bool:
    """Whether a reason says which file it is about, and not only has these letters in a word."""
    return re.search(rf"(?<![\w.-]){re.escape(printable(path))}(?![\w-]|\.\w)", printable(reason)) is not None


def failure_of(report: Report) -> TransferFailed:
    """What to raise for the failures of a report, of which there are some."""
    bad = {name: report.counts[name] for name in _SAID if report.counts.get(name)}
    bad = bad or {"failed": len(report.failures)}
    (first, count), *others = bad.items()
    what = f"{count:,} of {sum(report.counts.values()):,} {_SAID[first][count != 1]}"
    what += "".join(f", {more:,} {_SAID[name][more != 1]}" for name, more in others)
    path, reason = report.failures[0] if report.failures else ["", ""]
    # Why a key cannot be a name is said of a part of it, which may look like the key.
    named = reason if first != "unrepresentable" and _names(reason, path) else f"{path}: {reason}"
    content = any(name in bad for name in ("mismatch", "missing"))
    return TransferFailed(
        f"{report.verb}: {what}; first {named}",
        remedy="md5check --repair SOURCE gets these again from where they came"
        if content
        else "The same line tries again"
        if sum(bad.values()) == sum(report.counts.values())
        else "The rest was done; the same line tries only these again",
    )
