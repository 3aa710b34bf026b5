"""What became of an object: the words of a report's rows and counts, in one place."""

from __future__ import annotations

from enum import Enum

__all__ = ["BAD", "Outcome"]


class Outcome(str, Enum):
    """What became of one object; a str, so that it is JSON as it is."""

    # It was transferred or unpacked.
    FETCHED = "fetched"
    OVERWRITTEN = "overwritten (edited here)"
    SENT = "sent"
    COPIED = "copied"
    PACKED = "packed"
    VOLUME = "volumes"
    EXTRACTED = "extracted"
    FOLDER = "folders"
    LINK = "links"
    # It was listed or handed out.
    MEMBER = "members"
    HANDED_OUT = "handed out"
    # Nothing was to be done with it.
    UNCHANGED = "unchanged"
    MOVED_AWAY = "moved away"
    SKIPPED = "skipped"
    LEFT_OUT = "left out"
    # It was checked; see nbdata.integrity.verdicts.
    OK = "ok"
    REPAIRED = "repaired"
    UNVERIFIABLE = "unverifiable"
    EXTRA = "extra"
    # Its checksum was written down.
    HASHED = "hashed"
    REPLACED = "replaced"
    DROPPED = "dropped"
    # It was cleaned up.
    DELETED = "deleted"
    REMOVED = "removed"
    KEPT = "kept"
    IN_USE = "in use"
    ABORTED = "aborted"
    # It makes its job a failed one: see `BAD`.
    MISMATCH = "mismatch"
    MISSING = "missing"
    FAILED = "failed"
    CONFLICT = "conflict"
    UNREPRESENTABLE = "unrepresentable"
    UNREADABLE = "unreadable"
    NOT_DELETED = "not deleted"

    def __str__(self) -> str:  # as StrEnum of Python 3.11; without it versions differ in f-strings
        return self.value


#: Outcomes that make a job a failed one, the worst first, and how one and many of them are said.
BAD = {
    Outcome.MISMATCH: ("does not match", "do not match"),
    Outcome.MISSING: ("is missing", "are missing"),
    Outcome.FAILED: ("failed", "failed"),
    Outcome.CONFLICT: ("is a conflict", "are conflicts"),
    Outcome.UNREPRESENTABLE: ("cannot be represented", "cannot be represented"),
    Outcome.UNREADABLE: ("cannot be read", "cannot be read"),
    Outcome.NOT_DELETED: ("was not deleted", "were not deleted"),
}
