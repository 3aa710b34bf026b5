"""A client's connections to an agent, and their handling in a fork."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from nbdata import wire
from nbdata.errors import AgentUnavailable, BadOption, error_from_dict
from nbdata.runtime import Endpoint
from nbdata.sockets import connect, peer

__all__ = ["Connection"]

# Seconds for an answer that needs no work, and for the rest of a message that is on its way.
ANSWER = 30.0
# Seconds of silence after which the client asks the agent whether it is alive.
QUIET = 10.0
_SILENT = "the agent does not answer"

_open: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """One connection to an agent, used by one thread at a time.

    Parameters
    ----------
    endpoint : Endpoint
    timeout : float, optional
        Seconds for connecting.

    Raises
    ------
    OSError
        If no process listens there.
    UnsafeMember
        If one of another user does.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float = 10.0) -> None:
        self._where = endpoint
        self._users, self._hung_up = 0, False
        self._sock = connect(endpoint, timeout=timeout)
        self._sock.settimeout(ANSWER)
        _open.add(self)

    def ask(
        self,
        message: dict[str, Any],
        *,
        timeout: float | None = None,
        meanwhile: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Send a message and wait for its answer.

        Parameters
        ----------
        message : dict
        timeout : float, optional
            Seconds. None: as long as the agent proves alive, for answers that may take long.
        meanwhile : callable, optional
            Called with each message before the answer, which says how far it is.

        Raises
        ------
        NbdataError
            The error that the agent answers; AgentUnavailable if it is gone or does not answer.
        """
        with self._used():
            try:
                wire.send(self._sock, message)
            except wire.MessageTooLong as long:
                raise _too_long(long) from None
            except BrokenPipeError:
                pass  # the agent has closed it, and may have said why
            except OSError as broken:
                raise self._gone(broken) from broken
            answer = self.receive(timeout=timeout)
            while meanwhile is not None and "meanwhile" in answer:
                meanwhile(answer["meanwhile"])
                answer = self.receive(timeout=timeout)
        error = answer.get("error")
        if error:
            raise error_from_dict(error if isinstance(error, dict) else {"message": str(error)})
        return answer

    def send(self, message: dict[str, Any]) -> None:
        """Send a message that gets no answer."""
        with self._used():
            try:
                wire.send(self._sock, message)
            except wire.MessageTooLong as long:
                raise _too_long(long) from None
            except OSError as error:
                raise self._gone(error) from error

    def receive(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message from the agent; see `ask`."""
        with self._used():
            if timeout is None:
                while not self.ready(QUIET):
                    self.ask_whether_it_lives(ANSWER)
            elif not self.ready(timeout):
                raise self._gone(TimeoutError())
            try:
                message = wire.receive(self._sock)
            except OSError as error:
                raise self._gone(error) from error
            if message is None:
                raise self._gone(None)
            return message

    @contextlib.contextmanager
    def _used(self) -> Iterator[None]:
        """Keep the socket open during its use: the system gives a closed file's number to the next one that is opened.

        `hang_up` and each user first set their flag and then check the other's, so one of them closes the socket.
        """
        self._users += 1
        try:
            if self._hung_up:
                raise self._gone(None)
            yield
        finally:
            self._users -= 1
            if self._hung_up and not self._users:
                self._sock.close()

    def ask_whether_it_lives(self, patience: float) -> None:
        """Raise AgentUnavailable if the agent sends nothing at all within that many seconds; any message counts."""
        try:
            with Connection(self._where, timeout=patience) as other:
                wire.send(other._sock, {"do": "hello"})
                if not other.ready(patience):
                    raise TimeoutError
        except OSError as error:
            if not self.ready():  # else the agent has just sent something
                raise self._gone(TimeoutError()) from error

    def _gone(self, error: OSError | None) -> AgentUnavailable:
        if not isinstance(error, TimeoutError):
            return AgentUnavailable(
                "the agent ended while it was needed",
                remedy="Run the command again to resume; `nbdata agent log` may say why",
            )
        pid, alive = self.pid, {"alive": True}
        if not pid:
            remedy = "End its process, then run the command again to resume"
            return AgentUnavailable(_SILENT, remedy=remedy, details=alive)
        return AgentUnavailable(
            f"{_SILENT} (process {pid})",
            details=alive,
            remedy=f"`kill -CONT {pid}` wakes it if it was stopped, `nbdata agent stop --now` ends it; "
            "then run the command again to resume",
        )

    @property
    def pid(self) -> int:
        """The agent's process id; 0 if it is not known, see `peer`."""
        return peer(self._sock)[0]

    def ready(self, timeout: float = 0.0) -> bool:
        """True if, within that many seconds, a message begins to arrive or the agent is gone."""
        poll = select.poll()
        try:
            poll.register(self._sock, select.POLLIN)
        except ValueError:  # another thread closed it; the next read reports that
            return True
        return bool(poll.poll(max(0.0, timeout) * 1000))

    def hang_up(self) -> None:
        """Close the connection, even while another thread waits for an answer; that one raises AgentUnavailable."""
        self._hung_up = True
        with contextlib.suppress(OSError):  # the agent has closed it already
            self._sock.shutdown(socket.SHUT_RDWR)
        if not self._users:  # else the user closes it, which wakes up now
            self.close()

    def close(self) -> None:
        """Close the connection; the agent releases all it held for it."""
        self._sock.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _too_long(error: wire.MessageTooLong) -> BadOption:
    # The name of the option without that of its part of the message; never the value, which may be secret.
    name = error.name.partition(".")[2] or error.name
    return BadOption(
        f"the command is too long for the agent: {name} has {error.size:,} bytes",
        expected=f"at most {wire.MAX_FRAME:,} bytes for the whole command",
        remedy=f"Shorten {name}",
    )


def _after_fork() -> None:
    """Close the copies in a child of a fork, else the agent would not see the end of its parent."""
    for connection in list(_open):
        connection.close()


os.register_at_fork(after_in_child=_after_fork)
