"""Parses the records of pax headers; each record is a keyword and its value for the next member, or for all."""

from __future__ import annotations

import re

from nbdata.archives.tar_fields import MANY_RECORDS, SECOND, decimal, decoded

__all__ = ["Records", "harmless"]

# Records of a pax header that do not affect where the content is, or that are not needed here. If they are short, the
# header lies in one piece of memory.
_HARMLESS = re.compile(rb"(\d{1,4}) (path|mtime|atime|ctime|uid|gid|uname|gname)=")
_RECORD = re.compile(rb"(\d{1,20}) ([^=]+)=")
_TIME = re.compile(rb"(\d{1,11})(?:\.(\d{1,20}))?")


class Records:
    """The pax records that apply to one member.

    Attributes
    ----------
    values : dict
        Records by keyword; an empty value cancels an earlier one.
    offsets, lengths : list of int
        Of the pieces of a sparse file; the oldest format has one record for each.
    count : int
        How many records were parsed, for this member or for all.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.offsets: list[int] = []
        self.lengths: list[int] = []
        self.count = 0

    def add(self, content: bytes) -> None:
        """Parse the content of a pax header."""
        at = 0
        content = content.rstrip(b"\0")
        while at < len(content):
            found = _RECORD.match(content, at)
            end = at + int(found[1]) if found is not None else 0
            if found is None or not found.end() < end <= len(content) or content[end - 1] != ord("\n"):
                raise ValueError("a pax record of another length than it says")
            name, value = decoded(found[2]), decoded(content[found.end() : end - 1])
            at = end
            self.count += 1
            if name == "GNU.sparse.offset":
                self.offsets.append(decimal(value))
            elif name == "GNU.sparse.numbytes":
                self.lengths.append(decimal(value))
            else:
                self.values[name] = value


def harmless(data: bytes) -> tuple[str | None, int | None] | None:
    """Return path and time of a pax header; None if it has records of other kinds, or many."""
    if data.count(b"\n") > MANY_RECORDS:
        return None
    path: str | None = None
    mtime_ns: int | None = None
    at = 0
    while at < len(data):
        record = _HARMLESS.match(data, at)
        end = at + int(record[1]) if record is not None else 0
        if record is None or not record.end() < end <= len(data) or data[end - 1] != ord("\n"):
            return None
        key, value = record[2], data[record.end() : end - 1]
        if not value:  # it cancels an earlier value
            return None
        if key == b"mtime":
            time = _TIME.fullmatch(value)
            if time is None:
                return None
            seconds, fraction = time.groups(b"")
            mtime_ns = int(seconds) * SECOND + int(fraction[:9].ljust(9, b"0"))
        elif key == b"path":
            path = decoded(value)
        at = end
    return path, mtime_ns
