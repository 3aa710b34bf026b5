"""Small servers that each misbehave in one way, in threads of the test."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

from tests.waiting import PATIENCE

Handler = Callable[[socket.socket], None]


@contextlib.contextmanager
def serving(handle: Handler, *, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Start a server on loopback that handles each connection with `handle` in its own thread; yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_ones: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        try:
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
                open_ones.append(connection)
            with connection:
                handle(connection)
        except OSError:  # the client went away, as some tests intend
            connection.close()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_ones.append(connection)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(PATIENCE)  # it may have accepted a connection just before
        for connection in open_ones:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def read_head(connection: socket.socket) -> bytes:
    """Read a request's head; b'' if the client closed."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            return b""
        head += byte
    return bytes(head)


def read_body(connection: socket.socket, head: bytes) -> bytes:
    """Read a request's body by its length; ConnectionError if the client closed too early."""
    lines = head.decode("latin-1").lower().split("\r\n")
    size = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
    body = bytearray()
    while len(body) < size:
        more = connection.recv(1 << 16)
        if not more:
            raise ConnectionError("closed in the middle of a body")
        body += more
    return bytes(body)


def answering(*answers: bytes) -> Handler:
    """Return a handler that sends these answers on each connection, one per request, and then closes it."""

    def handle(connection: socket.socket) -> None:
        for answer in answers:
            head = read_head(connection)
            if not head:
                return
            read_body(connection, head)
            connection.sendall(answer)

    return handle


def ok(body: bytes, *headers: str) -> bytes:
    """Return a successful response."""
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def each(answer: Callable[[str], bytes], seen: list[str] | None = None) -> Handler:
    """Answer every request with `answer(head)`."""

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            read_body(connection, head)
            text = head.decode("latin-1")
            if seen is not None:
                seen.append(text)
            data = answer(text)
            connection.sendall(data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if text[:4] == "HEAD" else data)
            if b"Connection: close" in data:
                return

    return handle


def status(number: int, *headers: str) -> bytes:
    """Return a response with this status, further headers and no body."""
    return "\r\n".join([f"HTTP/1.1 {number} X", "Content-Length: 0", *headers, "", ""]).encode()
