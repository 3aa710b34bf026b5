"""The agent as a Host, and its jobs as Job objects."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nbdata.client.agent_cache import AgentCache
from nbdata.client.connection import Connection
from nbdata.client.context import capture
from nbdata.client.ending import FutureMethods, conclude
from nbdata.client.launch import connect
from nbdata.client.naming import named
from nbdata.client.past import PastJob
from nbdata.errors import AgentUnavailable, NbdataError, NotFound, error_from_dict
from nbdata.history import Past, past_jobs
from nbdata.interrupts import PATIENCE, held_interrupt
from nbdata.lock_files import held
from nbdata.operation import Operation
from nbdata.protocols import Cache, Item, Job, Waiting
from nbdata.report import Plan, Report, Row, Rows, Snapshot
from nbdata.runtime import Endpoint, endpoint, endpoints, state_folder

__all__ = ["AgentHost", "AgentJob", "agent_host"]


# Seconds for which an interrupted kernel shows the agent that it still runs; longer than the agent waits.
_LINGER = 10.0
# Seconds to wait until a closed stream has deleted its files.
_RELEASED = 10.0
# Seconds for an answer that needs no work, while a caller waits for it.
_ANSWER = 10.0
# The same for a page of rows, which are read from a disk.
_ROWS = 30.0
# The same for Ctrl-C: nothing else is handled meanwhile.
_INTERRUPTED = PATIENCE
# Seconds for which Ctrl-C waits for the end of a job whose agent is alive.
_ENDING = 5.0
# The most seconds for which an interrupted kernel waits for an agent that does not answer.
_WAKES = 24 * 3600.0


class AgentJob(FutureMethods):
    """A job of an agent; the Job protocol of nbdata.protocols.

    A foreground job keeps one connection open, its *lifeline*. If that ends without a message, the agent knows that the
    kernel was restarted or died, and lets the job continue. All other questions use connections of their own, so a
    Ctrl-C in the middle of a message breaks nothing.
    """

    def __init__(
        self,
        where: Endpoint,
        job_id: str,
        *,
        lifeline: Connection | None = None,
        session: str = "",
        attached: str = "",
    ) -> None:
        self._where, self._id = where, job_id
        self._lifeline, self._session = lifeline, session
        self.attached = attached
        self.pressed = False  # Ctrl-C came during submission; it is raised once a caller waits
        self._known_at = time.time()

    @property
    def id(self) -> str:
        return self._id

    def __repr__(self) -> str:
        try:
            return f"<{self.snapshot().line}>"
        except (AgentUnavailable, NotFound):
            return f"<{self._id}  interrupted: its agent is gone>"

    def _ask(self, do: str, *, timeout: float | None = None, **message: Any) -> dict[str, Any]:
        """Return the agent's immediate answer; an agent that hangs must not hang the caller."""
        with _reach(self._where) as connection:
            return connection.ask({"do": do, "job": self._id, **message}, timeout=timeout or _ANSWER)

    def _over(self) -> PastJob | None:
        """Return the job's record if its agent is gone; checks the start time too, since ids come again."""
        found = [p for p in _past() if p.snapshot.id == self._id and p.snapshot.created <= self._known_at]
        return PastJob(found[-1]) if found and found[-1].snapshot.state != "INTERRUPTED" else None

    def snapshot(self) -> Snapshot:
        try:
            with _reach(self._where) as connection:
                connection.ask({"do": "watch", "job": self._id}, timeout=_ANSWER)
                return Snapshot.from_dict(connection.receive(timeout=_ANSWER)["snapshot"])
        except (AgentUnavailable, NotFound):
            if (over := self._over()) is None:
                raise
            return over.snapshot()

    def done(self) -> bool:
        self._raise_pressed()
        try:
            return self.snapshot().finished
        except NotFound:  # over, and not on record any more
            return True
        except AgentUnavailable:
            if held(self._where.alive):  # the agent is alive; only the question failed
                raise
            return True

    def _raise_pressed(self) -> None:
        pressed, self.pressed = self.pressed, False
        if pressed:
            raise KeyboardInterrupt

    def watch(self) -> Iterator[Snapshot]:
        self._raise_pressed()
        with _reach(self._where) as connection:
            connection.ask({"do": "watch", "job": self._id})
            while True:
                snapshot = Snapshot.from_dict(connection.receive()["snapshot"])
                yield snapshot
                if snapshot.finished:
                    self._let_go()
                    return

    def wait(self, timeout: float | None = None) -> Report:
        self._raise_pressed()
        try:
            if timeout is None:
                for _ in self.watch():
                    pass
            elif not self._ended_within(timeout):
                raise TimeoutError(f"job {self._id} still runs")
            answer = self._ask("report")
        except (AgentUnavailable, NotFound):
            if (over := self._over()) is None:
                raise
            return over.wait()
        error = error_from_dict(answer["failure"]) if answer["failure"] else None
        return conclude(self._report(answer), error, answer["on_error"])

    def _ended_within(self, seconds: float) -> bool:
        """Wait at most that long for the end of the job: a job that is stuck sends nothing."""
        end = time.monotonic() + seconds
        with _reach(self._where) as connection:
            connection.ask({"do": "watch", "job": self._id}, timeout=_ANSWER)
            while not Snapshot.from_dict(connection.receive(timeout=_ANSWER)["snapshot"]).finished:
                left = end - time.monotonic()
                if left <= 0 or not connection.ready(left):
                    return False
        self._let_go()
        return True

    def report(self) -> Report:
        try:
            return self._report(self._ask("report"))
        except (AgentUnavailable, NotFound):
            if (over := self._over()) is None:
                raise
            return over.report()

    def _report(self, answer: dict[str, Any]) -> Report:
        report = Report.from_dict(answer["report"])
        report.rows = Rows(answer["count"], functools.partial(_page, self._where, {"job": self._id}))
        return report

    def pause(self) -> None:
        self._ask("pause")

    def resume(self) -> None:
        self._ask("resume")

    def cancel(self) -> None:
        self._ask("cancel")

    def limit(self, rate: int | None) -> None:
        self._ask("limit", rate=rate)

    def again(self) -> str:
        try:
            return str(self._ask("again")["job"])
        except (AgentUnavailable, NotFound):
            if (over := self._over()) is None:
                raise
            return over.again()

    def interrupt(self) -> bool:
        # Outside a kernel nothing restarts us, so Ctrl-C always means cancel.
        at_once = "ipykernel" not in sys.modules
        message = {"do": "interrupt", "job": self._id, "session": self._session, "at_once": at_once}
        asked = _reach(self._where, timeout=_INTERRUPTED)
        try:
            alone = bool(asked.ask(message, timeout=_INTERRUPTED)["alone"])
        except AgentUnavailable:
            if not at_once:
                self._linger(unanswered=asked)
            raise
        asked.close()
        if alone and not at_once:
            self._linger()
            return True
        if alone:
            self._await_end()
        self._let_go()
        return alone

    def _linger(self, unanswered: Connection | None = None) -> None:
        """Keep the lifeline open until the agent has turned an interrupt into a cancel; return at once.

        A kernel that is being restarted must be free to end now, and its end tells the agent to continue the job. An
        agent that does not answer reads the interrupt later, and answers on the connection `unanswered`.
        """
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is None and unanswered is None:
            return

        def wait() -> None:
            if unanswered is not None:
                unanswered.ready(_WAKES)
                unanswered.close()
            time.sleep(_LINGER)
            if lifeline is not None:
                lifeline.close()

        # None of the threads that the end of the interpreter waits for: it must let go then.
        with contextlib.suppress(RuntimeError):  # the system refuses more threads
            threading.Thread(target=wait, name=f"interrupted-{self._id}", daemon=True).start()

    def _await_end(self) -> None:
        """Wait a short time for the end of a cancelled job; raise AgentUnavailable if the agent stops answering."""
        end = time.monotonic() + _ENDING
        with _reach(self._where, timeout=_INTERRUPTED) as connection:
            connection.ask({"do": "watch", "job": self._id}, timeout=_INTERRUPTED)
            while True:
                while not connection.ready(_INTERRUPTED):
                    connection.ask_whether_it_lives(_INTERRUPTED)
                    if time.monotonic() > end:
                        return
                if Snapshot.from_dict(connection.receive(timeout=_INTERRUPTED)["snapshot"]).finished:
                    return

    def _let_go(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            lifeline.close()

    def items(self, credit: int = 2, waits: Waiting | None = None) -> Iterator[Item]:
        self._raise_pressed()
        with _reach(self._where) as connection:
            connection.ask({"do": "items", "job": self._id, "credit": credit})
            messages = deque[dict[str, Any]]()  # at most `credit` items and the end
            while True:
                asked = time.monotonic()
                # Read all that has come: an error is reported before items that were sent ahead of it.
                while not messages or ("item" in messages[-1] and connection.ready()):
                    messages.append(connection.receive())
                    if messages[-1].get("error"):
                        raise error_from_dict(messages[-1]["error"])
                message = messages.popleft()
                if "item" not in message:
                    return
                item = Item(*message["item"])
                if waits is not None:
                    waits.add(asked, time.monotonic(), item)
                try:
                    yield item
                finally:  # also when the consumer leaves its loop: it has had this item
                    with contextlib.suppress(AgentUnavailable):  # the next item raises it
                        connection.send({"done": item.number})

    def release(self) -> bool:
        # An agent that is gone holds nothing any more; one that does not answer will see the connection end.
        # It reads the request later, too, so Ctrl-C need not wait for it.
        silent = False
        try:
            self._ask("cancel", timeout=_INTERRUPTED, left=True)
            self._ended_within(_RELEASED)
        except NotFound:
            pass
        except AgentUnavailable as error:
            silent = bool(error.details.get("alive"))
        self._let_go()
        return not silent

    def use_cache(self) -> Cache:
        connection = _reach(self._where)
        try:
            answer = connection.ask({"do": "stage", "job": self._id})
        except BaseException:
            connection.close()
            raise
        return AgentCache(connection, answer["folder"], tuple(answer["identity"]))


class AgentPlanning:
    """A plan that an agent makes; the Planning protocol of nbdata.protocols. The agent stops if the connection ends."""

    def __init__(self, operation: Operation, connection: Connection) -> None:
        self._operation, self._connection = operation, connection
        #: See `Planning.listed`.
        self.listed = 0

    def wait(self) -> Plan:
        with self._connection as connection:
            context = capture(self._operation).to_dict()
            answer = connection.ask(
                {"do": "plan", "operation": self._operation.to_dict(), "context": context},
                meanwhile=self._note,
            )
        planned = Plan.from_dict(answer["plan"])
        planned.rows = Rows(
            answer["count"], functools.partial(_page, endpoint(), {"folder": answer["folder"]})
        )
        return planned

    def _note(self, news: dict[str, Any]) -> None:
        self.listed = int(news["listed"])

    def cancel(self) -> None:
        self._connection.hang_up()


class AgentHost:
    """Sends operations to the agent of this environment and build, and sees the jobs of all agents."""

    def plan(self, operation: Operation) -> Plan:
        return self.planning(operation).wait()

    def planning(self, operation: Operation) -> AgentPlanning:
        return AgentPlanning(operation, connect())

    def submit(self, operation: Operation, *, background: bool) -> AgentJob:
        context = capture(operation).to_dict()
        connection = connect()
        try:
            with held_interrupt() as held:
                answer = connection.ask(
                    {
                        "do": "submit",
                        "operation": operation.to_dict(),
                        "context": context,
                        "background": background,
                    }
                )
        except KeyboardInterrupt:
            named = f" (process {connection.pid})" if connection.pid else ""
            connection.close()  # so the agent does not begin the job when it reads the message
            told = AgentUnavailable(
                f"the agent{named} had not answered yet, and does not begin the job",
                remedy="If it stays silent, `nbdata agent stop --now` ends it",
            )
            raise KeyboardInterrupt(str(told)) from told
        except BaseException:
            connection.close()
            raise
        if background:
            connection.close()
        job = AgentJob(
            endpoint(),
            answer["job"],
            lifeline=None if background else connection,
            session=answer["session"],
            attached=answer["attached"],
        )
        if held.pressed and background:  # it continues in the background, as requested
            raise KeyboardInterrupt
        job.pressed = held.pressed
        return job

    def jobs(self) -> list[Snapshot]:
        return self.look()[0]

    def look(self) -> tuple[list[Snapshot], bool]:
        """Return the jobs of all agents, also of past ones, and whether some agent is alive but did not answer."""
        silent: list[Endpoint] = []
        found = [snapshot for _, snapshot in self._everywhere(silent)]
        known = {(snapshot.id, snapshot.created) for snapshot in found}
        over = [replace(past.snapshot) for past in _past() if past.key not in known]
        return sorted([*over, *found], key=lambda s: s.created), any(held(w.alive) for w in silent)

    def job(self, job_id: str) -> Job:
        return named(job_id, *self.known())

    def known(self) -> tuple[list[Job], list[Job]]:
        """Return the jobs that agents have, and those whose agents are gone; see `named`."""
        have = [(where, snapshot) for where, snapshot in self._everywhere()]
        keys = {(snapshot.id, snapshot.created) for _, snapshot in have}
        over = [PastJob(past) for past in _past() if past.key not in keys]
        return [AgentJob(where, snapshot.id) for where, snapshot in have], list(over)

    def _everywhere(self, silent: list[Endpoint] | None = None) -> Iterator[tuple[Endpoint, Snapshot]]:
        """Yield all jobs with their endpoints; agents that do not answer are added to `silent`."""
        for where in endpoints():
            try:
                with Connection(where, timeout=2.0) as connection:
                    jobs = connection.ask({"do": "list"}, timeout=5.0)["jobs"]
                found = [Snapshot.from_dict(data) for data in jobs]
            except (
                OSError,
                NbdataError,
                KeyError,
                TypeError,
                AttributeError,
            ):  # also for an answer that no agent gives
                if silent is not None:
                    silent.append(where)
                continue
            for snapshot in found:
                yield where, snapshot


def _past() -> list[Past]:
    """Return the past jobs from the records in this environment's writable state folder."""
    return past_jobs(state_folder())


def _reach(where: Endpoint, *, timeout: float = 10.0) -> Connection:
    try:
        return Connection(where, timeout=timeout)
    except OSError as error:
        raise AgentUnavailable(
            "the agent that had this job is gone, so the job was interrupted",
            remedy="Run the command again to resume",
        ) from error


def _page(where: Endpoint, what: dict[str, Any], offset: int) -> tuple[list[Row], int | None]:
    with _reach(where) as connection:
        answer = connection.ask({"do": "rows", "offset": offset, **what}, timeout=_ROWS)
    return [Row(*row) for row in answer["rows"]], answer["next"]


@functools.cache
def agent_host() -> AgentHost:
    """Return the one AgentHost of this process."""
    return AgentHost()
