"""``nbdata agent status | stop | log``: looks after the agents, the processes that do the work.

An agent that does not answer may be stopped (SIGSTOP, a debugger) or hang. Killing it loses no finished work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from nbdata.client.connection import Connection
from nbdata.client.launch import log_tail
from nbdata.errors import AgentUnavailable, BadOption, NbdataError
from nbdata.lock_files import held
from nbdata.option import suggest
from nbdata.runtime import Endpoint, build_id, endpoint, endpoints

__all__ = ["main", "stop_all"]

# Seconds that an agent has to answer.
_ANSWER = 5.0
# The same after its process was told to go on, before it is killed.
_WAKES = 5.0
# Values for fields that an agent of another version may leave out.
_UNKNOWN: dict[str, Any] = {"version": "?", "python": "?", "draining": False, "unfinished": "?"}

_USAGE = """usage: nbdata agent status | stop [--now] | log [-n LINES]

  status  the agents of this user: process, build, unfinished jobs
  stop    end them; refused while jobs run, unless --now: their commands, run again, resume.
          A stopped process is told to go on; if it does not answer, --now kills it after 10 s
  log     the last lines (40) of the log of this environment's agent"""


def main(words: Sequence[str]) -> int:
    """Run one of the commands; return the exit status."""
    command, rest = (words[0], list(words[1:])) if words else ("--help", [])
    if rest in (["-h"], ["--help"]):
        command = "--help"
    if command in ("-h", "--help"):
        _say(_USAGE)
        return 0
    if command == "status" and not rest:
        running, silent = _agents()
        for where, hello in running:
            state = "ends after its last job" if hello["draining"] else "serves"
            _say(f"{_named(where, hello)}  {state}, unfinished jobs: {hello['unfinished']}")
        for _, error in silent:
            _say(str(error))
        if not running and not silent:
            _say("no agent runs; the next operation starts one")
        return 0
    if command == "stop" and set(rest) <= {"--now"}:
        stopped = _stopped(now=bool(rest))
        _say(f"agents stopped: {len(stopped)}" if stopped else "no agent runs")
        for where, hello in stopped:
            killed = ", killed because it did not answer" if hello["killed"] else ""
            _say(f"{_named(where, hello)}  unfinished jobs: {hello['unfinished']}{killed}")
        return 0
    if command == "log" and (not rest or (rest[0] == "-n" and len(rest) == 2 and rest[1].isdigit())):
        _say(log_tail(endpoint(), int(rest[1]) if rest else 40) or "the log is empty")
        return 0
    raise BadOption(
        f"nbdata agent: cannot do {' '.join(words)!r}", remedy=suggest(command, ["status", "stop", "log"])
    )


def _named(where: Endpoint, hello: dict[str, Any]) -> str:
    """An agent's process, version and environment."""
    if where.name == endpoint().name:
        whose = "this environment's"
    elif (hello.get("build"), hello["python"]) == (build_id(), sys.prefix):
        whose = "this environment's, for another container or other groups"
    else:
        whose = f"of {hello['python']}"
    return f"agent {hello['pid']}  nbdata {hello['version']}, {whose}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _agents() -> tuple[list[tuple[Endpoint, dict[str, Any]]], list[tuple[Endpoint, AgentUnavailable]]]:
    """Return the agents with their self-descriptions, and those that are alive but do not answer, with the error."""
    running, silent = list[tuple[Endpoint, dict[str, Any]]](), list[tuple[Endpoint, AgentUnavailable]]()
    for where in endpoints():
        try:
            running.append((where, _hello(where, _ANSWER)))
        except OSError as error:
            if held(where.alive):
                known = isinstance(error, AgentUnavailable)
                silent.append(
                    (where, error if known else AgentUnavailable("an agent does not answer"))  # type: ignore[arg-type]
                )
        except (NbdataError, KeyError, TypeError, ValueError):  # an answer that no agent gives
            continue
    return running, silent


def _hello(where: Endpoint, timeout: float) -> dict[str, Any]:
    with Connection(where, timeout=2.0) as connection:
        hello = connection.ask({"do": "hello"}, timeout=timeout)
        return {**_UNKNOWN, "killed": False, **hello, "pid": int(hello["pid"])}


def stop_all(*, now: bool, wait: float = 10.0) -> int:
    """Stop every agent of this user and wait until they are gone; return how many there were.

    The process of an agent that does not answer is told to go on (SIGCONT). With `now`, it is killed if it still does
    not answer.

    Raises
    ------
    BadOption
        If jobs run and `now` is not set.
    AgentUnavailable
        If an agent is alive and does not answer; the others are stopped.
    """
    return len(_stopped(now=now, wait=wait))


def _stopped(*, now: bool, wait: float = 10.0) -> list[tuple[Endpoint, dict[str, Any]]]:
    """Do the work of `stop_all`; return the agents that were stopped, with their self-descriptions."""
    running, silent = _agents()
    left = list[AgentUnavailable]()
    for where, error in silent:
        if (hello := _woken(where)) is not None:
            running.append((where, hello))
        elif not now or not (pid := _signalled(where, signal.SIGKILL)):
            left.append(error)
        else:
            running.append((where, {**_UNKNOWN, "pid": pid, "killed": True}))
    for where, hello in running:
        if hello["killed"]:
            continue
        try:
            with Connection(where, timeout=2.0) as connection:
                connection.ask({"do": "stop", "how": "now" if now else "idle"}, timeout=_ANSWER)
        except (OSError, AgentUnavailable):
            continue
    end = time.monotonic() + wait
    for where, hello in running:
        while held(where.alive):
            if time.monotonic() > end:
                raise NbdataError(f"agent {hello['pid']} does not end", remedy=f"kill {hello['pid']}")
            time.sleep(0.02)
    if left:
        raise left[0]
    return running


def _woken(where: Endpoint) -> dict[str, Any] | None:
    """Let the process of a silent agent go on; return the agent's self-description if it answers then."""
    if _signalled(where, signal.SIGCONT):
        with contextlib.suppress(OSError, NbdataError, KeyError, TypeError, ValueError):
            return _hello(where, _WAKES)
    return None


def _signalled(where: Endpoint, number: signal.Signals) -> int:
    """Send a signal to the process of an agent and return its id; 0 if this is not certainly the process.

    The system knows which process listens at the socket. That process must be ours, hold the lock of this agent, and
    name the agent in its command line. The descriptor stays with that process even if its id is given to another one.
    """
    try:
        with Connection(where, timeout=2.0) as connection:
            pid = connection.pid
            process = os.pidfd_open(pid)
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid() and where.name.encode() in words
                if not ours or not held(where.alive):
                    return 0
                signal.pidfd_send_signal(process, number)
                return pid
            finally:
                os.close(process)
    except (AttributeError, OSError):  # not Linux; or it has just ended, or is in another container
        return 0
