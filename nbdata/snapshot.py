"""The state of a job at one moment, as plain data that faces render and processes exchange as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from nbdata.cell_variables import has_variable
from nbdata.redaction import printable
from nbdata.sizes import format_size

__all__ = ["ACTIVE", "FINISHED", "WAITS_FOR_LOOP", "Record", "Snapshot"]

# The states of a job; engine.job.task documents the allowed transitions.
ACTIVE = ("QUEUED", "PLANNING", "RUNNING", "PAUSED", "CANCELLING")
FINISHED = ("DONE", "FAILED", "CANCELLED", "INTERRUPTED")


#: The phase of a stream that has fetched all that there is room for, and that nobody reads.
WAITS_FOR_LOOP = "waits for your loop"

_Data = TypeVar("_Data", bound="Record")


@dataclass(eq=False)
class Record:
    """Conversion to and from JSON; unknown keys are dropped, so a record of another version can be read."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON-able data, without the rows."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[_Data], data: dict[str, Any]) -> _Data:
        """Rebuild a record from `to_dict`."""
        names = cls.__dataclass_fields__  # `fields` makes them anew for each of a thousand jobs
        return cls(**{key: value for key, value in data.items() if key in names})


@dataclass
class Snapshot(Record):
    """The state of a job at one moment; faces only render it.

    `bytes_total` and `files_total` are None while unknown. `present` counts those of `bytes` that were there from an
    earlier run and did not move. Of the files that moved, `verified` counts those that were compared with a stored
    checksum, and `unverified` the others; both are 0 while the job is unfinished, and for verbs that compare none.
    `rate` is bytes per second over the last seconds; `eta` is in seconds, None if unknown. `command` starts the
    operation again, without ``%``; empty if no command can. `writes_to` is the local folder that it writes to; empty
    if there is none. `max_rate` is its limit in bytes per second, None without one. `notebook` is the path of the
    notebook that began it; empty if that is not known.
    """

    id: str
    verb: str
    source: str = ""
    target: str = ""
    state: str = "QUEUED"
    reason: str = ""
    phase: str = ""
    files: int = 0
    files_total: int | None = None
    bytes: int = 0
    bytes_total: int | None = None
    present: int = 0
    verified: int = 0
    unverified: int = 0
    rate: float = 0.0
    eta: float | None = None
    retries: int = 0
    failures: int = 0
    created: float = 0.0
    seconds: float = 0.0
    background: bool = False
    owner: str = ""
    notebook: str = ""
    command: str = ""
    writes_to: str = ""
    max_rate: int | None = None
    error: dict[str, Any] | None = None
    version: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON-able data; faster than `asdict`, since panels ask for all jobs often."""
        return dict(vars(self))

    @property
    def finished(self) -> bool:
        """True if the job is over, with any outcome."""
        return self.state in FINISHED

    @property
    def moving(self) -> bool:
        """True if it runs, and does not wait for the loop that reads it."""
        return self.state == "RUNNING" and self.phase != WAITS_FOR_LOOP

    @property
    def unit(self) -> str:
        """The noun for what `files` counts."""
        return {"cache_stream": "items", "ls": "objects", "du": "objects"}.get(self.verb, "files")

    @property
    def _progress(self) -> tuple[int, int]:
        """What is done and the total: in bytes, else in files; the total is 0 while unknown."""
        done, total = (self.bytes, self.bytes_total) if self.bytes_total else (self.files, self.files_total)
        return min(done, total or 0), total or 0

    @property
    def share(self) -> float | None:
        """How much is done, from 0 to 1; None while unknown."""
        done, total = self._progress
        return done / total if total else None

    @property
    def percent(self) -> str:
        """How much is done, such as *42%*: 100% only when nothing is missing; empty while unknown."""
        done, total = self._progress
        return f"{100 * done // total}%" if total else ""

    @property
    def said_again(self) -> str:
        """The effect of running the command again after an early stop."""
        return f"run it again to {'start over' if self._starts_over else 'resume'}"

    @property
    def _starts_over(self) -> bool:
        return self.verb in ("md5check", "cache_stream", "shards", "ls", "du")

    @property
    def stopped_means(self) -> str:
        """The effect of a stop: what is kept, and what running the command again does."""
        done = "whole files and parts are" if self.verb == "push" else "what was done is"
        return self.said_again if self._starts_over else f"{done} kept; {self.said_again}"

    @property
    def why_no_command(self) -> str:
        """Why `command` cannot be copied: as one line it would name something else. Empty if it can, or is unknown."""
        if printable(self.command) != self.command:
            odd = "a name has a line break or another control character"
        elif has_variable(self.command):
            odd = "a name has $ or braces, which a cell takes for a variable"
        else:
            return ""
        return f"{odd}; nbdata.{self.verb}(…) in Python takes it"

    @property
    def condition(self) -> str:
        """The state in words, with its reason, unless the reason is the user."""
        if self.state == "FAILED" and self.error:
            return f"failed: {self.error.get('message', '')}"
        if self.state == "RUNNING" and not self.moving:
            return WAITS_FOR_LOOP
        shows_reason = self.state in ("INTERRUPTED", "CANCELLED") or not self.finished
        usual = not self.reason or not shows_reason or (self.state, self.reason) == ("PAUSED", "user")
        return self.state.lower() if usual else f"{self.state.lower()}: {self.reason}"

    @property
    def line(self) -> str:
        """The job in one line, for lists."""
        text = f"{self.id}  {self.state.lower()}"
        if self.reason:
            text += f" ({self.reason})"
        text += f"  {self.verb} {self.source}"
        if self.target:
            text += f" → {self.target}"
        return printable(f"{text}  {_share(self.bytes, self.bytes_total)}")


def _share(done: int, total: int | None) -> str:
    return format_size(done) if total is None else f"{format_size(done)} of {format_size(total)}"
