"""Progress and results as text, for terminals and plain output."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from nbdata.errors import AgentUnavailable, NbdataError
from nbdata.interrupts import Held
from nbdata.protocols import Job
from nbdata.rendering import printable
from nbdata.report import Report, Snapshot
from nbdata.sizes import format_duration, format_size

__all__ = ["Follower", "TextDisplay", "numbers_of"]

# Jobs that end sooner than this many seconds show no bar.
_SHOW_AFTER = 0.5


class Follower:
    """Follows a foreground job for a display; subclasses say how it looks."""

    def follow(self, job: Job, *, quiet: bool = False, held: Held | None = None) -> Report:
        """Show a foreground job until it ends, and return its Report or raise its error.

        Ctrl-C cancels the job, which can be resumed. If others wait for it too, or it started in the background, Ctrl-C
        only detaches. If the agent does not answer, Ctrl-C ends the wait, and the error says so.
        """
        last: Snapshot | None = None
        try:
            if held is not None:
                held.let_through()
            if not quiet:
                self.begin(job)
            for last in job.watch():
                if not quiet:
                    self.update(last)
            report = job.report()
            raised = _raised_by(job)
        except KeyboardInterrupt:
            with _no_more_interrupts():
                try:
                    if job.interrupt():
                        # Not "stopped": when the kernel is being restarted, the agent continues the job.
                        text = f"interrupted; {(last or job.snapshot()).stopped_means}"
                    else:
                        text = f"detached: job {job.id} continues; transfers {job.id} --cancel stops it"
                except NbdataError as error:
                    if not quiet:
                        self.lost(error)
                    if not isinstance(error, AgentUnavailable) or not error.details.get("alive"):
                        raise
                    error.message += ", and stops the job once it goes on"
                    raise KeyboardInterrupt(str(error)) from error
                if not quiet:
                    self.end(text, None)
            raise
        except BaseException as error:
            if not quiet:
                self.lost(error)
            raise
        if not quiet:
            # An error that has no rows to show says everything in its own line.
            has_rows = report.ok or any(report.counts.values())
            self.end(report.line if has_rows else "", report if has_rows else None, raised=raised is not None)
        if raised is not None:
            raise raised
        return report

    def begin(self, job: Job, *, bound: bool = False) -> None:
        """Called before the first snapshot."""

    def update(self, snapshot: Snapshot) -> None:
        """Called at each change, at most four times a second."""

    def end(self, text: str, report: Report | None, *, raised: bool = False) -> None:
        """Called once at the end, with the final line and the report if there is one.

        `raised` says that an error follows, which says what went wrong.
        """

    def lost(self, error: BaseException) -> None:
        """Called in place of `end` if the state of the job can no longer be known."""
        self.end("", None)


def _raised_by(job: Job) -> NbdataError | None:
    """Return the error that an ended job raises in a waiting process."""
    try:
        job.wait()
    except NbdataError as error:
        return error
    return None


class TextDisplay(Follower):
    """A bar on stderr while a job runs, and one final line at its end on the same stream.

    Parameters
    ----------
    stream : TextIO, optional
        Where to write (None: stderr).
    result : bool
        Whether the report is written at the end; a command line prints it itself.
    tables : bool
        Whether that includes its tables; a Python prompt prints them with the value of the call.
    """

    def __init__(self, stream: TextIO | None = None, *, result: bool = True, tables: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._result, self._tables = result, tables
        self._bar: _Bar | None = None
        self._line = ""

    def begin(self, job: Job, *, bound: bool = False) -> None:
        if attached := getattr(job, "attached", ""):
            self._stream.write(f"{attached}\n")
        self._bar = _Bar(self._stream)

    def update(self, snapshot: Snapshot) -> None:
        if self._bar is not None:
            self._bar.show(snapshot)

    def end(self, text: str, report: Report | None, *, raised: bool = False) -> None:
        del raised
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()
        if text and (report is None or self._result):
            lines = report.body_lines(report.tables if self._tables else []) if report else []
            self._stream.write("\n".join([text, *(f"  {line}" for line in lines)]) + "\n")

    def tell(self, text: str) -> None:
        if self._stream.isatty() and (text or self._line):
            self._stream.write(f"\r\x1b[K{printable(text)}")
            self._stream.flush()
        self._line = text


class _Bar:
    """One progress bar for a whole job, with the numbers from the job itself.

    tqdm only draws it. It would measure how fast this process receives news of work done earlier.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._tqdm: Any = None
        self._told = ""

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.finished:  # the final line that follows says more
            return
        waits = snapshot.condition if snapshot.reason else ""
        if not self._stream.isatty():
            if waits and waits != self._told:
                self._stream.write(f"{printable(f'{snapshot.verb}: {waits}')}\n")
                self._stream.flush()
            self._told = waits
            return
        if self._tqdm is None:
            if snapshot.seconds < _SHOW_AFTER and not waits:
                return
            from tqdm import tqdm

            self._tqdm = tqdm(
                file=self._stream,
                leave=False,
                delay=1e-9,  # else it draws at once, before there is anything to show
                dynamic_ncols=True,
                bar_format=f"{snapshot.verb} |{{bar}}| {{desc}}",
            )
        share = snapshot.share
        self._tqdm.total, self._tqdm.n = (None, 0) if share is None else (1.0, share)
        self._tqdm.set_description_str(_details(snapshot), refresh=False)
        self._tqdm.refresh()

    def close(self) -> None:
        if self._tqdm is not None:
            self._tqdm.close()


def _details(snapshot: Snapshot) -> str:
    """Return the numbers, and the state if it is unusual. The least important comes last, where it may be cut off."""
    moving = snapshot.moving
    unusual = snapshot.phase if moving else snapshot.condition
    return printable(", ".join([unusual] * bool(unusual) + numbers_of(snapshot, moving=moving)))


def numbers_of(snapshot: Snapshot, *, moving: bool) -> list[str]:
    """Return share, time left, bytes, rate, files, retries and failures, as far as they are known.

    Rate and time left are the job's own, over its last seconds and without bytes from earlier runs. Only a `moving` job
    has them.
    """
    words = []
    if snapshot.percent:
        words.append(snapshot.percent)
    if moving and snapshot.eta is not None:
        words.append(f"{format_duration(snapshot.eta)} left")
    if snapshot.bytes_total:
        words.append(f"{format_size(snapshot.bytes)} of {format_size(snapshot.bytes_total)}")
    elif snapshot.bytes:
        words.append(format_size(snapshot.bytes))
    if moving and snapshot.rate:
        words.append(f"{format_size(snapshot.rate)}/s")
    if snapshot.files_total:
        words.append(f"{snapshot.files:,}/{snapshot.files_total:,} {snapshot.unit}")
    elif snapshot.files:
        words.append(f"{snapshot.files:,} {snapshot.unit}")
    if snapshot.retries:
        words.append(f"{snapshot.retries:,} {'retry' if snapshot.retries == 1 else 'retries'}")
    if snapshot.failures:
        words.append(f"{snapshot.failures:,} failed")
    return words


@contextlib.contextmanager
def _no_more_interrupts() -> Iterator[None]:
    """Ignore a second Ctrl-C, so that the first is still reported."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
