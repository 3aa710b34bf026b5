"""push to stores that encrypt with KMS or hang, and of files that change during the push."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nbdata
from nbdata.transfer import retry
from tests.stores.servers import Handler, each, ok, read_body, read_head, serving, status
from tests.waiting import AT_ONCE, PATIENCE

pytestmark = pytest.mark.usefixtures("inline")
KMS = ("x-amz-server-side-encryption: aws:kms", 'ETag: "0123456789abcdef0123456789abcdef"')
LISTING = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


@contextmanager
def s3_of(handle: Handler, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serving(handle) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        yield "s3://bucket/in/"


def kms(connection: socket.socket) -> None:
    while head := read_head(connection):
        read_body(connection, head)
        line = head.split(b"\r\n")[0]
        if b"?uploads=" in line:
            answer = ok(b"<R><UploadId>id</UploadId></R>", *KMS[:1])
        elif line.startswith(b"POST"):
            answer = ok(b'<R><ETag>"fedcba9876543210fedcba9876543210-3"</ETag></R>', *KMS[:1])
        elif line.startswith(b"PUT"):
            answer = ok(b"", *KMS)
        else:
            answer = ok(LISTING)
        connection.sendall(answer)


@pytest.mark.parametrize("size", [1000, 40 << 20])
def test_objects_encrypted_by_kms_are_unverifiable_and_no_mismatch(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"x" * size)
    with s3_of(kms, monkeypatch) as url:
        report = nbdata.push(tmp_path / "f", url, quiet=True)
    assert report.counts == {"sent": 1}
    assert "could not be verified" in report.notes[0]


def test_sources_that_stay_are_counted_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    with s3_of(kms, monkeypatch) as url:
        report = nbdata.push(tmp_path, url, delete_source=True, quiet=True)
    assert report.notes[0] == "3 kept: the upload could not be verified"
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_a_cancel_does_not_wait_for_a_store_that_answers_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))  # the uploads are recorded here
    sending, over = threading.Event(), threading.Event()

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            line = head.split(b"\r\n")[0]
            if line.startswith((b"PUT", b"DELETE")):
                sending.set()
                over.wait(PATIENCE)
                return
            read_body(connection, head)
            started = b"?uploads=" in line
            connection.sendall(ok(b"<R><UploadId>id</UploadId></R>" if started else LISTING))

    (tmp_path / "in").mkdir()
    for name in "abc":
        with open(tmp_path / "in" / name, "wb") as file:
            file.truncate(70 << 20)
    with s3_of(handle, monkeypatch) as url:
        job = nbdata.Push(str(tmp_path / "in"), url).start()
        assert sending.wait(PATIENCE)
        began = time.monotonic()
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait(PATIENCE)
        assert time.monotonic() - began < AT_ONCE
        over.set()


def test_a_file_that_changes_while_it_is_sent_is_never_made_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "f", []
    path.write_bytes(b"a" * (8 << 20))

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            if head.startswith(b"PUT"):
                connection.recv(1 << 16)
                with open(path, "r+b") as file:
                    os.pwrite(file.fileno(), b"b" * 10, (8 << 20) - 10)
                whole.append(len(read_body(connection, head)))
            connection.sendall(ok(LISTING))

    with s3_of(handle, monkeypatch) as url, pytest.raises(nbdata.TransferFailed, match="changed"):
        nbdata.push(path, url, quiet=True)
    assert whole == []


def test_an_upload_that_cannot_begin_is_tried_by_one_worker_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(head: str) -> bytes:
        return status(503) if head.startswith("POST") else ok(LISTING)

    monkeypatch.setattr(retry, "_FIRST", 0.001)
    monkeypatch.setattr(retry, "_LONGEST", 0.001)
    with open(tmp_path / "large", "wb") as file:
        file.truncate(100 << 20)
    with (
        s3_of(each(answer, asked), monkeypatch) as url,
        pytest.raises(nbdata.TransferFailed, match="503"),
    ):
        nbdata.push(tmp_path / "large", url, quiet=True, concurrency=16)
    assert 1 < sum(head.startswith("POST") for head in asked) < 16
