"""The S3 store against servers that move, that break off a listing, or that answer half."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
import time

import pytest

from nbdata.errors import NotFound, StoreUnavailable
from nbdata.stores.credentials import S3Config
from nbdata.stores.s3 import S3Store
from nbdata.stores.sigv4 import Identity
from tests.stores.servers import Handler, ok, read_body, read_head, serving


def store(port: int) -> S3Store:
    return S3Store("bucket", S3Config(Identity("k", "s"), "us-east-1", f"http://127.0.0.1:{port}", "path"))


def each(answer) -> Handler:  # type: ignore[no-untyped-def]
    """Answer every request with what `answer` makes of its head."""

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            read_body(connection, head)
            connection.sendall(answer(head.decode("latin-1")))

    return handle


def test_many_threads_that_learn_at_once_that_the_bucket_is_elsewhere_all_succeed() -> None:
    def answer(head: str) -> bytes:
        if "/eu-west-1/s3/" in head:
            return ok(b"hello", 'ETag: "x"')
        time.sleep(0.2)
        body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"
        return b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    with serving(each(answer)) as port:
        there, results = store(port), []

        def read() -> None:
            try:
                results.append(there.read_bytes("key"))
            except Exception as error:
                results.append(error)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert results == [b"hello"] * 8


def listed(keys: list[str]) -> bytes:
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    return ok(
        f"<ListBucketResult><IsTruncated>true</IsTruncated>{contents}</ListBucketResult>".encode()
        if keys and keys[-1] != "d"
        else f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()
    )


def test_a_listing_without_continuation_tokens_goes_on_behind_its_last_key() -> None:
    def answer(head: str) -> bytes:  # version 1 of the listing, whatever was asked for
        found = re.search(r"[?&]marker=(\w*)", head)
        after = found.group(1) if found else ""
        return listed([key for key in "abcd" if key > after][:2])

    with serving(each(answer)) as port:
        assert [info.key for info in store(port).list("")] == ["a", "b", "c", "d"]


def test_a_listing_that_says_there_is_more_and_never_gives_it_is_an_error() -> None:
    with serving(each(lambda head: listed(["a", "b"]))) as port, pytest.raises(StoreUnavailable):
        list(store(port).list(""))


def test_an_upload_without_an_id_is_refused() -> None:
    answer = ok(b"<InitiateMultipartUploadResult></InitiateMultipartUploadResult>")
    with serving(each(lambda head: answer)) as port, pytest.raises(StoreUnavailable):
        store(port).upload("key", 100 << 20)


def test_an_upload_is_put_together_by_a_server_that_answers_blanks_first_and_no_quotes() -> None:
    """The blanks keep the connection alive while it works; the ETag is to be the one that a listing has."""

    def answer(head: str) -> bytes:
        if "uploads=" in head:
            return ok(b"<R><UploadId>7</UploadId></R>")
        return ok(b"  \n<?xml version='1.0'?><R><ETag>0123456789abcdef0123456789abcdef-1</ETag></R>")

    with serving(each(answer)) as port:
        made = store(port).upload("key", 1).finish(['"x"'])
    assert made.etag == '"0123456789abcdef0123456789abcdef-1"'


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("done", [True, False])
def test_an_upload_whose_last_answer_is_lost_is_looked_for(kept: bool, done: bool) -> None:
    """It may be an object by then; if the connection was a kept one, the store is asked again and knows it no more."""
    digest = hashlib.md5(b"x").digest()
    etag = f"{hashlib.md5(digest).hexdigest()}-1" if done else "0" * 32
    asked: list[str] = []

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection).decode("latin-1"):
            read_body(connection, head.encode("latin-1"))
            line = head.split("\r\n")[0]
            if "uploads=" in line:
                connection.sendall(
                    ok(b"<R><UploadId>7</UploadId></R>", *([] if kept else ["Connection: close"]))
                )
            elif line.startswith("POST"):
                asked.append(line)
                if len(asked) == 1:
                    return
                body = b"<Error><Code>NoSuchUpload</Code></Error>"
                connection.sendall(
                    b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                )
            else:
                connection.sendall(ok(b"x", f'ETag: "{etag}"')[:-1])
            if not kept:
                return

    with serving(handle) as port:
        upload = store(port).upload("key", 1)
        if done:
            assert upload.finish([f'"{digest.hex()}"']).etag == f'"{etag}"'
        else:
            with pytest.raises(NotFound if kept else StoreUnavailable):
                upload.finish([f'"{digest.hex()}"'])
    assert len(asked) == (2 if kept else 1)
