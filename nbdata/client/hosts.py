"""Chooses the host of an operation: the agent, or this process."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from nbdata.client.naming import named
from nbdata.errors import AgentUnavailable, BadOption
from nbdata.operation import Host, Operation
from nbdata.protocols import Job, Planning
from nbdata.report import Plan, Snapshot

if TYPE_CHECKING:
    from nbdata.client.inline import InlineHost
    from nbdata.client.remote import AgentHost

__all__ = ["ChoosingHost", "default_host"]

_T = TypeVar("_T")


class ChoosingHost:
    """Sends each operation to a host that can carry it out.

    ``NBDATA_HOST=inline`` keeps all operations in this process. ``NBDATA_HOST=agent`` or nothing sends to the agent
    what it can do, and keeps here only operations on objects of this process.
    """

    def plan(self, operation: Operation) -> Plan:
        """See `Host.plan`."""
        return self._try(operation, lambda host: host.plan(operation))

    def planning(self, operation: Operation) -> Planning:
        """See `Host.planning`."""
        return self._try(operation, lambda host: host.planning(operation))

    def submit(self, operation: Operation, *, background: bool) -> Job:
        """See `Host.submit`."""
        return self._try(operation, lambda host: host.submit(operation, background=background))

    def jobs(self) -> list[Snapshot]:
        """Return the jobs of this process and of all agents."""
        return self.look()[0]

    def look(self) -> tuple[list[Snapshot], bool]:
        """Return the jobs, and whether some agent is alive but did not answer, so that jobs are missing."""
        snapshots, silent = _inline().jobs(), False
        if not _only_inline():
            more, silent = _agent().look()
            snapshots += more
        return sorted(snapshots, key=lambda s: s.created), silent

    def job(self, job_id: str) -> Job:
        """Return the job with an id, or with the start of one, of this process and all agents; see `named`."""
        alive, over = _inline().known()
        if not _only_inline():
            more, over = _agent().known()
            alive = [*alive, *more]
        return named(job_id, alive, over)

    def _try(self, operation: Operation, ask: Callable[[Host], _T]) -> _T:
        """Ask the right host; if no agent can do it, ask this process and say so once."""
        from nbdata.client.context import only_here

        if _only_inline() or only_here(operation):
            return ask(_inline())
        try:
            return ask(_agent())
        except AgentUnavailable as error:
            if not error.details.get("inline"):
                raise
            _say_once(f"nbdata works in this process, and ends with it: {error.message}")
            return ask(_inline())


def _only_inline() -> bool:
    chosen = os.environ.get("NBDATA_HOST", "agent")
    if chosen not in ("agent", "inline"):
        raise BadOption(f"NBDATA_HOST: {chosen!r} is not a choice", expected="agent or inline")
    return chosen == "inline"


def _inline() -> InlineHost:
    from nbdata.client.inline import inline_host

    return inline_host()


def _agent() -> AgentHost:
    from nbdata.client.remote import agent_host

    return agent_host()


@functools.cache
def _say_once(text: str) -> None:
    sys.stderr.write(text + "\n")


def default_host() -> Host:
    """Return the host of this process."""
    return ChoosingHost()
