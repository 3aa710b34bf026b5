"""The verbs ls and du: list the objects of a place, and sum up their sizes."""

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
from nbdata.verbs.options import Connecting, Fetching

__all__ = ["FILLS", "MOST_LEVELS", "Du", "Listing", "Ls", "du", "ls", "time_text"]

# Widths of the columns size and time in a terminal.
_SIZE_WIDTH, _TIME_WIDTH = 9, 20


@dataclass(frozen=True)
class Listing(Fetching, Connecting):
    """Base of verbs whose result is a row per object or folder; faces print the rows, not the report's table."""

    query: ClassVar[bool] = True
    stopped: ClassVar[str] = "Run it again to list from the beginning"

    place: str = argument(
        "URL or path of a folder, a bucket or an object; may contain globs. Default: the working folder.",
        default=".",
        metavar="PLACE",
    )

    def places(self) -> tuple[str, str]:
        return self.place, ""

    def lines(self, report: Report, *, as_json: bool, people: bool) -> Iterator[str]:
        """Yield each row as a line.

        Parameters
        ----------
        report : Report
        as_json : bool
            Whether to write JSON Lines: an object per row.
        people : bool
            Whether to write for a terminal, with readable sizes; else for other programs.

        Raises
        ------
        NbdataError
            If the rows were dropped before all were read, because other commands needed the space for theirs.
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
        """Return a row as JSON-able data; `base` is the place that paths are relative to."""
        raise NotImplementedError

    def row_line(self, row: Row, *, people: bool) -> str:
        """Return a row as text."""
        raise NotImplementedError


@dataclass(frozen=True)
class Ls(Listing):
    """The list is in the order of the store. Folders end in a slash and have no size; use
    ``du`` for it. ``s3://`` or ``ais://`` alone lists the buckets. nbdata's own folder ``.nbdata`` is not listed.

    A terminal shows sizes and times. If the output goes to another program, it is one name per line;
    ``--long`` prints sizes and times there, too.
    With ``--json`` it is an object per line, with path, url, kind, size, modified (UTC) and etag. A
    notebook shows the first rows as a table; ``report.rows`` has all of them.

    In a notebook, ``%ls`` without a URL is IPython's own ``ls``; ``%nbdata ls data`` lists a folder of the
    disk as described here. ``%du`` is always nbdata's.
    """

    verb: ClassVar[str] = "ls"
    summary: ClassVar[str] = "List the objects and folders of a store or of the disk, with sizes and times."
    examples: ClassVar[tuple[str, ...]] = (
        "ls s3://bucket/data/",
        "ls 's3://bucket/data/*.tar' --json",
        "ls s3://bucket/data/ --recursive --max-files 100",
    )

    recursive: bool = option(False, "List every object below PLACE, in all folders.", kind="flag", short="r")
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
    """There is a row per folder, with the number of all objects below it and the sum of their sizes. The
    last row is the total. In a store, a folder is the part of a key up to a slash.

    Of a folder of the disk, it also says what fills it: *disk* is what the files take there, with nbdata's
    own folders. *known* is the part that is unchanged since nbdata pulled, pushed or unpacked it; *caches*
    and *partial* (unfinished files) are nbdata's own; *only here* is everything else. No store is asked:
    ``cleanup --stored --dry-run`` does that. Hard links count once, links are not followed, and other file
    systems are not entered. The table has the largest folders first.

    A terminal shows readable sizes. If the output goes to another program, each line has the bytes, a
    tab and the name. With ``--json`` it is an object per line, with path, url, kind, objects and size,
    and for a folder of the disk with disk, known, caches, partial and only_here, in bytes.
    """

    verb: ClassVar[str] = "du"
    summary: ClassVar[str] = "Sum up the sizes of all objects per folder."
    examples: ClassVar[tuple[str, ...]] = ("du s3://bucket/data/", "du s3://bucket/ --depth 2", "du data")

    depth: int = option(
        1, "Show folders down to N levels below PLACE; 0: only the total.", kind="count", metavar="N"
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
            **{name: row.detail[name] for name in ("disk", *FILLS) if name in row.detail},
        }

    def row_line(self, row: Row, *, people: bool) -> str:
        name = "total" if row.action == "total" else printable(row.path)
        if not people:
            return f"{row.size}\t{name}"
        count = row.detail["objects"]
        words = f"{format_size(row.size):>{_SIZE_WIDTH}}  {count:>10,} {'object ' if count == 1 else 'objects'}  {name}"
        if "disk" not in row.detail:
            return words
        told = [
            f"{fill.replace('_', ' ')} {format_size(row.detail[fill])}" for fill in FILLS if row.detail[fill]
        ]
        on_disk = f"{format_size(row.detail['disk']):>{_SIZE_WIDTH}} on disk  {words}"
        return f"{on_disk}  ({', '.join(told)})" if told else on_disk


#: What fills a folder of the disk, in bytes of a row's detail.
FILLS = ("known", "caches", "partial", "only_here")
#: Maximum number of nested folders in a key.
MOST_LEVELS = 1024


def time_text(modified: float) -> str:
    """Return a time in UTC; a dash if it is outside the calendar."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(modified))
    except (OverflowError, ValueError, OSError):
        return "–"


def url_of(base: str, path: str) -> str:
    """Return the URL or path of a row in the form that other commands accept."""
    return base + (quote(path) if base.startswith(("http://", "https://")) else path)


ls = function_of(Ls)
du = function_of(Du)
