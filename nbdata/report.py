"""Plan, Report and Snapshot: plain data that faces render and processes exchange as JSON.

Plans and Reports are sums plus `Rows`, which are spooled and read page by page. A job over a million objects never
sends or holds a million rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple, overload

from nbdata.rendering import edged, gauge_lines, html_gauge, html_table, printable, text_table
from nbdata.sizes import counted, format_duration, format_size
from nbdata.snapshot import ACTIVE, FINISHED, WAITS_FOR_LOOP, Record, Snapshot

__all__ = [
    "ACTIVE",
    "BAD_OUTCOMES",
    "FINISHED",
    "WAITS_FOR_LOOP",
    "Plan",
    "Report",
    "Row",
    "Rows",
    "Snapshot",
]

#: Outcomes that make a job a failed one; `engine.job.outcomes` has the words for them.
BAD_OUTCOMES = ("mismatch", "missing", "failed", "conflict", "unrepresentable", "unreadable", "not deleted")

# What else a plan of cleanup names, and which of that is not removed.
_STAYS = ("in use", "keep")
_OF_CLEANUP = ("remove", "abort", *_STAYS)
# Most files of an action that a plan names in its text, and most failures that a report names.
_NAMED, _FAILURES = 20, 10


class Row(NamedTuple):
    """One object of a Plan or Report.

    Attributes
    ----------
    path : str
        Relative to the source.
    action : str
        The action to do, or done (``fetch``, ``unchanged``, ``failed``, ``mismatch`` …).
    size : int
        Bytes, or -1 where the store does not say.
    detail : dict
        Further facts: ETag, key, reason of a failure.
    """

    path: str
    action: str
    size: int
    detail: dict[str, Any]


Page = Callable[[int], "tuple[list[Row], int | None]"]


class Rows(Sequence[Row]):
    """The rows of a Plan or Report, fetched page by page while you iterate; a slice is a list of the rows in it."""

    def __init__(self, count: int = 0, page: Page | None = None) -> None:
        self._count = count
        self._page = page

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        offset: int | None = 0
        while offset is not None and self._page is not None:
            rows, offset = self._page(offset)
            yield from rows

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...

    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        if isinstance(at, slice):
            wanted = range(self._count)[at]
            ordered = wanted if wanted.step > 0 else wanted[::-1]
            found = list(
                itertools.islice(self, ordered.start, max(ordered.stop, ordered.start), ordered.step)
            )
            return found if wanted.step > 0 else found[::-1]
        number = range(self._count)[at]
        return next(itertools.islice(self, number, None))

    def __reversed__(self) -> Iterator[Row]:
        return iter(self[::-1])

    def __repr__(self) -> str:
        return f"<{counted(self._count, 'rows')}>"


def _words(counts: dict[str, int]) -> str:
    """Format counts, such as *1 folder, 40 extracted*."""
    return ", ".join(counted(count, name) for name, count in counts.items() if count)


def _table_lines(tables: list[dict[str, Any]]) -> list[str]:
    return [line for table in tables for line in text_table(table)[not table["caption"] :]]


@dataclass(eq=False)
class Plan(Record):
    """What an operation would do: counts, bytes and space; made without writing anything.

    Attributes
    ----------
    actions : dict
        Per action the number of objects and their bytes: ``{"fetch": [20, 20000000]}``.
    files, bytes : int
        Sum over all objects that would move.
    present : int
        Bytes that an earlier run has done already, and that would not be fetched again.
    needed : int
        Bytes of disk, rounded up to blocks, that must be free; 0 if none.
    at_least : bool
        Whether more than that may be needed; the exact need shows only during the work.
    inodes : int
        Files and folders that would be made.
    free : int or None
        Bytes that may still be used: the limit, minus bytes used and reserved by others.
    limit : int or None
        The limit in bytes; `limit_source` names it.
    fits : bool
        Whether it would start with the free space.
    empty : bool
        Whether the options select none of the existing objects; then it would not start either.
    notes : list of str
        Facts that the user should know before the start.
    """

    verb: str
    source: str = ""
    target: str = ""
    actions: dict[str, list[int]] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    present: int = 0
    needed: int = 0
    at_least: bool = False
    inodes: int = 0
    free: int | None = None
    limit: int | None = None
    limit_source: str = ""
    fits: bool = True
    empty: bool = False
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = Rows()

    @property
    def typical(self) -> int:
        """Average bytes of an object."""
        return self.bytes // max(1, self.files)

    def count(self, action: str, size: int) -> None:
        """Add one object to an action's sums."""
        sums = self.actions.setdefault(action, [0, 0])
        sums[0] += 1
        sums[1] += max(size, 0)

    def _size_of(self, action: str) -> str:
        """The bytes of an action; empty if they are unknown, as for the parts of an unfinished upload."""
        size = self.actions[action][1]
        return "" if self.verb == "cleanup" and not size else format_size(size)

    @property
    def line(self) -> str:
        """The plan in one line."""
        what = ", ".join(
            f"{action} {count:,}" + (f" ({size})" if (size := self._size_of(action)) else "")
            for action, (count, _) in self.actions.items()
        )
        text = f"{self.verb} {self.source}".rstrip() + (f" → {self.target}" if self.target else "")
        text += f": {what or ('nothing selected' if self.empty else 'nothing to do')}"
        if self.present:
            text += f"; {format_size(self.present)} of that are done already"
        if self.needed:
            text += f"; needs {'at least ' if self.at_least else ''}{format_size(self.needed)}"
        if self.needed and self.free is not None:
            text += f", {format_size(self.free)} free ({self.limit_source})"
        return printable(text + ("" if self.fits else "; DOES NOT FIT"))

    def text(self) -> str:
        """Return the plan for people: the line, notes, and the first twenty files that would be deleted or replaced."""
        lines = [self.line, *(f"  {printable(note)}" for note in self.notes)]
        return "\n".join([*lines, *(f"  {line}" for line in self._named())])

    def _named(self) -> list[str]:
        """Return files that conflict, stay, or would be deleted or replaced: the first twenty of each kind."""
        lines = []
        for action in ("conflict", "delete", "overwrite", "repair", *_OF_CLEANUP * (self.verb == "cleanup")):
            count = self.actions.get(action, [0, 0])[0]
            if not count:  # searching for them would read all rows
                continue
            for row in itertools.islice((row for row in self.rows if row.action == action), _NAMED):
                why = row.detail.get("reason") if action in (*_STAYS, "conflict") else ""
                lines.append(printable(f"{action} {row.path}" + (f": {why}" if why else "")))
            if count > _NAMED:
                lines.append(f"… and {count - _NAMED:,} more")
        return lines

    def __repr__(self) -> str:
        return f"<plan {self.text()}>"

    def _repr_html_(self) -> str:
        rows = [(action, f"{count:,}", self._size_of(action)) for action, (count, _) in self.actions.items()]
        return html_table(self.line, ("action", "objects", "bytes"), rows) + "".join(
            f"<div>{escape(printable(note))}</div>" for note in [*self.notes, *self._named()]
        )


@dataclass(eq=False)
class Report(Record):
    """What an operation did.

    Attributes
    ----------
    state : str
        ``DONE``, ``FAILED``, ``CANCELLED`` or ``INTERRUPTED``.
    counts : dict
        Objects by outcome: ``{"fetched": 20, "unchanged": 3, "failed": 0}``.
    files, bytes : int
        Objects and bytes that moved (or, for a check, were read).
    present : int
        The part of `bytes` that was there from an earlier run.
    verified, unverified : int
        Those of `files` that were compared with a stored checksum, and the others; 0 for verbs that compare none.
    seconds : float
        Wall time.
    failures : list of [path, reason]
        The first hundred; `rows` has all of them.
    details : dict
        Facts that only this verb has.
    headline : str
        The verb's own text for the line, in place of counts and seconds; usually empty.
    tables : list of dict
        Further tables of the verb: ``{"caption": str, "head": [str, …], "rows": [[str, …], …]}``. ``"foot"`` has rows,
        such as a total, that stay last when the table is sorted. With ``"failures": True`` the table replaces the usual
        list of failures.
    gauges : list of dict
        How full something is, in bytes: ``{"label": str, "total", "used", "reserved", "free": int,
        "level": "" | "high" | "full", "warning": str}``.
    """

    verb: str
    source: str = ""
    target: str = ""
    state: str = "DONE"
    counts: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    present: int = 0
    verified: int = 0
    unverified: int = 0
    seconds: float = 0.0
    retries: int = 0
    failures: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    headline: str = ""
    tables: list[dict[str, Any]] = field(default_factory=list)
    gauges: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = Rows()

    @property
    def ok(self) -> bool:
        """True if everything requested was done."""
        return self.state == "DONE"

    @property
    def failed(self) -> int:
        """Number of objects that failed."""
        return self.counts.get("failed", 0)

    @property
    def rate(self) -> float:
        """Bytes per second over the whole time; bytes from an earlier run do not count."""
        return (self.bytes - self.present) / self.seconds if self.seconds > 0 else 0.0

    @property
    def line(self) -> str:
        """The report in one true line."""
        what = f"{self.verb} {self.source}".rstrip() + (f" → {self.target}" if self.target else "")
        return f"{printable(what)}: {self.outcome}"

    @property
    def outcome(self) -> str:
        """What `line` says behind the verb and its places."""
        nothing = {"DONE": "nothing to do", "FAILED": "nothing was done"}.get(
            self.state, "no file was finished"
        )
        text = self.headline or _words(self.counts) or nothing
        if self.headline:
            bad = _words({name: self.counts.get(name, 0) for name in BAD_OUTCOMES})
            text += f"; {bad}" if bad and bad not in self.headline else ""
        elif self.bytes:
            text += (
                f"; {format_size(self.bytes)} in {format_duration(self.seconds)} ({format_size(self.rate)}/s)"
            )
        else:
            text += f"; {format_duration(self.seconds)}"
        if self.present:
            text += f", {format_size(self.present)} of them were there already"
        if self.retries:
            text += f", {self.retries:,} {'retry' if self.retries == 1 else 'retries'}"
        return printable(text if self.state == "DONE" else f"{text}. {self.state}")

    @property
    def table_lines(self) -> list[str]:
        """The tables as aligned text, line by line."""
        return _table_lines(self.tables)

    def body_lines(self, tables: list[dict[str, Any]]) -> list[str]:
        """The lines below the first: gauges, the tables to show, and notes."""
        gauges = [line for gauge in self.gauges for line in gauge_lines(gauge)]
        return [*gauges, *_table_lines(tables), *map(printable, self.notes)]

    def _tables(self, raised: bool) -> list[dict[str, Any]]:
        """Return the tables to show: without the one failure that an error names."""
        return [t for t in self.tables if not (raised and t.get("failures") and len(t["rows"]) == 1)]

    def text(self, *, raised: bool = False) -> str:
        """The report for people: the line, gauges, tables, notes, and the first failures; `raised` as for `html`."""
        lines = [self.line, *(f"  {line}" for line in self.body_lines(self._tables(raised)))]
        failures = [] if raised and len(self.failures) == 1 else self._named()
        named = [f"{path}: {reason}" if path else reason for path, reason in failures]
        lines += [f"  {printable(line)}" for line in named]
        return "\n".join([*lines, *(f"  {line}" for line in self._unnamed())])

    @property
    def _in_table(self) -> bool:
        return any(table.get("failures") for table in self.tables)

    def _named(self) -> list[list[str]]:
        return [] if self._in_table else self.failures[:_FAILURES]

    def _unnamed(self) -> list[str]:
        """Return a note that there are more failures than are shown."""
        more = 0 if self._in_table else max(len(self.failures), self.failed) - _FAILURES
        return [f"… and {counted(more, 'more failures')}: the report's rows have all"] if more > 0 else []

    def __repr__(self) -> str:
        return "\n".join([f"<{self.line}>", *self.table_lines])

    def _repr_html_(self) -> str:
        return self.html()

    def html(self, *, raised: bool = False) -> str:
        """The report in a cell: the line, gauges, tables, failures and notes.

        Parameters
        ----------
        raised : bool
            Whether an error is raised for it, which names the only failure: then that is left out here. The line has
            all counts either way, since a saved notebook must not look like success.
        """
        levels = {gauge["level"] for gauge in self.gauges}
        color = "bad" if self.state == "FAILED" or "full" in levels else "good"
        if color == "good" and (self.state != "DONE" or "high" in levels):
            color = "warning"
        named, one = self._named(), len(self.failures) == 1
        head = escape(self.line)
        if one and named and not raised:
            head += f"<div>{escape(printable(': '.join(filter(None, named[0]))))}</div>"
        parts = [edged(head, color), *(html_gauge(gauge) for gauge in self.gauges)]
        if self.headline and (counts := [(name, f"{n:,}") for name, n in self.counts.items() if n]):
            parts.append(html_table("", ("outcome", "objects"), counts))  # else the line has them
        if named and not one:
            parts.append(html_table("failures", ("object", "reason"), [(p or "–", why) for p, why in named]))
        parts += [
            html_table(t["caption"], t["head"], t["rows"], t.get("foot", ())) for t in self._tables(raised)
        ]
        parts += [f"<div>{escape(printable(note))}</div>" for note in [*self._unnamed(), *self.notes]]
        return "".join(parts)
