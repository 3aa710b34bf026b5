"""A relay in front of a server that ends connections in their middle, whatever is spoken on them."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from tests.stores.servers import serving

__all__ = ["cutting"]

_BLOCK = 1 << 16


@contextlib.contextmanager
def cutting(url: str, cut: Callable[[int], int | None]) -> Iterator[str]:
    """Forward connections to a server, and yield the address for it.

    Parameters
    ----------
    cut : callable
        Returns after how many bytes from the server the connection of this number (from 0) ends; None: never.
    """
    at, numbers = urlsplit(url), itertools.count()

    def handle(client: socket.socket) -> None:
        left = cut(next(numbers))
        with socket.create_connection((at.hostname or "", at.port or 80)) as server:
            threading.Thread(target=_carry, args=(client, server), daemon=True).start()
            while data := server.recv(_BLOCK if left is None else min(_BLOCK, left or 1)):
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                client.sendall(data)
                if left == 0:
                    break
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    with serving(handle) as port:
        yield f"http://127.0.0.1:{port}"


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_BLOCK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
