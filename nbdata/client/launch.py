"""Starts the agent when it is first needed, and connects to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping

from nbdata.client.connection import Connection
from nbdata.errors import AgentUnavailable
from nbdata.lock_files import file_lock, held
from nbdata.paths import working_folder
from nbdata.runtime import LOG_BYTES, Endpoint, endpoint, package_folder, was_upgraded

__all__ = ["connect", "log_tail", "spawn"]

# Seconds that an agent may take to listen: it imports everything first, maybe on a busy machine.
_PATIENCE = 30.0
# Seconds within which a live agent takes its lock.
_BIRTH = 8.0


def connect() -> Connection:
    """Return a connection to the agent of this environment and build; starts the agent if it does not run.

    Raises
    ------
    AgentUnavailable
        If it cannot be started.
    """
    where = endpoint()
    end = time.monotonic() + 2 * _PATIENCE  # the process that starts it may take that long once
    starting = file_lock(where.start)
    pause = 0.005
    # The holder of the lock starts the agent. If that process is stopped, the others do not wait for ever.
    while (connection := _try(where)) is None and not starting.acquire(wait=False):
        if time.monotonic() > end:
            raise AgentUnavailable(
                "another process has been starting the agent for too long",
                remedy="NBDATA_HOST=inline works without it",
                details={"inline": True},
            )
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
    if connection is not None:
        return connection
    try:
        return _started(where)
    finally:
        starting.release()


def _started(where: Endpoint) -> Connection:
    """Connect to the agent, and start it unless another process just did; the caller holds the lock."""
    connection = _try(where)
    if connection is not None:
        return connection
    if was_upgraded():
        raise AgentUnavailable(
            "nbdata was upgraded since this process imported it",
            remedy="Restart the kernel, and run the command again",
        )
    _spawn(where)
    began = time.monotonic()
    pause = 0.005
    while time.monotonic() - began < _PATIENCE:
        connection = _try(where)
        if connection is not None:
            return connection
        if time.monotonic() - began > _BIRTH and not held(where.alive):
            break  # it died before it listened
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
    raise AgentUnavailable(
        f"the agent did not start: {log_tail(where, 1) or 'it said nothing'}",
        remedy="`nbdata agent log` shows more; NBDATA_HOST=inline works without it",
        details={"inline": True},
    )


def _try(where: Endpoint) -> Connection | None:
    try:
        return Connection(where)
    except OSError:
        return None


def _spawn(where: Endpoint) -> None:
    """Start the agent's process."""
    kept = {
        n: v
        for n, v in os.environ.items()
        if n in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") or n.startswith("NBDATA_")
    }
    try:
        spawn("nbdata.agent.main", where.name, where.log, kept)
    except OSError as error:
        raise AgentUnavailable(f"the agent cannot be started: {error.strerror}") from error


def spawn(
    module: str, name: str, log_path: str, env: Mapping[str, str], stdin: int = subprocess.DEVNULL
) -> None:
    """Start a process of nbdata in a new session without inherited pipes; it outlives this one.

    Jupyter kills the kernel's process group, and a caller that reads a pipe would wait for the process's whole life.

    Parameters
    ----------
    module : str
        The module whose ``main`` it runs.
    name : str
        The argument of that.
    log_path : str
        The file for its output, which starts afresh once it is large.
    env : dict
        Its environment.
    stdin : int
        A descriptor for its standard input.

    Raises
    ------
    OSError
        If it cannot be started.
    """
    package = package_folder()
    here = os.path.realpath(working_folder() or "/")  # a folder that no process imports from
    paths = [p for p in sys.path if os.path.isabs(p) and os.path.realpath(p) != here]
    if os.path.dirname(package) not in map(os.path.realpath, paths):
        paths.append(os.path.dirname(package))
    size = os.path.getsize(log_path) if os.path.exists(log_path) else 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if size > LOG_BYTES else 0)
    log = os.open(log_path, flags, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, os.path.join(package, "agent", "bootstrap.py"), name, "\n".join(paths), module],
            start_new_session=True,
            stdin=stdin,
            stdout=log,
            stderr=log,
            close_fds=True,
            cwd="/",
            env=dict(env),
        )
        process.wait()  # the bootstrap forks and its first process ends at once
    finally:
        os.close(log)


def log_tail(where: Endpoint, lines: int) -> str:
    """Return the last lines of an agent's log."""
    try:
        with open(where.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:]).strip()
    except OSError:
        return ""
