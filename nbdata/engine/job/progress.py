"""The progress of one job: bytes and files moved and to move, its rate and rate limit, and its snapshots."""

from __future__ import annotations

import threading
import time
from collections import deque

from nbdata.errors import NbdataError
from nbdata.report import ACTIVE, FINISHED, Snapshot
from nbdata.transfer.bad_entries import BadEntries
from nbdata.transfer.control import Pulse

__all__ = ["Progress"]

# Bytes to move at a time, and the least of them under a rate limit.
_BLOCK, _LEAST = 1 << 20, 4 << 10
# Seconds over which the shown rate is measured.
_RATE_WINDOW = 5.0
# Most characters of a retry's reason.
_TOLD = 200


class Progress:
    """The counts of a job, whose states `Task` manages; many threads may use it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot
        self._changed = threading.Condition(threading.RLock())
        self._samples: deque[tuple[float, int]] = deque(maxlen=64)
        self._began = 0.0
        self._anew = False  # the next plan's work is counted anew, as if the command had been run again
        self._units = self._moved = self._pushed_back = 0
        #: Entries that listings have yielded so far.
        self.entries = 0
        self._again_for = ""
        self._rate: int | None = None
        self._free_at = 0.0  # when all bytes moved since the limit was set were due
        self._limits = 0  # how often the limit was set
        self._due = threading.local()
        self.bad_entries = BadEntries()

    @property
    def id(self) -> str:
        """The job's id."""
        return self._now.id

    def _touch(self) -> None:
        self._now.version += 1
        self._changed.notify_all()

    # -- counting -----------------------------------------------------------------------------

    def expect(self, *, files: int | None, bytes: int | None) -> None:  # noqa: A002
        """Set the totals; None where they are unknown."""
        with self._changed:
            if self._anew:
                self._now.files = self._now.bytes = self._now.present = self._now.failures = 0
                self._samples.clear()
                self._anew = False
            self._now.files_total, self._now.bytes_total = files, bytes
            self._touch()

    def expect_more(self, *, files: int, bytes: int) -> None:  # noqa: A002
        """Add to the totals, if they are known."""
        with self._changed:
            now = self._now
            now.files_total = None if now.files_total is None else now.files_total + files
            now.bytes_total = None if now.bytes_total is None else now.bytes_total + bytes
            self._touch()

    def advance(
        self,
        *,
        files: int = 0,
        bytes: int = 0,  # noqa: A002
        present: int = 0,
        failures: int = 0,
    ) -> None:
        """Add to the counts of finished work; negative bytes take back work that must be done again.

        `present` counts bytes of an earlier run: they count as done, but not in the rate.
        """
        with self._changed:
            now = self._now
            now.files += files
            self._units += max(0, files)
            now.bytes += bytes + present
            now.present += present
            if bytes > 0:
                self._moved += bytes
                if self._rate is not None:
                    self._free_at = max(self._free_at, time.monotonic()) + bytes / self._rate
                    self._due.at = self._free_at, self._limits
            now.failures += failures
            now.version += 1

    def tried_again(self, error: Exception) -> None:
        """Count a request that is made again, and keep its latest error."""
        message = error.message if isinstance(error, NbdataError) else f"{type(error).__name__}: {error}"
        with self._changed:
            self._now.retries += 1
            self._again_for = message[:_TOLD]
            self._now.version += 1

    @property
    def why_again(self) -> str:
        """How often requests were made again, and the latest reason; empty if none was."""
        with self._changed:
            count, why = self._now.retries, self._again_for
        often = "once" if count == 1 else f"{count:,} times, the last one"
        return f"retried {often}, because: {why}" if count else ""

    @property
    def last_retry(self) -> str:
        """The reason of the latest request that was made again; empty if none was."""
        return self._again_for

    def listed(self, count: int) -> None:
        """Count entries that listings have yielded."""
        with self._changed:
            self.entries += count

    def pushed_back(self) -> None:
        """Count that a store was overloaded."""
        with self._changed:
            self._pushed_back += 1

    def pulse(self) -> Pulse:
        """Return the counts so far."""
        with self._changed:
            return Pulse(self._units, self._moved, self._now.retries, self._pushed_back)

    def phase(self, text: str) -> None:
        """Set a word for the current activity."""
        with self._changed:
            self._now.phase = text
            self._touch()

    def begun_by(self, command: str) -> None:
        """Set the command that starts the operation again."""
        with self._changed:
            self._now.command = command
            self._touch()

    # -- the rate limit -----------------------------------------------------------------------

    @property
    def rate(self) -> int | None:
        """The most bytes per second; None for no limit."""
        return self._rate

    @property
    def block(self) -> int:
        """Bytes to move at a time: few enough that no connection is silent for longer than a second or two."""
        return _BLOCK if self._rate is None else max(_LEAST, min(_BLOCK, self._rate // 16))

    def limit(self, rate: int | None) -> None:
        """Limit the bytes per second; None lifts the limit.

        Threads that count bytes wait for their turn in their next `checkpoint`, one after the other. Those that wait
        now for an earlier limit go on: at that limit, the next bytes could be due in minutes.
        """
        with self._changed:
            self._rate = self._now.max_rate = rate
            self._free_at, self._limits = 0.0, self._limits + 1
            self._touch()

    # -- snapshots ----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return a copy of the current state, with rate and time left."""
        with self._changed:
            now = self._now
            clock = time.monotonic()
            if now.state in ACTIVE and self._began:
                now.seconds = clock - self._began
                moved = now.bytes - now.present
                self._samples.append((clock, moved))
                while len(self._samples) > 2 and clock - self._samples[0][0] > _RATE_WINDOW:
                    self._samples.popleft()
                (_, before), span = self._samples[0], clock - self._samples[0][0]
                now.rate = max(0.0, (moved - before) / span) if span > 0.2 else now.rate
                left = None if now.bytes_total is None else max(0, now.bytes_total - now.bytes)
                now.eta = left / now.rate if left is not None and now.rate > 0 and now.moving else None
            return Snapshot(**vars(now))

    def wait_change(self, version: int, timeout: float | None) -> Snapshot:
        """Return the snapshot after a change since `version`, or after `timeout` seconds."""
        with self._changed:
            if self._now.version == version and self._now.state not in FINISHED:
                self._changed.wait(timeout)
            return self.snapshot()

    def wait_end(self, timeout: float) -> None:
        """Wait until the job is over, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._now.state in FINISHED, timeout)

    @property
    def finished(self) -> bool:
        """True if the job is over."""
        return self._now.state in FINISHED

    @property
    def paused(self) -> bool:
        """True if the job waits until a user, or some condition, lets it continue."""
        return self._now.state == "PAUSED"
