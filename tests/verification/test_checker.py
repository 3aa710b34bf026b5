"""The checker of stored checksums: multipart ETags are verified, and prove an error only where they can."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption
from nbdata.integrity import digests, etags, part_digests
from nbdata.stores.base import ObjectInfo
from nbdata.verification.checker import of_parts, right, stored_checksum
from tests.slow import SlowProxy
from tests.stores.twins import twin

pytestmark = pytest.mark.usefixtures("inline")

MIB = 1 << 20
# Store only the requested checksums; newer clients add a CRC-32 to each object by default.
BARE = Config(request_checksum_calculation="when_required")


@pytest.fixture(params=["seaweedfs", "moto"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> EmbeddedServer:
    """Each server in turn, as the store for ``s3://``."""
    found: EmbeddedServer = request.getfixturevalue(request.param)
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)
    found.create_bucket("verify")
    return found


def client(server: EmbeddedServer) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=BARE,
    )


def upload(server: EmbeddedServer, key: str, parts: list[bytes]) -> None:
    s3 = client(server)
    upload_id = s3.create_multipart_upload(Bucket="verify", Key=key)["UploadId"]
    sent = []
    for number, body in enumerate(parts, 1):
        etag = s3.upload_part(Bucket="verify", Key=key, UploadId=upload_id, PartNumber=number, Body=body)[
            "ETag"
        ]
        sent.append({"PartNumber": number, "ETag": etag})
    s3.complete_multipart_upload(
        Bucket="verify", Key=key, UploadId=upload_id, MultipartUpload={"Parts": sent}
    )
    s3.close()


@pytest.mark.in_ci("moto-in parts", "seaweedfs-in parts", 1)
@pytest.mark.parametrize("sizes", [[6, 6, 1], [17, 17, 4]], ids=["small", "in parts"])
def test_an_object_of_equal_parts_is_verified_while_it_is_pulled(
    server: EmbeddedServer, tmp_path: Path, sizes: list[int]
) -> None:
    upload(server, "even", [os.urandom(size * MIB) for size in sizes])
    report = nbdata.pull("s3://verify/even", tmp_path / "even", quiet=True)
    assert [row.detail["verified"] for row in report.rows] == [True]


@pytest.mark.in_ci(1)
def test_an_object_of_unequal_parts_is_pulled_unverified_and_not_called_damaged(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    upload(server, "uneven", [os.urandom(size * MIB) for size in (7, 5, 5)])
    report = nbdata.pull("s3://verify/uneven", tmp_path / "uneven", quiet=True)
    assert report.counts == {"fetched": 1}
    assert [row.detail["verified"] for row in report.rows] == [False]


@pytest.mark.parametrize("size", [MIB, 40 * MIB], ids=["small", "in parts"])
def test_the_etag_of_an_object_encrypted_by_kms_is_not_taken_for_an_md5(
    moto: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int
) -> None:
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    moto.create_bucket("verify")
    s3 = client(moto)
    s3.put_object(Bucket="verify", Key="secret", Body=bytes(size), ServerSideEncryption="aws:kms")
    s3.close()
    report = nbdata.pull("s3://verify/secret", tmp_path / "secret", verify="auto", quiet=True)
    assert [row.detail["verified"] for row in report.rows] == [False]


@pytest.mark.in_ci("moto-1", "seaweedfs-1")
@pytest.mark.parametrize("megabytes", [1, 40])
def test_a_checksum_that_the_store_does_not_keep_is_told_before_a_byte_moves(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int
) -> None:
    key = f"bare{megabytes}"
    client(server).put_object(Bucket="verify", Key=key, Body=bytes(megabytes * MIB))
    with SlowProxy(server.url, rate=500_000) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        report = nbdata.pull(
            f"s3://verify/{key}", tmp_path / "out", verify="sha256", on_error="report", quiet=True
        )
        assert report.counts == {"failed": 1}
        assert "sha256" in str(report.failures[0])
        assert proxy.answered < MIB // 2
    assert "retries" not in report.line


def test_a_checksum_that_cannot_be_made_here_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    digests.is_available.cache_clear()
    try:
        both = ObjectInfo("k", 3, checksums={"crc64nvme": "0" * 16, "crc32": "352441c2"})
        assert stored_checksum(both, "auto") == ("crc32", "352441c2")
        only = ObjectInfo("k", 3, checksums={"crc64nvme": "0" * 16})
        assert right(only, "auto", memoryview(b"abc")) is False
        with pytest.raises(BadOption, match="needs awscrt"):
            digests.new_digest("crc64nvme")
    finally:
        digests.is_available.cache_clear()


@pytest.mark.parametrize(("size", "parts"), [(200_000, 200_000), (1_000_000, 999_999), (50_000, 9000)])
def test_a_store_does_not_decide_how_many_digests_an_object_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, parts: int
) -> None:
    """Neither by its ETag nor by a composite checksum: what cannot be so many parts is no promise."""
    made = []

    def counted(algorithm: str) -> Any:
        made.append(algorithm)
        return digests.new_digest(algorithm)

    for module in (etags, part_digests):
        monkeypatch.setattr(module, "new_digest", counted)
    with twin({"f": bytes(size)}, parts=parts) as server:
        options = server.options("s3")
        report = nbdata.pull("s3://b/", tmp_path / "t", storage_options=options, quiet=True)
        with pytest.raises(nbdata.NotFound, match="the store keeps no checksum"):
            nbdata.md5check(tmp_path / "t", against="s3://b/", storage_options=options, quiet=True)
    assert report.ok
    assert len(made) < 100


def test_a_store_does_not_say_parts_of_a_byte() -> None:
    info = ObjectInfo("k", 5_000_000, f'"{"0" * 32}-2"')
    promise = of_parts(info, "auto")
    assert promise is not None
    assert promise.sizes(info.size, 1) == []
    assert promise.sizes(info.size, 2_500_000) == [2_500_000]
