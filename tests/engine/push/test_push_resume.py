"""A push that was stopped resumes with the parts in the store, and verifies each of them first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.faults.gate import Gate

pytestmark = pytest.mark.usefixtures("inline")

SIZE = 96 << 20
PART = 8 << 20


@pytest.fixture
def line(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate in front of SeaweedFS that can hold uploaded bytes."""
    with Gate(s3.url, answers=False) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(SIZE))
    return path


def unfinished(s3: EmbeddedServer, bucket: str) -> list[str]:
    """Return the ids of the unfinished uploads in the store."""
    found = client_of(s3).list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return [upload["UploadId"] for upload in found]


def stopped(line: Gate, file: Path, url: str, after: int) -> None:
    """Push until `after` bytes were sent, then cancel."""
    line.close(after=after)
    job = nbdata.Push(file, url, part_size=PART, concurrency=2).start()
    line.wait_until_it_holds()
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait()
    line.open()


def same(s3: EmbeddedServer, bucket: str, file: Path) -> bool:
    return bool(client_of(s3).get_object(Bucket=bucket, Key="big")["Body"].read() == file.read_bytes())


def test_the_same_line_sends_only_the_parts_that_are_missing(
    line: Gate, s3: EmbeddedServer, bucket: str, file: Path
) -> None:
    url = f"s3://{bucket}/big"
    stopped(line, file, url, SIZE // 2)
    assert len(unfinished(s3, bucket)) == 1
    before = line.asked
    report = nbdata.push(file, url, part_size=PART, quiet=True)
    assert report.present >= SIZE // 2 - 3 * PART
    # At the cancel, one part per connection was on its way. These parts still pass the gate.
    assert line.asked - before < SIZE - report.present + 2 * PART
    assert "were there already" in report.line
    assert same(s3, bucket, file)
    assert unfinished(s3, bucket) == []


def test_a_killed_push_goes_on_too(line: Gate, s3: EmbeddedServer, bucket: str, file: Path) -> None:
    url = f"s3://{bucket}/big"
    code = "import sys, nbdata; nbdata.push(sys.argv[1], sys.argv[2], part_size='8MiB', concurrency=2, quiet=True)"
    line.close(after=SIZE // 2)
    process = subprocess.Popen([sys.executable, "-c", code, str(file), url])
    line.wait_until_it_holds()
    process.kill()
    process.wait()
    line.open()
    report = nbdata.push(file, url, part_size=PART, quiet=True)
    assert report.present >= SIZE // 2 - 3 * PART
    assert same(s3, bucket, file)
    assert unfinished(s3, bucket) == []


@pytest.mark.long
def test_parts_of_what_the_file_was_before_are_sent_again(
    line: Gate, s3: EmbeddedServer, bucket: str, file: Path
) -> None:
    url = f"s3://{bucket}/big"
    stopped(line, file, url, SIZE // 2)
    with file.open("r+b") as changed:
        changed.write(os.urandom(100))
    report = nbdata.push(file, url, part_size=PART, quiet=True)
    assert 0 < report.present <= SIZE - PART
    assert same(s3, bucket, file)


@pytest.mark.long
def test_an_upload_that_was_given_up_meanwhile_is_begun_again(
    line: Gate, s3: EmbeddedServer, bucket: str, file: Path
) -> None:
    url = f"s3://{bucket}/big"
    stopped(line, file, url, SIZE // 4)
    assert nbdata.cleanup(url, quiet=True).counts == {"aborted": 1}
    assert unfinished(s3, bucket) == []
    report = nbdata.push(file, url, part_size=PART, quiet=True)
    assert report.present == 0
    assert same(s3, bucket, file)


@pytest.mark.long
def test_an_upload_of_a_file_that_changed_meanwhile_is_given_up(
    line: Gate, s3: EmbeddedServer, bucket: str, file: Path
) -> None:
    line.close(after=SIZE // 4)
    job = nbdata.Push(file, f"s3://{bucket}/big", part_size=PART).start()
    line.wait_until_it_holds()
    file.touch()
    line.open()
    with pytest.raises(nbdata.TransferFailed, match="changed while it was sent"):
        job.wait()
    assert unfinished(s3, bucket) == []


@pytest.mark.long
def test_other_parts_than_are_wanted_now_are_not_used(
    line: Gate, s3: EmbeddedServer, bucket: str, file: Path
) -> None:
    url = f"s3://{bucket}/big"
    stopped(line, file, url, SIZE // 4)
    report = nbdata.push(file, url, part_size=2 * PART, quiet=True)
    assert report.present == 0
    assert same(s3, bucket, file)
    assert unfinished(s3, bucket) == []


@pytest.mark.long
def test_an_upload_whose_id_a_killed_push_never_knew_is_given_up(
    s3: EmbeddedServer, bucket: str, file: Path
) -> None:
    client = client_of(s3)
    foreign = client.create_multipart_upload(Bucket=bucket, Key="big2")["UploadId"]
    # Simulates a kill before the store's response arrives.
    code = (
        "import os, sys, nbdata\n"
        "from nbdata.engine.planning import begun_uploads\n"
        "begun_uploads.remember = lambda *_: os._exit(9)\n"
        "nbdata.push(sys.argv[1], sys.argv[2], quiet=True)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(file), f"s3://{bucket}/big"], cwd="/", check=False
    )
    assert killed.returncode == 9
    assert len(unfinished(s3, bucket)) == 2
    nbdata.push(file, f"s3://{bucket}/big", quiet=True)
    assert unfinished(s3, bucket) == [foreign]
    client.close()
