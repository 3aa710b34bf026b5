"""A client's connections to an agent, and what becomes of them in a fork."""

from __future__ import annotations

import os
import select
import socket
import weakref
from typing import Any

from nbdata import wire
from nbdata.errors import AgentUnavailable, error_from_dict
from nbdata.runtime import Endpoint

__all__ = ["Connection"]

_open: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """One connection; used by one thread at a time.

    Parameters
    ----------
    endpoint : Endpoint
    timeout : float, optional
        Seconds for connecting.

    Raises
    ------
    OSError
        If nobody listens there.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float = 10.0) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._sock.settimeout(timeout)
            folder = os.open(endpoint.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                path = f"/proc/self/fd/{folder}/{os.path.basename(endpoint.socket)}"
                self._sock.connect(path if os.path.isdir("/proc/self/fd") else endpoint.socket)
            finally:
                os.close(folder)
            self._sock.settimeout(None)
        except BaseException:
            self._sock.close()
            raise
        _open.add(self)

    def ask(self, message: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        """Send a message and wait for its answer.

        Raises
        ------
        NbdataError
            Whatever the agent answers; AgentUnavailable if it is gone or does not answer in time.
        """
        try:
            self._sock.settimeout(timeout)
            wire.send(self._sock, message)
        except OSError as error:
            raise _gone(error) from error
        answer = self.receive()
        if answer.get("error"):
            raise error_from_dict(answer["error"])
        return answer

    def send(self, message: dict[str, Any]) -> None:
        """Send a message that has no answer."""
        try:
            wire.send(self._sock, message)
        except OSError as error:
            raise _gone(error) from error

    def receive(self) -> dict[str, Any]:
        """The next message from the agent."""
        try:
            message = wire.receive(self._sock)
        except OSError as error:
            raise _gone(error) from error
        if message is None:
            raise _gone(None)
        return message

    def ready(self, timeout: float = 0.0) -> bool:
        """Whether, within so many seconds, a message has begun to come, or the agent is gone."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout) * 1000))

    def close(self) -> None:
        """Close it; what the agent held for it is released."""
        self._sock.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _gone(error: OSError | None) -> AgentUnavailable:
    slow = isinstance(error, TimeoutError)
    return AgentUnavailable(
        "the agent does not answer" if slow else "the agent ended while it was needed",
        remedy="Run the same line again: it continues; `nbdata agent log` may say why",
    )


def _after_fork() -> None:
    """A child closes its copies, else the agent would not see the end of its parent."""
    for connection in list(_open):
        connection.close()


os.register_at_fork(after_in_child=_after_fork)
