"""The S3 store against servers that do less than they should."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbdata.errors import NbdataError, SourceChanged, StoreUnavailable
from nbdata.operation import Context
from nbdata.stores.base import ObjectInfo
from nbdata.stores.s3.config import s3_config
from nbdata.stores.s3.store import S3Store
from tests.stores.servers import answering, ok, read_body, read_head, serving


def store_at(port: int, **options: object) -> S3Store:
    options = {"key": "AKIAKEY", "secret": "SECRET", "endpoint_url": f"http://127.0.0.1:{port}", **options}
    return S3Store(
        "bucket", s3_config("s3", Context("/", env={"HOME": "/nonexistent"}, storage_options=options))
    )


def test_a_server_that_ignores_if_match_is_found_out() -> None:
    answer = ok(b"newer", 'ETag: "b"')
    with serving(answering(answer)) as port, pytest.raises(SourceChanged):
        store_at(port).read("x", match=ObjectInfo("x", 5, '"a"'))
    with serving(answering(answer)) as port:
        body = store_at(port).read("x", match=ObjectInfo("x", 5, '"b"'))
        assert body.length == 5
        body.close()


def test_a_server_that_ignores_ranges_says_where_its_bytes_begin() -> None:
    with serving(answering(ok(b"0123456789"))) as port:
        body = store_at(port).read("x", 5, 7)
        assert (body.start, body.length) == (0, 10)
        body.close()


def test_an_error_in_an_answer_that_says_200_is_an_error() -> None:
    error = b"<?xml version='1.0'?><Error><Code>InternalError</Code></Error>"
    upload = ok(b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
    with serving(answering(upload, ok(error))) as port:
        begun = store_at(port).upload("x", 1)
        with pytest.raises(StoreUnavailable) as caught:
            begun.finish(["etag"])
        assert caught.value.details["retry"] is True


@pytest.fixture
def moved() -> Iterator[tuple[int, list[bytes]]]:
    """A server whose bucket is in another region than the request was signed for."""
    heads: list[bytes] = []

    def handle(connection):  # type: ignore[no-untyped-def]
        while head := read_head(connection):
            read_body(connection, head)
            heads.append(head)
            if b"/eu-central-1/s3/" in head:
                connection.sendall(ok(b"fine", 'ETag: "a"'))
            else:
                connection.sendall(
                    b"HTTP/1.1 400 Bad Request\r\nx-amz-bucket-region: eu-central-1\r\nContent-Length: 60\r\n\r\n"
                    + b"<Error><Code>AuthorizationHeaderMalformed</Code></Error>".ljust(60)
                )

    with serving(handle) as port:
        yield port, heads


def test_a_bucket_in_another_region_is_found_there(moved: tuple[int, list[bytes]]) -> None:
    port, heads = moved
    store = store_at(port)
    assert store.read_bytes("x") == b"fine"
    assert store.read_bytes("x") == b"fine"
    assert len(heads) == 3  # later requests use the right region


def test_a_body_that_was_sent_to_the_wrong_region_is_worth_another_try(
    moved: tuple[int, list[bytes]],
) -> None:
    store = store_at(moved[0])
    with pytest.raises(StoreUnavailable, match="eu-central-1") as caught:
        store.write("x", io.BytesIO(b"x"), 1)
    assert caught.value.details["retry"] is True
    assert store.write("x", io.BytesIO(b"x"), 1).etag == '"a"'


def test_no_key_is_in_the_error_of_a_server_that_repeats_it(tmp_path: Path) -> None:
    body = b"<Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>AKIAKEY</AWSAccessKeyId></Error>"
    answer = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with serving(answering(answer)) as port, pytest.raises(PermissionError) as caught:
        store_at(port).read("x")
    assert "AKIAKEY" not in f"{caught.value} {caught.value!r}"


def denied(code: str, store_of: Callable[[int], S3Store], status: str = "403 Forbidden") -> str:
    """The error of a listing that a server answers with this code."""
    body = f"<Error><Code>{code}</Code></Error>".encode()
    answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with serving(answering(answer)) as port, pytest.raises(NbdataError) as caught:
        list(store_of(port).list(""))
    return str(caught.value)


def test_a_token_that_is_sent_along_and_quotes_in_a_key_are_named() -> None:
    assert "AWS_SESSION_TOKEN" not in denied("InvalidAccessKeyId", store_at)
    said = denied("InvalidAccessKeyId", lambda port: store_at(port, token="abc"))
    assert "A session token (AWS_SESSION_TOKEN or token) is sent along" in said
    said = denied("InvalidAccessKeyId", lambda port: store_at(port, key='"AKIAKEY"'))
    assert "the access key has a quotation mark at its start" in said
    assert "AKIAKEY" not in said


def test_an_endpoint_with_the_bucket_in_it_is_named() -> None:
    missing = "404 Not Found"
    assert "endpoint" not in denied("NoSuchKey", store_at, missing)
    said = denied(
        "NoSuchKey", lambda port: store_at(port, endpoint_url=f"http://127.0.0.1:{port}/bucket/"), missing
    )
    assert "there is no such bucket there: s3://bucket. The endpoint has the bucket's name in it" in said
