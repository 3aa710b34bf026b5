"""The multiplexer reads many small responses with one thread, from servers that misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from nbdata.errors import NbdataError, StoreUnavailable
from nbdata.stores.http import multiplexer
from nbdata.stores.http.client import INFORMATIONAL, Origin, Pool
from nbdata.stores.http.heads import Head, request_head
from nbdata.stores.http.multiplexer import Asked, Multiplexer, _Slot
from tests.slow import take
from tests.stores.http.test_client import Stop, has_come
from tests.stores.servers import Handler, answering, ok, read_head, serving
from tests.waiting import AT_ONCE, PATIENCE, wait_until

MOST = 256 << 10


@dataclass
class Asking:
    """Requests numbered objects, and records each result."""

    port: int
    width: int = 4
    stall: float = 30.0
    stop: Stop | None = None
    came: dict[int, bytes] = field(default_factory=dict)
    missed: dict[int, NbdataError | Head] = field(default_factory=dict)
    use: Callable[[int], None] = lambda _: None
    into: Callable[[int], memoryview | None] = lambda _: None

    def __post_init__(self) -> None:
        self.pool = Pool(Origin("http", "127.0.0.1", self.port, stall=self.stall))

    def waiting(self) -> list[_Slot]:
        """Return the connections that wait for a response."""
        return [slot for slot in self._lanes._slots.values() if slot.asked is not None]

    def ask(self, count: int) -> None:
        """Request this many objects."""
        left = deque(range(count))

        def more() -> Asked | None:
            if not left:
                return None
            number = left.popleft()
            request = request_head(self.pool.origin, "GET", f"/{number}", {"host": "h"})
            return Asked(number, request, (200,), MOST, self.into(number))

        self._lanes = Multiplexer(self.pool, self.stop, more=more, width=lambda: self.width)
        with contextlib.closing(self._lanes.answers()) as answers:
            for came in answers:
                assert came is not None
                number, head, body = came
                if body is None:
                    self.missed[number] = head
                    continue
                assert isinstance(head, Head)
                assert head.status == 200
                self.came[number] = bytes(body)
                self.use(number)


def telling(size: int = 0, times: int = 1_000_000, slowly: bool = False) -> Handler:
    """Return a server that responds with the requested number in `size` bytes, at most `times` times per connection."""

    def handle(connection: socket.socket) -> None:
        for _ in range(times):
            head = read_head(connection)
            if not head:
                return
            number = head.split(b" ", 2)[1][1:]
            answer = ok(number.rjust(size, b"."))
            for piece in [answer[at : at + 7] for at in range(0, len(answer), 7)] if slowly else [answer]:
                connection.sendall(piece)
                if slowly:
                    take(0.001)

    return handle


def counted(handle: Handler, seen: list[int]) -> Handler:
    def counting(connection: socket.socket) -> None:
        seen.append(1)
        handle(connection)

    return counting


def right(asking: Asking, count: int, size: int = 0) -> bool:
    return asking.came == {n: str(n).encode().rjust(size, b".") for n in range(count)} and not asking.missed


def test_each_gets_what_it_asked_for_over_no_more_connections_than_allowed() -> None:
    seen: list[int] = []
    with serving(counted(telling(), seen)) as port:
        asking = Asking(port, width=4)
        asking.ask(500)
        assert right(asking, 500)
        assert 1 <= len(seen) <= 4
        asking.ask(500)  # over the same connections
        assert len(seen) <= 4


def test_few_objects_make_few_connections() -> None:
    seen: list[int] = []
    with serving(counted(telling(), seen)) as port:
        asking = Asking(port, width=16)
        asking.ask(2)
        assert right(asking, 2)
    assert len(seen) <= 2


def test_bodies_that_come_in_pieces_and_large_ones_are_whole() -> None:
    with serving(telling(100, slowly=True)) as port:
        asking = Asking(port)
        asking.ask(8)
        assert right(asking, 8, 100)
    with serving(telling(MOST)) as port:
        asking = Asking(port)
        asking.ask(12)
        assert right(asking, 12, MOST)


def test_bodies_come_right_into_the_buffers_of_who_wants_them() -> None:
    buffers = [bytearray(MOST) for _ in range(12)]
    with serving(telling(MOST)) as port:
        asking = Asking(port, into=lambda number: lambda: memoryview(buffers[number]))
        asking.ask(12)
        assert right(asking, 12, MOST)
    assert [int(buffer.lstrip(b".")) for buffer in buffers] == list(range(12))
    with serving(telling(5)) as port:  # the body is shorter
        asking = Asking(port, into=lambda _: lambda: memoryview(bytearray(4)))
        asking.ask(3)
    assert not asking.came
    assert len(asking.missed) == 3


def test_a_server_that_closes_after_each_few_answers_is_no_failure() -> None:
    with serving(telling(times=3)) as port:
        asking = Asking(port)
        asking.ask(60)
        assert right(asking, 60)


@pytest.mark.parametrize("unasked", [b"", ok(b"unasked")])
def test_what_a_server_does_to_a_free_connection_is_no_failure(unasked: bytes) -> None:
    """The server closes it, or sends an unrequested response, while another connection waits for its response."""
    second_came, closed = threading.Event(), threading.Event()

    def handle(connection: socket.socket) -> None:
        number = read_head(connection).split(b" ", 2)[1][1:]
        if number == b"1":
            second_came.set()
            assert closed.wait(PATIENCE)
            connection.sendall(ok(number))
            return
        assert second_came.wait(PATIENCE)  # else the second request might use the free connection
        connection.sendall(ok(number))
        assert first_came.wait(PATIENCE)
        connection.sendall(unasked)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # wait until the client closes too
        closed.set()

    first_came = threading.Event()
    with serving(handle) as port:
        asking = Asking(port, width=2, use=lambda _: first_came.set())
        asking.ask(2)
        assert right(asking, 2)


def test_a_connection_that_is_to_be_closed_is_not_used_again() -> None:
    with serving(answering(ok(b"a", "Connection: close"), ok(b"wrong"))) as port:
        asking = Asking(port, width=1)
        asking.ask(5)
    assert asking.came == dict.fromkeys(range(5), b"a")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 Slow Down\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 206 Partial\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MOST + 1),
    ],
)
def test_unusual_responses_are_left_to_another_reader(answer: bytes) -> None:
    with serving(answering(answer)) as port:
        asking = Asking(port)
        asking.ask(3)
    assert not asking.came
    assert [type(why) for _, why in sorted(asking.missed.items())] == [Head] * 3


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000,
    ],
)
def test_what_breaks_off_is_worth_another_try(answer: bytes) -> None:
    with serving(answering(answer)) as port:
        asking = Asking(port)
        asking.ask(3)
    assert not asking.came
    for why in asking.missed.values():
        assert isinstance(why, StoreUnavailable)
        assert why.details["retry"]
    assert len(asking.missed) == 3


def test_a_server_that_says_nothing_is_given_up() -> None:
    silent = threading.Event()

    def handle(connection: socket.socket) -> None:
        read_head(connection)
        silent.wait(PATIENCE)

    with serving(handle) as port:
        asking = Asking(port, stall=0.5)
        asking.ask(2)
        silent.set()
    for why in asking.missed.values():
        assert isinstance(why, StoreUnavailable)
        assert why.details["silent"]
    assert len(asking.missed) == 2


class Clock:
    """The clock of the multiplexer, which a test can move."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def test_responses_that_arrived_while_the_thread_was_busy_do_not_count_as_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(multiplexer, "time", clock)
    with serving(telling()) as port:
        asking = Asking(port, width=3)

        def use(number: int) -> None:
            if number < 1:
                wait_until(lambda: all(has_come(slot.sock) for slot in asking.waiting()))
                clock.ahead += asking.stall + 1

        asking.use = use
        asking.ask(6)
        assert right(asking, 6)


def test_if_no_server_listens_each_request_fails() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        asking = Asking(taken.getsockname()[1])
        asking.ask(3)
    assert len(asking.missed) == 3
    for why in asking.missed.values():
        assert isinstance(why, StoreUnavailable)
        assert why.details["unreached"]


def test_a_stop_ends_it_at_once() -> None:
    over, stop = threading.Event(), Stop()

    def handle(connection: socket.socket) -> None:
        read_head(connection)
        over.wait(PATIENCE)

    with serving(handle) as port:
        asking = Asking(port, stop=stop)
        threading.Timer(0.3, stop.stop).start()
        began = time.monotonic()
        asking.ask(100)
        over.set()
    assert time.monotonic() - began < AT_ONCE
    assert not asking.came
    assert not asking.missed


def test_continue_and_early_hints_are_no_answers() -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 20
    with serving(answering(hints + ok(b"a"), ok(b"a"))) as port:
        asking = Asking(port, width=1)
        asking.ask(2)
    assert asking.came == {0: b"a", 1: b"a"}


@pytest.mark.parametrize("kind", [KeyError, PermissionError])
def test_an_error_of_the_caller_ends_it_and_leaves_no_connection_in_use(kind: type[Exception]) -> None:
    """An OSError of the disk, for example, is not an error of the connection."""

    def use(number: int) -> None:
        if number >= 5:
            raise kind(number)

    with serving(telling()) as port:
        asking = Asking(port, use=use)
        with pytest.raises(kind):
            asking.ask(50)
        assert not asking.missed
        asking.use = lambda _: None
        asking.came.clear()
        asking.ask(50)  # earlier responses do not count as new ones
        assert right(asking, 50)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ok(b"hello", "Content-Length: 6"), "different lengths: 5, 6"),
        (ok(b"hello", "Transfer-Encoding: chunked"), "both a length and chunks"),
        (b"HTTP/1.1 103 Hints\r\n\r\n" * INFORMATIONAL, "informational heads without end"),
    ],
)
def test_a_response_without_a_certain_end_is_refused(answer: bytes, why: str) -> None:
    with serving(answering(answer)) as port:
        asking = Asking(port, width=1)
        asking.ask(1)
    error = asking.missed[0]
    assert isinstance(error, StoreUnavailable)
    assert f"the answer of http://127.0.0.1:{port} cannot be trusted" in str(error)
    assert why in str(error)
    assert not error.details
