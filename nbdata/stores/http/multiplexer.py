"""Many small answers at once: one thread drives several connections, and waits for all of them together.

For objects of a few kilobytes a thread each was measured to cost more than the transfer: with 16 threads in one
interpreter nearly every system call hands the interpreter's lock to another one, and takes it back. Here there is
nobody to hand it to (docs/design/2026-11-21-small-objects.md).

It does the usual case only: the answer good and of known length. What comes otherwise is left to who asks in the usual
way, one object a thread, and knows what every answer means.
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
from typing import Any, NamedTuple

from nbdata.errors import NbdataError, StoreUnavailable
from nbdata.stores.base import Stop
from nbdata.stores.http.client import Connection, Pool
from nbdata.stores.http.dial import Closed
from nbdata.stores.http.heads import Head, length_of, parse_head
from nbdata.threads import begin

__all__ = ["Asked", "Came", "Multiplexer"]

# Seconds until a look at whether a connection is dead, or whether more are wanted.
_LOOK = 0.25
# Connections that are made at a time, each by a thread that waits for it.
_DIALS = 16
# What a socket without a time limit says when there is nothing to do.
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Asked(NamedTuple):
    """A request.

    Attributes
    ----------
    of : any
        What it is for: the caller's own.
    request : bytes
        The whole of it, body included.
    usual : tuple of int
        The status of the usual answer.
    most : int
        Bytes of the longest body that is taken.
    into : memoryview or None
        Where the body goes, which then has to be as long; None: memory of the lane's.
    """

    of: Any
    request: bytes
    usual: tuple[int, ...]
    most: int
    into: memoryview | None = None


#: What was asked for, and the head of the usual answer and its body; or why it did not come, and None.
Came = tuple[Any, "Head | NbdataError", "memoryview | None"]


class _Slot:
    """A connection with at most one request under way, and what has come of the answer to it."""

    def __init__(self, connection: Connection, *, kept: bool) -> None:
        self.connection, self.sock = connection, connection.sock
        self.sock.setblocking(False)
        self.encrypted = isinstance(self.sock, ssl.SSLSocket)
        self.buffer = bytearray(64 << 10)
        self.view = memoryview(self.buffer)
        self.may_be_closed = kept  # it has answered before: the server may have closed it since
        self.asked: Asked | None = None
        self.unsent = memoryview(b"")  # of the request
        self.head: Head | None = None
        self.came = 0  # bytes of the answer, or of the body once its head is read
        self.body = memoryview(b"")  # where the body goes: just as long
        self.beyond = False  # whether more came than the answer
        self.moved = 0.0


class Multiplexer:
    """Several connections of one pool.

    Parameters
    ----------
    pool : Pool
    stop : Stop or None
        Ends the waiting.
    more : callable
        Gives what is to be asked next; None if there is nothing now.
    width : callable
        Gives how many connections may be used now.
    """

    def __init__(
        self,
        pool: Pool,
        stop: Stop | None,
        *,
        more: Callable[[], Asked | None],
        width: Callable[[], int],
    ) -> None:
        self._pool, self._stop, self._more, self._width = pool, stop, more, width
        self._lanes: dict[int, _Slot] = {}  # by file descriptor
        self._came: deque[Came | None] = deque()
        self._woken = False
        self._busy = 0  # of them, that wait for an answer
        self._free: list[_Slot] = []
        self._backlog: deque[Asked] = deque()  # one for each connection that is being made
        self._lock = threading.Lock()
        self._dialled: deque[Connection | Exception] = deque()
        self._dialling = 0
        self._over = False
        self._poll = select.poll()
        try:
            self._ear, self._mouth = socket.socketpair()
        except OSError as error:
            raise StoreUnavailable(
                f"no connections can be watched ({os.strerror(error.errno or 0)})",
                remedy="Close files, or allow this process more of them (ulimit -n)",
            ) from error
        for end in (self._ear, self._mouth):
            end.setblocking(False)
        self._poll.register(self._ear, select.POLLIN)

    def answers(self) -> Generator[Came | None, None, None]:
        """Ask until there is nothing more and all answers are there, or until the work is to end.

        Gives what each was asked for, and either the head of the usual answer and its body, valid until the next is
        taken; or why it did not come, the error or the head of another answer than the usual, and None. Gives None
        where `wake` was called.
        """
        if self._stop is not None:
            self._stop.add(self._call)
        try:
            looked = time.monotonic()
            self._fill()
            while self._busy or self._backlog:
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
        lane = self._lanes.get(fd)
        if fd == self._ear.fileno():
            self._hear()
        elif lane is not None and lane.unsent and events == select.POLLOUT:
            self._go_on_sending(lane)
        elif lane is not None:
            self._read(lane)

    def _missed(self, asked: Asked, why: Head | NbdataError) -> None:
        self._came.append((asked.of, why, None))

    def wake(self) -> None:
        """Have `answers` look for more to ask, and give None; from any thread."""
        self._woken = True
        self._call()

    def _call(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake; or over
            self._mouth.send(b"x")

    def _close(self) -> None:
        with self._lock:
            self._over = True
            self._ear.close()
            self._mouth.close()
            unused = [made for made in self._dialled if isinstance(made, Connection)]
        for connection in unused:
            self._give_back(connection)
        for lane in self._lanes.values():
            if lane.asked is None:
                self._give_back(lane.connection)
            else:
                lane.connection.drop()

    def _give_back(self, connection: Connection) -> None:
        connection.sock.settimeout(self._pool.origin.stall)
        connection.release(keep=True)

    # -- connections ----------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give each connection something to do, and make more where there is more to do."""
        width = self._width()
        while self._busy < width:
            if self._free:
                wanted = self._backlog.popleft() if self._backlog else self._more()
                if wanted is None:
                    return
                self._ask(self._free.pop(), wanted)
                continue
            if self._busy + self._dialling >= width or self._dialling >= _DIALS:
                return
            if len(self._backlog) <= self._dialling:
                wanted = self._more()
                if wanted is None:
                    return
                self._backlog.append(wanted)
            kept = self._pool.kept()
            if kept is not None:
                self._add(kept, kept=True)
            else:
                self._dialling += 1
                if not begin(self._dial, name="dialler"):
                    if self._lanes or self._dialling > 1:  # those connections that there are do it
                        self._dialling -= 1
                        return
                    self._dial()

    def _dial(self) -> None:
        made: Connection | Exception
        try:
            made = self._pool.connect(self._stop)
        except Exception as error:
            made = error
        with self._lock:
            if not self._over:
                self._dialled.append(made)
                self._call()
                return
        if isinstance(made, Connection):
            self._give_back(made)

    def _hear(self) -> None:
        """Take the connections that were made."""
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(4096)
        if self._woken:
            self._woken = False
            self._came.append(None)
        while self._dialled:
            made = self._dialled.popleft()
            self._dialling -= 1
            if isinstance(made, Connection):
                self._add(made, kept=False)
            elif not isinstance(made, NbdataError):
                raise made
            elif self._backlog:
                self._missed(self._backlog.popleft(), made)

    def _add(self, connection: Connection, *, kept: bool) -> None:
        lane = _Slot(connection, kept=kept)
        self._lanes[lane.sock.fileno()] = lane
        self._poll.register(lane.sock, select.POLLIN)
        self._free.append(lane)

    def _drop(self, lane: _Slot) -> Asked | None:
        """Close a connection; gives what it was asked for."""
        fd = lane.sock.fileno()
        self._poll.unregister(fd)
        del self._lanes[fd]
        if lane.asked is None:
            self._free.remove(lane)
        else:
            self._busy -= 1
        lane.connection.drop()
        return lane.asked

    def _break(self, lane: _Slot, why: Exception) -> None:
        """It broke off."""
        asked = self._drop(lane)
        if asked is None:
            return
        closed = lane.may_be_closed and not lane.came and not isinstance(why, TimeoutError)
        if closed and not (self._stop is not None and self._stop.is_set()):
            self._backlog.append(asked)  # closed just before it was asked: no failure
        else:
            self._missed(asked, self._pool.lost(why))

    def _give_up_the_silent(self, now: float) -> None:
        """End what is dead: not what was only not looked at, since its user took his time or was paused."""
        late = [
            fd
            for fd, lane in self._lanes.items()
            if lane.asked is not None and now - lane.moved > self._pool.origin.stall
        ]
        if late:
            ready = dict(self._poll.poll(0))
            for fd in late:
                if not ready.get(fd, 0) & ~select.POLLOUT:
                    self._break(self._lanes[fd], TimeoutError())

    # -- one exchange -----------------------------------------------------------------------------

    def _ask(self, lane: _Slot, wanted: Asked) -> None:
        lane.asked, lane.head, lane.came, lane.moved = wanted, None, 0, time.monotonic()
        lane.beyond = False
        lane.unsent = memoryview(wanted.request)
        self._busy += 1
        self._send(lane)
        if lane.unsent:
            self._poll.modify(lane.sock, select.POLLIN | select.POLLOUT)

    def _send(self, lane: _Slot) -> None:
        try:
            while lane.unsent:
                lane.unsent = lane.unsent[lane.sock.send(lane.unsent) :]
                lane.moved = time.monotonic()
            return
        except _LATER:
            return
        except OSError as error:
            lane.unsent = memoryview(b"")
            why = error
        self._break(lane, why)

    def _go_on_sending(self, lane: _Slot) -> None:
        self._send(lane)
        if not lane.unsent and lane.sock.fileno() >= 0:
            self._poll.modify(lane.sock, select.POLLIN)

    def _read(self, lane: _Slot) -> None:
        """Take what came; when it is whole, ask for the next before it is used."""
        while True:
            room = lane.view[lane.came :] if lane.head is None else lane.body[lane.came :]
            try:
                count = lane.sock.recv_into(room)
                if not count or lane.asked is None:
                    raise Closed("the server closed the connection")
                lane.came += count
                lane.moved = time.monotonic()
                usual = lane.head is not None or self._begin(lane)
            except _LATER:
                return
            except (OSError, Closed) as error:
                self._break(lane, error)
                return
            if lane.head is not None:
                if not usual:
                    asked = self._drop(lane)
                    assert asked is not None
                    self._missed(asked, lane.head)
                    return
                if lane.came >= len(lane.body):
                    self._whole(lane)
                    return
            if count < len(room) and not lane.encrypted:
                return  # that was all for now

    def _begin(self, lane: _Slot) -> bool:
        """Read the head, if it is there: whether it is that of a usual answer, whose body is taken here.

        Others may come before it (1xx), which tell nothing.
        """
        while True:
            end = lane.buffer.find(b"\r\n\r\n", 0, lane.came)
            if end < 0:
                if lane.came == len(lane.view):
                    raise Closed("the head of the answer is too long")
                return False
            head = parse_head(bytes(lane.view[:end]))
            if head.status >= 200:
                break
            rest = bytes(lane.view[end + 4 : lane.came])
            lane.view[: len(rest)] = rest
            lane.came = len(rest)
        self._pool.reached = True
        asked, length, begun = lane.asked, length_of(head.headers), end + 4
        assert asked is not None
        lane.head = head
        if (
            head.status not in asked.usual
            or "transfer-encoding" in head.headers
            or not 0 <= length <= asked.most
        ):
            return False
        came = min(lane.came - begun, length)
        lane.beyond = lane.came - begun > length
        if asked.into is not None:
            if length != len(asked.into):
                return False
            lane.body = asked.into
            lane.body[:came] = lane.view[begun : begun + came]
        elif begun + length <= len(lane.view):
            lane.body = lane.view[begun : begun + length]
        else:
            first, lane.buffer = lane.view[begun : begun + came], bytearray(max(length, len(lane.view)))
            lane.view = memoryview(lane.buffer)
            lane.view[:came] = first
            lane.body = lane.view[:length]
        lane.came = came
        return True

    def _whole(self, lane: _Slot) -> None:
        asked, head, body = lane.asked, lane.head, lane.body
        assert asked is not None
        assert head is not None
        self._came.append((asked.of, head, body))
        if head.keeps and not lane.beyond and not lane.unsent:
            lane.asked, lane.may_be_closed = None, True
            self._busy -= 1
            self._free.append(lane)
            self._fill()  # the next answer does not come into the buffer before this body was used
        else:
            self._drop(lane)
