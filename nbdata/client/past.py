"""Jobs from the history whose agents are gone, as Job objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nbdata.client.ending import FutureMethods, conclude
from nbdata.errors import NotFound, error_from_dict
from nbdata.history import Past
from nbdata.protocols import Cache, Item, Waiting
from nbdata.report import Report, Snapshot

__all__ = ["PastJob"]


class PastJob(FutureMethods):
    """A job that is over; the Job protocol of nbdata.protocols."""

    attached = ""

    def __init__(self, past: Past) -> None:
        self._past = past

    @property
    def id(self) -> str:
        return self._past.snapshot.id

    def __repr__(self) -> str:
        return f"<{self.snapshot().line}>"

    def snapshot(self) -> Snapshot:
        return replace(self._past.snapshot)

    def watch(self) -> Iterator[Snapshot]:
        yield self.snapshot()

    def wait(self, timeout: float | None = None) -> Report:
        failure = self._past.failure
        error = error_from_dict(failure) if failure else None
        return conclude(self.report(), error, self._past.on_error)

    def report(self) -> Report:
        now = self._past.snapshot
        if self._past.report is None:
            return Report(
                now.verb, now.source, now.target, state=now.state,
                files=now.files, bytes=now.bytes, present=now.present, seconds=now.seconds, retries=now.retries,
            )  # fmt: skip
        return Report.from_dict(self._past.report)

    def pause(self) -> None:
        raise self._nothing("pause")

    def resume(self) -> None:
        raise self._nothing("resume")

    def cancel(self) -> None:
        raise self._nothing("cancel")

    def limit(self, rate: int | None) -> None:
        raise self._nothing("limit")

    def again(self) -> str:
        raise NotFound(
            f"the agent that had job {self.id} is gone, and its credentials with it",
            remedy="Run its command in a notebook to resume",
        )

    def _nothing(self, action: str) -> NotFound:
        return NotFound(
            f"job {self.id} ended, and its agent too: there is nothing to {action}",
            remedy="Run its command again to resume",
        )

    def interrupt(self) -> bool:
        return True

    def items(self, credit: int = 2, waits: Waiting | None = None) -> Iterator[Item]:
        return iter(())

    def release(self) -> bool:
        return True

    def use_cache(self) -> Cache:
        raise NotFound("this job is over")
