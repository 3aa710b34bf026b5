"""A copy that fails or is cancelled leaves nothing behind."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path

import pytest

import nbdata
from nbdata.transfer import uploads
from nbdata.transfer.uploads import remembered
from tests.engine.copy.sides import MIB, Sides, copy
from tests.faults.gate import Gate
from tests.stores.servers import ok, read_body, read_head, serving
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("inline")


def test_failures_are_reported_and_the_rest_is_copied(side: Sides) -> None:
    source, target = side("moto"), side("seaweedfs")
    source.put({"a": b"1", "x/.nbdata/parts": b"forged"})
    report = copy(source, target, on_error="report")
    assert report.counts == {"copied": 1, "unrepresentable": 1}
    assert target.keys() == ["a"]


@pytest.mark.in_ci("moto")
@pytest.mark.parametrize("kind", ["moto", "seaweedfs"])
def test_an_upload_that_cannot_be_remembered_is_given_up_and_the_reason_is_told(
    kind: str, side: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, line: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(uploads, "append", full)
    source, target = side(kind), side("moto")
    source.put_parts("big", os.urandom(33 * MIB), 8 * MIB)
    with pytest.raises(nbdata.NotEnoughSpace, match="became full"):
        copy(source, target)
    wait_until(lambda: not target.pending())


@pytest.mark.usefixtures("own_state")
def test_a_cancel_does_not_wait_for_the_source_and_leaves_no_upload(
    side: Sides, gate: Gate, tmp_path: Path
) -> None:
    source, target = side("seaweedfs"), side("moto")
    source.put_parts("big", os.urandom(40 * MIB), 5 * MIB)
    gate.close(after=8 * MIB)
    before = _files(tmp_path)
    job = nbdata.Copy(
        source.url,
        target.url,
        storage_options={**source.options, "endpoint_url": gate.url},
        target_options=target.options,
    ).start()
    wait_until(lambda: gate.holds and job.snapshot().bytes >= MIB and target.pending())
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait()
    assert gate.holds
    assert target.keys() == []
    wait_until(lambda: not target.pending())
    assert remembered(os.environ["NBDATA_STATE_DIR"]) == {}
    assert _files(tmp_path) == before, "nothing touched the disk"


@pytest.mark.usefixtures("own_state")
def test_an_upload_that_is_cancelled_while_it_begins_is_aborted(side: Sides) -> None:
    """Only the store's response names the upload, and it arrives after the cancel."""
    source, cancelled, given_up = side("moto"), threading.Event(), threading.Event()
    source.put_parts("big", os.urandom(33 * MIB), 8 * MIB)
    begun = threading.Event()

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            read_body(connection, head)
            line = head.split(b"\r\n")[0].decode()
            answer = ok(b"<L><IsTruncated>false</IsTruncated></L>")
            if "uploads=" in line:
                begun.set()
                cancelled.wait(PATIENCE)
                answer = ok(b"<R><UploadId>left7</UploadId></R>")
            elif line.startswith("DELETE") and "uploadId=left7" in line:
                given_up.set()
            connection.sendall(answer)

    with serving(handle) as port:
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "k", "secret": "s"}
        job = nbdata.Copy(
            source.url, "s3://bucket/", storage_options=source.options, target_options=options
        ).start()
        assert begun.wait(PATIENCE)
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait(timeout=PATIENCE)
        cancelled.set()
        assert given_up.wait(PATIENCE)
        # Check this while the server still answers, because an upload that may still exist stays recorded.
        wait_until(lambda: remembered(os.environ["NBDATA_STATE_DIR"]) == {})


def _files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
