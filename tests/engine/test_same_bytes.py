"""What was brought by something else, or lost its record in a kill, is compared and not moved again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.slow import SlowProxy

pytestmark = pytest.mark.usefixtures("inline", "own_state")

SIZE = (20 << 20) + 12_345
# Less than a tenth of the object: requests and answers without its bytes.
WORDS = SIZE // 10


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    data = os.urandom(SIZE)
    (tmp_path / "big").write_bytes(data)
    return data


@pytest.fixture
def url(s3: EmbeddedServer, bucket: str, content: bytes) -> str:
    """An object that another tool uploaded, in parts of its own choice."""
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


def test_a_file_of_the_same_size_with_one_other_byte_is(url: str, content: bytes, tmp_path: Path) -> None:
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


def test_an_object_of_the_same_size_with_one_other_byte_is(
    s3: EmbeddedServer, bucket: str, url: str, content: bytes, tmp_path: Path
) -> None:
    changed = content[:-1] + bytes([content[-1] ^ 1])
    (tmp_path / "big").write_bytes(changed)
    assert nbdata.push(tmp_path / "big", url + "big", quiet=True).counts == {"sent": 1}
    assert client_of(s3).get_object(Bucket=bucket, Key="data/big")["Body"].read() == changed
