"""Drive several HTTP connections from one thread, each with one request at a time.

For objects of a few kilobytes, one thread per object costs more than the transfer itself. With 16 threads in one
interpreter, nearly every system call passes the interpreter's lock to another thread and back. A single thread never
passes it (docs/design/2026-11-21-small-objects.md).

Only the usual response is handled here: a success of known length, or a redirect to follow. The caller handles every
other response by repeating the request over the ordinary client, which knows the meaning of each status.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple

from nbdata.errors import NbdataError, StoreUnavailable
from nbdata.stores.base import Stop
from nbdata.stores.http.client import INFORMATIONAL, Connection, Pool
from nbdata.stores.http.dial import Closed, Malformed
from nbdata.stores.http.heads import Head, length_of, parse_head
from nbdata.stores.http.hops import is_redirect
from nbdata.threads import begin

__all__ = ["Asked", "Came", "Multiplexer"]

# Seconds between two checks for dead connections and for more requests.
_LOOK = 0.25
# Connections that are opened at the same time, each by its own thread.
_DIALS = 16
# Connections beyond which none to another server is kept for its next request.
_SLOTS = 256
# Bytes of the longest body for which a connection keeps its buffer for reuse.
_KEPT = 1 << 20
# Exceptions of a non-blocking socket when there is nothing to do.
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Asked(NamedTuple):
    """A request.

    Attributes
    ----------
    of : any
        The caller's own tag.
    request : bytes
        Head and body of the request.
    usual : tuple of int
        The status codes of a usual response.
    most : int
        The length of the longest usual body, in bytes.
    into : callable, optional
        Returns the buffer for the body, of exactly its length; called when the head has come. None uses memory of the
        connection's slot.
    pool : Pool, optional
        Where the request goes; None for the pool of the multiplexer.
    hop : callable, optional
        Returns the request that follows a redirect; raises NbdataError if it must not be followed.
    """

    of: Any
    request: bytes
    usual: tuple[int, ...]
    most: int
    into: Callable[[], memoryview] | None = None
    pool: Pool | None = None
    hop: Callable[[Head], Asked] | None = None

    def is_redirected(self, head: Head) -> bool:
        """Whether a response is a redirect that the request may be able to follow."""
        return self.hop is not None and is_redirect(head.status, head.headers)


class _Line:
    """The connections of one pool: the free ones, and the requests that wait for one."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.free: list[_Slot] = []
        self.backlog: deque[Asked] = deque()
        self.dialling = 0


#: A request's tag with the head and body of its response. After a failure: the tag, the error or the head of an
#: unusual response, and None.
Came = tuple[Any, "Head | NbdataError", "memoryview | None"]


class _Slot:
    """A connection, its current request, and what it has received of the response."""

    def __init__(self, line: _Line, connection: Connection, *, kept: bool) -> None:
        self.line = line
        self.connection, self.sock = connection, connection.sock
        self.sock.setblocking(False)
        self.encrypted = isinstance(self.sock, ssl.SSLSocket)
        self.buffer = bytearray(64 << 10)
        self.view = memoryview(self.buffer)
        self.may_be_closed = kept  # the server may have closed it since its last response
        self.asked: Asked | None = None
        self.unsent = memoryview(b"")  # rest of the request
        self.head: Head | None = None
        self.came = 0  # bytes received: of the response, or of the body once the head is parsed
        self.body = memoryview(b"")  # the buffer for the body, of its length
        self.informed = 0  # informational heads before that of the response
        self.beyond = False  # True if bytes came after the response
        self.moved = 0.0


class Multiplexer:
    """Connections of one pool, and of those that its server redirects to, used by one thread.

    Parameters
    ----------
    pool : Pool
    stop : Stop or None
        Stops the waiting.
    more : callable
        Returns the next request; None if there is none now.
    width : callable
        Returns how many connections may be in use now.
    """

    def __init__(
        self,
        pool: Pool,
        stop: Stop | None,
        *,
        more: Callable[[], Asked | None],
        width: Callable[[], int],
    ) -> None:
        self._stop, self._more, self._width = stop, more, width
        self._own = _Line(pool)
        self._others: dict[Pool, _Line] = {}  # of the servers that requests were redirected to
        self._redirected = 0  # requests in the backlogs of these
        self._slots: dict[int, _Slot] = {}  # by file descriptor
        self._came: deque[Came | None] = deque()
        self._woken = False
        self._busy = 0  # connections that wait for a response
        self._lock = threading.Lock()
        self._opened: deque[tuple[_Line, Connection | Exception]] = deque()
        self._over = False
        self._poll = select.poll()
        try:
            self._wake_reader, self._wake_writer = socket.socketpair()
        except OSError as error:
            raise StoreUnavailable(
                f"no connections can be watched ({os.strerror(error.errno or 0)})",
                remedy="Close files, or allow this process more of them (ulimit -n)",
            ) from error
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self._poll.register(self._wake_reader, select.POLLIN)

    def answers(self) -> Generator[Came | None, None, None]:
        """Send requests until there are no more, and yield each response. Stops early if the job stops.

        Yields a `Came` for each request, in any order; a body is valid until the next item. Yields None after `wake`.
        """
        if self._stop is not None:
            self._stop.add(self._call)
        try:
            looked = time.monotonic()
            self._fill()
            while self._busy or self._own.backlog or self._redirected:
                for fd, events in self._poll.poll(_LOOK * 1000):
                    self._look(fd, events)
                    while self._came:
                        yield self._came.popleft()
                if self._stop is not None and self._stop.is_set():
                    return
                now = time.monotonic()
                if now - looked > _LOOK:
                    looked = now
                    self._give_up_the_silent(now)
                self._fill()
                while self._came:
                    yield self._came.popleft()
        finally:
            if self._stop is not None:
                self._stop.remove(self._call)
            self._close()

    def _look(self, fd: int, events: int) -> None:
        slot = self._slots.get(fd)
        if fd == self._wake_reader.fileno():
            self._take_opened()
        elif slot is not None and slot.unsent and events == select.POLLOUT:
            self._go_on_sending(slot)
        elif slot is not None:
            self._read(slot)

    def _missed(self, asked: Asked, why: Head | NbdataError) -> None:
        self._came.append((asked.of, why, None))

    def wake(self) -> None:
        """Make `answers` look for more requests and yield None; callable from any thread."""
        self._woken = True
        self._call()

    def _call(self) -> None:
        with contextlib.suppress(OSError):  # it is full, so the thread is awake; or it is closed
            self._wake_writer.send(b"x")

    def _close(self) -> None:
        with self._lock:
            self._over = True
            self._wake_reader.close()
            self._wake_writer.close()
            unused = [made for _, made in self._opened if isinstance(made, Connection)]
        for connection in unused:
            self._give_back(connection)
        for slot in self._slots.values():
            if slot.asked is None:
                self._give_back(slot.connection)
            else:
                slot.connection.drop()

    def _give_back(self, connection: Connection) -> None:
        connection.sock.settimeout(connection.pool.origin.stall)
        connection.release(keep=True)

    # -- connections ----------------------------------------------------------------------------

    def _fill(self) -> None:
        """Send a request on each free connection, and open connections while there are more requests."""
        width, own = self._width(), self._own
        if self._redirected:  # these come first: they were asked for earlier
            for line in self._others.values():
                self._send_redirected(line, width)
        while self._busy + self._redirected < width:
            if own.free:
                wanted = own.backlog.popleft() if own.backlog else self._more()
                if wanted is None:
                    return
                self._ask(own.free.pop(), wanted)
                continue
            if self._busy + own.dialling >= width or own.dialling >= _DIALS:
                return
            if len(own.backlog) <= own.dialling:
                wanted = self._more()
                if wanted is None:
                    return
                own.backlog.append(wanted)
            if not self._connect(own):
                return

    def _send_redirected(self, line: _Line, width: int) -> None:
        """Send the requests that were redirected to a server, as far as there are connections."""
        while line.backlog and self._busy < width:
            if line.free:
                self._redirected -= 1
                self._ask(line.free.pop(), line.backlog.popleft())
            elif line.dialling >= min(len(line.backlog), _DIALS) or not self._connect(line):
                return

    def _connect(self, line: _Line) -> bool:
        """Take a kept connection, or begin to open one. Returns False if there can be no more now."""
        kept = line.pool.kept()
        if kept is not None:
            self._add(line, kept, kept=True)
            return True
        line.dialling += 1
        if not begin(partial(self._dial, line), name="dialler"):
            if line.dialling > 1 or any(slot.line is line for slot in self._slots.values()):  # these do it
                line.dialling -= 1
                return False
            self._dial(line)
        return True

    def _dial(self, line: _Line) -> None:
        made: Connection | Exception
        try:
            made = line.pool.connect(self._stop)
        except Exception as error:
            made = error
        with self._lock:
            if not self._over:
                self._opened.append((line, made))
                self._call()
                return
        if isinstance(made, Connection):
            self._give_back(made)

    def _take_opened(self) -> None:
        """Take over the connections that were opened."""
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        if self._woken:
            self._woken = False
            self._came.append(None)
        while self._opened:
            line, made = self._opened.popleft()
            line.dialling -= 1
            if isinstance(made, Connection):
                self._add(line, made, kept=False)
            elif not isinstance(made, NbdataError):
                raise made
            elif line.backlog:
                if line is not self._own:
                    self._redirected -= 1
                    made.details.pop("unreached", None)  # the next redirect may lead to another server
                self._missed(line.backlog.popleft(), made)

    def _add(self, line: _Line, connection: Connection, *, kept: bool) -> None:
        slot = _Slot(line, connection, kept=kept)
        self._slots[slot.sock.fileno()] = slot
        self._poll.register(slot.sock, select.POLLIN)
        line.free.append(slot)

    def _drop(self, slot: _Slot) -> Asked | None:
        """Close a connection, and return its current request."""
        fd = slot.sock.fileno()
        self._poll.unregister(fd)
        del self._slots[fd]
        if slot.asked is None:
            slot.line.free.remove(slot)
        else:
            self._busy -= 1
        slot.connection.drop()
        return slot.asked

    def _break(self, slot: _Slot, why: Exception) -> None:
        """Handle a broken connection: repeat its request if the server had closed before, or report the failure."""
        asked = self._drop(slot)
        if asked is None:
            return
        closed = slot.may_be_closed and not slot.came and not isinstance(why, TimeoutError)
        if closed and not (self._stop is not None and self._stop.is_set()):
            self._await(slot.line, asked)  # the server closed before the request arrived, which is no failure
        else:
            self._missed(asked, slot.line.pool.lost(why))

    def _await(self, line: _Line, asked: Asked) -> None:
        line.backlog.append(asked)
        self._redirected += line is not self._own

    def _follow(self, asked: Asked, head: Head) -> None:
        """Have a redirected request sent to where it leads."""
        assert asked.hop is not None
        try:
            following = asked.hop(head)
        except NbdataError as error:
            self._missed(asked, error)
            return
        pool = following.pool or self._own.pool
        line = self._own if pool is self._own.pool else self._others.setdefault(pool, _Line(pool))
        self._await(line, following)

    def _give_up_the_silent(self, now: float) -> None:
        """Close dead connections, but not those left unread while the caller was busy or paused."""
        late = [
            fd
            for fd, slot in self._slots.items()
            if slot.asked is not None and now - slot.moved > slot.line.pool.origin.stall
        ]
        if late:
            ready = dict(self._poll.poll(0))
            for fd in late:
                if not ready.get(fd, 0) & ~select.POLLOUT:
                    self._break(self._slots[fd], TimeoutError())

    # -- one exchange -----------------------------------------------------------------------------

    def _ask(self, slot: _Slot, wanted: Asked) -> None:
        slot.asked, slot.head, slot.came, slot.moved = wanted, None, 0, time.monotonic()
        slot.beyond, slot.informed = False, 0
        slot.unsent = memoryview(wanted.request)
        self._busy += 1
        self._send(slot)
        if slot.unsent:
            self._poll.modify(slot.sock, select.POLLIN | select.POLLOUT)

    def _send(self, slot: _Slot) -> None:
        try:
            while slot.unsent:
                slot.unsent = slot.unsent[slot.sock.send(slot.unsent) :]
                slot.moved = time.monotonic()
            return
        except _LATER:
            return
        except OSError as error:
            slot.unsent = memoryview(b"")
            why = error
        self._break(slot, why)

    def _go_on_sending(self, slot: _Slot) -> None:
        self._send(slot)
        if not slot.unsent and slot.sock.fileno() >= 0:
            self._poll.modify(slot.sock, select.POLLIN)

    def _read(self, slot: _Slot) -> None:
        """Receive. When the response is complete, send the next request before the caller uses the body."""
        while True:
            room = slot.view[slot.came :] if slot.head is None else slot.body[slot.came :]
            try:
                count = slot.sock.recv_into(room)
                if not count or slot.asked is None:
                    raise Closed("the server closed the connection")
                slot.came += count
                slot.moved = time.monotonic()
                usual = slot.head is not None or self._begin(slot)
            except _LATER:
                return
            except (OSError, Closed) as error:
                self._break(slot, error)
                return
            if slot.head is not None:
                if not usual:
                    asked = self._drop(slot)
                    assert asked is not None
                    if asked.is_redirected(slot.head):
                        self._follow(asked, slot.head)
                        self._fill()
                    else:
                        self._missed(asked, slot.head)
                    return
                if slot.came >= len(slot.body):
                    self._whole(slot)
                    return
            if count < len(room) and not slot.encrypted:
                return  # that was all for now

    def _begin(self, slot: _Slot) -> bool:
        """Parse the head once it is complete. Returns True if the response is a usual one.

        Skips informational heads (1xx).
        """
        while slot.informed < INFORMATIONAL:
            end = slot.buffer.find(b"\r\n\r\n", 0, slot.came)
            if end < 0:
                if slot.came == len(slot.view):
                    raise Closed("the head of the answer is too long")
                return False
            head = parse_head(bytes(slot.view[:end]))
            if head.status >= 200:
                break
            rest = bytes(slot.view[end + 4 : slot.came])
            slot.view[: len(rest)] = rest
            slot.came = len(rest)
            slot.informed += 1
        else:
            raise Malformed("it sends informational heads without end")
        slot.line.pool.reached = True
        asked, length, begun = slot.asked, length_of(head.headers), end + 4
        assert asked is not None
        slot.head = head
        redirected = asked.is_redirected(head)
        if (
            not (head.status in asked.usual or redirected)
            or "transfer-encoding" in head.headers
            or not 0 <= length <= asked.most
        ):
            return False
        came = min(slot.came - begun, length)
        slot.beyond = slot.came - begun > length
        if asked.into is not None and not redirected:
            slot.body = asked.into()
            if length != len(slot.body):
                return False
            slot.body[:came] = slot.view[begun : begun + came]
        elif begun + length <= len(slot.view):
            slot.body = slot.view[begun : begun + length]
        elif length > _KEPT:
            slot.body = memoryview(bytearray(length))
            slot.body[:came] = slot.view[begun : begun + came]
        else:
            first, slot.buffer = slot.view[begun : begun + came], bytearray(max(length, len(slot.view)))
            slot.view = memoryview(slot.buffer)
            slot.view[:came] = first
            slot.body = slot.view[:length]
        slot.came = came
        return True

    def _whole(self, slot: _Slot) -> None:
        asked, head, body = slot.asked, slot.head, slot.body
        assert asked is not None
        assert head is not None
        if asked.is_redirected(head):
            self._follow(asked, head)
        else:
            self._came.append((asked.of, head, body))
        # A free connection holds only its own buffer, which takes any unrequested bytes.
        slot.head, slot.came, slot.body = None, 0, memoryview(b"")
        too_many = slot.line is not self._own and len(self._slots) > _SLOTS
        if head.keeps and not slot.beyond and not slot.unsent and not too_many:
            slot.asked, slot.may_be_closed = None, True
            self._busy -= 1
            slot.line.free.append(slot)
            self._fill()  # the buffer is not read into before the caller has used this body
        else:
            self._drop(slot)
