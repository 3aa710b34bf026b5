"""TLS: trusted certificates, errors for untrusted ones, tunnels through a proxy, and stops."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from nbdata.errors import AccessDenied, BadOption, StoreUnavailable
from nbdata.stores.http import records
from nbdata.stores.http.client import Origin, Pool
from nbdata.stores.http.dial import stall_limit
from tests.stores.certificates import self_signed
from tests.stores.http.test_client import Stop, get, has_come, in_child
from tests.stores.servers import answering, ok, read_head, serving
from tests.waiting import AT_ONCE, PATIENCE, wait_until


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    return self_signed(tmp_path_factory.mktemp("tls") / "cert.pem")


@pytest.fixture(scope="module")
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def https(port: int, *, ca: object = "", verify: bool = True, proxy: str = "") -> Pool:
    return Pool(Origin("https", "127.0.0.1", port, proxy, str(ca), verify))


def test_a_server_whose_certificate_is_given_is_trusted(tls: ssl.SSLContext, certificate: Path) -> None:
    data = os.urandom(3_000_000)
    with serving(answering(ok(data), ok(b"again")), tls=tls) as port:
        pool = https(port, ca=certificate)
        assert [get(pool), get(pool)] == [data, b"again"]


def test_an_untrusted_server_is_not_retried_and_the_error_gives_advice(
    tls: ssl.SSLContext,
) -> None:
    with serving(answering(ok(b"x")), tls=tls) as port, pytest.raises(StoreUnavailable) as caught:
        get(https(port))
    assert "trusted" in caught.value.message
    assert "AWS_CA_BUNDLE" in str(caught.value.remedy)
    assert "retry" not in caught.value.details


def test_a_certificate_of_another_host_is_not_trusted(tls: ssl.SSLContext, certificate: Path) -> None:
    with serving(answering(ok(b"x")), tls=tls) as port, pytest.raises(StoreUnavailable) as caught:
        get(Pool(Origin("https", "localhost", port, "", str(certificate))))
    assert "retry" not in caught.value.details


def test_no_certificate_is_checked_when_that_was_asked_for(tls: ssl.SSLContext) -> None:
    with serving(answering(ok(b"x")), tls=tls) as port:
        assert get(https(port, verify=False)) == b"x"


def test_a_file_of_certificates_that_is_not_there_is_named(tls: ssl.SSLContext, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("no certificate")
    with serving(answering(ok(b"x")), tls=tls) as port:
        for file in ("missing.pem", "empty.pem"):
            with pytest.raises(BadOption, match="certificates") as caught:
                get(https(port, ca=tmp_path / file))
            assert caught.value.path == str(tmp_path / file)


def test_a_server_that_speaks_no_tls_is_an_error() -> None:
    with (
        serving(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port,
        pytest.raises(StoreUnavailable),
    ):
        get(https(port))


def test_a_tunnel_through_a_proxy(tls: ssl.SSLContext, certificate: Path) -> None:
    heads: list[bytes] = []
    with serving(answering(ok(b"through"), ok(b"again")), tls=tls) as port:

        def proxy(connection: socket.socket) -> None:
            heads.append(read_head(connection))
            connection.sendall(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
            with socket.create_connection(("127.0.0.1", port)) as behind:
                there = threading.Thread(target=_queue, args=(connection, behind), daemon=True)
                there.start()
                _queue(behind, connection)

        with serving(proxy) as proxy_port:
            pool = https(port, ca=certificate, proxy=f"http://me:secret@127.0.0.1:{proxy_port}")
            assert [get(pool), get(pool)] == [b"through", b"again"]
    assert heads == [
        f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n".encode()
    ]


def _queue(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", b"", b"HTTP/1.1 404 200\r\n\r\n"]
)
def test_a_proxy_that_refuses_is_named(answer: bytes) -> None:
    wanted = AccessDenied if b"407" in answer else StoreUnavailable
    with serving(answering(answer)) as port, pytest.raises(wanted, match="proxy"):
        get(https(1, proxy=f"http://127.0.0.1:{port}"))


def test_after_a_stop_no_ciphertext_is_taken_for_the_body(tls: ssl.SSLContext, certificate: Path) -> None:
    """The kernel's received bytes can still be read after a stop, but they must be decrypted, or the read must fail."""
    with serving(answering(ok(b"\0" * 30_000_000)), tls=tls) as port:
        stop = Stop()
        response = https(port, ca=certificate).request("GET", "/", {"host": "h"}, stop=stop)
        view = memoryview(bytearray(1 << 14))
        assert response.readinto(view) > 0
        wait_until(lambda: has_come(response._connection.sock, 100_000))
        stop.stop()

        def read_on() -> None:
            while count := response.readinto(view):
                assert not any(view[:count])

        with pytest.raises(StoreUnavailable):
            read_on()


def test_a_stop_ends_a_handshake_at_once() -> None:
    ended = threading.Event()
    with serving(lambda connection: ended.wait(PATIENCE) and None) as port:
        stop = Stop()
        threading.Timer(0.2, stop.stop).start()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            get(https(port), stop=stop)
        assert time.monotonic() - began < AT_ONCE
        ended.set()


def test_what_has_come_is_given_at_once_and_not_record_by_record(
    tls: ssl.SSLContext, certificate: Path
) -> None:
    data, view, sent = os.urandom(100_000), memoryview(bytearray(1 << 20)), threading.Event()

    def handle(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(ok(data))
        sent.set()
        connection.recv(1)

    with serving(handle, tls=tls) as port:
        response = https(port, ca=certificate).request("GET", "/", {"host": "h"})
        first = response.readinto(view)
        assert sent.wait(PATIENCE)
        wait_until(lambda: has_come(response._connection.sock, len(data) - first))  # it is all in the kernel
        assert response.readinto(view[first:]) == len(data) - first > 5 * (16 << 10)
        assert view[: len(data)] == data


@pytest.mark.parametrize("how", ["closed", "garbage"])
def test_a_body_that_breaks_off_gives_what_came_and_then_the_error(
    tls: ssl.SSLContext, certificate: Path, how: str
) -> None:
    def handle(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(ok(b"x" * 100_000)[:-30_000])
        if how == "garbage":  # an unencrypted record, sent past the socket's TLS
            socket.socket.sendall(connection, b"\x17\x03\x03\x00\x40" + b"?" * 64)
            connection.recv(1)

    with serving(handle, tls=tls) as port:
        response = https(port, ca=certificate).request("GET", "/", {"host": "h"})
        wait_until(lambda: has_come(response._connection.sock, 50_000))
        came = list[int]()

        def read_on() -> None:
            view = memoryview(bytearray(1 << 20))
            while count := response.readinto(view):
                came.append(count)

        with pytest.raises(StoreUnavailable) as caught:
            read_on()
        assert sum(came) == 70_000
        assert caught.value.details["retry"]


def test_silent_connections_block_no_others(tls: ssl.SSLContext, certificate: Path) -> None:
    silence, asked = threading.Event(), list[int]()

    def silent(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(ok(b"x" * 10)[:-5])
        asked.append(1)
        silence.wait(PATIENCE)

    def wait(port: int) -> None:
        response = Pool(
            Origin("https", "127.0.0.1", port, "", str(certificate), stall=10 * PATIENCE)
        ).request("GET", "/", {"host": "h"})
        try:
            while response.readinto(memoryview(bytearray(100))):
                pass
        except StoreUnavailable as error:
            told.append(error)

    told = list[StoreUnavailable]()
    with serving(silent, tls=tls) as slow, serving(answering(ok(b"fast")), tls=tls) as port:
        threads = [threading.Thread(target=wait, args=(slow,)) for _ in range(2 + (os.cpu_count() or 1))]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(asked) == len(threads))
        assert get(https(port, ca=certificate)) == b"fast"
        assert told == []  # they still wait
        silence.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert len(told) == len(threads)


def test_a_body_in_chunks_smaller_and_larger_than_a_record(tls: ssl.SSLContext, certificate: Path) -> None:
    chunks = [os.urandom(size) for size in (1, 5_000, 16 << 10, 100_000, 7)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"
    with serving(answering(answer, ok(b"next")), tls=tls) as port:
        pool = https(port, ca=certificate)
        assert [get(pool), get(pool)] == [b"".join(chunks), b"next"]


def test_a_time_limit_longer_than_sockets_and_poll_can_wait_is_as_good_as_none(
    tls: ssl.SSLContext, certificate: Path
) -> None:
    stall = stall_limit({"NBDATA_STALL_TIMEOUT": "1e12"})
    with serving(answering(ok(b"x" * 50_000)), tls=tls) as port:
        pool = Pool(Origin("https", "127.0.0.1", port, "", str(certificate), stall=stall))
        assert get(pool) == b"x" * 50_000


def test_a_child_of_a_fork_has_turns_of_its_own(tls: ssl.SSLContext, certificate: Path) -> None:
    with serving(answering(ok(b"x" * 50_000)), tls=tls) as port, contextlib.ExitStack() as held:
        for _ in range(os.cpu_count() or 1):
            held.enter_context(records._turns)
        assert in_child(lambda: get(https(port, ca=certificate)) == b"x" * 50_000)
