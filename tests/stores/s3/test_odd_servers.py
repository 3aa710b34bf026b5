"""The S3 store against servers that redirect, that break off a listing, or that implement only half of S3."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.sax.saxutils import escape

import pytest

import nbdata
from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.operation import Context
from nbdata.stores.resolve import open_place
from nbdata.stores.s3.config import S3Config
from nbdata.stores.s3.errors import new_region
from nbdata.stores.s3.sigv4 import Identity
from nbdata.stores.s3.store import S3Store
from tests.slow import take
from tests.stores.servers import Handler, ok, read_body, read_head, serving
from tests.waiting import PATIENCE


def store(port: int, *, stall: float = 30.0) -> S3Store:
    config = S3Config(Identity("k", "s"), "us-east-1", f"http://127.0.0.1:{port}", "path", stall=stall)
    return S3Store("bucket", config)


def each(answer) -> Handler:  # type: ignore[no-untyped-def]
    """Answer every request with `answer(head)`."""

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            read_body(connection, head)
            connection.sendall(answer(head.decode("latin-1")))

    return handle


def test_many_threads_that_learn_at_once_that_the_bucket_is_elsewhere_all_succeed() -> None:
    def answer(head: str) -> bytes:
        if "/eu-west-1/s3/" in head:
            return ok(b"hello", 'ETag: "x"')
        take(0.2)
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
            thread.join(PATIENCE)
    assert results == [b"hello"] * 8


def listed(keys: list[str]) -> bytes:
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    return ok(
        f"<ListBucketResult><IsTruncated>true</IsTruncated>{contents}</ListBucketResult>".encode()
        if keys and keys[-1] != "d"
        else f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()
    )


def test_a_listing_without_continuation_tokens_goes_on_behind_its_last_key() -> None:
    def answer(head: str) -> bytes:  # version 1 of the listing, whatever was requested
        found = re.search(r"[?&]marker=(\w*)", head)
        after = found.group(1) if found else ""
        return listed([key for key in "abcd" if key > after][:2])

    with serving(each(answer)) as port:
        assert [info.key for info in store(port).list("")] == ["a", "b", "c", "d"]
        assert [info.key for info in store(port).list("", after="a")] == [
            "b",
            "c",
            "d",
        ]  # after an interruption


def test_a_listing_that_says_there_is_more_and_never_gives_it_is_an_error() -> None:
    with serving(each(lambda head: listed(["a", "b"]))) as port, pytest.raises(StoreUnavailable):
        list(store(port).list(""))


@pytest.mark.parametrize("named", ["", "<Key>/bucket/b</Key>", "<Key>B</Key>"])
def test_a_deletion_that_failed_is_not_taken_for_done_whatever_the_server_names(named: str) -> None:
    def answer(head: str) -> bytes:
        if head.startswith("POST"):
            return ok(
                f"<DeleteResult><Error>{named}<Code>AccessDenied</Code></Error></DeleteResult>".encode()
            )
        denied = b"/b " in head.encode("latin-1")
        return b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % (b"403 No" if denied else b"204 Done")

    with serving(each(answer)) as port, pytest.raises(AccessDenied) as caught:
        store(port).delete(["a", "b", "c"])
    assert caught.value.path == "s3://bucket/b"


def test_an_upload_without_an_id_is_refused() -> None:
    answer = ok(b"<InitiateMultipartUploadResult></InitiateMultipartUploadResult>")
    with serving(each(lambda head: answer)) as port, pytest.raises(StoreUnavailable):
        store(port).upload("key", 100 << 20)


def test_an_upload_is_put_together_by_a_server_that_answers_blanks_first_and_no_quotes() -> None:
    """The blanks keep the connection alive during the work. The ETag must become the one that a listing shows."""

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
    """It may be an object by then.

    On a kept connection the store is asked again, and does not know the upload any more.
    """
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


# -- servers that implement only half of S3 -------------------------------------------------------


def job(port: int) -> dict[str, str]:
    return {"endpoint_url": f"http://127.0.0.1:{port}", "key": "k", "secret": "s", "region": "us-east-1"}


def one_object(data: bytes, *headers: str, ranges: str = "right", etag: str = '"tag"') -> Handler:
    """Return a server with the object ``x`` that supports ranges, ignores them or gets them wrong."""

    def answer(head: str) -> bytes:
        shown = [f"ETag: {etag}"] if etag else []
        if "list-type=2" in head:
            tag = f"<ETag>{escape(etag)}</ETag>" if etag else ""
            item = f"<Contents><Key>x</Key><Size>{len(data)}</Size>{tag}</Contents>"
            found = item if re.search(r"prefix=(&|x?$|x? )", head.split("\r\n")[0]) else ""
            return ok(f"<R><IsTruncated>false</IsTruncated>{found}</R>".encode())
        if head.startswith("HEAD"):
            return ok(data, *shown, *headers).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        asked = re.search(r"range: bytes=(\d+)-(\d*)", head)
        if asked is None or ranges == "ignored":
            return ok(data, *shown, *headers)
        start, end = int(asked[1]), int(asked[2] or len(data) - 1) + 1
        if ranges == "others":
            start, end = 0, end - start
        piece = data[start : end - (100 if ranges == "short" else 0)]
        lines = [
            f"Content-Length: {len(piece)}",
            f"Content-Range: bytes {start}-{end - 1}/{len(data)}",
            *shown,
        ]
        return "\r\n".join(["HTTP/1.1 206 X", *lines, *headers, "", ""]).encode() + piece

    return each(answer)


@pytest.mark.in_ci(1)
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("ranges", ["ignored", "others", "short"])
def test_a_server_that_gets_ranges_wrong_gives_the_right_bytes_all_the_same(
    ranges: str, tmp_path: Path
) -> None:
    data = os.urandom(1 << 20) * 33
    with serving(one_object(data, ranges=ranges)) as port:
        report = nbdata.pull("s3://bucket/x", tmp_path / "out", storage_options=job(port), quiet=True)
    assert report.counts == {"fetched": 1}
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("etag", ["", 'W/"weak"'])
def test_a_server_without_checksums_or_with_weak_etags_is_read_and_nothing_is_called_verified(
    etag: str, tmp_path: Path
) -> None:
    time_of = "Last-Modified: Sat, 31 Jan 2026 12:00:00 GMT"
    with serving(one_object(b"content", time_of, etag=etag)) as port:
        report = nbdata.pull("s3://bucket/", tmp_path / "out", storage_options=job(port), quiet=True)
    assert (tmp_path / "out/x").read_bytes() == b"content"
    unguarded, unverified = report.notes
    assert unguarded.startswith("1 came without version")
    assert unverified == "1 could not be verified: the store has no checksum for them"


@pytest.mark.parametrize(("first", "then"), [('"one"', '"two"'), ('W/"one"', 'W/"two"')])
def test_a_server_that_ignores_conditions_does_not_hide_a_change(first: str, then: str) -> None:
    etags = [first, then, then]
    with serving(each(lambda head: ok(b"12345", f"ETag: {etags.pop(0)}"))) as port:
        there = store(port)
        info = there.head("x")
        for ranged in ((), (1, 3)):
            with pytest.raises(SourceChanged):
                there.read("x", *ranged, match=info)


def test_a_weak_etag_is_never_insisted_on() -> None:
    seen: list[str] = []

    def answer(head: str) -> bytes:
        seen.append(head)
        return ok(b"12345", 'ETag: W/"weak"')

    with serving(each(answer)) as port:
        there = store(port)
        there.read("x", match=there.head("x")).close()
    assert not any("if-match" in head for head in seen)


@pytest.mark.usefixtures("inline")
def test_an_upload_whose_end_is_answered_without_an_etag_is_known_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_bytes(os.urandom(1 << 20) * 33)
    size, made, puts = 33 << 20, False, 0

    def handle(connection: socket.socket) -> None:
        nonlocal made, puts
        while head := read_head(connection):
            body = read_body(connection, head)
            line = head.decode("latin-1").split("\r\n")[0]
            shown = ok(b"<R><IsTruncated>false</IsTruncated></R>")
            if line.startswith("POST") and "uploads=" in line:
                shown = ok(b"<R><UploadId>id</UploadId></R>")
            elif line.startswith("POST"):
                made, shown = True, ok(b"<R></R>")
            elif line.startswith("PUT"):
                puts += 1
                shown = ok(b"", f'ETag: "{hashlib.md5(body).hexdigest()}"')
            elif line.startswith("HEAD"):
                shown = f'HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nETag: "real-3"\r\n\r\n'.encode()
            elif made:
                item = f'<Contents><Key>x</Key><Size>{size}</Size><ETag>"real-3"</ETag></Contents>'
                shown = ok(f"<R><IsTruncated>false</IsTruncated>{item}</R>".encode())
            connection.sendall(shown)

    with serving(handle) as port:
        for expected in ({"sent": 1}, {"unchanged": 1}):
            report = nbdata.push(tmp_path / "in", "s3://bucket/", storage_options=job(port), quiet=True)
            assert report.counts == expected
    assert puts == 3


def test_a_server_that_is_slow_to_list_is_waited_for() -> None:
    def handle(connection: socket.socket) -> None:
        while read_head(connection):
            answer = listed(["a", "d"])
            for at in range(0, len(answer), 40):
                connection.sendall(answer[at : at + 40])
                take(0.05)

    with serving(handle) as port:
        assert [info.key for info in store(port).list("")] == ["a", "d"]


def test_a_server_that_never_answers_a_listing_is_given_up() -> None:
    ended = threading.Event()

    def handle(connection: socket.socket) -> None:
        read_head(connection)
        ended.wait(PATIENCE)

    with serving(handle) as port, pytest.raises(StoreUnavailable, match="too long") as caught:
        list(store(port, stall=0.3).list(""))
    ended.set()
    assert caught.value.details["retry"] is True


def test_a_page_of_something_else_is_no_listing() -> None:
    for page in (b"<html><body>Please log in</body></html>", b"", b"{}", b"<ListBucketResult>"):
        with serving(each(lambda head, page=page: ok(page))) as port, pytest.raises(NbdataError):  # type: ignore[misc]
            list(store(port).list(""))


@pytest.mark.parametrize("region", ["x\r\nhost: internal", "evil.com/", "€", "a" * 70, "-"])
def test_a_region_that_is_no_name_is_not_used(region: str) -> None:
    response: Any = SimpleNamespace(status=400, headers={})
    body = f"<Error><Code>AuthorizationHeaderMalformed</Code><Region>{region}</Region></Error>"
    assert new_region(response, body.encode()) == ""
    assert new_region(response, body.replace(region, "eu-west-1").encode()) == "eu-west-1"


@pytest.mark.parametrize("bucket", ["evil.com?", "evil.com#", "a b", "a\\b", "a%2fb"])
def test_what_is_no_name_of_a_bucket_is_refused(bucket: str) -> None:
    with pytest.raises(BadOption, match="bucket"):
        open_place(f"s3://{bucket}/x", Context("/", storage_options={"anon": True}))


def refusal(status: int, code: str, message: str, *more: str) -> bytes:
    body = (
        f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>".encode()
        if code
        else message.encode()
    )
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n%b\r\n%b" % (
        status, len(body), b"".join(line.encode() + b"\r\n" for line in more), body,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "message", "advice"),
    [
        (403, "QuotaExceeded", "The bucket is over its quota.", "whoever runs the bucket"),
        (403, "UserDisable", "UserDisable: the account is in arrears", "whoever runs the bucket"),
        (
            403,
            "AccessDenied",
            "User: x is not authorized to perform: kms:Decrypt on this resource",
            "use the KMS key",
        ),
        (403, "AccessDenied", "Access Denied", "may do this to this bucket"),
        (
            403,
            "SecondLevelDomainForbidden",
            "Please use virtual hosted style to access.",
            "addressing_style=virtual",
        ),
        (403, "InvalidRequest", "Use virtual host style, please", "addressing_style=virtual"),
        (400, "SecondLevelDomainForbidden", "Please use virtual hosted style.", "addressing_style=virtual"),
    ],
)
def test_a_refusal_says_what_the_store_says_and_guesses_no_cause(
    status: int, code: str, message: str, advice: str
) -> None:
    with (
        serving(each(lambda head: refusal(status, code, message))) as port,
        pytest.raises(NbdataError) as refused,
    ):
        store(port).read_bytes("key")
    assert code in str(refused.value)
    assert message.rstrip(".") in str(refused.value)
    assert advice in str(refused.value)
    assert isinstance(refused.value, BadOption if "virtual" in message else AccessDenied)


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("of_store", [True, False])
def test_a_refusal_that_is_none_of_the_store_names_the_proxy(head: bool, of_store: bool) -> None:
    """A proxy that filters answers with a page; a store's answer to HEAD has no document, but its headers."""
    more = ["x-amz-request-id: 1"] if of_store else []
    with serving(each(lambda _: refusal(403, "", "<html>blocked</html>", *more))) as port:
        config = S3Config(
            Identity("k", "s"),
            "us-east-1",
            "http://example.invalid",
            "path",
            proxy=f"http://u:word@127.0.0.1:{port}",
        )
        there = S3Store("bucket", config)
        with pytest.raises(AccessDenied) as refused:
            there.head("key") if head else there.read_bytes("key")
    assert ("came through a proxy" in str(refused.value)) != of_store
    assert (f"127.0.0.1:{port}" in str(refused.value)) != of_store
    assert "word" not in str(refused.value)


def test_a_refused_write_is_called_wrong_bytes_only_if_the_store_says_so(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"content")
    with (
        serving(
            each(lambda _: refusal(400, "InvalidStorageClass", "The class you specified is not valid"))
        ) as port,
        pytest.raises(NbdataError) as refused,
    ):
        nbdata.push(
            tmp_path / "x", "s3://bucket/x", quiet=True, overwrite="always",
            storage_options={"endpoint_url": f"http://127.0.0.1:{port}", "key": "k", "secret": "s"},
        )  # fmt: skip
    assert "InvalidStorageClass" in str(refused.value)
    assert "is not what was sent" not in str(refused.value)
