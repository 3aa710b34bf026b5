"""The report of reading so far, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from nbdata.reading.counts import Counts
from nbdata.reading.timeline import Timeline
from nbdata.redaction import printable
from nbdata.sizes import counted, format_duration, format_size

__all__ = ["Counts", "ReadReport", "Timeline", "left_out_line"]


def left_out_line(count: int, names: Sequence[str]) -> str:
    """Say how many files belong to no sample, and name some of them."""
    shown = printable(", ".join(names)) + (", …" if count > len(names) else "")
    return f"{count:,} {'file belongs' if count == 1 else 'files belong'} to no sample: {shown}"


@dataclass(frozen=True)
class ReadReport:
    """The statistics of reading so far; ``print`` shows them as one sentence.

    Attributes
    ----------
    samples, bytes : int
        Samples handed out, and their bytes.
    seconds : float
        Time from the first request to the last sample handed out.
    waited : float
        The part of `seconds` in which a caller had to wait. If more than a few percent, read further ahead, with
        more workers, or from a nearer store.
    unverified : int
        Objects without a checksum in the store to compare with; 0 with ``verify="none"``, and for files on a disk.
    left_out : int
        Files of the source that belong to no sample.
    left_out_names : tuple of str
        The first names of those.
    timeline : Timeline
        The times of waiting; a notebook shows them.
    hits, fetched : int
        With ``cache=``: bytes that were in the cache when needed, and bytes of the objects that had to be fetched
        to it.
    dropped : int
        Of a loader: samples of each whole epoch that no rank gets, because they do not fill a step.
    repeated : int
        Of a loader: samples of each whole epoch that come once more, to fill the last step.
    crowding : int
        Of a loader with ``cache=``: bytes of the batches ahead, if they take most of the cache and leave few hits.
    rank : str
        Of a loader: the rank that it reads for, and what says so; empty if there is one alone.
    """

    samples: int = 0
    bytes: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    unverified: int = 0
    left_out: int = 0
    left_out_names: tuple[str, ...] = ()
    timeline: Timeline = field(default_factory=Timeline, compare=False)
    hits: int = 0
    fetched: int = 0
    dropped: int = 0
    repeated: int = 0
    crowding: int = 0
    rank: str = ""

    def __str__(self) -> str:
        text = f"{counted(self.samples, 'samples')}, {format_size(self.bytes)}"
        if self.seconds > 0:
            text += (
                f" in {format_duration(self.seconds)}: {self.samples / self.seconds:,.4g} samples/s, "
                f"{format_size(self.bytes / self.seconds)}/s; waited {format_duration(self.waited)} for them "
                f"({min(1.0, self.waited / self.seconds):.0%})"
            )
        if self.hits or self.fetched:
            text += (
                f"; {format_size(self.hits)} were in the cache ({self.hits / (self.hits + self.fetched):.0%}), "
                f"{format_size(self.fetched)} were fetched to it"
            )
        if self.crowding:
            text += (
                f" (the batches ahead take about {format_size(self.crowding)} of the cache; "
                "a larger cache= or a smaller ahead= leaves more for the next epoch)"
            )
        if self.rank:
            text += f"; for {self.rank}"
        if self.unverified:
            text += f"; {counted(self.unverified, 'objects')} had no checksum to compare with"
        if self.dropped:
            text += f"; {counted(self.dropped, 'samples')} of each epoch, which fill no step, are left out"
        if self.repeated:
            text += (
                f"; {counted(self.repeated, 'samples')} of each epoch come once more, to fill the last step"
            )
        if self.left_out:
            text += f"; {left_out_line(self.left_out, self.left_out_names[:3])}"
        return text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<div>{escape(str(self))}</div>" + (self.timeline.html() if self.seconds else "")
