"""One thread closes a client's connection to an agent while another thread waits on it."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbdata.client import connection
from nbdata.client.connection import Connection
from nbdata.errors import AgentUnavailable
from nbdata.runtime import Endpoint


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Endpoint]:
    """An agent that never answers."""
    where = Endpoint(str(tmp_path), "agent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(where.socket)
        server.listen()
        yield where


@pytest.mark.parametrize("moment", ["register", "poll"])
def test_a_thread_about_to_wait_is_told_before_the_socket_is_closed(
    silent: Endpoint, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    asked = Connection(silent)
    number = asked._sock.fileno()
    plain, polled = select.poll, []

    class Poll:
        """Closes the connection just before, or just after, its descriptor is passed to the system call."""

        def __init__(self) -> None:
            self._poll = plain()

        def register(self, sock: socket.socket, events: int) -> None:
            if moment == "register":
                asked.hang_up()
            self._poll.register(sock, events)

        def poll(self, timeout: float) -> list[tuple[int, int]]:
            if moment == "poll":
                asked.hang_up()
            os.fstat(number)  # else this may be another file by now
            polled.append(timeout)
            return self._poll.poll(timeout)

    monkeypatch.setattr(connection, "QUIET", 600.0)
    monkeypatch.setattr(select, "poll", Poll)
    with pytest.raises(AgentUnavailable, match="ended"):
        asked.ask({"do": "hello"})
    assert len(polled) == 1
    assert asked._sock.fileno() == -1
    with pytest.raises(AgentUnavailable, match="ended"):
        asked.send({"do": "hello"})
