"""The verbs ls and du: which objects a place holds, and how much they take."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from nbdata.errors import BadOption, NbdataError
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.redaction import printable
from nbdata.report import Report, Row
from nbdata.sizes import counted, format_size
from nbdata.verbs.options import Connecting

__all__ = ["Du", "Listing", "Ls", "du", "ls", "time_text"]

# Columns of a size and of a time, for people.
_SIZE_WIDTH, _TIME_WIDTH = 9, 20


@dataclass(frozen=True)
class Listing(Connecting):
    """Verbs that answer with a row for each object or folder; faces print the rows and not the report's table."""

    query: ClassVar[bool] = True
    stopped: ClassVar[str] = "Run it again to list from the beginning"

    place: str = argument(
        "URL or path of a folder, a bucket or an object; globs work. Default: the working folder.",
        default=".",
        metavar="PLACE",
    )

    def places(self) -> tuple[str, str]:
        return self.place, ""

    def lines(self, report: Report, *, as_json: bool, people: bool) -> Iterator[str]:
        """Each row as a line.

        Parameters
        ----------
        report : Report
        as_json : bool
            JSON Lines: an object for each row.
        people : bool
            For a terminal, with sizes that are easy to read; else for other programs.

        Raises
        ------
        NbdataError
            If the rows are gone before all of them were read: others have asked too much meanwhile.
        """
        count = 0
        for row in report.rows:
            count += 1
            if as_json:
                yield json.dumps(self.row_to_dict(row, report.details["base"]))
            else:
                yield self.row_line(row, people=people)
        if count < len(report.rows):
            raise NbdataError(
                f"only {count:,} of {counted(len(report.rows), 'rows')} could still be read",
                remedy="Run it again",
            )

    def row_to_dict(self, row: Row, base: str) -> dict[str, Any]:
        """A row as JSON-able data; `base` is the place that paths are relative to."""
        raise NotImplementedError

    def row_line(self, row: Row, *, people: bool) -> str:
        """A row as text."""
        raise NotImplementedError


@dataclass(frozen=True)
class Ls(Listing):
    """Folders end in a slash, and their size is only known to ``du``. The order is that of the store. Sizes and times
    are shown in a terminal; other programs that read the output get the names, one a line, and with ``--json`` an
    object for each row, with path, url, kind, size, modified (UTC) and etag. In a notebook the first rows are a table,
    and ``report.rows`` has all of them. ``s3://`` alone lists the buckets. What nbdata itself keeps on a disk
    (``.nbdata``) is not listed.
    """

    verb: ClassVar[str] = "ls"
    summary: ClassVar[str] = "List the objects and folders of a store, or of the disk, with sizes and times."
    examples: ClassVar[tuple[str, ...]] = (
        "ls s3://bucket/data/",
        "ls 's3://bucket/data/*.tar' --json",
        "ls s3://bucket/data/ --recursive --max-files 100",
    )

    recursive: bool = option(
        False, "List every object below PLACE, whatever folder it is in.", kind="flag", short="r"
    )
    max_files: int | None = option(None, "List only the first N rows.", kind="count", metavar="N")

    def row_to_dict(self, row: Row, base: str) -> dict[str, Any]:
        modified = row.detail.get("modified")
        return {
            "path": row.path,
            "url": url_of(base, row.path),
            "kind": row.action,
            "size": row.size if row.size >= 0 else None,
            "modified": None if modified is None else time_text(modified).replace(" ", "T"),
            "etag": row.detail.get("etag", ""),
        }

    def row_line(self, row: Row, *, people: bool) -> str:
        name = printable(row.path or "./")
        if not people:
            return name
        size, at = "–" if row.size < 0 else format_size(row.size), row.detail.get("modified")
        told = "–" if at is None else time_text(at)
        return f"{size:>{_SIZE_WIDTH}}  {told:{_TIME_WIDTH}}  {name}"


@dataclass(frozen=True)
class Du(Listing):
    """A row for each folder, with the bytes and the number of all objects below it, and the total at the end. Folders
    of a store are the parts of keys up to a slash. Bytes are those of the objects; a disk may need more for them. In a
    terminal sizes are easy to read; other programs that read the output get bytes, a tab and the name, and with
    ``--json`` an object for each row, with path, url, kind, objects and size.
    """

    verb: ClassVar[str] = "du"
    summary: ClassVar[str] = "Sum up the sizes of all objects, by folder."
    examples: ClassVar[tuple[str, ...]] = ("du s3://bucket/data/", "du s3://bucket/ --depth 2", "du data")

    depth: int = option(
        1, "Levels of folders below PLACE that have a row; 0: only the total.", kind="count", metavar="N"
    )

    def check(self) -> None:
        super().check()
        if self.depth > MOST_LEVELS:
            raise BadOption(f"--depth: {self.depth} is out of range", expected=f"0 to {MOST_LEVELS}")

    def row_to_dict(self, row: Row, base: str) -> dict[str, Any]:
        return {
            "path": row.path,
            "url": url_of(base, row.path),
            "kind": row.action,
            "objects": row.detail["objects"],
            "size": row.size,
        }

    def row_line(self, row: Row, *, people: bool) -> str:
        name = "total" if row.action == "total" else printable(row.path)
        if not people:
            return f"{row.size}\t{name}"
        count = row.detail["objects"]
        return f"{format_size(row.size):>{_SIZE_WIDTH}}  {count:>10,} {'object ' if count == 1 else 'objects'}  {name}"


#: Folders in one another that a key may have.
MOST_LEVELS = 1024


def time_text(modified: float) -> str:
    """A time in UTC; a dash where no calendar has it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(modified))
    except (OverflowError, ValueError, OSError):
        return "–"


def url_of(base: str, path: str) -> str:
    """The URL or path of a row, as other commands take it."""
    return base + (quote(path) if base.startswith(("http://", "https://")) else path)


ls = function_of(Ls)
du = function_of(Du)
