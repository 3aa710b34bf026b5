"""The agent's server: accepts clients, ends when idle, and makes way for another build."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
import time

from nbdata import wire
from nbdata.agent.log import say
from nbdata.agent.sessions import Session
from nbdata.cluster.dealing import dealer_of
from nbdata.engine.jobs import Jobs
from nbdata.engine.journal import Journal
from nbdata.engine.runner import forget_the_dead
from nbdata.errors import AgentUnavailable, NbdataError
from nbdata.lock_files import file_lock
from nbdata.runtime import Endpoint, endpoints
from nbdata.sockets import connect
from nbdata.space.holders import dead_holders, touch_books
from nbdata.threads import begin

__all__ = ["Server"]

# The most clients at the same time; further ones get an error.
_CLIENTS = 256
# Seconds for which a silent new client keeps an idle agent alive.
_SILENT_KEEPS = 30.0
# Seconds after which a paused job no longer keeps the agent alive.
_PAUSED_KEEPS = 24 * 3600.0
_TOUCH_EVERY = 3600.0
# Seconds after which the files of an agent that has ended are removed. Those of living agents are touched.
_LEFT_KEEPS = 7 * 24 * 3600.0
# Seconds between two checks for ended jobs, which may leave memory to free, and for the agent's own end.
_LOOK_EVERY = 0.5
# An idle agent that uses more bytes of memory than this ends within seconds.
_IDLE_MEMORY = 300 << 20


class Server:
    """Accepts connections and owns the jobs.

    Parameters
    ----------
    endpoint : Endpoint
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.jobs = Jobs(dealer_of, Journal(say))
        self.draining = False
        self._stop = threading.Event()
        self._sessions: dict[int, Session] = {}
        self._lock = threading.Lock()
        self._idle_after = float(os.environ.get("NBDATA_AGENT_IDLE", "300"))
        self._busy_at = time.monotonic()
        self._freed_after: set[str] = set()  # jobs that have ended
        self._looked_at = 0.0

    def serve(self, listener: socket.socket) -> None:
        """Serve until idle, drained or stopped. The socket's file is gone on return."""
        threading.Thread(target=self._retire_others, name="retire", daemon=True).start()
        listener.settimeout(0.5)
        touched = looked = time.monotonic()
        while not self._stop.is_set():
            self._free_memory()
            try:
                sock, _ = listener.accept()
            except TimeoutError:
                pass  # no client came in this half second
            except OSError as error:  # no descriptor is free until some client leaves
                print(f"a client could not be accepted: {error}", file=sys.stderr)  # noqa: T201
                self._stop.wait(0.5)
            else:
                self._begin(sock)
            if time.monotonic() - looked < _LOOK_EVERY:
                continue
            looked = time.monotonic()  # also while clients come all the time: panels only look
            if self._may_end() and self._close(listener):
                return
            if looked - touched > _TOUCH_EVERY:
                touched = looked
                self._touch()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.endpoint.socket)
        for job in self.jobs.unfinished():
            job.task.interrupt()
        time.sleep(0.3)  # so that watchers get the news

    def _begin(self, sock: socket.socket) -> None:
        """Serve a client in its own thread, or refuse it with the reason. A surplus client delays no other."""
        sock.settimeout(None)
        session = Session(self, sock)
        with self._lock:
            full = len(self._sessions) >= _CLIENTS
            if not full:
                self._sessions[id(session)] = session
        if full:
            remedy = "Close some, and run the command again"
            session.refuse(AgentUnavailable(f"the agent serves {_CLIENTS} clients already", remedy=remedy))
            return
        if not begin(self._run, session, name="session"):
            with self._lock:
                self._sessions.pop(id(session), None)
            why = "the agent can serve no more clients: the system refuses more threads"
            session.refuse(AgentUnavailable(why))

    def _run(self, session: Session) -> None:
        try:
            session.run()
        finally:
            with self._lock:
                self._sessions.pop(id(session), None)

    def _free_memory(self) -> None:
        """Collect cycles after a job has ended: errors of failed attempts hold megabytes of buffers in few objects.

        Python collects only when there are many objects, so an agent grew to 250 MB after a dozen extractions. Runs in
        its own thread, because collected objects may close connections to stores, and wait for them.
        """
        if (now := time.monotonic()) - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = now
        ended = {job.id for job in self.jobs.all() if job.task.finished}
        if ended - self._freed_after:
            begin(gc.collect, name="collector")
        self._freed_after = ended

    def _touch(self) -> None:
        """Touch the agent's files, because cleaners of temporary folders delete old ones."""
        where = self.endpoint
        for path in (where.socket, where.alive, where.start, where.log):
            with contextlib.suppress(OSError):
                os.utime(path)
        touch_books()

    def wanted(self) -> None:
        """Note that a client has work for this agent, so it is not idle. Looking at its jobs is no work."""
        self._busy_at = time.monotonic()

    def _may_end(self) -> bool:
        unfinished = self.jobs.unfinished()
        if unfinished:
            now = time.monotonic()
            if any(job.task.snapshot().state != "PAUSED" for job in unfinished):
                self._busy_at = now
            return now - self._busy_at > _PAUSED_KEEPS
        if self.jobs.planning:
            self._busy_at = time.monotonic()
            return False
        with self._lock:
            since = time.monotonic() - _SILENT_KEEPS
            if any(session.silent and session.began > since for session in self._sessions.values()):
                return False
        if self.draining:
            return True
        idle = time.monotonic() - self._busy_at
        return idle > self._idle_after or (idle > 5 and _memory() > _IDLE_MEMORY)

    def _close(self, listener: socket.socket) -> bool:
        """Stop accepting. Returns False if a client is just connecting."""
        lock = file_lock(self.endpoint.start)
        if not lock.acquire(wait=False):
            return False
        try:
            listener.settimeout(0)
            with contextlib.suppress(OSError):
                sock, _ = listener.accept()  # came between the last check and the lock
                self._busy_at = time.monotonic()
                self._begin(sock)
                listener.settimeout(0.5)
                return False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.endpoint.socket)
            return True
        finally:
            lock.release()

    def stop_now(self) -> None:
        """End now. Running jobs become INTERRUPTED, and the same commands resume them."""
        self._stop.set()

    def _retire_others(self) -> None:
        """Ask agents of other, upgraded builds of this environment to end after their last job.

        They take no new jobs. Also cleans up after killed agents.
        """
        forget_the_dead()
        dead_holders()
        _remove_left(self.endpoint.folder)
        environment = self.endpoint.name.partition("-")[0]
        for other in endpoints():
            if other.name != self.endpoint.name and other.name.startswith(environment + "-"):
                with contextlib.suppress(OSError, NbdataError), connect(other, timeout=5) as sock:
                    wire.send(sock, {"do": "stop", "how": "drain"})
                    wire.receive(sock)


def _remove_left(folder: str) -> None:
    """Remove the files of agents that ended long ago. Each build, and each container with this folder, leaves some."""
    for name in os.listdir(folder):
        left = Endpoint(folder, name.removesuffix(".start"))
        with contextlib.suppress(OSError):
            if not name.endswith(".start") or time.time() - os.stat(left.start).st_mtime < _LEFT_KEEPS:
                continue
            starting, alive = file_lock(left.start), file_lock(left.alive)
            try:
                if starting.acquire(wait=False) and alive.acquire(wait=False):
                    for path in (left.socket, left.log, left.alive, left.start):
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(path)
            finally:
                alive.release()
                starting.release()


def _memory() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
