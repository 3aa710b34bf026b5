"""One client's connection: its messages, its foreground jobs, and its leased items.

A message is ``{"do": NAME, …}``, and its answer is ``{"ok": true, …}`` or ``{"error": …}``. After ``watch``, snapshots
are pushed as ``{"snapshot": …}``. After ``items``, the connection carries only items and their acknowledgements. The
messages *hello list watch pause resume cancel stop* never change their meaning (`wire.PROTOCOL`), because attach, lists
and the panel send them to agents of every build.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from nbdata import wire
from nbdata.agent.cache_messages import lives, serve
from nbdata.agent.messages import context_of, number_of, operation_of
from nbdata.disk import internal_error, is_full
from nbdata.engine.job.spool import read_page
from nbdata.engine.jobs import EngineJob, Jobs
from nbdata.engine.runner import Planning
from nbdata.errors import AgentUnavailable, BadOption, NbdataError, NotFound
from nbdata.report import Snapshot
from nbdata.runtime import build_id, runtime_folder, was_upgraded
from nbdata.threads import begin
from nbdata.version import __version__

__all__ = ["Session"]

# Jupyter interrupts a kernel before it restarts it. The process ends 0.14 s later (measured); on a busy machine Jupyter
# ends it after 2.5 s, and kills it after 5 (``shutdown_wait_time`` of jupyter_client). So an interrupt only pauses the
# transfer. It becomes a cancel unless the connection is gone by then.
_RESTART_WINDOW = 7.0
_SNAPSHOT_EVERY = 0.25
# Seconds between two checks that a client still waits for its plan.
_LOOK = 0.25
# Seconds between two messages how far a plan is.
_TELL = 0.75
# Bytes of a job list beside the jobs.
_REST = 1 << 10
# Seconds in which a message must arrive completely once it has begun.
_MESSAGE = 30.0
# The most threads that work on one client's messages, beside the one that reads them.
_HELPERS = 16

_sessions: dict[str, Session] = {}


class Agent(Protocol):
    """The interface of the agent that a session uses."""

    jobs: Jobs
    draining: bool

    def wanted(self) -> None:
        """Note that a client has work for the agent."""

    def stop_now(self) -> None:
        """End soon."""


class Session:
    """A client's connection. `run` serves it until the client closes it."""

    def __init__(self, agent: Agent, sock: socket.socket) -> None:
        self._agent, self._sock = agent, sock
        self._sending = threading.Lock()
        self._helpers = threading.BoundedSemaphore(_HELPERS)
        self.id = secrets.token_hex(8)
        self.open = True
        self.silent = True  # until its first message: it may not submit work
        self.began = time.monotonic()
        self._foreground: set[EngineJob] = set()

    def run(self) -> None:
        """Answer messages until the connection ends, and then release everything it held."""
        _sessions[self.id] = self
        try:
            while (message := wire.receive(self._sock, within=_MESSAGE)) is not None:
                self._answer(message)
        except OSError:
            pass  # the client is gone, or sent an invalid message
        finally:
            self.open = False
            for job in list(self._foreground):
                self.leave(job)
                if job.operation.bound or job.operation.query:  # nobody else can see a query, or end it
                    job.task.cancel("its process ended")
            _sessions.pop(self.id, None)
            with contextlib.suppress(
                OSError
            ):  # a thread that still sends must not wait for ever, nor send to another client's socket
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()

    def refuse(self, error: NbdataError) -> None:
        """Refuse this client with the reason, in place of `run`. Never waits for it."""
        self.open = False
        with contextlib.suppress(OSError):
            self._sock.settimeout(0)
            self._send({"error": error.to_dict()})
        self._sock.close()

    def _meanwhile(self, name: str, work: Callable[[], None]) -> None:
        """Run work in its own thread, so that this one keeps reading the client's messages."""
        if not self._helpers.acquire(blocking=False):
            raise BadOption(f"this connection waits for {_HELPERS} things already")

        def helped() -> None:
            try:
                work()
            finally:
                self._helpers.release()

        if not begin(helped, name=name):
            self._helpers.release()
            raise AgentUnavailable("the agent can start no further work: the system refuses more threads")

    def leave(self, job: EngineJob) -> None:
        """Stop waiting for a job in the foreground. The job continues."""
        with job.joining:  # its end, and an interrupt by another connection, may come at the same time
            if job in self._foreground:
                self._foreground.discard(job)
                job.foreground -= 1

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:
            try:
                wire.send_shown(self._sock, message)
            except wire.MessageTooLong as error:  # a client that gets no answer would wait for ever
                told = NbdataError(
                    f"the agent's answer is too long: {error.name} has {error.size:,} bytes",
                    expected=f"at most {wire.MAX_FRAME:,} bytes",
                )
                wire.send(self._sock, {"error": told.to_dict()})

    def _answer(self, message: dict[str, Any]) -> None:
        handler = _HANDLERS.get(str(message.get("do")))
        if message.get("do") not in ("list", "hello"):  # merely looking must not keep the agent alive
            self._agent.wanted()
        self.silent = False
        try:
            if handler is None:
                raise BadOption(f"the agent knows no message {message.get('do')!r}")
            answer = handler(self, message)
        except NbdataError as error:
            self._send({"error": error.to_dict()})
        except (ConnectionError, TimeoutError):  # of this socket; stores raise errors of their own
            raise
        except Exception as error:
            if not isinstance(error, OSError) or not is_full(error):
                import traceback

                traceback.print_exc()
            self._send({"error": internal_error(error).to_dict()})
        else:
            if answer is not None:
                self._send({"ok": True, **answer})

    def _job(self, message: dict[str, Any]) -> EngineJob:
        return self._agent.jobs.find(str(message.get("job", "")))

    # -- the frozen messages ------------------------------------------------------------------

    def hello(self, message: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocol": wire.PROTOCOL,
            "version": __version__,
            "build": build_id(),
            "pid": os.getpid(),
            "python": sys.prefix,
            "draining": self._agent.draining,
            "unfinished": len(self._agent.jobs.unfinished()),
        }

    def list(self, message: dict[str, Any]) -> dict[str, Any]:
        found, room = list[dict[str, Any]](), wire.MAX_FRAME - _REST
        for snapshot in sorted(self._agent.jobs.snapshots(), key=_importance):
            job = snapshot.to_dict()
            size = len(json.dumps(job)) + 1
            if size <= room:
                room -= size
                found.append(job)
        return {"jobs": sorted(found, key=lambda job: float(job["created"]))}

    def watch(self, message: dict[str, Any]) -> None:
        """Push snapshots from their own thread, so that this one keeps reading the client's messages."""
        job = self._job(message)

        def push() -> None:
            told.wait()
            self._push(job)

        told = threading.Event()
        self._meanwhile(f"watch-{job.id}", push)
        try:
            self._send({"ok": True})
        finally:
            told.set()

    def _push(self, job: EngineJob) -> None:
        version, rate = -1, 0.0
        try:
            while self.open:
                began = time.monotonic()
                snapshot = job.task.wait_change(version, _SNAPSHOT_EVERY)
                # While no bytes come, report the falling rate, too.
                if (snapshot.version, snapshot.rate) != (version, rate) or snapshot.finished:
                    version, rate = snapshot.version, snapshot.rate
                    self._send({"snapshot": snapshot.to_dict()})
                if snapshot.finished:
                    return
                # Wait until the next snapshot is due, but report the end at once.
                job.task.wait_end(max(0.0, began + _SNAPSHOT_EVERY - time.monotonic()))
        except OSError:
            return

    def pause(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"done": self._job(message).task.pause("user")}

    def resume(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"done": self._job(message).task.resume()}

    def cancel(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"done": self._job(message).task.cancel("its loop has ended" if message.get("left") else "")}

    def stop(self, message: dict[str, Any]) -> dict[str, Any]:
        """Stop the agent. ``how``: *idle* (refuse while jobs run), *now*, or *drain* (after the last job).

        *drain* has an effect only if nbdata was upgraded.
        An agent of another build sends *drain*. If that build is elsewhere, as a checkout beside an installed package,
        this agent is still current and stays. A user of both then has both agents.
        """
        how = message.get("how", "idle")
        if how not in ("idle", "drain", "now"):
            raise BadOption(f"the agent cannot stop {how!r}", expected="idle, drain or now")
        unfinished = len(self._agent.jobs.unfinished())
        if how == "idle" and unfinished:
            raise BadOption(
                f"jobs that are not finished: {unfinished}",
                remedy="nbdata agent stop --now interrupts them; run the commands again to resume",
            )
        if how == "drain":
            self._agent.draining = was_upgraded()
        else:
            self._send({"ok": True, "unfinished": unfinished})
            self._agent.stop_now()
            return None  # type: ignore[return-value]  # already answered
        return {"unfinished": unfinished}

    # -- work ---------------------------------------------------------------------------------

    def plan(self, message: dict[str, Any]) -> dict[str, Any]:
        operation, context = operation_of(message), context_of(message)
        control, over = Planning(), threading.Event()
        self._meanwhile("plan-waiter", partial(self._watch_plan, control, over))
        try:
            planned, folder = self._agent.jobs.plan(operation, context, {}, control)
        finally:
            over.set()
        return {"plan": planned.to_dict(), "count": len(planned.rows), "folder": os.path.basename(folder)}

    def _watch_plan(self, control: Planning, over: threading.Event) -> None:
        """Tell the client of a plan how far it is. If it has left, as after Ctrl-C, stop: it may list for hours."""
        told, told_at = 0, time.monotonic()
        with contextlib.suppress(ValueError):  # the socket was closed: the plan is over
            while not over.wait(_LOOK):
                if not lives(self._sock):
                    control.cancel()
                    return
                if control.entries > told and time.monotonic() - told_at >= _TELL:
                    told, told_at = control.entries, time.monotonic()
                    with self._sending, contextlib.suppress(OSError):  # it has just left
                        if not over.is_set():
                            wire.send(self._sock, {"meanwhile": {"listed": told}})

    def _refuse_if_draining(self) -> None:
        if self._agent.draining:
            raise AgentUnavailable(
                "nbdata was upgraded since this process began",
                remedy="Restart the kernel, and run the command again",
            )

    def submit(self, message: dict[str, Any]) -> None:
        """Begin a job, or join the running one of the same identity; do neither for a client that has left."""
        self._refuse_if_draining()
        operation, context = operation_of(message), context_of(message)
        background = bool(message.get("background"))
        if not lives(self._sock):
            return  # Ctrl-C while this process did not answer
        job, attached = self._agent.jobs.submit(operation, context, {}, background=background)
        with job.joining:
            if not background and job not in self._foreground:
                self._foreground.add(job)
                job.foreground += 1
        try:
            self._send({"ok": True, "job": job.id, "attached": attached, "session": self.id})
        except OSError:
            if not attached:
                job.task.cancel()
            raise

    def again(self, message: dict[str, Any]) -> dict[str, Any]:
        """Begin a job that failed or was stopped once more, in the background, with the credentials that it had."""
        self._refuse_if_draining()
        before = self._job(message)
        before.refuse_again()
        job, attached = self._agent.jobs.submit(before.operation, before.context, {}, background=True)
        return {"job": job.id, "attached": attached}

    def limit(self, message: dict[str, Any]) -> dict[str, Any]:
        """Limit the bytes per second of a job; no ``rate`` lifts the limit."""
        rate = message.get("rate")
        self._job(message).limit(None if rate is None else number_of(message, "rate", 0))
        return {}

    def interrupt(self, message: dict[str, Any]) -> dict[str, Any]:
        """Handle Ctrl-C of the client whose connection is ``session``."""
        job, session, at_once = self._job(message), str(message.get("session", "")), message.get("at_once")
        waiting = _sessions.get(session)
        if session and waiting is None and not at_once:
            return {"alone": False}  # restarted at once: the agent saw its end before its interrupt
        mine = waiting is not None and job in waiting._foreground
        # A watching client, or one that joined a background job, only detaches and ends nothing.
        if not session or job.task.snapshot().background or job.foreground > (1 if mine else 0):
            if waiting is not None:
                waiting.leave(job)
            return {"alone": False}
        if at_once or waiting is None:
            job.task.cancel()
        elif job.task.pause("interrupt") or job.task.snapshot().state == "PAUSED":
            self._meanwhile(f"interrupt-{job.id}", partial(_cancel_unless_restarted, job, waiting))
        return {"alone": True}

    def report(self, message: dict[str, Any]) -> dict[str, Any]:
        job = self._job(message)
        report, error = job.task.report, job.task.error
        if report is None:
            raise NotFound(f"job {job.id} has no report yet", remedy="Wait for its end")
        return {
            "report": report.to_dict(),
            "count": len(report.rows),
            "failure": error.to_dict() if error else None,
            "on_error": job.on_error,
        }

    def rows(self, message: dict[str, Any]) -> dict[str, Any]:
        offset = number_of(message, "offset", 0)
        folder = str(message.get("folder", ""))
        if folder:
            if not re.fullmatch(r"[0-9a-f]{32}", folder):
                raise BadOption("no such plan")
            path = os.path.join(runtime_folder(), "jobs", folder, "plan.rows")
            if not os.path.exists(path):
                raise NotFound("the rows of this plan are kept no longer", remedy="Make the plan again")
            rows, after = read_page(path, offset)
        else:
            rows, after = self._job(message).page("report", offset)
        return {"rows": rows, "next": after}

    def items(self, message: dict[str, Any]) -> None:
        """Lease items to this connection until the job has no more. The connection's end gives them back."""
        job = self._job(message)
        credit = max(1, min(number_of(message, "credit", 2), 1024))
        self._send({"ok": True})
        threading.Thread(
            target=self._hand_out, args=(job, credit), name=f"items-{job.id}", daemon=True
        ).start()
        try:
            while (said := wire.receive(self._sock, within=_MESSAGE)) is not None:
                if not isinstance(said.get("done"), int):
                    raise wire.FrameError("only the numbers of items that are done are expected here")
                job.leases.acknowledge(self.id, said["done"])
        finally:
            self.open = False
            job.leases.give_back(self.id)

    def stage(self, message: dict[str, Any]) -> None:
        """Let a process use a job's cache until this connection ends; `nbdata.agent.cache_messages` serves it."""
        job = self._job(message)
        consumer = job.cache.join(self.id)
        try:
            self._send({"ok": True, "folder": consumer.folder, "identity": consumer.identity})
            serve(self._sock, consumer, self._send)
        finally:
            self.open = False
            consumer.close()

    def _hand_out(self, job: EngineJob, credit: int) -> None:
        try:
            while self.open and not job.leases.exhausted(self.id):
                item = job.leases.lease(self.id, credit, 0.2)
                if item is not None:
                    self._send({"item": list(vars(item).values())})
            error = job.why_no_more()
            self._send({"end": True, "error": error.to_dict() if error else None})
        except OSError:
            return
        finally:
            if not self.open:  # leased while the connection ended
                job.leases.give_back(self.id)


def _importance(snapshot: Snapshot) -> tuple[int, float]:
    """The sort key of a list with too little room: running jobs first, then the next queued, then the last ended."""
    if snapshot.finished:
        return 2, -snapshot.created
    return int(snapshot.state == "QUEUED"), snapshot.created


def _cancel_unless_restarted(job: EngineJob, session: Session) -> None:
    reason = job.task.snapshot().reason
    end = time.monotonic() + _RESTART_WINDOW
    while session.open and time.monotonic() < end:
        time.sleep(0.02)
    snapshot = job.task.snapshot()
    if (snapshot.state, snapshot.reason) != ("PAUSED", reason):
        return  # the user repeated the command, or decided otherwise
    if session.open:
        job.task.cancel()
    elif reason == "interrupt":  # otherwise the job was already paused, and stays so
        job.task.resume()


_Handler = Callable[[Session, "dict[str, Any]"], "dict[str, Any] | None"]
_HANDLERS: dict[str, _Handler] = {
    name: getattr(Session, name)
    for name in (
        "hello",
        "list",
        "watch",
        "pause",
        "resume",
        "cancel",
        "again",
        "limit",
        "stop",
        "plan",
        "submit",
        "interrupt",
        "report",
        "rows",
        "items",
        "stage",
    )
}
