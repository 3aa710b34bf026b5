"""The iterable of ``cache_stream``: each loop over it takes the items of one job that is bound to this process."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType

from nbdata.client.waits import Waits
from nbdata.errors import AgentUnavailable, BadOption, NbdataError, TransferFailed
from nbdata.operation import Operation, slots
from nbdata.protocols import Display, Item, Job
from nbdata.redaction import redacted
from nbdata.report import WAITS_FOR_LOOP, Report, Snapshot
from nbdata.sizes import counted, format_duration, format_size

__all__ = ["Stream", "make_stream"]

# Most items that the agent may send ahead; they wait in the socket, and their files in the cache.
_CREDIT = 16
# Seconds between two updates of the display, and seconds after which a loop that asks for nothing is looked at.
_SHOW_EVERY, _SILENT = 0.5, 1.0


class Stream:
    """Items of a store, fetched ahead into a bounded folder; `nbdata.cache_stream` makes it.

    Fetching starts at construction. Each loop is a pass of its own over all epochs. The files on the disk are deleted
    when the loop ends for any reason, or when the stream is closed or garbage collected.

    Attributes
    ----------
    len(stream)
        Items of one pass, over all its epochs.
    report : Report or None
        The report of the last finished pass: items, bytes, and in ``details["waited"]`` the seconds for which the
        loop waited (`first`, `room`, `store`; see ``nbdata.client.waits``).
    unnamed : callable
        Whether a line magic made it, and no variable of the user has it now. If it then is the value of a cell, only
        IPython keeps it: it ends its fetching and says what to do.

    Examples
    --------
    >>> stream = nbdata.cache_stream("s3://bucket/video", max_size="1g")  # doctest: +SKIP
    >>> for path, size in stream:  # doctest: +SKIP
    ...     train(path)
    """

    def __init__(self, operation: Operation, quiet: bool = False) -> None:
        self._operation, self._quiet, self._process = operation, quiet, os.getpid()
        self._next: _Pass | None = _Pass(operation, quiet)
        self._current: weakref.ref[_Pass] | None = None
        self._planned_items = self._next.planned_items
        self.report: Report | None = None
        self.unnamed: Callable[[Stream], bool] = lambda _stream: False

    def _ipython_display_(self) -> None:
        text = repr(self)
        if self.unnamed(self):
            begun, self._next = self._next, None
            if begun is not None:
                begun.close(quiet=True)
            text += (
                " is fetched once a loop asks for it. Add -o items to the line, and write: for item in items: …\n"
                "Or make the loop's body a cell, with %%cache_stream in its first line."
            )
        sys.stdout.write(text + "\n")

    def __repr__(self) -> str:
        return f"<{self._operation.verb} {redacted(self._operation.places()[0])}>"

    def __iter__(self) -> Iterator[Item]:
        if os.getpid() != self._process:
            raise BadOption(
                "this stream belongs to the process that made it, and this is a child of it",
                remedy="In the workers of a loader use nbdata.loaders.pytorch.CacheStreamDataset, which deals the "
                "items out to them",
            )
        begun, self._next = self._next or _Pass(self._operation, self._quiet), None
        self._current = weakref.ref(begun)
        try:
            yield from begun.items()
        finally:
            self.report = begun.close()

    def __len__(self) -> int:
        if self._planned_items is None:
            raise TypeError("how many items come is not known")
        return self._planned_items

    def __bool__(self) -> bool:
        return True

    def by_epoch(self) -> Iterator[tuple[int, Iterator[Item]]]:
        """Yield each epoch as its number and an iterator over its items."""
        return itertools.groupby(self, key=lambda item: item.epoch)

    def close(self) -> None:
        """End the running pass and delete its files; a loop over it ends at its next item."""
        begun, self._next = self._next, None
        for one in (begun, self._current() if self._current is not None else None):
            if one is not None:
                self.report = one.close() or self.report

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Pass:
    """One job and its items."""

    def __init__(self, operation: Operation, quiet: bool) -> None:
        self._on_error: str = getattr(operation, "on_error", "raise")
        self._source = redacted(operation.places()[0])
        self._waits = Waits()
        self._files = self._bytes = 0
        self._began = time.monotonic()
        self._display: Display | None = None if quiet else slots.display()
        self._showing, self._asked, self._over = threading.Lock(), time.monotonic(), threading.Event()
        self._process, self._complete = os.getpid(), False
        self._job: Job | None = slots.host().submit(operation, background=False)
        # Runs however this object ends. If the process ends, the agent sees the connection end.
        self._released = weakref.finalize(self, _release, self._job, self._process)
        self._planned = _planned(self._job)

    @property
    def planned_items(self) -> int | None:
        """The number of items to come, over all epochs."""
        return self._planned.files_total

    def items(self) -> Iterator[Item]:
        job, shown = self._job, 0.0
        if job is None:
            return
        if self._display is not None:
            self._display.begin(job, bound=True)
            threading.Thread(target=_look_at, args=(weakref.ref(self), self._over), daemon=True).start()
        self._began = time.monotonic()
        try:
            for item in job.items(_CREDIT, self._waits):
                if self._display is not None and time.monotonic() - shown > _SHOW_EVERY:
                    shown = time.monotonic()
                    with self._showing:
                        self._display.update(self._snapshot())
                self._asked = time.monotonic()
                self._files += 1
                self._bytes += item.size
                yield item
                if self._job is None:
                    return  # closed meanwhile
            self._complete = True
        except TransferFailed:
            self._complete = True
            if self._on_error != "report":
                raise
        except AgentUnavailable as error:
            error.remedy = (
                "Run the command again: it starts anew, and removes what is left there, as cleanup does"
            )
            raise

    def look(self) -> None:
        """Say so in the display if the loop asks for no more items, and the job waits for it."""
        asked, job = self._asked, self._job
        if self._display is None or job is None or time.monotonic() - asked < _SILENT:
            return
        waits = job.snapshot().phase == WAITS_FOR_LOOP
        with self._showing:
            if waits and asked == self._asked and not self._over.is_set():
                self._display.update(replace(self._snapshot(), phase=WAITS_FOR_LOOP, eta=None, rate=0.0))

    def _snapshot(self) -> Snapshot:
        now = self._planned
        seconds = time.monotonic() - self._began
        rate = self._bytes / seconds if seconds > 0 else 0.0
        left = (now.bytes_total or 0) - self._bytes
        return Snapshot(
            id=now.id,
            verb=now.verb,
            source=now.source,
            state="RUNNING",
            files=self._files,
            files_total=now.files_total,
            bytes=self._bytes,
            bytes_total=now.bytes_total,
            rate=rate,
            eta=left / rate if rate and now.bytes_total else None,
            seconds=seconds,
            created=now.created,
            owner=now.owner,
            phase=f"waited {format_duration(self._waits.seconds)}",
        )

    def close(self, *, quiet: bool = False) -> Report | None:
        """Release everything; return the Report the first time, and show it unless `quiet`."""
        job, self._job = self._job, None
        if job is None or os.getpid() != self._process:
            return None
        seconds = time.monotonic() - self._began
        self._released.detach()
        with self._showing:
            self._over.set()
        try:
            if self._complete:
                for _ in job.watch():
                    pass
            elif not job.release():
                raise AgentUnavailable("the agent does not answer")
            report = job.report()
        except NbdataError:  # the agent is gone; the loop has got that error
            report = Report(self._planned.verb, self._source, state="INTERRUPTED")
        report.files, report.bytes, report.seconds = self._files, self._bytes, seconds
        report.headline = told(self._files, self._bytes, seconds, self._waits)
        if "items" in report.counts:
            report.counts["items"] = self._files  # the agent counts returned items too
        if (hits := report.counts.get("from the cache")) is not None:
            report.headline += f"; {hits:,} from the cache"
        report.details["waited"] = dict(vars(self._waits))
        if report.state == "CANCELLED" and not self._complete:
            report.headline += "; the loop was left before its end"
            report.state = "DONE"  # the loop itself ended it
        if self._display is not None and not quiet:
            self._display.end(report.line, report)
        return report


def _look_at(stream: weakref.ref[_Pass], over: threading.Event) -> None:
    """Look every moment at a pass that is shown, until it is over or nobody has it any more."""
    while not over.wait(_SILENT) and (one := stream()) is not None:
        with contextlib.suppress(NbdataError):  # its loop gets the error
            one.look()
        del one


def _release(job: Job, process: int) -> None:
    if os.getpid() == process:  # a forked child has a copy, which must not end the job
        job.release()


def _planned(job: Job) -> Snapshot:
    """Return the job's snapshot once its plan is known; raise the error that makes it impossible."""
    for snapshot in job.watch():
        if snapshot.state == "RUNNING":
            return snapshot
        if snapshot.finished:
            job.wait()
            return snapshot
    raise AssertionError("watch ends with a finished snapshot")


def told(files: int, size: int, seconds: float, waits: Waits) -> str:
    """Say in one sentence how much went through, how long the loop waited, and for what."""
    rate = f" ({format_size(size / seconds)}/s)" if seconds >= 0.05 else ""
    text = f"{counted(files, 'items')}, {format_size(size)} in {format_duration(seconds)}{rate}; your code "
    if waits.seconds < 0.05:
        return f"{text}never waited"
    text += "waited "
    if not files:
        return text + format_duration(waits.seconds)
    parts = [
        (waits.first, "for the first item"),
        (waits.store, "for the store"),
        (waits.room, "because the cache was full of what it held itself (a larger --max-size would help)"),
    ]
    share = f" ({waits.seconds / seconds:.0%})" if seconds > 0 else ""
    told_of = [part for part in parts if part[0] >= 0.05] or [max(parts)]
    what = ", ".join(f"{format_duration(s)} {why}" for s, why in told_of)
    return f"{text}{format_duration(waits.seconds)}{share}: {what}"


def make_stream(operation: Operation, quiet: bool) -> Stream:
    """Make the stream of an operation; the factory in `slots.stream`."""
    return Stream(operation, quiet)
