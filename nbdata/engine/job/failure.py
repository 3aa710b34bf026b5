"""Makes the error of a job that ran to its end with failures, worded for the kind of failure."""

from __future__ import annotations

import re

from nbdata.engine.job.outcomes import BAD, Outcome
from nbdata.errors import TransferFailed
from nbdata.paths import is_url
from nbdata.redaction import printable
from nbdata.report import Report

__all__ = ["failure_of"]

# What to do after verbs that only look: running them again does not mend what they found.
_NOT_REPEATED = {
    "md5check": "The report names all of these",
    "ls": "The rest is listed",
    "du": "The rest is summed up",
    "shards": "Replace a damaged shard, or pack it anew; the report names all of them",
}
# A reason that already says so.
_AGAIN = re.compile(r"\brun (it|the command) again\b", re.IGNORECASE)
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
    if content:
        remedy: str | None = _REPAIR[is_url(report.source)]
    elif report.verb in _NOT_REPEATED:
        remedy = _NOT_REPEATED[report.verb]
    elif set(bad) == {Outcome.CONFLICT}:
        remedy = None if sum(bad.values()) == sum(report.counts.values()) else "The rest was done"
    elif sum(bad.values()) == sum(report.counts.values()):
        remedy = None if _AGAIN.search(named) else "Run it again to retry"
    elif _AGAIN.search(named):
        remedy = "The rest was done, and only these are retried"
    else:
        remedy = "The rest was done; run it again to retry only these"
    return TransferFailed(
        f"{report.verb}: {what}; first {named}", details={"what": f"{report.verb}: {what}"}, remedy=remedy
    )
