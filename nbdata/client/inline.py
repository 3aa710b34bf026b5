"""The engine in this process: for file systems that exist only here, for tests, and for workers of a cluster.

This is the only way from a client down to the engine. Threads of this process move the bytes, so they starve while its
main thread computes. The agent exists for that reason.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator

from nbdata.client.context import bindings_of, capture
from nbdata.client.ending import FutureMethods, conclude
from nbdata.client.naming import named
from nbdata.cluster.dealing import dealer_of
from nbdata.ending import at_end
from nbdata.engine import runner
from nbdata.engine.job.spool import read_page
from nbdata.engine.jobs import EngineJob, Jobs
from nbdata.operation import Operation
from nbdata.protocols import Cache, Item, Job, Waiting
from nbdata.report import Plan, Report, Rows, Snapshot

__all__ = ["InlineHost", "InlineJob", "inline_host"]

# Seconds to wait until a closed stream has deleted its files.
_RELEASED = 10.0


class InlineJob(FutureMethods):
    """A job of this process; the Job protocol of nbdata.protocols."""

    def __init__(self, job: EngineJob, *, attached: str = "") -> None:
        self._job, self.attached = job, attached

    @property
    def id(self) -> str:
        return self._job.id

    def __repr__(self) -> str:
        return f"<{self.snapshot().line}>"

    def snapshot(self) -> Snapshot:
        return self._job.task.snapshot()

    def watch(self) -> Iterator[Snapshot]:
        version, last = -1, 0.0
        while True:
            self._job.task.wait_end(max(0.0, last + 0.25 - time.monotonic()))
            snapshot = self._job.task.wait_change(version, 0.25)
            version, last = snapshot.version, time.monotonic()
            yield snapshot
            if snapshot.finished:
                return

    def wait(self, timeout: float | None = None) -> Report:
        end = None if timeout is None else time.monotonic() + timeout
        task = self._job.task
        while not task.finished:
            left = 0.25 if end is None else min(0.25, end - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"job {self.id} still runs")
            task.wait_end(left)
        return conclude(self.report(), task.error, self._job.on_error)

    def report(self) -> Report:
        report = self._job.task.report
        if report is None:
            snapshot = self.snapshot()
            return Report(snapshot.verb, snapshot.source, snapshot.target, state=snapshot.state)
        return report

    def pause(self) -> None:
        self._job.task.pause()

    def resume(self) -> None:
        self._job.task.resume()

    def cancel(self) -> None:
        self._job.task.cancel()

    def limit(self, rate: int | None) -> None:
        self._job.limit(rate)

    def again(self) -> str:
        self._job.refuse_again()
        return inline_host().submit(self._job.operation, background=True).id

    def interrupt(self) -> bool:
        self._job.task.cancel()
        return True

    def items(self, credit: int = 2, waits: Waiting | None = None) -> Iterator[Item]:
        leases = self._job.leases
        consumer = f"inline-{id(self)}-{time.monotonic_ns()}"
        asked = time.monotonic()
        try:
            while not leases.exhausted(consumer):
                item = leases.lease(consumer, credit, 0.1)
                if item is not None:
                    if waits is not None:
                        waits.add(asked, time.monotonic(), item)
                    try:
                        yield item
                    finally:
                        leases.acknowledge(consumer, item.number)
                    asked = time.monotonic()
        finally:
            leases.give_back(consumer)
        error = self._job.why_no_more()
        if error is not None:
            raise error

    def release(self) -> bool:
        self._job.task.cancel("its loop has ended")
        self._job.task.wait_end(_RELEASED)
        return True

    def use_cache(self) -> Cache:
        return self._job.cache.join(f"inline-{id(self)}-{time.monotonic_ns()}")


class InlinePlanning:
    """A plan of this process; the Planning protocol of nbdata.protocols."""

    def __init__(self, operation: Operation) -> None:
        self._operation, self._control = operation, runner.Planning()

    def wait(self) -> Plan:
        return inline_host().plan(self._operation, self._control)

    def cancel(self) -> None:
        self._control.cancel()

    @property
    def listed(self) -> int:
        return self._control.entries


class InlineHost:
    """Carries operations out in this process; the Host protocol of nbdata.protocols."""

    def __init__(self) -> None:
        self._jobs = Jobs(dealer_of)

    def close(self) -> None:
        """Interrupt the jobs that run, and remove the rows of all jobs and plans."""
        for job in self._jobs.unfinished():
            job.task.interrupt()
        self._jobs.close()

    def plan(self, operation: Operation, control: runner.Planning | None = None) -> Plan:
        planned, folder = self._jobs.plan(operation, capture(operation), bindings_of(operation), control)
        planned.rows = Rows(len(planned.rows), lambda offset: read_page(f"{folder}/plan.rows", offset))
        return planned

    def planning(self, operation: Operation) -> InlinePlanning:
        return InlinePlanning(operation)

    def submit(self, operation: Operation, *, background: bool) -> InlineJob:
        job, attached = self._jobs.submit(
            operation, capture(operation), bindings_of(operation), background=background
        )
        return InlineJob(job, attached=attached)

    def jobs(self) -> list[Snapshot]:
        return self._jobs.snapshots()

    def look(self) -> tuple[list[Snapshot], bool]:
        """Return all jobs; none is missing."""
        return self.jobs(), False

    def job(self, job_id: str) -> Job:
        return named(job_id, *self.known())

    def known(self) -> tuple[list[Job], list[Job]]:
        """Return the jobs of this process, and none of past processes; see `named`."""
        return [InlineJob(job) for job in self._jobs.all()], []


@functools.cache
def inline_host() -> InlineHost:
    """Return the one InlineHost of this process."""
    host = InlineHost()
    at_end(host, InlineHost.close)
    return host


# A parent's jobs have no threads in its child: waiting for one there would never end.
os.register_at_fork(after_in_child=inline_host.cache_clear)
