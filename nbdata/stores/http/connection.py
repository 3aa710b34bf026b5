"""One socket to an HTTP server: a request, the head of its answer, and the bytes behind it."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nbdata.errors import NbdataError, StoreUnavailable
from nbdata.stores.base import Stop
from nbdata.stores.http.dial import Closed, shut
from nbdata.stores.http.heads import Head, parse_head, request_head
from nbdata.stores.http.records import receive_records
from nbdata.stores.http.response import Response

if TYPE_CHECKING:
    from nbdata.stores.http.client import Pool

__all__ = ["Connection"]

_HEAD_BYTES = 64 << 10
# For how long a connection is kept that nobody uses (servers close theirs after a minute or so).
_KEEP_SECONDS = 45.0
_NOTHING = memoryview(b"")


class Connection:
    """One socket, with what was received beyond the head of the current answer."""

    def __init__(self, pool: Pool, sock: socket.socket) -> None:
        self._pool, self.sock = pool, sock
        self._buffer = bytearray(_HEAD_BYTES)
        self._view = memoryview(self._buffer)
        self._low = self._high = 0  # what of the buffer is received but not used
        self._stop: Stop | None = None
        self._used = time.monotonic()
        self.answered = False
        self._half_sent = False  # the answer came before the request was over

    def usable(self) -> bool:
        """Whether a kept connection is still open: a readable idle socket has been closed by the peer."""
        if time.monotonic() - self._used > _KEEP_SECONDS:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)

    def watch(self, stop: Stop | None) -> None:
        """Let `stop` end what blocks on this connection."""
        if stop is not None:
            self._stop = stop
            stop.add(self.abort)

    def abort(self) -> None:
        """End what blocks on this connection; from another thread.

        Only for who uses it now: meanwhile it may have been given back, and taken for another job.
        """
        if self.stopped:
            shut(self.sock)

    def _unwatch(self) -> None:
        if self._stop is not None:
            self._stop.remove(self.abort)
            self._stop = None

    def drop(self) -> None:
        """Close it for good."""
        self._unwatch()
        self.sock.close()

    def release(self, *, keep: bool) -> None:
        """The answer is over: keep the connection, or close it."""
        self._unwatch()
        if keep and self._low == self._high:
            self._used = time.monotonic()
            self._low = self._high = 0
            self._pool.give_back(self)
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
        """One request, and the head of its answer."""
        self.answered = False
        length = None if body is None else len(body) if isinstance(body, bytes) else size
        head = request_head(self._pool.origin, method, target, headers, length)
        try:
            if body is None:
                self._send(head)
            elif isinstance(body, bytes):
                self._send(head + body)
            else:
                # With the first bytes: SeaweedFS makes an empty object of a request that ends after its head.
                first = next(body, _NOTHING)
                self._send(head + bytes(first[:_HEAD_BYTES]))
                self._send(first[_HEAD_BYTES:])
                for piece in body:
                    self._send(piece)
        except NbdataError:  # the source's, not the connection's
            raise
        except OSError:
            # A server that refuses an upload answers and closes before it was read; its answer says why.
            if body is None:
                raise
            self._half_sent = True
            try:
                return self._receive_head(method)
            except (OSError, Closed):
                pass
            raise
        return self._receive_head(method)

    def _send(self, data: bytes | memoryview) -> None:
        """All of it, however slow the line is, as long as it moves: to `sendall` the time limit is for the whole."""
        left = memoryview(data)
        while left:
            left = left[self.sock.send(left) :]

    def _receive_head(self, method: str) -> Response:
        while True:
            head = self._receive_one_head()
            if head.status >= 200:
                break
        self._pool.reached = True
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
                raise Closed(_unlike_http(bytes(self._view[self._low : self._high])))
            self._high += count
            self.answered = True
        head = parse_head(bytes(self._view[self._low : end]))
        self._low = end + 4
        return head

    # -- the body, for Response ---------------------------------------------------------------

    def receive(self, buffer: memoryview) -> int:
        """Some bytes of the body: first those that came along with the head."""
        held = self._high - self._low
        if held:
            count = min(held, len(buffer))
            buffer[:count] = self._view[self._low : self._low + count]
            self._low += count
            if self._low == self._high:
                self._low = self._high = 0
            return count
        if isinstance(self.sock, ssl.SSLSocket):
            return receive_records(self.sock, buffer, self._pool.origin.stall)
        return self.sock.recv_into(buffer)

    def line(self) -> bytes:
        """A line of a chunked body."""
        out = bytearray()
        byte = memoryview(bytearray(1))
        while not out.endswith(b"\n"):
            if not self.receive(byte) or len(out) > 1024:
                raise Closed("the server broke off in a chunk")
            out += byte
        return bytes(out).strip()

    @property
    def stopped(self) -> bool:
        """Whether the connection was ended from this side."""
        return self._stop is not None and self._stop.is_set()

    def lost(self, error: Exception) -> StoreUnavailable:
        """The error for a body that broke off."""
        return self._pool.lost(error)


def _unlike_http(received: bytes) -> str:
    """Why there is no head of an answer, by what came before the server closed."""
    if received.startswith(b"\x15\x03"):  # an alert of TLS ("Record Layer", RFC 8446)
        return "the server wants https there"
    if received and not received.startswith(b"HTTP/"):
        return "the server does not speak HTTP"
    return "the server closed the connection"
