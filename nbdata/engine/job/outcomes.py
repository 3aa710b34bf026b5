"""The outcomes of an object: all words for a report's rows and counts, in one place."""

from __future__ import annotations

from enum import Enum

__all__ = ["BAD", "Outcome"]


class Outcome(str, Enum):
    """The outcome of one object; a str, so that JSON can hold it as it is."""

    # The object was transferred or unpacked.
    FETCHED = "fetched"
    OVERWRITTEN = "overwritten (edited here)"
    SENT = "sent"
    COPIED = "copied"
    PACKED = "packed"
    VOLUME = "volumes"
    EXTRACTED = "extracted"
    FOLDER = "folders"
    LINK = "links"
    # The object was listed or handed out.
    MEMBER = "members"
    HANDED_OUT = "handed out"
    # The object needed no work.
    UNCHANGED = "unchanged"
    MOVED_AWAY = "moved away"
    SKIPPED = "skipped"
    LEFT_OUT = "left out"
    # The object was checked; see nbdata.integrity.verdicts.
    OK = "ok"
    REPAIRED = "repaired"
    UNVERIFIABLE = "unverifiable"
    EXTRA = "extra"
    # The object's checksum was written to a file.
    HASHED = "hashed"
    REPLACED = "replaced"
    DROPPED = "dropped"
    # The object was cleaned up.
    DELETED = "deleted"
    REMOVED = "removed"
    KEPT = "kept"
    IN_USE = "in use"
    ABORTED = "aborted"
    # The object makes its job fail: see `BAD`.
    MISMATCH = "mismatch"
    MISSING = "missing"
    FAILED = "failed"
    CONFLICT = "conflict"
    UNREPRESENTABLE = "unrepresentable"
    UNREADABLE = "unreadable"
    NOT_DELETED = "not deleted"

    def __str__(self) -> str:  # as StrEnum of Python 3.11; without it, f-strings differ between versions
        return self.value


#: Outcomes that make a job fail, the worst first, with their wording for one and for many objects.
BAD = {
    Outcome.MISMATCH: ("does not match", "do not match"),
    Outcome.MISSING: ("is missing", "are missing"),
    Outcome.FAILED: ("failed", "failed"),
    Outcome.CONFLICT: ("is a conflict", "are conflicts"),
    Outcome.UNREPRESENTABLE: ("cannot be represented", "cannot be represented"),
    Outcome.UNREADABLE: ("cannot be read", "cannot be read"),
    Outcome.NOT_DELETED: ("was not deleted", "were not deleted"),
}
