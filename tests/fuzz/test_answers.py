"""Arbitrary answers of a store give entries or an error of nbdata, within bounded memory, whatever the server sends.

``make fuzz`` tries many more examples than a normal test run.
"""

from __future__ import annotations

import os
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbdata.engine.runner import Planning
from nbdata.errors import NbdataError
from nbdata.operation import Context
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.http.client import Connection, Origin, Pool
from nbdata.stores.http.dial import Closed
from nbdata.stores.http.heads import Head, parse_head
from nbdata.stores.http.index_page import links_below
from nbdata.stores.resolve import open_place
from nbdata.stores.s3.errors import error_of, new_region
from nbdata.transfer.retry import listing
from tests.waiting import PATIENCE

# The memory of each example is measured, which takes longer than the example.
EXAMPLES = max(60, int(os.environ.get("NBDATA_FUZZ", "200")) // 10)
# Several times the memory that answers of this size need.
MOST = 64 << 20

fuzzed = settings(
    max_examples=EXAMPLES, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip

S3_LISTING = (
    b'<?xml version="1.0"?><ListBucketResult xmlns="urn:s3"><EncodingType>url</EncodingType><IsTruncated>false'
    b"</IsTruncated><Contents><Key>d/a%20b</Key><Size>5</Size><ETag>&quot;x&quot;</ETag><LastModified>"
    b"2026-01-31T12:00:00.000Z</LastModified></Contents><CommonPrefixes><Prefix>d/c/</Prefix></CommonPrefixes>"
    b"</ListBucketResult>"
)
S3_UPLOADS = (
    b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>d/a</Key><UploadId>u</UploadId>"
    b"</Upload></ListMultipartUploadsResult>"
)
S3_PARTS = (
    b"<ListPartsResult><IsTruncated>false</IsTruncated><Part><PartNumber>1</PartNumber><Size>5</Size>"
    b"<ETag>x</ETag></Part></ListPartsResult>"
)
S3_ERROR = b"<Error><Code>AccessDenied</Code><Message>no</Message><Region>eu</Region></Error>"
GOOGLE = (
    b'{"items": [{"name": "d/a", "size": "5", "generation": "7", "md5Hash": "XUFAKrxLKna5cZ2REBfFkg==", "updated":'
    b' "2026-01-31T12:00:00.000Z"}], "prefixes": ["d/c/"]}'
)
AZURE = (
    b"\xef\xbb\xbf<EnumerationResults><Blobs><Blob><Name>d/a</Name><Properties><Content-Length>5</Content-Length>"
    b"<Etag>x</Etag><Last-Modified>Sat, 31 Jan 2026 12:00:00 GMT</Last-Modified></Properties></Blob><BlobPrefix>"
    b'<Name Encoded="true">d/c%2F</Name></BlobPrefix></Blobs><NextMarker/></EnumerationResults>'
)
INDEX = b'<html><a href="a">a</a><a href="/d/b/c">b</a><a href="../x">x</a><a href="//h/d/e">e</a></html>'
HEAD = b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "x"\r\nContent-Type: text/plain'
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nX: y\r\n\r\n"
# Pieces that have meaning in one of these answers.
WORDS = [
    b"1e9", b"9" * 5000, "²".encode(), b"-1", b"+1", b" ", b"\0", b"\r\n", b"\n", b"<", b">", b"<Contents>",
    b"</Contents>",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"&#xD800;", b"%ED%A0%80", b"%FF", b"..", b"/", b"[" * 3000, b"{", b"}",
    b'{"items": 5}', b"null", b"NaN", b'"\\ud800"', b"<Blob/>", b"<a>" * 3000, b"<a href='//'>", b"<!--", b"<![CDATA[",
    b"Content-Length: 6\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1 100 C\r\n\r\n", b"ffffffffffffffffff",
    b"0\r\n",
]  # fmt: skip


@st.composite
def spoilt(draw: st.DrawFn, good: bytes) -> bytes:
    """Return a good answer with some bytes replaced by others or by words, or cut off; sometimes any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    data = bytearray(good)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 8))] = draw(st.sampled_from(WORDS) | st.binary(max_size=3))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 4)) == 0 else data)


class Response:
    """A response with this body, like that of the client."""

    def __init__(self, data: bytes, status: int = 200) -> None:
        self.status, self.headers, self._data = status, dict[str, str](), data

    def read(self, *, limit: int = 0) -> bytes:
        return self._data

    def close(self) -> None:
        pass


class Answering(Pool):
    """Gives the same response to every request."""

    data, status = b"", 200

    def __init__(self) -> None:
        super().__init__(Origin("http", "h", 80))

    def request(self, *_: Any, **__: Any) -> Any:
        return Response(self.data, self.status)


@contextmanager
def in_bounds() -> Iterator[None]:
    """Let only errors of nbdata pass, and compare the peak of the memory with its bound."""
    told = ""
    tracemalloc.start()
    try:
        yield
    except NbdataError as error:
        told = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST
    assert len(told) < 5000


class Impatient(Planning):
    """A control that repeats nothing."""

    def sleep(self, seconds: float) -> None:
        raise NbdataError("it would be repeated")


def infos_of(read: Callable[[], Any]) -> None:
    """Read a listing through the checks of all listings, and as the store gives it."""
    with in_bounds():
        for info in read():
            assert isinstance(info, ObjectInfo)
            assert isinstance(info.key, str)
            assert -1 <= info.size < 10**18
            assert isinstance(info.etag, str)
            assert info.modified is None or isinstance(info.modified, float)


@pytest.fixture(scope="module", params=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest) -> Store:
    options = {
        "s3": {"endpoint_url": "http://h", "key": "k", "secret": "s", "region": "r"},
        "gs": {"endpoint_url": "http://h", "token": "anon"},
        "az": {"connection_string": "AccountName=a;AccountKey=aaaa;BlobEndpoint=http://h/a"},
    }[request.param]
    found = open_place(f"{request.param}://bucket/", Context(cwd="/", storage_options=options)).store
    pool = Answering()
    if request.param == "s3":
        client: Any = found._client  # type: ignore[attr-defined]
        client._endpoint = client._endpoint._replace(pool=pool)
    else:
        found._pool = pool  # type: ignore[attr-defined]
    found.pool = pool  # type: ignore[attr-defined]
    found.good = {"s3": S3_LISTING, "gs": GOOGLE, "az": AZURE}[request.param]  # type: ignore[attr-defined]
    return found


def test_the_good_answers_have_entries(store: Any) -> None:
    store.pool.data = store.good
    assert max(info.size for info in listing(Impatient(), store, "d/")) == 5


@pytest.mark.in_ci(1)
@given(data=st.data())
@fuzzed
def test_a_spoilt_listing_gives_entries_or_an_error(store: Any, data: st.DataObject) -> None:
    store.pool.data = data.draw(spoilt(store.good))
    infos_of(lambda: list(store.list("")))
    infos_of(lambda: list(store.list_folder("d/")))
    infos_of(lambda: list(listing(Impatient(), store, "d/")))


@pytest.mark.in_ci(1)
@given(data=st.data())
@fuzzed
def test_other_spoilt_answers_give_their_values_or_an_error(store: Any, data: st.DataObject) -> None:
    store.pool.data = data.draw(
        spoilt(data.draw(st.sampled_from([S3_UPLOADS, S3_PARTS, S3_ERROR, store.good])))
    )
    store.pool.status = data.draw(st.sampled_from([200, 200, 400, 403, 404, 503]))
    try:
        for ask in (
            lambda: list(store.pending("d/")),
            lambda: store.children("d/", 10),
            lambda: store.reopen("d/a", 5, "u"),
            lambda: store.head("d/a"),
            lambda: store.delete(["d/a", "d/b"]),
        ):
            with in_bounds():
                ask()
    finally:
        store.pool.status = 200


@given(data=spoilt(S3_ERROR), status=st.sampled_from([200, 301, 400, 403, 404, 409, 500, 503]))
@fuzzed
def test_a_spoilt_error_of_s3_is_an_error(data: bytes, status: int) -> None:
    response: Any = Response(data, status)
    with in_bounds():
        assert isinstance(new_region(response, data), str)
        raise error_of(response, data, path="s3://bucket/a", identity="here")


@given(data=spoilt(INDEX))
@fuzzed
def test_a_spoilt_index_page_gives_names(data: bytes) -> None:
    with in_bounds():
        for name in links_below(data.decode("utf-8", "replace"), "http://h/d/"):
            assert not name.startswith("/")


@given(data=spoilt(HEAD))
@fuzzed
def test_a_spoilt_head_is_read_or_refused(data: bytes) -> None:
    try:
        head = parse_head(data)
    except Closed:
        return
    assert isinstance(head, Head)
    assert not any(char in value for value in head.headers.values() for char in "\r\n\0")


@given(data=spoilt(CHUNKS))
@fuzzed
def test_a_spoilt_body_in_chunks_is_read_or_refused(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with in_bounds():
            try:
                response = Connection(Pool(Origin("http", "h", 80)), ours).exchange("GET", "/", {}, None, 0)
            except (Closed, OSError):
                return
            assert len(response.read()) <= len(data)
