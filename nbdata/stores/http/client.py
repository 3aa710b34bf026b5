"""A lean HTTP/1.1 client over blocking sockets: what moves the bodies.

Own code because it was measured (docs/design/2026-11-20-own-http-client.md): it takes less CPU and memory
than the Rust clients behind Python bindings, shows every status and header to the engine, can be stopped from
another thread at once, and survives a fork. It does what object stores need and no more: keep-alive, TLS,
CONNECT and plain proxies, bodies by length, in chunks or up to the end; no cookies, no redirects, no
retries (those belong to the store and to the engine). Here are the connections that are kept; `connection` and
`response` speak on them.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from nbdata.errors import NbdataError, StoreUnavailable
from nbdata.stores.base import Stop
from nbdata.stores.http.connection import Connection
from nbdata.stores.http.dial import Closed, Origin, dial, reason, remedy, tls_context, way
from nbdata.stores.http.response import Response

__all__ = ["Connection", "Origin", "Pool", "Response"]

# Idle connections that a pool keeps.
_KEEP = 64


class Pool:
    """Connections to one origin, kept and used again; safe to use from many threads.

    A child of a fork finds the pool empty: two processes must not speak on one connection.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._tls: ssl.SSLContext | None = None
        self.reached = False
        _all_pools.add(self)
        weakref.finalize(self, _close, self._idle)

    def forget_all(self) -> None:
        """In a child of a fork: the connections are the parent's, and the lock may be held by nobody."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        _close(self._idle)

    def request(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | Iterator[memoryview] | None = None,
        *,
        size: int = 0,
        stop: Stop | None = None,
    ) -> Response:
        """Send a request and read the head of its answer.

        A body of pieces must be `size` bytes long (see `nbdata.stores.filling.fill`).

        Raises
        ------
        StoreUnavailable
            If no answer came; with ``details["retry"]``, and ``["unreached"]`` if this server has never
            answered at all.
        """
        replayable = body is None or isinstance(body, bytes)
        while True:
            connection, fresh = self._take(stop)
            try:
                connection.watch(stop)
                try:
                    return connection.exchange(method, target, headers, body, size)
                except NbdataError:
                    raise
                except (OSError, Closed) as error:
                    connection.drop()
                    # A kept connection may have been closed by the server just now; that is no failure. Silence is
                    # one: the server may be at work on this very request.
                    closed = not fresh and not connection.answered and not isinstance(error, TimeoutError)
                    if closed and replayable and not (stop and stop.is_set()):
                        continue
                    raise self.lost(error) from error
            except BaseException:
                connection.drop()
                raise

    def _take(self, stop: Stop | None) -> tuple[Connection, bool]:
        kept = self.kept()
        return (kept, False) if kept is not None else (self.connect(stop), True)

    def kept(self) -> Connection | None:
        """An open connection that nobody uses, if there is one."""
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.usable():
                    return connection
                connection.drop()
        return None

    def connect(self, stop: Stop | None) -> Connection:
        """A new connection; errors as of `request`."""
        try:
            return Connection(self, self._connect(stop))
        except NbdataError:
            raise
        except (OSError, Closed) as error:
            raise self.lost(error) from error

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end."""
        self.reached = True
        with self._lock:
            if len(self._idle) < _KEEP and self._pid == os.getpid():
                self._idle.append(connection)
                return
        connection.drop()

    def lost(self, error: Exception) -> StoreUnavailable:
        """The error that a connection means which broke off."""
        details: dict[str, Any] = {"retry": True}
        if not self.reached:
            details["unreached"] = True
        if isinstance(error, TimeoutError):
            details["silent"] = True
        if isinstance(error, ssl.SSLCertVerificationError):
            details = {}
        return StoreUnavailable(
            f"no answer from {way(self.origin)}: {reason(error)}",
            remedy=remedy(error),
            details=details,
        )

    def _connect(self, stop: Stop | None) -> socket.socket:
        if self.origin.scheme == "https" and self._tls is None:
            self._tls = tls_context(self.origin)
        sock = dial(self.origin, self._tls, stop)
        sock.settimeout(self.origin.stall)
        return sock


def _close(idle: list[Connection]) -> None:
    while idle:
        idle.pop().drop()


_all_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_all_pools):
        pool.forget_all()


os.register_at_fork(after_in_child=_after_fork)
