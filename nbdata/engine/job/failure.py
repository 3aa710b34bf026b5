"""Makes the error of a job that ran to its end with failures, worded for the kind of failure."""

from __future__ import annotations

import re

from nbdata.engine.job.outcomes import BAD, Outcome
from nbdata.errors import TransferFailed
from nbdata.paths import is_url
from nbdata.redaction import printable
from nbdata.report import Report

__all__ = ["failure_of"]

# What to do about wrong and missing files, on the disk and in a store.
_REPAIR = (
    "md5check --repair SOURCE pulls these again from their source",
    "copy --overwrite always, or push, brings these again from a good copy",
)


def _names(reason: str, path: str) -> bool:
    """True if a reason names the file, and does not only contain its letters within a word."""
    return re.search(rf"(?<![\w.-]){re.escape(printable(path))}(?![\w-]|\.\w)", printable(reason)) is not None


def failure_of(report: Report) -> TransferFailed:
    """Return the error for the failures of a report, of which there is at least one."""
    bad = {name: report.counts[name] for name in BAD if report.counts.get(name)}
    bad = bad or {Outcome.FAILED: len(report.failures)}
    (first, count), *others = bad.items()
    what = f"{count:,} of {sum(report.counts.values()):,} {BAD[first][count != 1]}"
    what += "".join(f", {more:,} {BAD[name][more != 1]}" for name, more in others)
    path, reason = report.failures[0] if report.failures else ["", ""]
    # An unrepresentable key's reason quotes a part of it, which may look like the key.
    named = reason if first is not Outcome.UNREPRESENTABLE and _names(reason, path) else f"{path}: {reason}"
    content = any(name in bad for name in (Outcome.MISMATCH, Outcome.MISSING))
    return TransferFailed(
        f"{report.verb}: {what}; first {named}",
        details={"what": f"{report.verb}: {what}"},
        remedy=_REPAIR[is_url(report.source)]
        if content
        else "Run it again to retry"
        if sum(bad.values()) == sum(report.counts.values())
        else "The rest was done; run it again to retry only these",
    )
