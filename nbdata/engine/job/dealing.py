"""Work that is dealt in parts to other processes: what a part is, and what its performer sends back.

A part is a plan with fewer rows. The verb's own `perform` carries it out in another process, in a `Run` with `as_part`.
Such a run has records in memory in place of the index, and neither lock, mark nor reservation. All of these stay with
the coordinator, which is the process of the job. It deals the parts and merges what they send back, so a part that was
performed twice counts once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import zstandard

from nbdata.errors import NbdataError, error_from_dict
from nbdata.report import Plan, Row
from nbdata.transfer.index import Record
from nbdata.transfer.part_index import PartIndex
from nbdata.transfer.staged_files import StagedFile

__all__ = [
    "MOST",
    "Dealer",
    "Dealt",
    "Moved",
    "Outcomes",
    "Part",
    "PartReport",
    "encoded_report",
    "encoded_rows",
    "report_in",
    "rows_in",
]


# A report has a count called bytes.
_Bytes = bytes
#: The most rows of a part: a worker and the coordinator hold them in memory.
MOST = 4096
# Bytes for the size of what is compressed in a report.
_SIZE_BYTES = 4


class Moved(NamedTuple):
    """The counts of a part, as `Control.advance` takes them; `bytes` are without those present before."""

    files: int = 0
    bytes: int = 0
    present: int = 0
    failures: int = 0


@dataclass(eq=False)
class Outcomes:
    """The sums of the outcomes of objects. `nbdata.engine.job.results.Results` adds to them.

    Attributes
    ----------
    counts : dict of str to int
        Objects by outcome; a verb may add other counts.
    files, bytes, present : int
        The objects and bytes that were moved, and the part of these bytes that an earlier run had moved.
    verified : dict of bool to int
        The moved objects, by whether they were verified.
    failures : list of [path, reason]
    notes : list of str
    tallies : dict of str to int
        Counts that become notes at the end: each is followed by its text.
    sums : dict of str to int
        Counts that become details of the Report.
    """

    counts: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    present: int = 0
    verified: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    failures: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tallies: dict[str, int] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)


@dataclass
class Part:
    """What the run of a part holds beside its plan; filled while it is performed.

    Attributes
    ----------
    index : PartIndex
        The known records of its objects, and those that it makes.
    token : str
        The beginning of the names of the job's temporaries.
    staged : list of StagedFile
        Files that are complete and on disk, and wait for their final names.
    outcomes : Outcomes or None
        The outcomes of its objects, from the beginning of performing on.
    details : dict
        What else its verb tells the coordinator, as JSON-able data.
    data : bytes
        The same as bytes.
    """

    index: PartIndex
    token: str = ""
    staged: list[StagedFile] = field(default_factory=list)
    outcomes: Outcomes | None = None
    details: dict[str, Any] = field(default_factory=dict)
    data: _Bytes = b""


@dataclass
class PartReport:
    """What the performer of a part sends back, as plain data.

    Attributes
    ----------
    rows : list of Row
        The outcomes of objects, without those of `staged` files.
    records : dict
        Records for the index by path; None removes one.
    staged : list of StagedFile
    files, bytes, present, verified, unverified : int
        As in a Report.
    tallies, sums : dict of str to int
        See `Outcomes`.
    notes : list of str
    about : list of str
        Notes about the stores and the disk, which are the same for many parts.
    details : dict
    data : bytes
        See `Part`.
    moved : Moved
    seconds : float
        How long the part took.
    retries : int
        How many requests were made again, and
    why_again : str
        the reason of the last one.
    error : NbdataError or None
        The error that ended the part; the rest of the report holds what was done before.
    """

    rows: list[Row] = field(default_factory=list)
    records: dict[str, Record | None] = field(default_factory=dict)
    staged: list[StagedFile] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    present: int = 0
    verified: int = 0
    unverified: int = 0
    tallies: dict[str, int] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    about: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    data: _Bytes = b""
    moved: Moved = field(default_factory=Moved)
    seconds: float = 0.0
    retries: int = 0
    why_again: str = ""
    error: NbdataError | None = None


def encoded_report(report: PartReport) -> bytes:
    """Return a report as bytes, from which `report_in` rebuilds it: compressed JSON, and its `data` as they are."""
    values: dict[str, Any] = vars(report) | {"error": report.error.to_dict() if report.error else None}
    del values["data"]
    packed = _packed(values)
    return len(packed).to_bytes(_SIZE_BYTES, "big") + packed + report.data


def report_in(data: bytes) -> PartReport:
    """Rebuild a report from `encoded_report`."""
    end = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "big")
    values = {**_unpacked(data[_SIZE_BYTES:end]), "data": data[end:]}
    values["rows"] = list(map(Row._make, values["rows"]))
    values["records"] = {path: line and Record(*line) for path, line in values["records"].items()}
    values["staged"] = list(map(StagedFile._make, values["staged"]))
    values["moved"] = Moved(*values["moved"])
    values["error"] = error_from_dict(values["error"]) if values["error"] else None
    return PartReport(**values)


def encoded_rows(rows: Iterable[Row], known: Mapping[str, Record], facts: Mapping[str, object]) -> bytes:
    """Return the rows of a part as bytes, with the known records of their objects and facts about the job."""
    return _packed([facts, known, list(rows)])


def rows_in(data: bytes) -> tuple[dict[str, Any], dict[str, Record], list[Row]]:
    """Return the facts, known records and rows from `encoded_rows`."""
    facts, known, rows = _unpacked(data)
    return facts, {path: Record(*record) for path, record in known.items()}, list(map(Row._make, rows))


def _packed(value: object) -> bytes:
    """Return JSON, compressed: Dask keeps the latest messages of each connection, and rows are alike."""
    text = json.dumps(value, separators=(",", ":")).encode("ascii")
    return zstandard.ZstdCompressor(level=1).compress(text)


def _unpacked(data: bytes) -> Any:
    return json.loads(zstandard.ZstdDecompressor().decompress(data))


class Dealt(Protocol):
    """Work that is dealt in parts; `nbdata.engine.job.dealt_plan.DealtPlan` implements it."""

    @property
    def plan(self) -> Plan:
        """The plan of the whole job."""

    @property
    def most(self) -> int:
        """The most rows of a part."""

    def facts(self, rows: list[Row]) -> dict[str, object]:
        """Return what the performer of a part must know beside the operation and the rows, as JSON-able data."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows to deal."""

    def begin(self, rows: list[Row]) -> list[Row]:
        """Prepare a part that is about to be dealt; return its rows, without those that failed just now."""

    def known(self, path: str) -> Record | None:
        """Return the record of an object, if its performer needs it."""

    def may_repeat(self, rows: Collection[Row]) -> bool:
        """Return whether a part may be dealt again while it may still be performed."""

    def take(self, rows: Mapping[str, Row], part: PartReport) -> None:
        """Merge the report of a part.

        Parameters
        ----------
        rows : dict of str to Row
            The part's rows by path.
        part : PartReport

        Raises
        ------
        NbdataError
            If it reports other objects; or the error that ended the part, after all else was merged.
        """


class Dealer(Protocol):
    """Deals the work of one job to the workers of a cluster."""

    def deal(self, work: Dealt) -> None:
        """Have all rows of the work performed; returns when all are done, or raises the error that ends the job."""

    def told(self) -> dict[str, object]:
        """Return details for the Report: which worker performed which part, and when."""
