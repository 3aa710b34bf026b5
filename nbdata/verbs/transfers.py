"""The verb transfers: shows and controls the jobs of all kernels and terminals."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import Operation, function_of, slots
from nbdata.option import argument, option
from nbdata.rendering import dim, printable, text_table, width_of
from nbdata.report import Report, Snapshot
from nbdata.sizes import format_duration, format_size
from nbdata.verbs.job_rows import amount, rows_html
from nbdata.verbs.options import refuse_slow

__all__ = ["JobList", "Transfers", "transfers"]


# The number of jobs that a list shows, unless all are requested.
_SHOWN = 20
_PLACES = 2
_SILENT = "an agent does not answer, so its transfers are missing here; `nbdata agent status` says more"
_HEAD = ("id", "verb", "source → target", "state", "done", "rate", "age", "owner")
# Characters of a state with its reason in a terminal; HTML wraps, and has all of it.
_STATE_WIDTH = 60
# Width of the table if it is not for a terminal, and the least width to which source and target are cut.
_PIPED_WIDTH, _PLACES_WIDTH = 160, 40


class JobList(list[Snapshot]):
    """A list of job snapshots, running ones first, then the newest; displays as a table.

    Parameters
    ----------
    jobs : iterable of Snapshot
    limit : int, optional
        The number of jobs to show (None: all); the list itself always has all.
    whole : bool
        Whether these are all existing jobs.
    silent : bool
        Whether jobs are missing, because an agent does not answer.
    """

    def __init__(
        self,
        jobs: Iterable[Snapshot] = (),
        *,
        limit: int | None = _SHOWN,
        whole: bool = False,
        silent: bool = False,
    ) -> None:
        super().__init__(sorted(jobs, key=lambda s: (s.finished, -s.created)))
        self.limit, self.whole, self.silent = limit, whole, silent
        self.at = time.time()

    @property
    def active(self) -> bool:
        """True if a job has not ended yet."""
        return any(not snapshot.finished for snapshot in self)

    @property
    def more(self) -> str:
        """A line about the jobs that are not shown; empty if all are."""
        hidden = 0 if self.limit is None else max(0, len(self) - self.limit)
        told = f"and {hidden:,} more: transfers --all shows them" if hidden else ""
        return "; ".join(filter(None, [told, _SILENT if self.silent else ""]))

    def text(self) -> str:
        """Return the table as aligned lines; a few lines per job if the terminal is too narrow for the table."""
        if not self:
            return _SILENT if self.silent else "no transfers"
        rows = [[*_cells(s, self.at)] for s in self[: self.limit]]
        whole = [line for s in self if not self.whole and len(self) == 1 for line in _reason(s)]
        for row in rows:
            if len(row[3]) > _STATE_WIDTH:
                row[3] = f"{row[3][: _STATE_WIDTH - 1]}…"
        width = _terminal_width()
        if len(rows) > 1 or self.whole:
            others = [*map(width_of, _HEAD)]
            for row in rows:
                others = [max(known, width_of(cell)) for known, cell in zip(others, row, strict=True)]
            left = (width or _PIPED_WIDTH) - sum(others) + others[_PLACES] - 2 * (len(_HEAD) - 1)
            for row in rows:
                row[_PLACES] = _cut(row[_PLACES], max(left, _PLACES_WIDTH))
        lines = [
            line.removeprefix("  ") for line in text_table({"caption": "", "head": [*_HEAD], "rows": rows})
        ]
        if 0 < width < max(map(width_of, lines)):
            lines = ["", *(line for row in rows for line in _in_lines(row))]
        return "\n".join([*lines[1:], *whole, *filter(None, [self.more])])

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return "".join(self.html_parts()) or "<div>no transfers</div>"

    def html_parts(self, name: str = "") -> tuple[str, str]:
        """Return the HTML of the running jobs, which changes all the time, and of the ended jobs, which does not.

        `name` is that of a list that is drawn again.
        """
        over_name = f"{name}-over" if name else ""
        shown = self[: self.limit]
        opened = not self.whole and len(self) == 1
        ids = max((len(s.id) for s in shown), default=0)  # of all, so that both have the same columns
        running = rows_html((s for s in shown if not s.finished), ids=ids, opened=opened, name=name)
        over = rows_html((s for s in shown if s.finished), ids=ids, opened=opened, name=over_name)
        return running, over + (dim(escape(self.more)) if self.more else "")


def _reason(snapshot: Snapshot) -> list[str]:
    """Why a job is as it is and what to do, in full, if the row cuts it or does not have it."""
    remedy = (snapshot.error or {}).get("remedy", "") if snapshot.state == "FAILED" else ""
    if len(snapshot.condition) <= _STATE_WIDTH and not remedy:
        return []
    return [
        f"  {line}" for line in printable(". ".join(filter(None, [snapshot.condition, remedy]))).splitlines()
    ]


def _terminal_width() -> int:
    """Return the width of the terminal on stdout; 0 if stdout is not a terminal."""
    return shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0


def _cut(text: str, width: int) -> str:
    """Cut a text in its middle, so that both its ends stay."""
    half = (width - 1) // 2
    return text if len(text) <= width else f"{text[:half]}…{text[half - width + 1 :]}"


def _in_lines(row: Sequence[str]) -> list[str]:
    """Return a row of the table as lines for a narrow terminal: the job, its places, its progress."""
    name, verb, places, condition, done, rate, age, owner = map(printable, row)
    far = ", ".join(cell for cell in (done, rate) if cell != "–")
    return [
        f"{name}  {verb}, {condition}",
        *(
            f"      {line}"
            for line in (places, far, f"{age} ago by {owner}" if owner else f"{age} ago")
            if line
        ),
    ]


def _cells(snapshot: Snapshot, now: float) -> tuple[str, ...]:
    """Return a job as the cells of a row."""
    places = snapshot.source + (f" → {snapshot.target}" if snapshot.target else "")
    moving = snapshot.rate and snapshot.moving
    rate = f"{format_size(snapshot.rate)}/s" if moving else "–"
    if snapshot.max_rate is not None and not snapshot.finished:
        rate += f" (limit {format_size(snapshot.max_rate)}/s)"
    age = format_duration(round(max(0.0, now - snapshot.created)))
    does = snapshot.moving and snapshot.phase
    return (
        snapshot.id,
        snapshot.verb,
        places or "–",
        f"running: {snapshot.phase}" if does else snapshot.condition,
        amount(snapshot) or "–",
        rate,
        age,
        snapshot.owner,
    )


@dataclass(frozen=True)
class Transfers(Operation):
    """Transfers lists running and finished jobs, no matter which kernel or terminal started them. Running
    jobs come first, then the newest. At most 20 are shown unless you give ``--all``.
    """

    verb: ClassVar[str] = "transfers"
    summary: ClassVar[str] = (
        "Show the jobs of all kernels and terminals; pause, resume, cancel or wait for one."
    )
    examples: ClassVar[tuple[str, ...]] = (
        "transfers",
        "transfers --all",
        "transfers 3f2a91 --cancel",
        "transfers 3f2a91 --max-rate 5MB",
        "transfers 3f2a91 --wait",
    )
    query: ClassVar[bool] = True

    job: str | None = argument("Id of a job. Default: all jobs.", default=None, kind="job", metavar="JOB")
    pause: bool = option(False, "Pause the job until --resume.", kind="flag")
    resume: bool = option(False, "Continue the job after --pause.", kind="flag")
    cancel: bool = option(False, "Stop the job. Run its command again to resume it.", kind="flag")
    wait: bool = option(False, "Show the progress of the job and wait for its end.", kind="flag")
    max_rate: int | None = option(
        None,
        "Limit the job to SIZE bytes per second from now on, such as 10MB or 10MB/s; 0 lifts the limit. It also holds "
        "if the job is begun again.",
        kind="size",
        per_second=True,
        metavar="SIZE",
    )
    all: bool = option(
        False, "List all remembered jobs, not only 20; --json has all without it.", kind="flag"
    )

    def check(self) -> None:
        chosen = [name for name in ("pause", "resume", "cancel", "wait") if getattr(self, name)]
        chosen += ["max-rate"] if self.max_rate is not None else []
        refuse_slow(self.max_rate or None)
        if len(chosen) > 1:
            raise BadOption(f"--{chosen[0]} and --{chosen[1]} exclude each other", remedy="Choose one")
        if chosen and self.job is None:
            raise BadOption(f"--{chosen[0]} needs a JOB", remedy="transfers without options lists their ids")
        if self.all and self.job is not None:
            raise BadOption("--all and a JOB exclude each other", remedy="Leave one of them out")

    def run(self, *, quiet: bool = False) -> JobList | Report:
        """Carry out the options; return the jobs, or with ``wait`` the Report."""
        host = slots.host()
        if self.job is None:
            jobs, silent = host.look()
            return JobList(jobs, limit=None if self.all else _SHOWN, whole=True, silent=silent)
        job = host.job(self.job)
        if self.wait:
            return slots.display().follow(job, quiet=quiet)
        for action in ("pause", "resume", "cancel"):
            if getattr(self, action):
                _refuse(action, job.snapshot())
                getattr(job, action)()
        if self.max_rate is not None:
            job.max_rate = self.max_rate or None
        return JobList([job.snapshot()])


def _refuse(action: str, snapshot: Snapshot) -> None:
    """Raise BadOption if a job cannot be paused, resumed or cancelled; a job that is already so is no error."""
    state = snapshot.state.lower()
    told = f"--{action}: job {snapshot.id} is {state}"
    line = f"{snapshot.verb} {snapshot.source}" + (f" {snapshot.target}" if snapshot.target else "")
    if snapshot.state == "DONE":
        raise BadOption(f"{told}: there is nothing left to {action}", remedy=f"`{line}` checks for changes")
    if snapshot.finished or (snapshot.state == "CANCELLING" and action != "cancel"):
        raise BadOption(
            f"{told}, so there is nothing to {action}",
            remedy=f"Run its command again (`{line}` with the same options) to resume",
        )


transfers = function_of(Transfers)
