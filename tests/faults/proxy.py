"""A fault-injecting HTTP proxy on loopback: it follows a plan and counts the bytes that it carries.

It stands between a client and an S3 store without TLS. It parses enough of HTTP/1.1 to know where a body begins and
ends, and which object and range it belongs to. For each request it asks the *plan*, which returns a fault to inject or
None. It keeps a *tally*: each injected fault with its moment in the exchange, and the bytes of objects in both
directions. So the tally shows independently of the client what was sent twice.

There is one thread per connection, at most `CONNECTIONS`. Stalled connections end with the run (`FaultProxy.begin`).
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

from tests.slow import take

__all__ = ["AFTER", "BEFORE", "BETWEEN", "BODY", "HEAD", "Exchange", "Fault", "FaultProxy", "Plan", "Tally"]

#: Largest number of simultaneous connections; further ones wait. More than a client opens: one that holds all of them
#: open, idle, would wait for itself.
CONNECTIONS = 256
# Bytes that are carried at once, and the largest size of a head (request or status line with headers).
_BLOCK, _HEAD_BYTES = 256 << 10, 64 << 10
# Seconds after which a stalled connection ends, even if it was forgotten.
_FOR_EVER = 120.0

#: The moment of a fault in an exchange: `BEFORE` replaces the response, `HEAD` is within the response's headers, `BODY`
#: is within the body of the upload or the response, `AFTER` is when the store has completed the request, and `BETWEEN`
#: is between two parts of one object.
BEFORE, HEAD, BODY, AFTER, BETWEEN = "before the answer", "head", "body", "after", "between two parts"


@dataclass(frozen=True)
class Fault:
    """A fault to inject into an exchange.

    Attributes
    ----------
    kind : str
        ``delay`` (by `seconds`); ``drop`` (the connection is closed); ``reset`` (it is reset by RST); ``cut`` (the body
        ends early, by an orderly close); ``flip`` (one byte of the body is changed); ``refuse`` (with `status`);
        ``stall`` (no byte moves any more, and the connection stays open); ``swallow`` (the store completes the request,
        and the client gets no response); ``replace`` (the object is overwritten at the store before more of it is
        read).
    where : str
        `BEFORE`, `HEAD`, `BODY`, `AFTER` or `BETWEEN`.
    share : float
        With `BODY`, the share of the body that passes unchanged.
    """

    kind: str
    where: str
    share: float = 0.0
    status: int = 503
    seconds: float = 0.2


@dataclass(frozen=True)
class Exchange:
    """A request, parsed from its head.

    Attributes
    ----------
    action : str
        ``get``, ``list``, ``head``, ``put``, ``part`` (of an upload), ``create``, ``complete``, ``abort`` or ``other``.
    key : str
        Key without the bucket.
    part : str
        Identifies a part of an object, however often it is requested: the number of an uploaded part, or the end of a
        range that is read; otherwise ''.
    start : int
        Start of the range.
    size : int
        Size of the request's body in bytes.
    """

    action: str
    key: str
    part: str = ""
    start: int = 0
    size: int = 0

    @property
    def upload(self) -> bool:
        """True if the request's body is object data."""
        return self.action in ("put", "part")

    @property
    def download(self) -> bool:
        """True if the response's body is object data."""
        return self.action == "get"

    @classmethod
    def of(cls, head: bytes) -> Exchange:
        """Parse a request's head."""
        line, headers = _parsed(head)
        method, target, _ = line.split(" ", 2)
        url = urlsplit(target)
        _, _, key = unquote(url.path).lstrip("/").partition("/")
        query = parse_qs(url.query, keep_blank_values=True)
        start, _, end = headers.get("range", "").removeprefix("bytes=").partition("-")
        if method == "POST":
            action = "create" if "uploads" in query else "complete" if "uploadId" in query else "other"
        elif method == "PUT":
            action = "part" if "partNumber" in query else "put"
        elif method == "DELETE":
            action = "abort" if "uploadId" in query else "other"
        else:
            action = "head" if method == "HEAD" else "get" if key else "list"
        part = end or query.get("partNumber", [""])[0]
        return cls(action, key, part, int(start or 0), int(headers.get("content-length", 0)))


#: A plan: returns the fault for a request or None, given the number of earlier equal requests.
Plan = Callable[[Exchange, int], "Fault | None"]


@dataclass
class Tally:
    """The traffic of one run.

    Attributes
    ----------
    faults : list of (Exchange, Fault)
        The injected faults, in order.
    down, up : Counter
        Bytes of objects, by key: responses sent to the client, and uploads sent to the store.
    """

    faults: list[tuple[Exchange, Fault]] = field(default_factory=list)
    down: Counter[str] = field(default_factory=Counter)
    up: Counter[str] = field(default_factory=Counter)


class _Run:
    """The state from one `begin` to the next."""

    def __init__(self, plan: Plan, at: int | None, then: Callable[[], None]) -> None:
        self.plan, self.tally = plan, Tally()
        self._at, self._then, self._carried = at, then, 0
        self._asked: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()

    def fault_for(self, request: Exchange) -> Fault | None:
        slot = (request.action, request.key, request.part)
        with self._lock:
            before = self._asked[slot]
            self._asked[slot] += 1
        return self.plan(request, before)

    def happened(self, request: Exchange, fault: Fault) -> None:
        with self._lock:
            self.tally.faults.append((request, fault))

    def carried(self, request: Exchange, size: int) -> None:
        """Count the carried bytes. While `then` runs at the chosen byte, nothing is carried."""
        if not request.upload and not request.download:
            return
        with self._lock:
            (self.tally.up if request.upload else self.tally.down)[request.key] += size
            self._carried += size
            if self._at is not None and self._carried >= self._at:
                self._at = None
                self._then()


class FaultProxy:
    """The proxy, as a context manager.

    Parameters
    ----------
    upstream : str
        URL of the store.
    opaque : str
        Responses for keys with this prefix state that a KMS key encrypts the object, as S3 does, and carry no checksum.
        Then the ETag proves nothing about the bytes, and a client cannot detect wrong ones.
    replace : callable
        Overwrites an object at the store, given its key.
    """

    def __init__(
        self, upstream: str, *, opaque: str = "\0", replace: Callable[[str], None] = lambda key: None
    ) -> None:
        parts = urlsplit(upstream)
        self._to = (parts.hostname or "", parts.port or 80)
        self._opaque, self._replace = opaque, replace
        self._run = _Run(lambda request, before: None, None, lambda: None)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._over = False
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._over = True
        self._hang_up()

    def begin(
        self,
        plan: Plan = lambda request, before: None,
        *,
        at: int | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> Tally:
        """Begin a run and return its tally: end all connections, and from now on inject the faults of `plan`.

        When `at` bytes of objects have been carried, `then` is called, and nothing more is carried until it returns.
        """
        self._run = run = _Run(plan, at, then)
        self._hang_up()
        return run.tally

    def _hang_up(self) -> None:
        with self._lock:
            sockets = list(self._open)
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    # -- connections ------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            self._free.acquire()
            try:
                client, _ = self._listener.accept()
            except OSError:
                self._free.release()
                return
            threading.Thread(target=self._serve, args=(client,), name="exchange", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Handle all exchanges of one connection, over one connection to the store."""
        store = socket.socket()
        with self._lock:
            self._open |= {client, store}
            over = self._over
        try:
            if over:  # it was accepted just before the end, and `_hang_up` did not see it
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            store.connect(self._to)
            store.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ours, theirs = _Wire(client), _Wire(store)
            while head := ours.head():
                request, run = Exchange.of(head), self._run
                if not self._exchange(run, request, head, ours, theirs, run.fault_for(request)):
                    break
        except (OSError, _Over):
            pass
        finally:
            with self._lock:
                self._open -= {client, store}
            client.close()
            store.close()
            self._free.release()

    def _exchange(
        self, run: _Run, request: Exchange, head: bytes, ours: _Wire, theirs: _Wire, fault: Fault | None
    ) -> bool:
        """Handle one request and its response; returns whether the connection can be used again."""
        spoil = _Spoil(run, request, ours, theirs, fault)
        if fault is not None and fault.where == BETWEEN:
            run.happened(request, fault)
            self._replace(request.key)
        spoil.before_the_answer()
        if request.upload:
            spoil.body(ours, theirs, request.size, head)
        else:
            theirs.send(head + b"".join(ours.pieces(request.size)))
        answer, length = _whole(theirs, head)
        if request.key.startswith(self._opaque):
            answer = _opaque(answer)
        spoil.after()
        spoil.head(answer)
        if request.upload or not length:
            ours.send(b"".join(theirs.pieces(length)))
        else:
            spoil.body(theirs, ours, length)
        return b"\r\nconnection: close\r\n" not in answer.lower()


class _Over(Exception):
    """Raised when the connection ends."""


class _Wire:
    """A socket with a buffer of bytes that were received ahead."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._held = b""

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def head(self) -> bytes:
        """Read a head including its final empty line; b'' if the peer closed the connection."""
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            data = self.sock.recv(_HEAD_BYTES)
            if not data:
                return b""
            self._held += data
        head, self._held = self._held[: end + 4], self._held[end + 4 :]
        return head

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes as they arrive."""
        while size:
            data, self._held = self._held[:size], self._held[size:]
            data = data or self.sock.recv(min(size, _BLOCK))
            if not data:
                raise _Over
            size -= len(data)
            yield data

    def line(self) -> bytes:
        """Read a line, without its end."""
        while (end := self._held.find(b"\r\n")) < 0:
            data = self.sock.recv(_HEAD_BYTES)
            if not data:
                raise _Over
            self._held += data
        line, self._held = self._held[:end], self._held[end + 2 :]
        return line

    def chunks(self) -> Iterator[bytes]:
        """Yield the body of a chunked response."""
        while size := int(self.line().partition(b";")[0], 16):
            yield from self.pieces(size)
            self.line()
        while self.line():
            pass

    def give_back(self, data: bytes) -> None:
        """Put `data` back, to be read next."""
        self._held = data + self._held

    def reset(self) -> None:
        """Close the connection with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # While another thread waits on the descriptor, a close alone sends no RST. No thread waits on it here.
        self.sock.close()

    def wait_for_the_end(self) -> None:
        """Wait until the peer or another thread here closes the connection."""
        poll = select.poll()
        poll.register(self.sock, select.POLLRDHUP)
        poll.poll(int(_FOR_EVER * 1000))


class _Spoil:
    """Injects a fault into one exchange. Each step raises _Over if the fault ends the connection."""

    def __init__(
        self, run: _Run, request: Exchange, client: _Wire, store: _Wire, fault: Fault | None
    ) -> None:
        self._run, self._request, self._client, self._store = run, request, client, store
        self._fault = fault

    def _due(self, where: str) -> Fault | None:
        """Return the fault if it is due at this moment, and record it as injected."""
        fault = self._fault
        if fault is None or fault.where != where:
            return None
        self._run.happened(self._request, fault)
        return fault

    def before_the_answer(self) -> None:
        """Inject a fault right after the request. Unless the request is only delayed, the store never receives it."""
        fault = self._due(BEFORE)
        if fault is None:
            return
        if fault.kind == "delay":
            take(fault.seconds)
            return
        for _ in self._client.pieces(self._request.size):
            pass
        self._end(fault)

    def head(self, answer: bytes) -> None:
        """Send the response's head, or half of it."""
        if self._due(HEAD) is None:
            self._client.send(answer)
            return
        self._client.send(answer[: len(answer) // 2])
        self._client.reset()
        raise _Over

    def after(self) -> None:
        """Inject a fault after the store has completed the request; the client may not receive the response."""
        if self._due(AFTER) is not None:
            raise _Over

    def body(self, source: _Wire, target: _Wire, size: int, head: bytes = b"") -> None:
        """Carry a body, and inject the fault if it is due within the body.

        The head of an upload is sent together with its first bytes. If a request ended after its head, SeaweedFS would
        create an empty object.
        """
        fault = self._fault
        if fault is None or fault.where != BODY or not size:
            self._carry(source, target, size, head)
            return
        at = min(max(1, int(size * fault.share)), size - 1)
        self._carry(source, target, at, head)
        self._run.happened(self._request, fault)
        if fault.kind == "flip":
            (byte,) = b"".join(source.pieces(1))
            source.give_back(bytes([byte ^ 0x20]))
        elif fault.kind == "delay":
            take(fault.seconds)
        else:
            self._end(fault)
        self._carry(source, target, size - at)

    def _carry(self, source: _Wire, target: _Wire, size: int, head: bytes = b"") -> None:
        for data in source.pieces(size):
            self._run.carried(self._request, len(data))
            target.send(head + data if head else data)
            head = b""
        if head:
            target.send(head)

    def _end(self, fault: Fault) -> None:
        """Inject a fault that ends the transfer."""
        if fault.kind == "stall":
            self._client.wait_for_the_end()
        elif fault.kind == "reset":
            self._client.reset()
        elif fault.kind == "refuse":
            after = "Retry-After: 1\r\n" if fault.status == 503 else ""
            self._client.send(
                f"HTTP/1.1 {fault.status} No\r\n{after}Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
            )
        elif fault.kind not in ("drop", "cut"):
            raise ValueError(f"{fault.kind} cannot be {fault.where}")
        raise _Over


def _parsed(head: bytes) -> tuple[str, dict[str, str]]:
    """Parse a head into its first line and its headers, by lower-case name."""
    line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    return line, {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}


def _opaque(answer: bytes) -> bytes:
    """Change a response's head into that of an object without a checksum."""
    lines = answer.rstrip(b"\r\n").split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(b"x-amz-checksum-")]
    return b"\r\n".join([*kept, b"x-amz-server-side-encryption: aws:kms", b"", b""])


def _whole(store: _Wire, request: bytes) -> tuple[bytes, int]:
    """Read a response's head and return it with the size of the body. A body without a length gets one."""
    answer = store.head()
    if not answer:
        raise _Over
    line, headers = _parsed(answer)
    if request.startswith(b"HEAD ") or line.split(" ")[1] in ("204", "304"):
        return answer, 0
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = b"".join(store.chunks())
        store.give_back(body)
        kept = [f"{name}: {value}" for name, value in headers.items() if name != "transfer-encoding"]
        return "\r\n".join([line, *kept, f"content-length: {len(body)}", "", ""]).encode("latin-1"), len(body)
    return answer, int(headers.get("content-length", 0))
