"""``nbdata agent status | stop | log``: looks after the agents, the processes that do the work."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from nbdata.client.connection import Connection
from nbdata.client.launch import log_tail
from nbdata.errors import AgentUnavailable, BadOption, NbdataError
from nbdata.option import suggest
from nbdata.runtime import Endpoint, endpoint, endpoints, held

__all__ = ["main", "stop_all"]

# Seconds that an agent has to answer.
_ANSWER = 5.0
# Values for fields that an agent of another version may leave out.
_UNKNOWN: dict[str, Any] = {"version": "?", "python": "?", "draining": False, "unfinished": "?"}

_USAGE = """usage: nbdata agent status | stop [--now] | log [-n LINES]

  status  the agents of this user: process, build, unfinished jobs
  stop    end them; refused while jobs run, unless --now: their commands, run again, resume
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
        found, silent = _agents()
        for where, hello in found:
            state = "ends after its last job" if hello["draining"] else "serves"
            _say(f"{_named(where, hello)}  {state}, unfinished jobs: {hello['unfinished']}")
        for told in silent:
            _say(str(told))
        if not found and not silent:
            _say("no agent runs; the next operation starts one")
        return 0
    if command == "stop" and set(rest) <= {"--now"}:
        found, _ = _agents()
        count = stop_all(now=bool(rest))
        _say(f"agents stopped: {count}" if count else "no agent runs")
        for where, hello in found if count else ():
            _say(f"{_named(where, hello)}  unfinished jobs: {hello['unfinished']}")
        return 0
    if command == "log" and (not rest or (rest[0] == "-n" and len(rest) == 2 and rest[1].isdigit())):
        _say(log_tail(endpoint(), int(rest[1]) if rest else 40) or "the log is empty")
        return 0
    raise BadOption(
        f"nbdata agent: cannot do {' '.join(words)!r}", remedy=suggest(command, ["status", "stop", "log"])
    )


def _named(where: Endpoint, hello: dict[str, Any]) -> str:
    """An agent's process, version and environment."""
    mine = ", this environment's" if where.name == endpoint().name else f", of {hello['python']}"
    return f"agent {hello['pid']}  nbdata {hello['version']}{mine}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _agents() -> tuple[list[tuple[Endpoint, dict[str, Any]]], list[AgentUnavailable]]:
    """Return the agents with their self-descriptions, and one error per agent that is alive but does not answer."""
    found, silent = [], []
    for where in endpoints():
        try:
            with Connection(where, timeout=2.0) as connection:
                hello = connection.ask({"do": "hello"}, timeout=_ANSWER)
                pid = int(hello["pid"])
                found.append((where, {**_UNKNOWN, **hello, "pid": pid}))
        except OSError as error:
            if held(where.alive):
                told = (
                    error
                    if isinstance(error, AgentUnavailable)
                    else AgentUnavailable("an agent does not answer")
                )
                silent.append(told)
        except (NbdataError, KeyError, TypeError, ValueError):  # an answer that no agent gives
            continue
    return found, silent


def stop_all(*, now: bool, wait: float = 10.0) -> int:
    """Stop every agent of this user and wait until they are gone; return how many there were.

    Raises
    ------
    BadOption
        If jobs run and `now` is not set.
    AgentUnavailable
        If an agent is alive and does not answer; the others are stopped.
    """
    found, silent = _agents()
    for where, _ in found:
        try:
            with Connection(where, timeout=2.0) as connection:
                connection.ask({"do": "stop", "how": "now" if now else "idle"}, timeout=_ANSWER)
        except (OSError, AgentUnavailable):
            continue
    end = time.monotonic() + wait
    for where, hello in found:
        while held(where.alive):
            if time.monotonic() > end:
                raise NbdataError(f"agent {hello['pid']} does not end", remedy=f"kill {hello['pid']}")
            time.sleep(0.02)
    if silent:
        raise silent[0]
    return len(found)
