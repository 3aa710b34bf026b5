"""The fault proxy follows its plan and counts correctly; otherwise the campaigns would prove nothing."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.proxy import AFTER, BEFORE, BETWEEN, BODY, HEAD, Exchange, Fault, FaultProxy, Tally
from tests.faults.seeded import Seeded
from tests.stores.servers import ok, read_head, serving
from tests.waiting import PATIENCE, wait_until

DATA = random.Random(3).randbytes(300_000)
LISTING = b"<ListBucketResult/>" * 100


class Store:
    """A store that records its requests, answers a listing in chunks, and returns the same bytes for any object."""

    def __init__(self) -> None:
        self.got: dict[str, bytes] = {}
        self.asked = 0

    def __call__(self, connection: socket.socket) -> None:
        while head := read_head(connection):
            self.asked += 1
            method, target, _ = head.decode().split(" ", 2)
            size = Exchange.of(head).size
            body = b""
            while len(body) < size and (data := connection.recv(1 << 16)):
                body += data
            if len(body) < size:
                return
            if method == "PUT":
                self.got[target] = body
                connection.sendall(ok(b"", 'ETag: "x"'))
            elif target == "/bucket?list-type=2":
                chunks = b"".join(b"%x\r\n%b\r\n" % (len(LISTING), LISTING) for _ in range(2))
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
                )
            else:
                connection.sendall(ok(DATA, "X-Amz-Checksum-CRC32: AAAAAA=="))


class Client:
    """One connection to the proxy. `fault` is for the first request; `patience` is the timeout in seconds."""

    def __init__(
        self, proxy: FaultProxy, fault: Fault | None = None, *, patience: float | None = None
    ) -> None:
        self.tally = proxy.begin(lambda request, before: None if before else fault)
        host, _, port = proxy.url.removeprefix("http://").partition(":")
        if patience is None:
            patience = 1 if fault is not None and fault.kind == "stall" else 60
        self._connection = http.client.HTTPConnection(host, int(port), timeout=patience)
        self.headers: dict[str, str] = {}
        self.body = b""

    def ask(self, method: str = "GET", target: str = "/bucket/key", data: bytes = b"") -> int:
        """Send a request and return the status. `body` holds the received bytes, even if an error is raised."""
        self._connection.request(method, target, data or None)
        answer = self._connection.getresponse()
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.body = b""
        while piece := answer.read1(8192):
            self.body += piece
        answer.read()  # reading the whole response frees the connection
        if len(self.body) < int(self.headers.get("content-length", 0)):
            raise http.client.IncompleteRead(self.body)
        return answer.status

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def proxy(store: Store) -> Iterator[FaultProxy]:
    with (
        serving(store) as port,
        FaultProxy(f"http://127.0.0.1:{port}", opaque="secret/", replace=lambda key: None) as made,
    ):
        yield made


@pytest.fixture
def client(proxy: FaultProxy, request: pytest.FixtureRequest) -> Iterator[Client]:
    made = Client(proxy, getattr(request, "param", None))
    yield made
    made.close()


def faulty(*faults: Fault) -> Any:
    """Return a decorator that runs the test with each of these faults."""
    return pytest.mark.parametrize(
        "client", faults, indirect=True, ids=[f"{f.kind} {f.where}" for f in faults]
    )


def happened(tally: Tally) -> list[tuple[str, str]]:
    return [(fault.kind, fault.where) for _, fault in tally.faults]


def test_without_a_fault_all_goes_through_and_only_bytes_of_objects_are_counted(
    client: Client, store: Store
) -> None:
    assert client.ask() == 200
    assert client.body == DATA
    assert client.ask("PUT", "/bucket/other", DATA[:1000]) == 200
    assert store.got["/bucket/other"] == DATA[:1000]
    assert client.ask(target="/bucket?list-type=2") == 200
    assert client.body == LISTING * 2
    assert client.tally.down == Counter({"key": len(DATA)})
    assert client.tally.up == Counter({"other": 1000})
    assert client.tally.faults == []


@pytest.mark.parametrize(
    ("head", "exchange"),
    [
        ("GET /b?list-type=2&prefix=x HTTP/1.1", Exchange("list", "")),
        ("GET /b/a/b%20c HTTP/1.1\r\nRange: bytes=16-31", Exchange("get", "a/b c", "31", 16)),
        ("HEAD /b/a HTTP/1.1", Exchange("head", "a")),
        ("PUT /b/a HTTP/1.1\r\ncontent-length: 7", Exchange("put", "a", size=7)),
        (
            "PUT /b/a?partNumber=2&uploadId=x HTTP/1.1\r\nContent-Length: 7",
            Exchange("part", "a", "2", size=7),
        ),
        ("POST /b/a?uploads= HTTP/1.1", Exchange("create", "a")),
        ("POST /b/a?uploadId=x HTTP/1.1\r\nContent-Length: 9", Exchange("complete", "a", size=9)),
        ("DELETE /b/a?uploadId=x HTTP/1.1", Exchange("abort", "a")),
    ],
)
def test_a_request_is_understood(head: str, exchange: Exchange) -> None:
    assert Exchange.of(f"{head}\r\n\r\n".encode()) == exchange


@faulty(Fault("cut", BODY, 0.5), Fault("reset", BODY, 0.5), Fault("stall", BODY, 0.5))
@pytest.mark.in_ci("cut body")
def test_a_body_that_breaks_off_is_right_as_far_as_it_goes(client: Client) -> None:
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError, TimeoutError)):
        client.ask()
    assert client.body == DATA[: len(client.body)]
    assert len(client.body) <= len(DATA) // 2
    assert client.tally.down["key"] == len(DATA) // 2
    assert len(happened(client.tally)) == 1


@faulty(Fault("flip", BODY, 0.25))
def test_one_byte_is_another_on_the_way_down(client: Client) -> None:
    assert client.ask() == 200
    at = len(DATA) // 4
    assert client.body == DATA[:at] + bytes([DATA[at] ^ 0x20]) + DATA[at + 1 :]
    assert client.ask() == 200
    assert client.body == DATA, "only once"


@faulty(Fault("flip", BODY, 0.25))
def test_one_byte_is_another_on_the_way_up(client: Client, store: Store) -> None:
    assert client.ask("PUT", "/bucket/key", DATA) == 200
    at = len(DATA) // 4
    assert store.got["/bucket/key"] == DATA[:at] + bytes([DATA[at] ^ 0x20]) + DATA[at + 1 :]


@faulty(Fault("reset", BODY, 0.5), Fault("stall", BODY, 0.5), Fault("refuse", BODY, 0.5, 503))
@pytest.mark.in_ci("reset body")
def test_an_upload_that_breaks_off_never_gets_to_the_store(client: Client, store: Store) -> None:
    with contextlib.suppress(OSError):  # the refusal may or may not arrive
        assert client.ask("PUT", "/bucket/key", DATA * 30) == 503
    assert store.got == {}
    assert client.tally.up["key"] == len(DATA) * 15


@faulty(Fault("refuse", BEFORE, 0, 503))
def test_a_refusal_says_when_to_come_again(client: Client, store: Store) -> None:
    assert client.ask("PUT", "/bucket/key", DATA) == 503
    assert client.headers["retry-after"] == "1"
    assert store.got == {}


@faulty(Fault("drop", BEFORE), Fault("stall", BEFORE), Fault("swallow", AFTER), Fault("reset", HEAD))
def test_an_answer_is_not_heard(client: Client, store: Store) -> None:
    with pytest.raises((http.client.HTTPException, OSError)):
        client.ask("PUT", "/bucket/key", DATA)
    ((kind, where),) = happened(client.tally)
    assert (kind, bool(store.got)) in {("drop", False), ("stall", False), ("swallow", True), ("reset", True)}
    client.close()
    assert client.ask("PUT", "/bucket/key", DATA) == 200, f"{kind} {where} is over"


@faulty(Fault("delay", BEFORE, seconds=0.3), Fault("delay", BODY, 0.5, seconds=0.3))
def test_what_is_late_comes_whole(client: Client) -> None:
    assert client.ask() == 200
    assert client.body == DATA
    assert len(happened(client.tally)) == 1


def test_an_object_is_replaced_before_it_is_read_on(store: Store) -> None:
    replaced = list[str]()
    with serving(store) as port, FaultProxy(f"http://127.0.0.1:{port}", replace=replaced.append) as proxy:
        client = Client(proxy, Fault("replace", BETWEEN))
        assert client.ask() == 200
        assert replaced == ["key"]
        client.close()


def test_what_nobody_vouches_for_says_so(client: Client) -> None:
    assert client.ask(target="/bucket/secret/key") == 200
    assert client.headers["x-amz-server-side-encryption"] == "aws:kms"
    assert "x-amz-checksum-crc32" not in client.headers
    assert client.body == DATA
    assert client.ask() == 200
    assert "x-amz-server-side-encryption" not in client.headers
    assert "x-amz-checksum-crc32" in client.headers


def test_at_the_chosen_byte_nothing_goes_on_until_it_was_used(proxy: FaultProxy) -> None:
    came, used = threading.Event(), threading.Event()

    def moment() -> None:
        came.set()
        used.wait(PATIENCE)

    client = Client(proxy)
    tally = proxy.begin(at=len(DATA) + 1000, then=moment)
    assert client.ask() == 200
    assert not came.is_set()
    reader = threading.Thread(target=client.ask)
    reader.start()
    assert came.wait(PATIENCE)
    before = tally.down.total()
    assert len(DATA) + 1000 <= before < 2 * len(DATA)
    used.set()
    reader.join(PATIENCE)
    assert client.body == DATA
    client.close()


def test_a_run_ends_what_stands_still(proxy: FaultProxy) -> None:
    client = Client(proxy, Fault("stall", BEFORE), patience=60)
    ended = threading.Event()

    def ask() -> None:
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            client.ask()
        ended.set()

    threading.Thread(target=ask, daemon=True).start()
    wait_until(lambda: client.tally.faults or ended.is_set())
    assert not ended.is_set()
    proxy.begin()
    assert ended.wait(PATIENCE), "before the client itself gives up"
    client.close()


def test_a_seed_says_all_that_happens() -> None:
    requests = [Exchange("get", f"a/{number}", size=0) for number in range(1000)]
    one, same, other = ([Seeded(seed)(r, 0) for r in requests] for seed in ("1", "1", "2"))
    assert one == same != other
    assert 10 < sum(fault is not None for fault in one) < 60
    doomed = Seeded("1", doomed="x")
    assert all(doomed(Exchange("get", "x"), before) for before in range(9))
    assert Seeded("1")(Exchange("get", "a/1", "5"), 9) is None
