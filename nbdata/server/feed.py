"""The state of all agents' jobs, queried once for all browsers.

While a browser watches, the agents are asked up to four times a second as long as the jobs change, and less often the
more jobs there are, otherwise once a second. Without watchers they are asked twice a minute, to keep the server awake
during transfers. Asking neither starts an agent nor keeps one alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from nbdata.client.hosts import ChoosingHost
from nbdata.errors import NbdataError
from nbdata.report import Snapshot
from nbdata.server.owners import Owners
from nbdata.server.shown import key_of, shown
from nbdata.server.workers import Workers

__all__ = ["Feed"]

_LIVE, _QUIET, _ALONE = 0.25, 1.0, 30.0
# Most unfinished jobs that are asked for as often as that. Of twice as many, nobody can read the numbers twice as fast.
_FEW = 50
# A vanished job is reported as interrupted only if it was seen within this many seconds.
_RECENT = 10.0
# Most folders of jobs whose disks are looked at.
_FOLDERS = 16
# Largest number of unfinished jobs, and of finished ones, that are sent to the browsers: more than the agents and the
# record usually have.
_MOST = 1000

_LOST = NbdataError("it was interrupted: its agent ended", remedy="Run it again to resume")
_SILENT = "an agent does not answer; its transfers are shown in their last known state"

_log = logging.getLogger("nbdata.server")

Jobs = dict[str, "dict[str, Any]"]


class Feed:
    """The newest state; `newer` waits for the next one. Used only by the event loop's thread."""

    def __init__(self, workers: Workers, root: str, settings: dict[str, Any]) -> None:
        self._workers, self._root, self._settings = workers, root, settings
        self._owners = Owners(settings)
        self._over: dict[str, Snapshot] = {}
        self._unfinished: dict[str, Snapshot] = {}
        self._lost: dict[str, Snapshot] = {}  # jobs that vanished unfinished
        self._shown = dict[str, tuple[Snapshot, bool, dict[str, Any]]]()  # what `jobs` were made of
        # Of the jobs that had begun by then, the user has cleared all but those that were unfinished.
        self._cleared_at, self._not_cleared = 0.0, set[str]()
        self._seen_at = 0.0
        self._newest = 0.0  # when the newest job began that was ever seen
        self._wake = asyncio.Event()
        self._tick = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.jobs: Jobs = {}
        self.problem = ""
        self.version = 0
        self.polls = 0
        self.changes = False  # whether the last answer differed from the one before
        self.watchers = 0

    def start(self) -> None:
        """Start to ask the agents; called once, in the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def poke(self) -> None:
        """Ask the agents soon, because a job was changed."""
        self._wake.set()

    def clear(self) -> None:
        """Hide all jobs that are finished now, in all browsers; ``transfers`` still lists them."""
        self._cleared_at, self._not_cleared = self._newest, set(self._unfinished)
        self.poke()

    def written(self) -> list[str]:
        """Return the folders that unfinished and failed jobs write to, those of the newest jobs, each once."""
        jobs = [*self._unfinished.values(), *(s for s in self._over.values() if s.state == "FAILED")]
        newest = sorted(jobs, key=lambda s: (s.finished, -s.created))
        return list(dict.fromkeys(s.writes_to for s in newest if s.writes_to))[:_FOLDERS]

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count the caller as a watcher while the context is open."""
        self.watchers += 1
        self.poke()
        try:
            yield
        finally:
            self.watchers -= 1

    async def fresh(self) -> int:
        """Wait for the agents' next answer, whether or not anything changed, and return its version."""
        polls = self.polls
        self.poke()
        while self.polls == polls:
            await self._tick.wait()
        return self.version

    async def newer(self, version: int) -> int:
        """Wait until the state differs from `version`, and return the new version."""
        while self.version == version:
            await self._tick.wait()
        return self.version

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            self._wake.clear()
            try:
                seen, silent = await self._workers.run(ChoosingHost().look)
                recent = time.time() - _RECENT  # a job may have failed at once
                await self._owners.learn({s.owner for s in seen if not s.finished or s.created > recent})
                self._take(seen, silent)
            except (NbdataError, OSError) as error:
                self._publish(self.jobs, str(error))
            except Exception:
                _log.exception("nbdata: the jobs could not be listed")
                self._publish(self.jobs, "internal error; the server's log says more")
            # The shortest interval, however often `poke` is called.
            await asyncio.sleep(max(0.0, began + _LIVE - time.monotonic()))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), began + self._pause() - time.monotonic())

    def _pause(self) -> float:
        if not self.watchers:
            return _ALONE
        if not self.changes:
            return _QUIET
        return min(_QUIET, _LIVE * max(1.0, len(self._unfinished) / _FEW))

    def _take(self, seen: list[Snapshot], silent: bool) -> None:
        """Build the state from the agents' answer, which has the jobs on record, too: all that ``transfers`` lists.

        While a live agent is `silent`, missing jobs stay as they were. Otherwise a job that vanished was interrupted;
        the record says so as well, once the agent's process has ended.
        """
        now = time.monotonic()
        found = {key_of(snapshot): snapshot for snapshot in seen}
        if silent:
            found = {**self._unfinished, **found}
        elif now - self._seen_at < _RECENT:
            for key, lost in self._unfinished.items():
                if key not in found or found[key].state == "INTERRUPTED":
                    self._lost[key] = replace(
                        lost, state="INTERRUPTED", reason="", rate=0.0, eta=None, error=_LOST.to_dict()
                    )
        self._lost = {
            key: lost
            for key, lost in list(self._lost.items())[-_MOST:]
            # The record may know less of how far the job was.
            if key not in found or (found[key].state == "INTERRUPTED" and found[key].seconds < lost.seconds)
        }
        found.update(self._lost)
        self._seen_at = now
        self._newest = max([self._newest, *(snapshot.created for snapshot in seen)])
        self._unfinished = {key: s for key, s in found.items() if not s.finished}
        self._over = {key: s for key, s in found.items() if s.finished and not self._is_cleared(key, s)}
        if any(s.state != "PAUSED" for s in self._unfinished.values()):
            # Programs that end idle servers look at every setting with such a name.
            self._settings["nbdata_last_activity"] = datetime.now(timezone.utc)
        newest = [*_newest(self._over), *_newest(self._unfinished)]
        self._shown = {key: self._show(key, snapshot) for key, snapshot in newest}
        self._publish({key: job for key, (*_, job) in self._shown.items()}, _SILENT if silent else "")

    def _show(self, key: str, snapshot: Snapshot) -> tuple[Snapshot, bool, dict[str, Any]]:
        """Convert a snapshot, unless it is as it was: of a thousand jobs few have changed."""
        here = snapshot.owner in self._owners
        before = self._shown.get(key)
        if before is not None and before[:2] == (snapshot, here):
            return before
        return snapshot, here, shown(snapshot, self._root, here)

    def _is_cleared(self, key: str, job: Snapshot) -> bool:
        return job.created <= self._cleared_at and key not in self._not_cleared

    def _publish(self, jobs: Jobs, problem: str) -> None:
        # Unchanged jobs stay the same objects, so watchers can compare by identity.
        same = {key: self.jobs[key] if self.jobs.get(key) == job else job for key, job in jobs.items()}
        self.changes = problem != self.problem or same != self.jobs
        if self.changes:
            self.jobs, self.problem = same, problem
            self.version += 1
        self.polls += 1
        tick, self._tick = self._tick, asyncio.Event()
        tick.set()


def _newest(jobs: dict[str, Snapshot]) -> list[tuple[str, Snapshot]]:
    return sorted(jobs.items(), key=lambda item: item[1].created)[-_MOST:]
