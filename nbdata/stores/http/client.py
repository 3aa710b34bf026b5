"""A lean HTTP/1.1 client over blocking sockets, which transfers all bodies.

It was chosen after measurements (docs/design/2026-11-20-own-http-client.md). It takes less CPU and memory than the Rust
clients behind Python bindings. It shows every status and header to the engine, another thread can stop it at once, and
it survives a fork. It has only what object stores need: keep-alive, TLS, CONNECT and plain proxies, and bodies by
length, in chunks or up to the end. It has no cookies and no redirects. It never retries; that is up to the store and
the engine.
"""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

from nbdata.ending import at_end
from nbdata.errors import NbdataError, StoreUnavailable
from nbdata.stores.base import Stop
from nbdata.stores.filling import begun
from nbdata.stores.http.dial import Closed, Malformed, Origin, dial, reason, remedy, shut, tls_context, way
from nbdata.stores.http.heads import Head, length_of, parse_head, request_head, unlike_http
from nbdata.stores.http.records import receive_records

__all__ = ["INFORMATIONAL", "Connection", "Origin", "Pool", "Response", "close_idle"]

# The most idle connections that a pool keeps, and for how long (servers close theirs after a minute or so).
_KEEP, _KEEP_SECONDS = 64, 45.0
_HEAD_BYTES = 64 << 10
_NOTHING = memoryview(b"")
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,15}")
#: The most informational heads (1xx) before that of the response.
INFORMATIONAL = 10_000
# Seconds to wait for leave to send a body (``Expect: 100-continue``): some servers do not know the header.
_LEAVE = 5.0
# The most trailer lines after the last chunk of a body.
_TRAILERS = 100


class Pool:
    """Connections to one origin, kept for reuse. Safe to use from many threads.

    The child of a fork gets an empty pool, because two processes must not share a connection.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._tls: ssl.SSLContext | None = None
        self._used = time.monotonic()
        self.reached = False
        _all_pools.add(self)
        self._closed = False
        weakref.finalize(self, _close, self._idle)
        at_end(self, Pool.close)

    def forget_all(self) -> None:
        """Empty the pool in a fork's child. Its connections are the parent's, and its lock may stay held for ever."""
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
        """Send a request and read the head of its response.

        A body of pieces must be `size` bytes long (see `fill`). With the header ``expect``, it is sent once the server
        asks for it, or says nothing for some seconds.

        Raises
        ------
        StoreUnavailable
            If no response came. Has ``details["retry"]``, and ``["unreached"]`` if this server has never responded.
        """
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
                    # A server may just have closed a kept connection, which is no failure. A timeout is a failure: the
                    # server may be working on this very request.
                    closed = not fresh and not connection.answered and not isinstance(error, TimeoutError)
                    if closed and not begun(body) and not (stop and stop.is_set()):
                        continue
                    raise self.lost(error) from error
            except BaseException:
                connection.drop()
                raise

    def _take(self, stop: Stop | None) -> tuple[Connection, bool]:
        kept = self.kept()
        return (kept, False) if kept is not None else (self.connect(stop), True)

    def kept(self) -> Connection | None:
        """Return an open idle connection, if there is one."""
        self._used = time.monotonic()
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.usable():
                    connection.pool = self
                    return connection
                connection.drop()
        return None

    def connect(self, stop: Stop | None) -> Connection:
        """Open a new connection. Raises the same errors as `request`."""
        try:
            return Connection(self, self._connect(stop))
        except NbdataError:
            raise
        except (OSError, Closed) as error:
            raise self.lost(error) from error

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose response was read to its end."""
        self.reached, self._used = True, time.monotonic()
        with self._lock:
            if len(self._idle) < _KEEP and self._pid == os.getpid() and not self._closed:
                # The finalizer holds the idle connections. If these held the pool, it would never be finalized.
                del connection.pool
                self._idle.append(connection)
                return
        connection.drop()

    def close(self) -> None:
        """Close the idle connections, and keep none from now on."""
        with self._lock:
            self._closed = True
            _close(self._idle)

    def close_idle(self, *, every: bool = False) -> bool:
        """Close what has been idle for too long, or every idle connection. True if the pool has been unused as long."""
        with self._lock:
            for connection in [one for one in self._idle if every or not one.usable()]:
                self._idle.remove(connection)
                connection.drop()
            return not self._idle and time.monotonic() - self._used > _KEEP_SECONDS

    def lost(self, error: Exception) -> StoreUnavailable:
        """Return the error for a connection that broke, or for a response that cannot be trusted."""
        if isinstance(error, Malformed):
            return StoreUnavailable(
                f"the answer of {way(self.origin)} cannot be trusted: {error}",
                remedy="The server, or something on the way to it, breaks the rules of HTTP: ask who runs it",
            )
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


def close_idle(*, every: bool = False) -> None:
    """Close connections of all pools that have been idle for too long, or every idle one if no job could use them."""
    for pool in list(_all_pools):
        pool.close_idle(every=every)


def _after_fork() -> None:
    for pool in list(_all_pools):
        pool.forget_all()


os.register_at_fork(after_in_child=_after_fork)


class Connection:
    """One socket, and its received bytes beyond the head of the current response.

    Attributes
    ----------
    pool : Pool
        The pool that it belongs to; not set while it is idle.
    sock : socket
    """

    def __init__(self, pool: Pool, sock: socket.socket) -> None:
        self.pool, self.sock = pool, sock
        self._buffer = bytearray(_HEAD_BYTES)
        self._view = memoryview(self._buffer)
        self._low = self._high = 0  # the received but unused bytes of the buffer
        self._stop: Stop | None = None
        self._used = time.monotonic()
        self.answered = False
        self._half_sent = False  # True if the response came before the request was fully sent

    def usable(self) -> bool:
        """Whether a kept connection is still open. If an idle socket is readable, the peer has closed it."""
        if time.monotonic() - self._used > _KEEP_SECONDS:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)

    def watch(self, stop: Stop | None) -> None:
        """Let `stop` interrupt blocking calls on this connection."""
        if stop is not None:
            self._stop = stop
            stop.add(self.abort)

    def abort(self) -> None:
        """Interrupt the blocking call on this connection, from another thread.

        Does nothing unless the current user's `Stop` is set: another job may have taken the connection meanwhile.
        """
        if self.stopped:
            shut(self.sock)

    def _unwatch(self) -> None:
        if self._stop is not None:
            self._stop.remove(self.abort)
            self._stop = None

    def drop(self) -> None:
        """Close the connection for good."""
        self._unwatch()
        self.sock.close()

    def release(self, *, keep: bool) -> None:
        """End a response: keep the connection, or close it."""
        self._unwatch()
        if keep and self._low == self._high:
            self._used = time.monotonic()
            self._low = self._high = 0
            self.pool.give_back(self)
        else:
            self.sock.close()

    def exchange(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | Iterator[memoryview] | None,
        size: int,
    ) -> Response:
        """Send one request, and return its response with the head read."""
        self.answered = False
        length = None if body is None else len(body) if isinstance(body, bytes) else size
        head = request_head(self.pool.origin, method, target, headers, length)
        try:
            if length and "expect" in headers:
                if (refused := self._without_leave(head, method)) is not None:
                    return refused
                head = b""
            if body is None:
                self._send(head)
            elif isinstance(body, bytes):
                self._send(head + body)
            else:
                # The head goes out with the first bytes: SeaweedFS makes an empty object of a request that ends after
                # its head.
                first = next(body, _NOTHING)
                self._send(head + bytes(first[:_HEAD_BYTES]))
                self._send(first[_HEAD_BYTES:])
                for piece in body:
                    self._send(piece)
        except NbdataError:  # the source's error, not the connection's
            raise
        except OSError:
            # A server that refuses an upload responds and closes before reading it all. Its response has the reason.
            if body is None:
                raise
            self._half_sent = True
            try:
                return self._receive_head(method)
            except (OSError, Closed):
                pass
            raise
        return self._receive_head(method)

    def _without_leave(self, head: bytes, method: str) -> Response | None:
        """Send a head and wait for leave to send the body. Returns the response that came instead, if any."""
        self._send(head)
        self.sock.settimeout(_LEAVE)
        try:
            while (told := self._receive_one_head()).status < 200:
                if told.status == 100:
                    return None
        except TimeoutError:
            return None
        finally:
            self.sock.settimeout(self.pool.origin.stall)
        told.headers["connection"] = "close"  # it may still wait for the body
        return Response(self, method, told)

    def _send(self, data: bytes | memoryview) -> None:
        """Send all data, however slowly, as long as bytes move. (`sendall` applies the time limit to the whole.)"""
        left = memoryview(data)
        while left:
            left = left[self.sock.send(left) :]

    def _receive_head(self, method: str) -> Response:
        for _ in range(INFORMATIONAL):
            head = self._receive_one_head()
            if head.status >= 200:
                break
        else:
            raise Malformed("it sends informational heads without end")
        self.pool.reached = True
        if self._half_sent:
            head.headers["connection"] = "close"
        return Response(self, method, head)

    def _receive_one_head(self) -> Head:
        while True:
            end = self._buffer.find(b"\r\n\r\n", self._low, self._high)
            if end >= 0:
                break
            if self._high == len(self._buffer):
                if not self._low:
                    raise Closed("the head of the answer is too long")
                held = bytes(self._view[self._low : self._high])
                self._low, self._high = 0, len(held)
                self._view[: len(held)] = held
            count = self.sock.recv_into(self._view[self._high :])
            if not count:
                raise Closed(unlike_http(bytes(self._view[self._low : self._high])))
            self._high += count
            self.answered = True
        head = parse_head(bytes(self._view[self._low : end]))
        self._low = end + 4
        return head

    # -- the body, for Response ---------------------------------------------------------------

    def receive(self, buffer: memoryview) -> int:
        """Receive some bytes of the body, first those that arrived with the head."""
        held = self._high - self._low
        if held:
            count = min(held, len(buffer))
            buffer[:count] = self._view[self._low : self._low + count]
            self._low += count
            if self._low == self._high:
                self._low = self._high = 0
            return count
        if isinstance(self.sock, ssl.SSLSocket):
            return receive_records(self.sock, buffer, self.pool.origin.stall)
        return self.sock.recv_into(buffer)

    def line(self) -> bytes:
        """Receive one line of a chunked body."""
        out = bytearray()
        byte = memoryview(bytearray(1))
        while not out.endswith(b"\n"):
            if not self.receive(byte) or len(out) > 1024:
                raise Closed("the server broke off in a chunk")
            out += byte
        return bytes(out).strip()

    @property
    def stopped(self) -> bool:
        """Whether the job's `Stop` ended the connection."""
        return self._stop is not None and self._stop.is_set()

    def lost(self, error: Exception) -> StoreUnavailable:
        """Return the error for a body that broke off."""
        return self.pool.lost(error)


class Response:
    """The head of a response, and its body as it arrives.

    Attributes
    ----------
    status : int
    headers : dict
        Names in lower case.
    length : int
        Bytes of the body, or -1 if not known.
    """

    def __init__(self, connection: Connection, method: str, head: Head) -> None:
        self.status, self.headers, _ = head
        self._connection: Connection | None = connection
        self._chunked = "transfer-encoding" in self.headers  # see `parse_head`
        self._left = -1
        self._keep = head.keeps
        if method == "HEAD" or self.status in (204, 304):
            self._left, self._chunked = 0, False
        elif self._chunked:
            self._left = 0  # bytes left of the current chunk
        else:
            self._left = length_of(self.headers)
            self._keep &= self._left >= 0
        self.length = -1 if self._chunked else self._left
        self._first_chunk = True
        if self._left == 0 and not self._chunked:
            self._over()

    def readinto(self, buffer: memoryview, /) -> int:
        """Receive some bytes of the body, as many as came at once; 0 at its end.

        Raises
        ------
        StoreUnavailable
            If the body broke off; with ``details["retry"]``.
        """
        connection = self._connection
        if connection is None or not len(buffer):
            return 0
        try:
            if self._chunked and not self._left and not self._next_chunk(connection):
                self._over()
                return 0
            count = connection.receive(buffer if self._left < 0 else buffer[: self._left])
            if not count and (self._left >= 0 or connection.stopped):
                raise Closed("the connection ended before the body did")
        except (OSError, Closed) as error:
            connection.drop()
            self._connection = None
            raise connection.lost(error) from error
        if self._left >= 0:
            self._left -= count
        if (not self._left and not self._chunked) or not count:
            self._over()
        return count

    def _next_chunk(self, connection: Connection) -> bool:
        if not self._first_chunk and connection.line():  # the line break after the previous chunk
            raise Closed("the server sent a chunk of another size than it said")
        self._first_chunk = False
        size = connection.line().split(b";")[0].strip()
        if not _CHUNK.fullmatch(size):
            raise Closed("the server sent a chunk without a size")
        self._left = int(size, 16)
        if self._left:
            return True
        for _ in range(_TRAILERS):
            if not connection.line():
                return False
        raise Closed("the server sent trailers without end")

    def _over(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release(keep=self._keep)

    def read(self, *, limit: int = 16 << 20) -> bytes:
        """Return the whole body. Raises StoreUnavailable if it is longer than `limit` bytes."""
        data = bytearray()
        block = memoryview(bytearray(64 << 10))
        try:
            while count := self.readinto(block):
                data += block[:count]
                if len(data) > limit:
                    raise StoreUnavailable("the answer is too long", expected=f"at most {limit} bytes")
        finally:
            self.close()
        return bytes(data)

    def close(self) -> None:
        """Give the connection back, or close it if the body was not read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()
