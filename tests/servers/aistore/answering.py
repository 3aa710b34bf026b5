"""The HTTP side of gateway and nodes: bodies, ``Expect: 100-continue``, errors, faults, and a record of requests.

Connections behave like those of Go's ``net/http``, in which AIStore is written: ``100 Continue`` is sent when the body
is first read, and a connection whose body was not read is closed after the answer, if the client waits for that or the
body is over 256 KiB (``registerOnHitEOF`` and ``maxPostHandlerReadBytes`` in ``net/http/server.go``).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import sys
import threading
import urllib.request
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["Answered", "Handler", "Server", "serve"]

# ``maxPostHandlerReadBytes`` in Go's ``net/http``.
_DRAINED = 256 << 10
_PIECE = 256 << 10
# Requests that are remembered.
_SEEN = 100_000
# Seconds to wait for the ends of requests that were answered; one that a fault holds has none.
_ENDS = 5.0


class Answered(Exception):
    """An error that a request is answered with: status and message."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


class Server(ThreadingHTTPServer):
    """A gateway or a node.

    Attributes
    ----------
    faults : dict
        How to misbehave, set by ``POST /_control/faults``: see `Handler.fault` and the handlers.
    seen : deque
        The requests, oldest first.
    token : str
        The token that every request must bring; empty for none.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler: type[Handler], settings: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", int(settings.get("port", 0))), handler)
        self.settings = settings
        self.id: str = settings["id"]
        self.token: str = settings.get("token", "")
        self.faults: dict[str, Any] = {}
        self.seen: deque[dict[str, Any]] = deque(maxlen=_SEEN)
        self.resumed = threading.Event()
        self.ends = threading.Condition()
        self.scheme = "https" if settings.get("certificate") else "http"
        if settings.get("certificate"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(settings["certificate"], settings["key"])
            if settings.get("clients"):
                context.load_verify_locations(settings["clients"])
                context.verify_mode = ssl.CERT_REQUIRED
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        """The address of this process."""
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def reach(self, url: str, data: bytes) -> bytes:
        """Send a request to another process of the cluster."""
        context = None
        if self.scheme == "https":
            context = ssl._create_unverified_context()
            context.load_cert_chain(self.settings["certificate"], self.settings["key"])
        with urllib.request.urlopen(urllib.request.Request(url, data), context=context) as answer:
            found: bytes = answer.read()
            return found

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *args: Any) -> None:
        """Suppress output on the terminal."""

    def parse_request(self) -> bool:
        self._expects = self._continued = False
        self.received = self._left = 0
        if not super().parse_request():
            return False
        self._left = int(self.headers.get("content-length") or 0)
        return True

    def handle_expect_100(self) -> bool:
        self._expects = True
        return True

    # -- one request ------------------------------------------------------------------------------

    def _answer(self) -> None:
        self.address = urlsplit(self.path)
        self.query = dict(parse_qsl(self.address.query, keep_blank_values=True))
        self.parts = [unquote(part, errors="surrogateescape") for part in self.address.path[1:].split("/", 3)]
        self.answered = 0
        entry: dict[str, Any] = {}
        try:
            if self.parts[0] == "_control":
                self._control()
                return
            entry = {
                "method": self.command,
                "path": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
            }
            self.server.seen.append(entry)
            self._check_token()
            self.respond()
        except Answered as error:
            if not self.answered:
                self.refuse(error)
        finally:
            self._drain()
            with self.server.ends:
                entry |= {"status": self.answered, "body": self.received}
                self.server.ends.notify_all()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def respond(self) -> None:
        """Answer the request."""
        raise NotImplementedError

    def refuse(self, error: Answered) -> None:
        """Answer with an error, as ``cmn.ErrHTTP`` is written (``cmn/err.go``)."""
        told = {
            "message": error.message,
            "method": self.command,
            "url_path": self.address.path,
            "remote_addr": "{}:{}".format(*self.client_address[:2]),
            "caller": "",
            "node": self.server.id,
            "status": error.status,
        }
        if error.code:
            told["tcode"] = error.code
        self.answer(error.status, json.dumps(told).encode(), {"content-type": "application/json"})

    def _check_token(self) -> None:
        """With AuthN, a request needs a token (``ais/prxauth.go``: 401 without a valid one)."""
        wanted = self.server.token
        if wanted and self.headers.get("authorization") != f"Bearer {wanted}":
            raise Answered(401, "token required" if "authorization" not in self.headers else "invalid token")

    def fault(self, name: str) -> Any:
        """Return the value of a fault, one time less often if it has ``times``; None if it is not set."""
        found = self.server.faults.get(name)
        if isinstance(found, dict) and "times" in found:
            found["times"] -= 1
            if found["times"] <= 0:
                self.server.faults.pop(name, None)
            return found["value"]
        return found

    # -- bodies -----------------------------------------------------------------------------------

    def body(self) -> Iterator[bytes]:
        """Yield the body of the request; ask for it first, if the client waits for that. `flip` changes a bit of it."""
        if self._expects and not self._continued:
            self._continued = True
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while self._left:
            data = self.rfile.read1(min(self._left, _PIECE))
            if not data:
                self.close_connection = True
                raise Answered(400, "unexpected EOF")
            self._left -= len(data)
            self.received += len(data)
            if self.command == "PUT" and self.fault("flip"):
                data = bytes([data[0] ^ 1]) + data[1:]
            yield data

    def json(self) -> dict[str, Any]:
        """The JSON object in the body; empty without a body."""
        data = b"".join(self.body())
        try:
            found = json.loads(data) if data else {}
        except ValueError as error:
            raise Answered(400, f"failed to unmarshal: {error}") from error
        return found if isinstance(found, dict) else {}

    def _drain(self) -> None:
        if not self._left:
            return
        if self.close_connection:
            # The client may still send: a reset would take the answer from it.
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_WR)
                self.connection.settimeout(0.5)
                while self._left and (data := self.rfile.read1(_PIECE)):
                    self._left -= len(data)
                    self.received += len(data)
            return
        with contextlib.suppress(Answered, OSError):
            for _ in self.body():
                pass

    def answer(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        """Send a whole answer."""
        self.begin(status, len(data), headers or {}, data if self.command != "HEAD" else b"")

    def begin(self, status: int, length: int, headers: dict[str, str], data: bytes = b"") -> None:
        """Send the head of an answer, with the beginning of its body."""
        self.answered = status
        if self._left and ((self._expects and not self._continued) or self._left > _DRAINED):
            self.close_connection = True
        lines = [f"HTTP/1.1 {status} {self.responses.get(status, ('X',))[0]}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if not any(name.lower() == "content-length" for name in headers):
            lines.append(f"Content-Length: {length}")
        if self.close_connection:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self.wfile.write(head + data)

    # -- tests ------------------------------------------------------------------------------------

    def _control(self) -> None:
        asked = self.json()
        told = self.controlled("/".join(self.parts[1:]), asked)
        self.answer(200, json.dumps(told).encode(), {"content-type": "application/json"})

    def controlled(self, what: str, asked: dict[str, Any]) -> Any:
        """Do what a test asks for; return what it wants to know."""
        server = self.server
        if what == "faults":
            server.faults = asked
            server.resumed.clear()
        elif what == "resume":
            server.resumed.set()
        elif what == "seen":
            told = list(server.seen)
            server.seen.clear()
            with server.ends:  # a client has its answer before the bytes that it sent are counted here
                server.ends.wait_for(lambda: all("body" in entry for entry in told), _ENDS)
                return [dict(entry) for entry in told]
        elif what == "token":
            server.token = asked["token"]
        else:
            raise Answered(404, what)
        return {}


def serve(server: Server) -> None:
    """Write the address to standard output, and serve until the process is ended or its parent is gone."""
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    print(server.url, flush=True)
    sys.stdin.buffer.read()  # ends with the process that holds the other end
    os._exit(0)
