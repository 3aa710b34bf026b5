"""Uploads that arrive damaged at the store create no object, or nbdata deletes the object."""

from __future__ import annotations

import base64
import hashlib
import mmap
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import TransferFailed
from tests.conftest import client_of
from tests.faults.proxy import AFTER, BEFORE, BODY, Exchange, Fault, FaultProxy, Plan
from tests.faults.scene import objects_of
from tests.faults.test_lines import BIG, SMALL, always, once, proxy, push, there
from tests.stores.servers import ok, read_body, read_head, serving

__all__ = ["proxy", "push", "there"]

MIDDLING = BIG[:1_000_000]
REFUSED = Fault("refuse", BEFORE, status=500)
FLIPPED = Fault("flip", BODY, 0.5)
both = pytest.mark.parametrize("data", [SMALL, MIDDLING], ids=["in memory", "streamed"])


def either(*plans: Plan) -> Plan:
    """Return a plan with the fault of the first plan that has one."""
    return lambda request, before: next(filter(None, (plan(request, before) for plan in plans)), None)


@both
def test_a_file_that_always_arrives_wrong_never_becomes_an_object(
    data: bytes, proxy: FaultProxy, push: Any, there: Any
) -> None:
    push(data[::-1])
    # All other requests are refused, so nothing can be repaired afterwards.
    proxy.begin(either(always(FLIPPED, action="put"), always(REFUSED, key="x")))
    with pytest.raises(TransferFailed, match="not what was sent"):
        push(data, overwrite="always")  # else the push would ask for the object before it replaces it
    assert there() == {"x": data[::-1]}
    proxy.begin()
    assert push(data).ok
    assert there() == {"x": data}


def test_a_copy_that_always_arrives_wrong_never_becomes_an_object(
    proxy: FaultProxy, s3: EmbeddedServer, put: Callable[[dict[str, bytes]], str], there: Any
) -> None:
    url, old = put({"from": MIDDLING, "to": SMALL}), {"from": MIDDLING, "to": SMALL}
    wrong, undeleted = always(FLIPPED, action="put"), always(REFUSED, action="other")
    for plan, right in ((either(wrong, undeleted), old), (either(), {**old, "to": MIDDLING})):
        proxy.begin(plan)
        # The same server under another name, so that the bytes go through this machine.
        report = nbdata.copy(
            f"{url}from", f"{url}to", storage_options={"endpoint_url": s3.url},
            target_options={"endpoint_url": proxy.url}, force=True, quiet=True, on_error="report",
        )  # fmt: skip
        assert report.ok == (right != old)
        assert there() == right


@both
def test_what_a_store_refuses_is_sent_again_and_counted(
    data: bytes, proxy: FaultProxy, push: Any, there: Any
) -> None:
    proxy.begin(once(FLIPPED, action="put"))
    report = push(data)
    assert (report.retries, there()) == (1, {"x": data})
    assert "what the store received is not what was sent" in report.notes[-1]


@both
@pytest.mark.parametrize(
    "answer",
    [
        b"<Error><Code>InvalidDigest</Code><Message>The Content-MD5 is invalid.</Message></Error>",
        b"<Error><Code>InvalidRequest</Code><Message>Unable to validate content-md5</Message></Error>",
    ],
    ids=["as OSS says it", "as Garage says it"],
)
def test_other_words_of_refusal_are_understood(
    answer: bytes, data: bytes, tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(data)
    md5, asked = hashlib.md5(data).hexdigest(), list[bytes]()

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            body = read_body(connection, head)
            if not head.startswith(b"PUT"):
                connection.sendall(
                    ok(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
                )
                continue
            assert base64.b64encode(bytes.fromhex(md5)) in head
            asked.append(body)
            if len(asked) < 3:
                connection.sendall(
                    b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)
                )
            else:
                connection.sendall(ok(b"", f'ETag: "{md5}"'))

    with serving(handle) as port:
        for name, value in {"ENDPOINT_URL": f"http://127.0.0.1:{port}", "ACCESS_KEY_ID": "k"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        report = nbdata.push(tmp_path / "x", "s3://bucket/x", quiet=True)
    assert (report.counts, report.retries, asked) == ({"sent": 1}, 2, [data] * 3)


def test_a_file_that_changes_without_a_change_of_its_times_is_not_sent(
    proxy: FaultProxy, bucket: str, push: Any, there: Any, tmp_path: Path
) -> None:
    """An example is a file that is written through a mapping: its pages were dirty before nbdata examined it."""
    data = BIG[:8_000_000]
    push(data)
    with open(tmp_path / "in" / "x", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[len(data) - 1] ^= 1

        def change(request: Exchange, _before: int) -> Fault | None:
            if request.action == "put":  # hashed, and not yet sent except for buffered bytes
                mapped[len(data) - 1] ^= 1
            return None

        proxy.begin(change)
        with pytest.raises(TransferFailed, match="the file changed while it was sent"):
            nbdata.push(tmp_path / "in", f"s3://{bucket}/", quiet=True)
    assert there() == {"x": data}


@pytest.fixture
def taking_all(moto: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, inline: None) -> Iterator[FaultProxy]:
    """A proxy in front of a store that ignores the MD5 of uploads. The bucket ``taking-all`` is empty."""
    moto.create_bucket("taking-all")
    with FaultProxy(moto.url) as made:
        for name, value in {**moto.environment(), "AWS_ENDPOINT_URL": made.url}.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def taken(moto: EmbeddedServer, taking_all: FaultProxy) -> Iterator[Callable[[], dict[str, bytes]]]:
    """Return a function that returns the content of that bucket."""
    client = client_of(moto)
    yield lambda: objects_of(client, "taking-all")
    client.delete_object(Bucket="taking-all", Key="x")
    client.close()


@both
def test_a_wrong_object_is_deleted_from_a_store_that_ignores_checksums(
    data: bytes, taking_all: FaultProxy, taken: Any, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(data)
    busy = once(REFUSED, action="head"), once(REFUSED, action="other", key="x")  # these would delete `x`
    tally = taking_all.begin(either(always(FLIPPED, action="put"), *busy))
    with pytest.raises(TransferFailed, match="What the store had was deleted"):
        nbdata.push(tmp_path / "x", "s3://taking-all/x", quiet=True)
    assert {request.action for request, _ in tally.faults} == {"put", "head", "other"}
    assert taken() == {}


@both
def test_what_arrived_wrong_does_not_stay_although_something_else_ends_the_line(
    data: bytes, taking_all: FaultProxy, taken: Any, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(data)
    taking_all.begin(
        either(once(FLIPPED, action="put"), always(Fault("refuse", BEFORE, status=404), action="put"))
    )
    with pytest.raises(TransferFailed, match="What the store had was deleted"):
        nbdata.push(tmp_path / "x", "s3://taking-all/x", quiet=True)
    assert taken() == {}


@pytest.mark.parametrize("gone", [False, True], ids=["changed", "gone"])
def test_what_arrived_wrong_does_not_stay_although_its_file_is_another_by_then(
    gone: bool, taking_all: FaultProxy, taken: Any, tmp_path: Path
) -> None:
    file, wrong = tmp_path / "x", always(FLIPPED, action="put")
    file.write_bytes(SMALL)

    def plan(request: Exchange, before: int) -> Fault | None:
        if request.action == "put" and gone:
            file.unlink()
        elif request.action == "put":
            file.write_bytes(b"another")
        return wrong(request, before)

    taking_all.begin(plan)
    with pytest.raises(TransferFailed, match="What the store had was deleted"):
        nbdata.push(file, "s3://taking-all/x", quiet=True)
    assert taken() == {}


def test_what_somebody_else_puts_there_meanwhile_is_not_deleted(
    taking_all: FaultProxy, taken: Any, moto: EmbeddedServer, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(SMALL)
    wrong, lost = always(FLIPPED, action="put"), Fault("swallow", AFTER)

    def plan(request: Exchange, before: int) -> Fault | None:
        if request.action == "head" and before:
            client = client_of(moto)
            client.put_object(Bucket="taking-all", Key="x", Body=b"somebody else's")
            client.close()
        return wrong(request, before) or (lost if request.action == "other" and request.key else None)

    taking_all.begin(plan)
    with pytest.raises(TransferFailed, match="not what was sent"):
        nbdata.push(tmp_path / "x", "s3://taking-all/x", quiet=True)
    assert taken() == {"x": b"somebody else's"}
