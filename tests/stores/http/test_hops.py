"""Redirects: where they may lead, and that nobody else gets anything; over S3 and over AIStore's own API."""

from __future__ import annotations

import io
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nbdata.errors import BadOption, StoreUnavailable
from nbdata.operation import Context
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.http.dial import Origin
from nbdata.stores.http.hops import MOST, Hops, NamedHosts, Target
from nbdata.stores.resolve import open_place
from nbdata.stores.sessions import Answer, Read
from tests.ports import free_port
from tests.servers.aistore.cluster import Cluster
from tests.stores.servers import each, ok, read_body, read_head, serving, status

SECRET = "a-secret-that-nobody-else-may-see"


def opened(url: str, **options: Any) -> Store:
    """Return the store of a URL, with these options and no environment."""
    return open_place(url, Context(cwd="/", env={"HOME": "/nonexistent"}, storage_options=options)).store


def s3(port: int, **options: Any) -> Store:
    """Return a bucket on a server."""
    keys = {"key": "AKIDEXAMPLE", "secret": SECRET, "region": "us-east-1"}
    return opened("s3://bucket/", endpoint_url=f"http://127.0.0.1:{port}", **keys, **options)


def got(store: Store, key: str, *, match: ObjectInfo | None = None) -> bytes:
    """Read an object."""
    body, data, view = store.read(key, match=match), bytearray(), memoryview(bytearray(1 << 16))
    try:
        while count := body.readinto(view):
            data += view[:count]
    finally:
        body.close()
    return bytes(data)


def read_together(store: Store, infos: list[ObjectInfo], width: int = 8) -> dict[str, Answer[Any]]:
    """Read objects in one session; their bytes are in `of` of each request."""
    found: dict[str, Answer[Any]] = {}
    with store.reading(lambda: width, 1 << 24) as session:
        for info in infos:
            session.submit(Read([b""], info))
        for answer in session.results():
            if answer is not None:
                answer.request.of[0] = bytes(answer.data)
                found[answer.request.info.key] = answer
    return found


# -- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "url", "allowed"),
    [
        (["node1"], "http://node1:8081", True),
        (["node1"], "http://NODE1", True),
        (["node1:8081"], "http://node1:8082", False),
        (["node1"], "http://node11", False),
        (["example.org"], "http://node.example.org", False),
        (["10.0.0.0/8"], "http://10.1.2.3:51081", True),
        (["10.0.0.0/8"], "http://11.1.2.3", False),
        (["10.0.0.0/8"], "http://10.evil.example", False),
        (["10.0.0.7"], "http://10.0.0.7:1", True),
        (["fd00::/8"], "http://[fd00::1]:8080", True),
        (["[fd00::1]:8080"], "http://[fd00::1]:8080", True),
        (["::1"], "http://[::1]:8080", True),
        ([], "http://node1", False),
    ],
)
def test_hosts_are_named_by_themselves_or_by_a_network(entries: list[str], url: str, allowed: bool) -> None:
    origin = Origin.of(url, proxy="", ca="", verify=True, stall=30)
    assert NamedHosts(entries).allows(origin) is allowed


@pytest.mark.parametrize(
    "entry", ["", "http://node1", "node1/path", "*", "*.example.org", "a b", "user@node1", "node1:x"]
)
def test_what_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(BadOption, match="redirects"):
        NamedHosts([entry])


def following(
    location: str, *trail: str, hosts: tuple[str, ...] = ("node1", "node2"), key: str = ""
) -> Target:
    """Return where a location leads, after requests to these URLs."""
    targets = []
    for url in trail or ("https://gateway/v1/objects/b/k?provider=ais",):
        server, slash, path = url.partition("://")[2].partition("/")
        origin = Origin.of(f"{url.partition(':')[0]}://{server}", proxy="", ca="", verify=True, stall=30)
        targets.append(Target(origin, slash + path, key))
    return Hops(NamedHosts(hosts), lambda url: "").following(targets, {"location": location}, "ais://b/k")


def test_a_location_is_followed_as_it_is_written() -> None:
    found = following("https://node1:8081/v1/objects/b/a%20b?provider=ais&u=x%2Fy")
    assert (str(found.origin), found.target) == (
        "https://node1:8081",
        "/v1/objects/b/a%20b?provider=ais&u=x%2Fy",
    )
    assert following("/else?x", "http://node1:1/v1/o").target == "/else?x"


@pytest.mark.parametrize(
    ("location", "what"),
    [
        ("http://node1/x", "from https to http"),
        ("ftp://node1/x", "no http address"),
        ("https://user:secret@node1/x", "no http address"),
        ("https://[node1/x", "no http address"),
        ("", "circle"),
        ("https://gateway/v1/objects/b/k?again=1", "circle"),
    ],
)
def test_some_redirects_lead_nowhere(location: str, what: str) -> None:
    with pytest.raises(StoreUnavailable, match=what) as caught:
        following(location, hosts=("gateway", "node1"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "location", "leads_there"),
    [
        ("a b", "https://node1/s3/a%20b?x", True),
        ("d/ü", "https://node1/v1/objects/bucket/d/%C3%BC", True),
        ("x/../../victim/k", "https://node1/v1/objects/victim/k", False),
        ("x/../../victim/k", "/v1/objects/bucket/x/../../victim/k", False),  # relative ones are cleaned here
        ("a//k", "https://node1/bucket/a/k", False),
        ("a/k", "https://node1/bucket/a/k/", False),
        ("k", "https://node1/bucket/otherk", False),
    ],
)
def test_a_redirect_leads_to_the_same_object(key: str, location: str, leads_there: bool) -> None:
    if leads_there:
        assert following(location, key=key).key == key
    else:
        with pytest.raises(StoreUnavailable, match="to another object"):
            following(location, hosts=("gateway", "node1"), key=key)


def test_a_host_that_is_not_allowed_is_named_and_the_option_too() -> None:
    with pytest.raises(BadOption, match="may not get your requests") as caught:
        following("https://evil.example/x?X-Amz-Signature=abcdef0123456789")
    assert "https://evil.example" in str(caught.value)
    assert "--option redirects=" in str(caught.value)
    assert "abcdef" not in str(caught.value)


# -- over S3 --------------------------------------------------------------------------------------


def test_without_the_option_a_redirect_of_s3_ends_and_names_it() -> None:
    with (
        serving(each(lambda head: ok(b"stolen"))) as other,
        serving(
            each(lambda head: status(307, f"Location: http://127.0.0.1:{other}/bucket/key?u=signed"))
        ) as port,
        pytest.raises(BadOption, match="redirects=HOST") as caught,
    ):
        s3(port).read("key")
    assert f"http://127.0.0.1:{other}" in str(caught.value)
    assert "signed" not in f"{caught.value} {caught.value.to_dict()}"


def _chain(length: int) -> Callable[[str], bytes]:
    """A server that redirects so many times, each time to another path."""

    def answer(head: str) -> bytes:
        path = head.split(" ")[1]
        count = int(path.split("/")[2]) if path.startswith("/hop/") else 0
        host = next(line for line in head.split("\r\n") if line.lower().startswith("host:"))[5:].strip()
        return (
            ok(b"here", 'ETag: "x"')
            if count == length
            else status(302, f"Location: http://{host}/hop/{count + 1}/key")
        )

    return answer


def test_five_redirects_are_followed_and_not_six() -> None:
    with serving(each(_chain(MOST))) as port:
        assert got(s3(port, redirects="127.0.0.1"), "key") == b"here"
    with serving(each(_chain(MOST + 1))) as port:
        store = s3(port, redirects="127.0.0.1")
        with pytest.raises(StoreUnavailable, match=f"more than {MOST} times"):
            store.read("key")
        (answer,) = read_together(store, [ObjectInfo("key", 4, '"x"')]).values()
        assert f"more than {MOST} times" in str(answer.error)


@pytest.mark.parametrize("number", [301, 302, 307, 308])
@pytest.mark.parametrize("size", [0, 5, 3 << 20])
def test_method_and_body_stay_and_the_first_server_gets_no_body(number: int, size: int) -> None:
    data, bodies = os.urandom(size), dict[str, bytes]()

    def node(connection: socket.socket) -> None:
        while head := read_head(connection):
            if b"xpect:" in head or b"xpect :" in head:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            bodies[head.decode("latin-1").split("\r\n")[0]] = read_body(connection, head)
            connection.sendall(status(200, 'ETag: "x"'))

    with serving(node) as other:

        def gateway(connection: socket.socket) -> None:
            head = read_head(connection)
            assert not size or b"expect: 100-continue" in head.lower()
            connection.sendall(
                status(number, f"Location: http://127.0.0.1:{other}/n/key", "Connection: close")
            )
            assert connection.recv(1) == b""  # nothing but the head came

        with serving(gateway) as port:
            s3(port, redirects=[f"127.0.0.1:{other}"]).write("key", io.BytesIO(data), size)
    assert bodies == {"PUT /n/key HTTP/1.1": data}


def test_a_server_that_does_not_know_expect_gets_the_body_after_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nbdata.stores.http.client._LEAVE", 0.05)
    bodies = []

    def old(connection: socket.socket) -> None:
        while head := read_head(connection):
            bodies.append(read_body(connection, head))
            connection.sendall(status(200, 'ETag: "x"'))

    with serving(old) as port:
        s3(port, redirects="node1").write("key", io.BytesIO(b"hello"), 5)
    assert bodies == [b"hello"]


def test_a_redirect_to_a_server_that_is_gone_is_worth_another_try() -> None:
    gone = free_port()
    with serving(each(lambda head: status(307, f"Location: http://127.0.0.1:{gone}/bucket/key"))) as port:
        store = s3(port, redirects="127.0.0.1")
        with pytest.raises(StoreUnavailable) as caught:
            store.read("key")
        assert caught.value.details["retry"] is True
        assert "unreached" not in caught.value.details
        (answer,) = read_together(store, [ObjectInfo("key", 4, '"x"')]).values()
        assert answer.error is not None
        assert (answer.error.details["retry"], "unreached" in answer.error.details) == (True, False)


def test_each_server_gets_a_signature_of_its_own(aistore: Cluster) -> None:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    bucket = f"signed-{secrets.token_hex(4)}"
    aistore.create_bucket(bucket)
    keys = {"key": "AKIDEXAMPLE", "secret": SECRET, "region": "us-east-1"}
    store = opened(f"s3://{bucket}/", endpoint_url=f"{aistore.url}/s3", redirects="127.0.0.0/8", **keys)
    aistore.seen()
    store.write("a b/c&d", io.BytesIO(b"hello"), 5)
    got(store, "a b/c&d")
    (info,) = store.list("")
    read_together(store, [info])
    seen = [one for process in aistore.seen().values() for one in process]
    assert len(seen) == 7
    for one in seen:
        headers = one["headers"]
        sent, signature = headers.pop("authorization"), "Signature="
        signed = sent.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        url = f"http://{headers['host']}{one['path']}"
        request = AWSRequest(one["method"], url, headers={name: headers[name] for name in signed})
        request.context["timestamp"] = headers["x-amz-date"]
        auth = S3SigV4Auth(Credentials("AKIDEXAMPLE", SECRET), "s3", "us-east-1")
        request.context["payload_signing_enabled"] = True
        canonical = auth.canonical_request(request)
        assert (
            auth.signature(auth.string_to_sign(request, canonical), request) == sent.partition(signature)[2]
        )


# -- nobody else gets anything --------------------------------------------------------------------


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """A server that does not belong to the cluster: its address, and the heads of all requests to it."""
    seen: list[str] = []
    with serving(each(lambda head: ok(b"stolen", 'ETag: "x"'), seen)) as port:
        yield f"http://127.0.0.1:{port}", seen


@pytest.fixture(params=["ais", "s3"])
def at_cluster(request: pytest.FixtureRequest, aistore: Cluster) -> Iterator[Store]:
    """A bucket of the cluster, with a secret; its nodes alone may be redirected to."""
    bucket = f"hops-{secrets.token_hex(4)}"
    aistore.create_bucket(bucket)
    if request.param == "ais":
        yield opened(f"ais://{bucket}/", endpoint_url=aistore.url, token=SECRET)
    else:
        nodes = [node.url.partition("://")[2] for node in aistore.nodes]
        keys = {"key": SECRET, "secret": SECRET, "region": "us-east-1"}
        yield opened(f"s3://{bucket}/", endpoint_url=f"{aistore.url}/s3", redirects=nodes, **keys)
    aistore.gateway.faults()


def test_no_secret_and_no_byte_reaches_a_server_outside_the_cluster(
    at_cluster: Store, aistore: Cluster, elsewhere: tuple[str, list[str]]
) -> None:
    at_cluster.write("key", io.BytesIO(b"right"), 5)
    (info,) = at_cluster.list("")
    url, seen = elsewhere
    aistore.gateway.faults(redirect_to=url)
    acts: list[Callable[[], object]] = [
        lambda: got(at_cluster, "key"),
        lambda: at_cluster.head("key"),
        lambda: at_cluster.write("key", io.BytesIO(b"wrong"), 5),
        lambda: at_cluster.write("key", io.BytesIO(bytes(3 << 20)), 3 << 20),
        lambda: at_cluster.upload("key", 5),
    ]
    for act in acts:
        with pytest.raises(BadOption, match="may not get your requests"):
            act()
    (answer,) = read_together(at_cluster, [info]).values()
    assert isinstance(answer.error, BadOption)
    assert seen == []
    aistore.gateway.faults()
    assert got(at_cluster, "key") == b"right"


def test_a_small_object_costs_one_request_at_the_gateway_and_one_at_a_node(
    at_cluster: Store, aistore: Cluster
) -> None:
    names = [f"n/{number:02}" for number in range(40)]
    for name in names:
        at_cluster.write(name, io.BytesIO(name.encode() * 50), len(name) * 50)
    infos = list(at_cluster.list("n/"))
    got(at_cluster, names[0])  # the map is known from here on
    aistore.seen()
    found = read_together(at_cluster, infos, width=4)
    assert {key: answer.request.of[0] for key, answer in found.items()} == {
        name: name.encode() * 50 for name in names
    }
    seen = aistore.seen()
    assert len(seen["p0"]) == len(names)
    assert sum(len(seen[node.id]) for node in aistore.nodes) == len(names)
    at_cluster.write(names[0], io.BytesIO(b"x" * 1000), 1000)
    seen = aistore.seen()
    assert [(one["method"], one["body"]) for one in seen.pop("p0")] == [("PUT", 0)]
    assert [(one["method"], one["body"]) for node in seen.values() for one in node] == [("PUT", 1000)]


def test_a_circle_is_refused(at_cluster: Store, aistore: Cluster) -> None:
    at_cluster.write("key", io.BytesIO(b"right"), 5)
    (info,) = at_cluster.list("")
    aistore.gateway.faults(redirect_to=aistore.gateway.url)
    with pytest.raises(StoreUnavailable, match="circle"):
        got(at_cluster, "key")
    (answer,) = read_together(at_cluster, [info]).values()
    assert "circle" in str(answer.error)
