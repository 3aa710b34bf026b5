"""Protocols for carrying out and showing operations: Planning, Job and the items that it hands out, Cache, Display."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nbdata.report import Plan, Report, Snapshot

if TYPE_CHECKING:
    from nbdata.errors import NbdataError
    from nbdata.interrupts import Held

__all__ = ["Acquired", "Cache", "Display", "Epoch", "Item", "Job", "Planning", "Waiting"]


@dataclass(frozen=True)
class Item:
    """A piece of data that a running job hands out, leased to one connection until it is acknowledged.

    Unpacks as ``path, size``. Its files exist until the next item is requested.

    Attributes
    ----------
    number : int
        Counts the items of the job from 0.
    path : str
        Local: a folder, a file, a shard, or the common start of the names of a sample's files.
    key : str
        Relative to the source: folder, file, shard, or the sample's name without extensions.
    size : int
        Bytes of its files.
    epoch : int
        The pass over the data, from 0.
    began : float
        When there was room for it, so that its transfer could start (``time.monotonic``, 0 if not recorded).
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
    """Receives how long the loop waited for items."""

    def add(self, asked: float, came: float, item: Item) -> None:
        """Note when an item was requested and when it came (``time.monotonic``)."""


class Job(Protocol):
    """A running operation, as a client sees it.

    `done`, `result` and `exception` behave as in `concurrent.futures.Future`.

    Examples
    --------
    >>> job = nbdata.Pull("s3://bucket/data/", "data").start()  # doctest: +SKIP
    >>> while not job.done():  # doctest: +SKIP
    ...     compute_something()
    >>> report = job.result()  # doctest: +SKIP
    """

    @property
    def id(self) -> str:
        """The short id that lists show."""

    def snapshot(self) -> Snapshot:
        """Return the current state."""

    def watch(self) -> Iterator[Snapshot]:
        """Yield snapshots as they change, at most four a second; the last has the finished state."""

    def wait(self, timeout: float | None = None) -> Report:
        """Wait for the end; return the Report or raise the error. The same as `result`."""

    def done(self) -> bool:
        """True if the job is over: it succeeded, failed, was cancelled or was interrupted. Does not wait.

        Returns
        -------
        bool
            True also if the agent that ran the job is gone: nothing moves any more.
        """

    def result(self, timeout: float | None = None) -> Report:
        """Wait for the end and return the Report.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; None (default) waits without end.

        Returns
        -------
        Report
            Also if objects failed, if the operation has ``on_error="report"``.

        Raises
        ------
        TimeoutError
            If the job is not over in time; it continues.
        Cancelled
            If it was cancelled.
        NbdataError
            The error of the job; see `nbdata.errors`.
        """

    def exception(self, timeout: float | None = None) -> NbdataError | None:
        """Wait for the end and return the error that `result` would raise.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; None (default) waits without end.

        Returns
        -------
        NbdataError or None
            None if `result` returns a Report.

        Raises
        ------
        TimeoutError
            If the job is not over in time; it continues.
        Cancelled
            If it was cancelled.
        """

    def report(self) -> Report:
        """Return the Report of a finished job, whether it succeeded or not."""

    def pause(self) -> None:
        """Stop moving bytes until `resume`."""

    def resume(self) -> None:
        """Resume after `pause`."""

    def cancel(self) -> None:
        """End the job within a second; the command resumes it."""

    @property
    def max_rate(self) -> int | None:
        """The most bytes per second that it moves; None for no limit. It can be set while the job runs or waits.

        Set it to a number or to a text such as ``"5MB"``; None lifts the limit. What is set holds also when the job is
        begun again with `again`, and its command has it.
        """

    @max_rate.setter
    def max_rate(self, rate: int | str | None) -> None: ...

    def again(self) -> str:
        """Begin the operation of a job that failed or was stopped once more, in the background; the new job's id."""

    def interrupt(self) -> bool:
        """Handle Ctrl-C; False if it only detached: others wait too, or the job was started in the background."""

    def items(self, credit: int = 2, waits: Waiting | None = None) -> Iterator[Item]:
        """Yield the items; at most `credit` are leased at a time, each until the next is requested.

        A loop that ends early gives back the items that it has not seen. `waits` receives each wait."""

    def release(self) -> bool:
        """End a job that is bound to this process, and wait until its resources are free.

        False if the process that carries it does not answer, and ends it later.
        """

    def use_cache(self) -> Cache:
        """Use the cache that the job keeps; NotFound if the job has just ended."""


class Planning(Protocol):
    """A plan that is being made, for a caller that may want to end that from another thread."""

    def wait(self) -> Plan:
        """Wait for the plan and return it, once; AgentUnavailable if it was cancelled."""

    def cancel(self) -> None:
        """End the work on it, if another process does that; a plan of this process is made to its end."""

    @property
    def listed(self) -> int:
        """How many entries listings have yielded so far, as known about a second ago."""


class Acquired(NamedTuple):
    """The outcome of acquiring objects.

    Attributes
    ----------
    failed : dict
        Per name of a missing object the reason.
    fetched : int
        Bytes that had to be fetched; the other objects were there already, or another process had fetched them.
    """

    failed: dict[str, NbdataError]
    fetched: int


class Epoch(NamedTuple):
    """An epoch of a loop, for the cache that it reads through.

    Attributes
    ----------
    loop : str
        Names the loop. All processes that read for it give the same name.
    name : str
        Another one for each epoch of the loop.
    whole : bool
        When it begins: whether at the start of its order, and not where an earlier run was interrupted.
    over : bool
        False when it begins, True after its last sample was read.
    """

    loop: str
    name: str
    whole: bool = True
    over: bool = False


class Cache(Protocol):
    """One process's use of a cache that a job keeps; for one thread at a time."""

    @property
    def folder(self) -> str:
        """The folder of the objects, each in a file of its name."""

    @property
    def identity(self) -> tuple[int, int]:
        """The folder's device and inode: whatever else has its name is not the cache."""

    def announce(self, objects: Sequence[tuple[Any, ...]]) -> None:
        """Say what will be acquired next: for each object its file name and the fields of a store's `ObjectInfo`."""

    def forget(self) -> None:
        """Withdraw the announcement: other objects will be acquired."""

    def acquire(self, names: Sequence[str]) -> Acquired:
        """Hold announced objects until `release`; returns once each is there or known to be missing."""

    def release(self, read: int = 0) -> None:
        """Release all held objects; `read` is the number of bytes that were read of them."""

    def note_epoch(self, epoch: Epoch) -> None:
        """Say that the loop begins an epoch, or that it is over: it decides which objects the cache keeps."""

    def close(self) -> None:
        """End this use of the cache."""


class Display(Protocol):
    """Shows progress and results."""

    def follow(self, job: Job, *, quiet: bool = False, held: Held | None = None) -> Report:
        """Show a foreground job until it ends; return its Report or raise. A held Ctrl-C is let through."""

    def begin(self, job: Job, *, bound: bool = False) -> None:
        """Called before the first snapshot; `bound` says that the job ends with the loop over its items."""

    def update(self, snapshot: Snapshot) -> None:
        """Called at each change, at most four times a second."""

    def end(self, text: str, report: Report | None, *, raised: bool = False) -> None:
        """Called once at the end, with the final line and the report if there is one; `raised` if an error follows."""

    def tell(self, text: str) -> None:
        """Show one line about work of this process that is not a job; the next replaces it, an empty one removes it."""
