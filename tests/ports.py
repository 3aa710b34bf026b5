"""Ports for programs that take a number and open the port themselves, and ports on which nothing listens."""

from __future__ import annotations

import errno
import random
import socket

__all__ = ["free_port"]

# The system gives clients and servers that name no port those from 32,768 on (ip_local_port_range of Linux).
_NOT_GIVEN_AWAY = (20_000, 32_000)
_numbers = random.SystemRandom()


def free_port() -> int:
    """Return a port on loopback on which nothing listens. Nobody gets it by chance before it is used."""
    while True:
        port = _numbers.randrange(*_NOT_GIVEN_AWAY)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
