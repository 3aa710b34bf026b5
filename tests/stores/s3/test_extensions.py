"""Stores that refuse a part of S3: it is asked for until it is refused, and the rest works; lost proofs are told."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import NbdataError
from nbdata.stores.s3.extensions import EXTENSIONS
from tests.stores.servers import ok, read_body, read_head, serving

pytestmark = pytest.mark.usefixtures("inline")

#: How stores refuse what they do not know: status, code and message.
WAYS = {
    "501": (501, "NotImplemented", "A header you provided implies functionality that is not implemented"),
    "400": (400, "InvalidArgument", "unknown header {name}"),
    "400 with its own code": (400, "UnsupportedParameter", "{name} is not supported"),
}


@contextlib.contextmanager
def refusing(server: EmbeddedServer, names: tuple[str, ...], way: str) -> Iterator[tuple[int, list[str]]]:
    """Serve a store that refuses requests with these headers or parameters; yield its port and the refused requests."""
    refused: list[str] = []
    status, code, message = WAYS[way]

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            body = read_body(connection, head)
            text = head.decode("latin-1").lower()
            name = next((n for n in names if f"\r\n{n}:" in text or re.search(rf"[?&]{n}=", text)), "")
            if not name:
                connection.sendall(_forwarded(server, head, body))
                return
            refused.append(text.partition("\r\n")[0])
            document = f"<Error><Code>{code}</Code><Message>{message.format(name=name)}</Message></Error>"
            data = b"" if text.startswith("head ") else document.encode()
            connection.sendall(b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)

    with serving(handle) as port:
        yield port, refused


def _forwarded(server: EmbeddedServer, head: bytes, body: bytes) -> bytes:
    """Return the real server's answer, which ends the connection."""
    host, _, port = server.environment()["AWS_ENDPOINT_URL"].rpartition("//")[2].partition(":")
    with socket.create_connection((host, int(port))) as real:
        real.sendall(head[:-2] + b"Connection: close\r\n\r\n" + body)
        answer = bytearray()
        while more := real.recv(1 << 16):
            answer += more
    return bytes(answer)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make a port the place of ``s3://``."""

    def set_it(port: int) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")

    return set_it


_TREE = {"p/a.txt": b"alpha", "p/b.bin": b"b" * 300_000, "p/deep/c": b"c"}


@pytest.mark.parametrize("way", WAYS)
def test_a_store_without_checksum_mode_is_read_and_that_is_told(
    s3: EmbeddedServer, put: Callable[..., str], at: Callable[[int], None], tmp_path: Path, way: str
) -> None:
    url = put(_TREE)
    with refusing(s3, ("x-amz-checksum-mode",), way) as (port, refused):
        at(port)
        report = nbdata.pull(f"{url}p/", tmp_path / "t", quiet=True)
    assert (tmp_path / "t/b.bin").read_bytes() == _TREE["p/b.bin"]
    assert report.counts == {"fetched": 3}
    assert EXTENSIONS["x-amz-checksum-mode"] in report.notes
    assert 0 < len(refused) < 10


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", [("encoding-type",), ("x-amz-checksum-mode", "if-match")])
def test_so_it_is_without_others(
    s3: EmbeddedServer,
    put: Callable[..., str],
    at: Callable[[int], None],
    tmp_path: Path,
    names: tuple[str, ...],
    way: str,
) -> None:
    url = put(_TREE)
    with refusing(s3, names, way) as (port, _):
        at(port)
        assert nbdata.pull(f"{url}p/", tmp_path / "t", quiet=True).counts == {"fetched": 3}
    assert (tmp_path / "t/deep/c").read_bytes() == b"c"


@pytest.mark.parametrize("way", WAYS)
def test_a_store_without_content_md5_is_written_to_and_its_answer_is_compared(
    s3: EmbeddedServer, bucket: str, at: Callable[[int], None], tmp_path: Path, way: str
) -> None:
    for name, data in _TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with refusing(s3, ("content-md5",), way) as (port, _):
        at(port)
        report = nbdata.push(f"{tmp_path}/p/", f"s3://{bucket}/p/", quiet=True)
        assert report.counts == {"sent": 3}
        assert EXTENSIONS["content-md5"] in report.notes
        assert nbdata.md5check(tmp_path / "p", against=f"s3://{bucket}/p/", quiet=True).counts == {"ok": 3}


def test_a_copy_without_its_condition_is_made_and_that_is_told(
    s3: EmbeddedServer, bucket: str, put: Callable[..., str], at: Callable[[int], None]
) -> None:
    url = put(_TREE)
    with refusing(s3, ("x-amz-copy-source-if-match",), "501") as (port, refused):
        at(port)
        report = nbdata.copy(f"{url}p/", f"s3://{bucket}/q/", quiet=True)
    assert refused != []
    assert report.counts == {"copied": 3}
    assert EXTENSIONS["x-amz-copy-source-if-match"] in report.notes


def test_what_is_refused_is_asked_for_only_until_then(
    s3: EmbeddedServer, bucket: str, at: Callable[[int], None], tmp_path: Path
) -> None:
    for number in range(200):
        (tmp_path / f"{number:03}").write_bytes(b"x")
    with refusing(s3, ("content-md5",), "501") as (port, refused):
        at(port)
        assert nbdata.push(f"{tmp_path}/", f"s3://{bucket}/p/", quiet=True).counts == {"sent": 200}
    assert len(refused) < 100  # those that were under way


def test_a_refusal_that_passes_leaves_nothing_out(
    s3: EmbeddedServer, put: Callable[..., str], at: Callable[[int], None], tmp_path: Path
) -> None:
    url = put({f"p/{number:02}": b"x" * 300_000 for number in range(20)})
    stray, lock, seen = [True], threading.Lock(), list[bool]()

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            body = read_body(connection, head)
            with lock:
                refuse = stray[0] and head.startswith(b"GET /") and b"list-type" not in head
                stray[0] = stray[0] and not refuse
                if head.startswith(b"GET /") and b"list-type" not in head:
                    seen.append(b"x-amz-checksum-mode" in head)
            if not refuse:
                connection.sendall(_forwarded(s3, head, body))
                return
            connection.sendall(b"HTTP/1.1 501 No\r\nContent-Length: 0\r\n\r\n")

    with serving(handle) as port:
        at(port)
        assert nbdata.pull(f"{url}p/", tmp_path / "t", quiet=True).counts == {"fetched": 20}
    assert seen.count(False) == 1  # what was refused, asked for again without


def test_what_a_store_knows_is_not_left_out_with_what_it_does_not(
    s3: EmbeddedServer, put: Callable[..., str], at: Callable[[int], None], tmp_path: Path
) -> None:
    url = put({f"p/{number:02}": b"x" * 300_000 for number in range(20)})
    with refusing(s3, ("if-match",), "501") as (port, _):
        at(port)
        report = nbdata.pull(f"{url}p/", tmp_path / "t", quiet=True)
    assert report.counts == {"fetched": 20}
    assert EXTENSIONS["x-amz-checksum-mode"] not in report.notes


def test_a_store_that_refuses_the_rest_too_is_told_with_its_first_words(
    s3: EmbeddedServer, put: Callable[..., str], at: Callable[[int], None], tmp_path: Path
) -> None:
    url = put(_TREE)
    with refusing(s3, ("host",), "400") as (port, refused):
        at(port)
        with pytest.raises(NbdataError, match="InvalidArgument, unknown header host"):
            nbdata.pull(f"{url}p/", tmp_path / "t", quiet=True)
    assert len(refused) <= 4  # the listing, and the same without what it could do without


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("BadDigest", "The Content-MD5 you specified did not match what we received."),
        (
            "InvalidRequest",
            "Unable to validate content-md5: the digest of the body differs",
        ),  # as Garage says it
        ("InvalidRequest", "Your request is odd"),
    ],
)
def test_a_digest_is_left_out_only_if_the_store_does_not_know_it(
    bucket: str, s3: EmbeddedServer, tmp_path: Path, code: str, message: str
) -> None:
    seen: list[bytes] = []
    bad = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            read_body(connection, head)
            if head.startswith(b"PUT"):
                seen.append(head.lower())
                connection.sendall(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n" % len(bad) + bad)
            else:
                connection.sendall(
                    ok(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
                )

    (tmp_path / "x").write_bytes(b"x")
    with serving(handle) as port, pytest.raises(NbdataError):
        nbdata.push(
            tmp_path / "x",
            f"s3://{bucket}/x",
            quiet=True,
            storage_options={"endpoint_url": f"http://127.0.0.1:{port}", "key": "k", "secret": "s"},
        )
    assert seen != []
    assert [head for head in seen if b"\r\ncontent-md5:" not in head] == []
