"""The HTTP client against servers that misbehave."""

from __future__ import annotations

import array
import contextlib
import fcntl
import io
import os
import select
import socket
import termios
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from nbdata.errors import Cancelled, NbdataError, SourceChanged, StoreUnavailable
from nbdata.stores.filling import fill
from nbdata.stores.http import client, pools
from nbdata.stores.http.client import INFORMATIONAL, Origin, Pool
from tests.ports import free_port
from tests.slow import take
from tests.stores.servers import Handler, answering, ok, read_body, read_head, serving
from tests.waiting import AT_ONCE, PATIENCE, wait_until

MIB = 1 << 20


class Stop:
    """A stop signal with the interface of the engine's task."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._aborts: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        return self._set.is_set()

    def add(self, abort: Callable[[], None]) -> None:
        self._aborts.append(abort)
        if self._set.is_set():
            abort()

    def remove(self, abort: Callable[[], None]) -> None:
        self._aborts.remove(abort)

    def stop(self) -> None:
        self._set.set()
        for abort in list(self._aborts):
            abort()


def pool_at(port: int, *, stall: float = 10 * PATIENCE) -> Pool:
    return Pool(Origin("http", "127.0.0.1", port, stall=stall))


def get(pool: Pool, *, method: str = "GET", **options: object) -> bytes:
    return pool.request(method, "/x", {"host": "h"}, **options).read()  # type: ignore[arg-type]


def has_come(sock: socket.socket, size: int = 0) -> bool:
    """True if the kernel has received more than `size` bytes that were not read yet, or the end of the connection."""
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLRDHUP)
    events = dict(poll.poll(0)).get(sock.fileno(), 0)
    waiting = array.array("i", [0])
    fcntl.ioctl(sock, termios.FIONREAD, waiting)
    return bool(events & select.POLLRDHUP) or waiting[0] > size


def put(pool: Pool, data: bytes) -> client.Response:
    return pool.request("PUT", "/x", {"host": "h"}, fill(io.BytesIO(data), len(data), "x"), size=len(data))


def counting(handle: Handler, seen: list[int]) -> Handler:
    def counted(connection: socket.socket) -> None:
        seen.append(1)
        handle(connection)

    return counted


def test_a_connection_is_kept_and_used_again() -> None:
    seen: list[int] = []
    with serving(counting(answering(*[ok(b"hello")] * 5), seen)) as port:
        pool = pool_at(port)
        assert [get(pool) for _ in range(5)] == [b"hello"] * 5
    assert len(seen) == 1


def test_a_kept_connection_that_the_server_closed_is_no_failure() -> None:
    seen: list[int] = []
    with serving(counting(answering(ok(b"hello")), seen)) as port:
        pool = pool_at(port)
        assert get(pool) == b"hello"
        wait_until(lambda: has_come(pool._idle[0].sock))
        assert get(pool) == b"hello"
    assert len(seen) == 2


def test_a_connection_that_closes_just_when_it_is_used_again_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The close may come after the check of the connection and before the request."""
    monkeypatch.setattr(client.Connection, "usable", lambda self: True)
    with serving(answering(ok(b"hello"))) as port:
        pool = pool_at(port)
        assert get(pool) == b"hello"
        wait_until(lambda: has_come(pool._idle[0].sock))
        assert get(pool) == b"hello"


def test_a_connection_that_is_to_be_closed_is_not_used_again() -> None:
    seen: list[int] = []
    answers = [ok(b"a", "Connection: close"), ok(b"wrong")]
    with serving(counting(answering(*answers), seen)) as port:
        pool = pool_at(port)
        assert [get(pool), get(pool)] == [b"a", b"a"]
    assert len(seen) == 2


def test_the_connections_of_a_pool_that_nobody_uses_any_more_are_closed() -> None:
    ended = threading.Event()

    def handle(connection: socket.socket) -> None:
        answering(ok(b"hello"))(connection)
        assert not read_head(connection)
        ended.set()

    with serving(handle) as port:
        pool = pool_at(port)
        assert get(pool) == b"hello"
        assert not ended.is_set()
        del pool
        wait_until(ended.is_set)


def test_connections_of_old_credentials_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_KEEP_SECONDS", 0.0)
    ended = 0

    def handle(connection: socket.socket) -> None:
        nonlocal ended
        with contextlib.suppress(OSError):
            while read_head(connection):
                connection.sendall(ok(b"x"))
        ended += 1

    known = len(pools._pools)
    with serving(handle) as port:
        for number in range(10):  # as when keys are renewed each hour
            assert get(pools.pool_of(Origin("http", "127.0.0.1", port), f"key {number}")) == b"x"
        assert len(pools._pools) <= max(known, 1)
        wait_until(lambda: ended == 9)


def test_continue_and_early_hints_are_no_answers() -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 2000
    with serving(answering(hints + ok(b"hello"), ok(b"again"))) as port:
        pool = pool_at(port)
        assert [get(pool), get(pool)] == [b"hello", b"again"]


def test_a_body_in_chunks_with_trailers_is_whole_and_keeps_the_connection() -> None:
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n1;name=value\r\n \r\n00A\r\nand 10 odd\r\n0\r\nX-Checksum: abc\r\nX-Other: d\r\n\r\n"
    )
    seen: list[int] = []
    with serving(counting(answering(chunked, ok(b"again")), seen)) as port:
        pool = pool_at(port)
        response = pool.request("GET", "/x", {"host": "h"})
        assert response.length == -1
        assert response.read() == b"hello and 10 odd"
        assert get(pool) == b"again"
    assert len(seen) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\nhel",
        b"zz\r\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n", b"\r\n",
        b"5\r\nhellooo\r\n0\r\n\r\n", b"5\r\nhello\r\n", b"0\r\n" + b"A: b\r\n" * 10_000, b"5" * 5000,
    ],
)  # fmt: skip
@pytest.mark.in_ci("zz*", "5*hello*0*", "body8")
def test_a_body_in_broken_chunks_is_an_error_worth_another_try(body: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    with serving(answering(answer)) as port, pytest.raises(StoreUnavailable) as caught:
        get(pool_at(port))
    assert caught.value.details["retry"] is True
    assert "unreached" not in caught.value.details


def test_a_body_without_length_ends_with_the_connection() -> None:
    seen: list[int] = []
    with serving(counting(answering(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300_000), seen)) as port:
        pool = pool_at(port)
        assert get(pool) == b"x" * 300_000
        assert get(pool) == b"x" * 300_000
    assert len(seen) == 2


def test_a_truncated_body_is_an_error_worth_another_try() -> None:
    with serving(answering(ok(b"x" * 1000)[:-1])) as port, pytest.raises(StoreUnavailable) as caught:
        get(pool_at(port))
    assert caught.value.details == {"retry": True}


def test_a_head_over_64_kib_is_refused_and_one_just_below_is_not() -> None:
    long = b"HTTP/1.1 200 OK\r\nX: " + b"x" * (66 << 10) + b"\r\nContent-Length: 0\r\n\r\n"
    with serving(answering(long)) as port, pytest.raises(StoreUnavailable, match="too long"):
        get(pool_at(port))
    with serving(answering(ok(b"fine", "X: " + "x" * (63 << 10)))) as port:
        assert get(pool_at(port)) == b"fine"


def test_an_answer_that_dribbles_byte_by_byte_is_read() -> None:
    def dribble(connection: socket.socket) -> None:
        read_head(connection)
        for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n":
            connection.sendall(bytes([byte]))
            take(0.001)

    with serving(dribble) as port:
        assert get(pool_at(port)) == b"hello"


@pytest.mark.parametrize(
    "garbage",
    [
        b"", b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 \xb2\xb2\xb2\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n", b"HTTP/1.1 099 No\r\n\r\n",
        os.urandom(100_000).replace(b"\n", b"x"), b"HTTP/1.1 200 OK\r\nContent-Le",
    ],
)  # fmt: skip
def test_what_is_no_http_is_an_error(garbage: bytes) -> None:
    with serving(answering(garbage)) as port, pytest.raises(StoreUnavailable) as caught:
        get(pool_at(port))
    assert caught.value.details == {"retry": True, "unreached": True}


@pytest.mark.parametrize("length", ["abc", "-1", "²", "+5", "5_0", " "])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    assert "is no number of bytes" in refused(f"Content-Length: {length}")


def refused(*headers: str) -> str:
    """Return the error of a response with these headers, which names the server and is not worth another try."""
    answer = "\r\n".join(["HTTP/1.1 200 OK", *headers, "", "hello"]).encode("latin-1")
    with serving(answering(answer)) as port:
        pool = pool_at(port)
        with pytest.raises(
            StoreUnavailable, match=f"the answer of http://127.0.0.1:{port} cannot be"
        ) as caught:
            get(pool)
        assert not caught.value.details
        assert pool.kept() is None, "what follows may be a part of this response"
    return str(caught.value)


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("content-length: 6", "Content-Type: x", "Content-Length: 5"),
        ("Content-Length: 5, 6",),
        ("Content-Length: 5", "Content-Length: 5, 6"),
    ],
)
def test_two_different_lengths_are_refused(headers: tuple[str, ...]) -> None:
    assert "it gives its body different lengths: 5, 6" in refused(*headers)


@pytest.mark.parametrize("headers", [("Content-Length: 5", "Content-Length: 5"), ("Content-Length: 5, 5",)])
def test_the_same_length_twice_is_accepted(headers: tuple[str, ...]) -> None:
    head = "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode()
    with serving(answering(head + b"hello", ok(b"again"))) as port:
        pool = pool_at(port)
        assert [get(pool), get(pool)] == [b"hello", b"again"]


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (("Content-Length: 5", "Transfer-Encoding: chunked"), "both a length and chunks"),
        (("Transfer-Encoding: gzip, chunked",), "'gzip, chunked' is unknown"),
        (("Transfer-Encoding: xchunked",), "'xchunked' is unknown"),
        (("Content-Length: " + "9" * 5000,), "is no number of bytes"),
        (("Content-Type: a\nContent-Length: 5",), "a line break or a NUL"),
        (("Content-Type: a\rb",), "a line break or a NUL"),
        (("Content-Type: a\0b",), "a line break or a NUL"),
    ],
)
def test_a_head_that_does_not_tell_the_end_of_its_body_is_refused(headers: tuple[str, ...], why: str) -> None:
    assert why in refused(*headers)


def test_the_transfer_encoding_identity_is_none() -> None:
    with serving(answering(ok(b"hello", "Transfer-Encoding: identity"))) as port:
        assert get(pool_at(port)) == b"hello"


def test_informational_heads_without_end_are_refused() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\n\r\n" * INFORMATIONAL
    with (
        serving(answering(hints + ok(b"hello"))) as port,
        pytest.raises(StoreUnavailable, match="without end"),
    ):
        get(pool_at(port))


@pytest.mark.parametrize("status", ["403 Forbidden", "413 Too Large"])
@pytest.mark.parametrize("length", ["Content-Length: 6\r\n", ""])
def test_an_upload_that_is_refused_before_it_was_read_says_why(status: str, length: str) -> None:
    seen: list[int] = []

    def refuse(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(f"HTTP/1.1 {status}\r\n{length}\r\nreason".encode())
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1000)

    with serving(counting(refuse, seen)) as port:
        pool = pool_at(port)
        for _ in range(2):
            response = put(pool, b"x" * 30 * MIB)
            assert response.status == int(status[:3])
            assert response.read() == b"reason"
    assert len(seen) == 2  # a connection with half a request is not used again


def test_a_connection_that_was_answered_in_the_middle_of_an_upload_is_not_kept() -> None:
    done = threading.Event()
    seen: list[int] = []

    def answer_and_wait(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nreason")
        done.wait(PATIENCE)

    with serving(counting(answer_and_wait, seen)) as port:
        pool = pool_at(port, stall=0.3)
        assert put(pool, b"x" * 30 * MIB).read() == b"reason"
        assert put(pool, b"x" * 30 * MIB).read() == b"reason"
        done.set()
    assert len(seen) == 2


def test_a_source_that_fails_is_not_taken_for_a_broken_connection() -> None:
    class Broken:
        def readinto(self, buffer: memoryview) -> int:
            raise OSError(5, "Input/output error")

    with serving(answering(ok(b""))) as port:
        pool = pool_at(port)
        with pytest.raises(NbdataError, match="source cannot be read"):
            pool.request("PUT", "/x", {"host": "h"}, fill(Broken(), 10, "x"), size=10)
        with pytest.raises(SourceChanged):
            pool.request("PUT", "/x", {"host": "h"}, fill(io.BytesIO(b"12345"), 10, "x"), size=10)


def test_the_body_arrives_as_it_was_sent() -> None:
    got: list[bytes] = []

    def keep(connection: socket.socket) -> None:
        while head := read_head(connection):
            got.append(read_body(connection, head))
            connection.sendall(ok(b""))

    bodies = [b"", b"x", os.urandom(70_000), os.urandom(3 * MIB + 1)]
    with serving(keep) as port:
        pool = pool_at(port)
        for body in bodies:
            put(pool, body).read()
    assert got == bodies


# -- stops ----------------------------------------------------------------------------------------


def stopped_after(stop: Stop, seconds: float = 0.2) -> None:
    threading.Timer(seconds, stop.stop).start()


@pytest.mark.parametrize("sent", [b"", ok(b"x" * 1000)[:-500], b"HTTP/1.1 200 OK\r\n\r\nabc"])
def test_a_stop_ends_a_blocked_read_at_once(sent: bytes) -> None:
    ended = threading.Event()

    def hang(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(sent)
        ended.wait(PATIENCE)

    stop = Stop()
    with serving(hang) as port:
        pool = pool_at(port)
        stopped_after(stop)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):  # a truncated body without a length must not seem complete
            get(pool, stop=stop)
        assert time.monotonic() - began < AT_ONCE
        ended.set()
    assert stop._aborts == []


def test_a_stop_ends_a_connect_at_once() -> None:
    with socket.socket() as full:  # a server with a full queue does not answer connect
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        stop = Stop()
        stopped_after(stop)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            get(pool_at(port), stop=stop)
        assert time.monotonic() - began < AT_ONCE
        for sock in waiting:
            sock.close()
    assert stop._aborts == []


def test_a_stop_does_not_wait_for_a_name_to_be_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    resolve = socket.getaddrinfo

    def silent(host: str, *args: Any, **options: Any) -> Any:
        if not options.get("flags"):
            answered.wait(10 * PATIENCE)
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    stop = Stop()
    stopped_after(stop)
    began = time.monotonic()
    with pytest.raises(Cancelled):
        get(Pool(Origin("http", "localhost", 1)), stop=stop)
    answered.set()
    assert time.monotonic() - began < AT_ONCE
    assert stop._aborts == []


def test_a_stop_before_the_request_ends_it_at_once() -> None:
    stop = Stop()
    stop.stop()
    with serving(answering(ok(b"x"))) as port, pytest.raises(StoreUnavailable):
        get(pool_at(port), stop=stop)


def test_a_server_that_says_nothing_is_given_up() -> None:
    ended = threading.Event()

    def hang(connection: socket.socket) -> None:
        ended.wait(PATIENCE)

    with serving(hang) as port, pytest.raises(StoreUnavailable, match="too long") as caught:
        get(pool_at(port, stall=0.2))
    ended.set()
    assert caught.value.details == {"retry": True, "unreached": True, "silent": True}


def test_a_server_that_falls_silent_in_a_body_is_given_up() -> None:
    ended = threading.Event()

    def half(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(ok(b"x" * 100)[:-50])
        ended.wait(PATIENCE)

    with serving(half) as port, pytest.raises(StoreUnavailable, match="too long") as caught:
        get(pool_at(port, stall=0.2))
    ended.set()
    assert caught.value.details == {"retry": True, "silent": True}


def test_a_server_that_takes_no_more_of_an_upload_is_given_up() -> None:
    ended = threading.Event()

    def deaf(connection: socket.socket) -> None:
        read_head(connection)
        ended.wait(PATIENCE)

    with serving(deaf) as port, pytest.raises(StoreUnavailable, match="too long") as caught:
        put(pool_at(port, stall=0.2), bytes(64 * MIB))
    ended.set()
    assert caught.value.details["retry"] is True


@pytest.mark.long
def test_a_server_that_takes_an_upload_slowly_is_waited_for() -> None:
    """The upload takes longer than the silence limit, but the server is never silent for that long."""
    size = 16 * MIB

    def slow(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        read_head(connection)
        block, got, began = memoryview(bytearray(64 << 10)), 0, time.monotonic()
        while got < size:
            got += connection.recv_into(block[: size - got])
            take(max(0.0, began + got / 2e6 - time.monotonic()))
        connection.sendall(ok(b"got it"))

    with serving(slow) as port:
        began = time.monotonic()
        assert get(pool_at(port, stall=6), method="PUT", body=bytes(size)) == b"got it"
        assert time.monotonic() - began > 6


def test_silence_on_a_kept_connection_is_not_taken_for_a_close_and_asked_again() -> None:
    """The request may just be executed, as when a store assembles an upload."""
    asked: list[bytes] = []
    ended = threading.Event()

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            if b"/slow" in head:
                asked.append(head)
                ended.wait(PATIENCE)
                return
            connection.sendall(ok(b"hello"))

    with serving(handle) as port:
        pool = pool_at(port, stall=0.2)
        several = [pool.request("GET", "/", {"host": "x"}) for _ in range(3)]
        assert [response.read() for response in several] == [b"hello"] * 3
        with pytest.raises(StoreUnavailable, match="too long"):
            pool.request("POST", "/slow", {"host": "x"}, b"")
        ended.set()
    assert len(asked) == 1


# -- after a fork ---------------------------------------------------------------------------------


def in_child(work: Callable[[], bool]) -> bool:
    """Return the result of `work` in a forked child."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    ended = list[int]()

    def over() -> bool:
        done, status = os.waitpid(pid, os.WNOHANG)
        ended.extend([status] if done else [])
        return bool(done)

    def end_it() -> str:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return "the child hangs"

    wait_until(over, why=end_it)
    return os.waitstatus_to_exitcode(ended[0]) == 0


def test_a_child_of_a_fork_uses_connections_of_its_own() -> None:
    seen: list[int] = []
    with serving(counting(answering(*[ok(b"hello")] * 50), seen)) as port:
        pool = pool_at(port)
        assert get(pool) == b"hello"
        assert in_child(lambda: get(pool) == b"hello" and get(pool) == b"hello")
        assert get(pool) == b"hello"
    assert len(seen) == 2


def test_a_child_of_a_fork_does_not_wait_for_a_lock_that_a_thread_held() -> None:
    with serving(answering(*[ok(b"hello")] * 5)) as port:
        pool = pool_at(port)
        with pool._lock:
            assert in_child(lambda: get(pool) == b"hello")


# -- proxies --------------------------------------------------------------------------------------


def test_a_plain_proxy_gets_the_whole_url_and_its_password() -> None:
    heads: list[bytes] = []

    def proxy(connection: socket.socket) -> None:
        heads.append(read_head(connection))
        connection.sendall(ok(b"by proxy"))

    with serving(proxy) as port:
        origin = Origin("http", "store.example", 9000, proxy=f"http://me:pass%20word@127.0.0.1:{port}")
        assert get(Pool(origin)) == b"by proxy"
        assert "pass" not in repr(origin)
    assert heads[0].startswith(b"GET http://store.example:9000/x HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6cGFzcyB3b3Jk\r\n" in heads[0]


def test_nothing_listens_where_the_proxy_should_be_and_no_password_is_told() -> None:
    port = free_port()
    with pytest.raises(StoreUnavailable) as caught:
        get(Pool(Origin("http", "store.example", 80, proxy=f"http://me:passw0rd@127.0.0.1:{port}")))
    assert "passw0rd" not in f"{caught.value} {caught.value.to_dict()} {caught.value.__cause__!r}"


def test_a_stop_that_comes_late_does_not_end_what_another_job_has_on_the_connection_by_then() -> None:
    asked_again, came_late = threading.Event(), threading.Event()

    def handle(connection: socket.socket) -> None:
        read_body(connection, read_head(connection))
        connection.sendall(ok(b"hello"))
        read_body(connection, read_head(connection))
        asked_again.set()
        came_late.wait(PATIENCE)
        connection.sendall(ok(b"hello"))

    def come_late() -> None:
        asked_again.wait(PATIENCE)
        for abort in aborts:
            abort()
        came_late.set()

    aborts: list[Callable[[], None]] = []

    class Late(Stop):
        """Its list of abort functions is copied just before the connection is returned to the pool."""

        def add(self, abort: Callable[[], None]) -> None:
            super().add(abort)
            aborts[:] = [abort]  # the request's function; the previous one belonged to connect

    with serving(handle) as port:
        pool, first = pool_at(port), Late()
        assert get(pool, stop=first) == b"hello"
        threading.Thread(target=come_late).start()
        body = fill(io.BytesIO(b"data"), 4, "x")  # this body cannot be sent again
        assert pool.request("PUT", "/x", {"host": "h"}, body, size=4, stop=Stop()).read() == b"hello"
