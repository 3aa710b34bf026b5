"""The protocols of what carries operations out and shows them: Job, the items it hands out, and Display."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nbdata.report import Report, Snapshot

if TYPE_CHECKING:
    from nbdata.errors import NbdataError
    from nbdata.interrupts import Held

__all__ = ["Display", "Item", "Job", "Staging", "Waiting"]


@dataclass(frozen=True)
class Item:
    """Something a job hands out while it runs, leased to one connection until it is acknowledged.

    Unpacks as ``path, size``. It is there until the next one is asked for.

    Attributes
    ----------
    number : int
        Counts the items of the job from 0.
    path : str
        Local: a folder, a file, or what the names of a sample's files begin with.
    key : str
        Relative to the source: folder, file, or the sample's name without extensions.
    size : int
        Bytes of its files.
    epoch : int
        From 0.
    began : float
        When there was room for it, so that its bytes could be asked for (``time.monotonic``, 0 if nobody noted it).
    """

    number: int
    path: str
    key: str
    size: int
    epoch: int = 0
    began: float = 0.0

    def __iter__(self) -> Iterator[Any]:
        return iter((self.path, self.size))

    @property
    def files(self) -> list[str]:
        """Its local files, sorted."""
        if os.path.isdir(self.path):
            return sorted(
                os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in names
            )
        if os.path.isfile(self.path):
            return [self.path]
        return sorted(glob.glob(f"{glob.escape(self.path)}.*"))


class Waiting(Protocol):
    """Who is told how long items were waited for."""

    def add(self, asked: float, came: float, item: Item) -> None:
        """When an item was asked for and when it came (``time.monotonic``)."""


class Job(Protocol):
    """A running operation, as a client sees it.

    `done`, `result` and `exception` are those of `concurrent.futures.Future`.

    Examples
    --------
    >>> job = nbdata.Pull("s3://bucket/data/", "data").start()  # doctest: +SKIP
    >>> while not job.done():  # doctest: +SKIP
    ...     compute_something()
    >>> report = job.result()  # doctest: +SKIP
    """

    @property
    def id(self) -> str:
        """Short id, as lists show it."""

    def snapshot(self) -> Snapshot:
        """How it looks now."""

    def watch(self) -> Iterator[Snapshot]:
        """Snapshots as they change, at most four a second; ends with the finished state."""

    def wait(self, timeout: float | None = None) -> Report:
        """Wait for the end; returns the Report or raises what went wrong. The same as `result`."""

    def done(self) -> bool:
        """Whether the job is over: it went well, failed, was cancelled or was interrupted. Waits for nothing.

        Returns
        -------
        bool
            True also if the agent that carried the job is gone: nothing moves any more.
        """

    def result(self, timeout: float | None = None) -> Report:
        """Wait for the end, and return the Report.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; None (default) is without end.

        Returns
        -------
        Report
            Also if objects failed, where the operation has ``on_error="report"``.

        Raises
        ------
        TimeoutError
            If the job is not over in time; it goes on.
        Cancelled
            If it was cancelled.
        NbdataError
            What went wrong; see `nbdata.errors`.
        """

    def exception(self, timeout: float | None = None) -> NbdataError | None:
        """Wait for the end, and return the error that `result` would raise.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; None (default) is without end.

        Returns
        -------
        NbdataError or None
            None if `result` returns a Report.

        Raises
        ------
        TimeoutError
            If the job is not over in time; it goes on.
        Cancelled
            If it was cancelled.
        """

    def report(self) -> Report:
        """The Report of a finished job, whether it went well or not."""

    def pause(self) -> None:
        """Stop moving bytes until `resume`."""

    def resume(self) -> None:
        """Go on after `pause`."""

    def cancel(self) -> None:
        """End within a second, resumable."""

    def again(self) -> str:
        """Begin the operation of a job that failed or was stopped once more, in the background; the new job's id."""

    def interrupt(self) -> bool:
        """Ctrl-C in the foreground; False when it only detached: others wait too, or it was begun in the background."""

    def items(self, credit: int = 2, waits: Waiting | None = None) -> Iterator[Item]:
        """The items it hands out; at most `credit` are leased at a time, each until the next is asked for.

        Who leaves early gives back what it has not seen. `waits` is told how long each was waited for."""

    def release(self) -> None:
        """End a job that is bound to this process, and wait until what it held is free."""

    def stage(self) -> Staging:
        """Use the cache that it keeps; NotFound if it has just come to its end."""


class Staging(Protocol):
    """A process's use of a cache that a job keeps; for one thread at a time."""

    @property
    def folder(self) -> str:
        """Where the objects are, each in a file of its name."""

    def announce(self, objects: Sequence[tuple[Any, ...]]) -> None:
        """Say what will be acquired next: of each the name of its file, and what a store's `ObjectInfo` has."""

    def forget(self) -> None:
        """Say that something else will be acquired than was announced."""

    def acquire(self, names: Sequence[str]) -> dict[str, NbdataError]:
        """Hold objects that were announced until `release`, once they are all there; by name why some are not."""

    def release(self) -> None:
        """Hold no object any more."""

    def close(self) -> None:
        """Use it no more."""


class Display(Protocol):
    """How progress and results are shown."""

    def follow(self, job: Job, *, quiet: bool = False, held: Held | None = None) -> Report:
        """Show a foreground job until it ends; returns its Report or raises. A Ctrl-C that is held is let through."""

    def begin(self, job: Job, *, bound: bool = False) -> None:
        """Before the first snapshot; `bound` says that the job ends with the loop over its items."""

    def update(self, snapshot: Snapshot) -> None:
        """At each change, at most four times a second."""

    def end(self, text: str, report: Report | None, *, raised: bool = False) -> None:
        """Once, at the end: the last, true line, and the report if there is one; `raised` if an error follows."""

    def tell(self, text: str) -> None:
        """One line about work of this process that is no job; the next takes its place, an empty one takes it away."""
