"""Files that other tools wrote, or whose records a kill lost, are compared and not transferred again."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.job.run import Run
from nbdata.engine.pull import perform
from nbdata.report import Plan
from tests.conftest import client_of
from tests.slow import SlowProxy
from tests.stores.servers import each, ok, read_body, read_head, serving, status

pytestmark = pytest.mark.usefixtures("inline", "own_state")

SIZE = (20 << 20) + 12_345
# Less than a tenth of the object: requests and responses without its bytes.
WORDS = SIZE // 10


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    data = os.urandom(SIZE)
    (tmp_path / "big").write_bytes(data)
    return data


@pytest.fixture
def url(s3: EmbeddedServer, bucket: str, content: bytes) -> str:
    """URL of a folder with an object that another tool uploaded, in parts of its own size."""
    client, key = client_of(s3), {"Bucket": bucket, "Key": "data/big"}
    upload = client.create_multipart_upload(**key)["UploadId"]
    step, parts = 6 << 20, []
    for number, start in enumerate(range(0, SIZE, step), 1):
        body = content[start : start + step]
        answer = client.upload_part(**key, UploadId=upload, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
    client.complete_multipart_upload(**key, UploadId=upload, MultipartUpload={"Parts": parts})
    assert client.head_object(**key)["ETag"].endswith('-4"')
    return f"s3://{bucket}/data/"


def test_a_file_that_another_tool_fetched_is_not_fetched_again(
    slow: SlowProxy, url: str, content: bytes, tmp_path: Path
) -> None:
    plan = nbdata.pull(url, tmp_path, dry_run=True)
    assert list(plan.actions) == ["compare"]
    before = slow.answered
    report = nbdata.pull(url, tmp_path, quiet=True)
    assert report.counts == {"unchanged": 1}
    assert slow.answered - before < WORDS
    assert list(nbdata.pull(url, tmp_path, dry_run=True).actions) == ["unchanged"]


def test_a_file_of_the_same_size_with_one_other_byte_is_fetched_again(
    url: str, content: bytes, tmp_path: Path
) -> None:
    with open(tmp_path / "big", "r+b") as file:
        file.seek(SIZE // 2)
        file.write(bytes([content[SIZE // 2] ^ 1]))
    assert nbdata.pull(url, tmp_path, quiet=True).counts == {"fetched": 1}
    assert (tmp_path / "big").read_bytes() == content


def test_an_object_that_another_tool_sent_is_not_sent_again(
    slow: SlowProxy, url: str, content: bytes, tmp_path: Path
) -> None:
    before = slow.asked
    assert nbdata.push(tmp_path / "big", url + "big", quiet=True).counts == {"unchanged": 1}
    assert slow.asked - before < WORDS


def test_an_object_of_the_same_size_with_one_other_byte_is_sent_again(
    s3: EmbeddedServer, bucket: str, url: str, content: bytes, tmp_path: Path
) -> None:
    changed = content[:-1] + bytes([content[-1] ^ 1])
    (tmp_path / "big").write_bytes(changed)
    assert nbdata.push(tmp_path / "big", url + "big", quiet=True).counts == {"sent": 1}
    assert client_of(s3).get_object(Bucket=bucket, Key="data/big")["Body"].read() == changed


def test_a_user_who_may_write_and_not_read_sends_the_file(
    s3: EmbeddedServer, bucket: str, url: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = urlsplit(s3.url)

    def refuse(connection: socket.socket) -> None:
        """Answer every HEAD with a refusal for lack of rights, and forward all other requests."""
        head = read_head(connection)
        if head.startswith(b"HEAD "):
            connection.sendall(status(403, "Connection: close"))
            return
        line, _, rest = head.partition(b"\r\n")
        with socket.create_connection((upstream.hostname or "", upstream.port or 80)) as behind:
            behind.sendall(line + b"\r\nConnection: close\r\n" + rest + read_body(connection, head))
            while data := behind.recv(1 << 16):
                connection.sendall(data)

    with serving(refuse) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        assert nbdata.push(tmp_path, url, quiet=True).counts == {"sent": 1}
    assert client_of(s3).get_object(Bucket=bucket, Key="data/big")["Body"].read() == content


def test_files_that_were_only_compared_still_belong_to_the_user(
    s3: EmbeddedServer, bucket: str, url: str, tmp_path: Path
) -> None:
    """cleanup deletes files that nbdata wrote, and keeps those that it found."""
    client_of(s3).put_object(Bucket=bucket, Key="data/small", Body=b"small")
    for report in ({"fetched": 1, "unchanged": 1}, {"unchanged": 2}):
        assert nbdata.pull(url, tmp_path, quiet=True).counts == report
        for name in ("big", "small"):  # a touched file is compared again
            os.utime(tmp_path / name)
    assert nbdata.pull(url, tmp_path, quiet=True).counts == {"unchanged": 2}
    assert nbdata.cleanup(tmp_path, all=True, quiet=True).counts["deleted"] == 1
    assert os.listdir(tmp_path) == ["big"]


def test_a_file_is_compared_with_whatever_checksum_a_store_tells(tmp_path: Path) -> None:
    """Azure, and servers that send Content-MD5, return such checksums, while their ETags prove nothing."""
    told = base64.b64encode(hashlib.md5(b"what is there").digest()).decode()
    seen = list[str]()
    answer = ok(b"what is there", 'ETag: "v1"', f"Content-MD5: {told}")
    with serving(each(lambda head: answer, seen)) as port:
        url = f"http://127.0.0.1:{port}/file"
        for data, done in ((b"what is there", "unchanged"), (b"what is NOT  ", "overwritten (edited here)")):
            (tmp_path / "file").write_bytes(data)
            assert nbdata.pull(url, tmp_path / "file", quiet=True).counts == {done: 1}
            assert (tmp_path / "file").read_bytes() == b"what is there"
            assert any(head.startswith("GET") for head in seen) == (done != "unchanged")


def test_a_pipe_that_stands_there_by_then_is_not_waited_for(
    s3: EmbeddedServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_of(s3).put_object(Bucket=bucket, Key="small", Body=b"small")
    (tmp_path / "small").write_bytes(b"small")
    plan = perform.plan

    def plan_and_replace(run: Run) -> Plan:
        planned = plan(run)
        assert list(planned.actions) == ["compare"]
        (tmp_path / "small").unlink()
        os.mkfifo(tmp_path / "small")
        return planned

    monkeypatch.setattr(perform, "plan", plan_and_replace)
    assert nbdata.pull(f"s3://{bucket}/", tmp_path, quiet=True).counts == {"fetched": 1}
    assert (tmp_path / "small").read_bytes() == b"small"
