"""``s3_additional_kwargs`` and ``config_kwargs``: what changes what is stored is sent, the rest refused by name."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, NbdataError
from nbdata.operation import Context
from nbdata.redaction import scrub
from nbdata.stores.base import ObjectInfo
from nbdata.stores.s3.config import s3_config
from nbdata.stores.s3.store import S3Store
from tests.conftest import client_of
from tests.faults.gate import Gate
from tests.stores.servers import ok, read_body, read_head, serving

pytestmark = pytest.mark.usefixtures("inline")

KEY = bytes(range(32))
#: The key as headers ("Using server-side encryption with customer-provided keys", Amazon S3 User Guide).
SSE_C = {
    "algorithm": "AES256",
    "key": base64.b64encode(KEY).decode(),
    "key-md5": base64.b64encode(hashlib.md5(KEY).digest()).decode(),
}
_STORED = {
    "StorageClass": "STANDARD_IA",
    "ACL": "bucket-owner-full-control",
    "ServerSideEncryption": "aws:kms",
    "SSEKMSKeyId": "arn:aws:kms:eu-west-1:111122223333:key/k",
    "BucketKeyEnabled": True,
    "SSEKMSEncryptionContext": {"a": "b"},
    "Tagging": {"team": "blue sky"},
    "CacheControl": "no-store",
    "ContentType": "text/x-log",
}
_HEADERS = {
    "x-amz-storage-class": "STANDARD_IA",
    "x-amz-acl": "bucket-owner-full-control",
    "x-amz-server-side-encryption": "aws:kms",
    "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:eu-west-1:111122223333:key/k",
    "x-amz-server-side-encryption-bucket-key-enabled": "true",
    "x-amz-server-side-encryption-context": base64.b64encode(b'{"a": "b"}').decode(),
    "x-amz-tagging": "team=blue+sky",
    "cache-control": "no-store",
    "content-type": "text/x-log",
}


def store_at(port: int, parameters: dict[str, Any]) -> S3Store:
    options = {
        "key": "k",
        "secret": "s",
        "endpoint_url": f"http://127.0.0.1:{port}",
        "s3_additional_kwargs": parameters,
    }
    return S3Store(
        "bucket", s3_config("s3", Context("/", env={"HOME": "/nonexistent"}, storage_options=options))
    )


class Recorder:
    """Answers every request as S3 would, and keeps the headers of each, by method and what it asks for."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, str]] = {}

    def handle(self, connection: socket.socket) -> None:
        while head := read_head(connection):
            read_body(connection, head)
            first, *lines = head.decode().strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            method, target, _ = first.split()
            what = next((w for w in ("uploads", "partNumber", "uploadId") if w in target), "")
            copies = "copy " if "x-amz-copy-source" in headers else ""
            self.seen[f"{copies}{method} {what}".strip()] = headers
            body = (
                b"<R><UploadId>1</UploadId><ETag>&quot;e&quot;</ETag></R>"
                if method == "POST" or copies
                else b"x"
            )
            answer = ok(body, 'ETag: "e"')
            connection.sendall(answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else answer)


def _all_ways(parameters: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Read, write and copy an object in every way; return the headers of each kind of request."""
    recorder = Recorder()
    with serving(recorder.handle) as port:
        there = store_at(port, parameters)
        info = ObjectInfo("x", 1, '"e"')
        there.write("x", _bytes(b"x"), 1)
        upload = there.upload("x", 1)
        upload.part(1, _bytes(b"x"), 1)
        upload.copy_part(2, there, info, 0, 1)
        upload.finish(['"e"', '"e"'])
        there.copy(there, info, "y")
        there.head("x")
        there.read("x").close()
        requests = there.small_requests()
        small = {"small GET": requests.read(info, 0, None), "small PUT": requests.write("x", b"x", "")}
    for name, data in small.items():
        lines = data.decode().partition("\r\n\r\n")[0].split("\r\n")[1:]
        recorder.seen[name] = {n.lower(): v for n, _, v in (line.partition(": ") for line in lines)}
    return recorder.seen


def _bytes(data: bytes) -> Any:
    import io

    return io.BytesIO(data)


MAKE = ("PUT", "POST uploads", "copy PUT", "small PUT")
READ = ("HEAD", "GET", "small GET")
PARTS = ("PUT partNumber", "copy PUT partNumber")


def test_every_way_of_making_an_object_stores_it_as_the_options_say_and_no_other_request_does() -> None:
    seen = _all_ways(_STORED)
    for way in MAKE:
        assert {name: seen[way].get(name) for name in _HEADERS} == _HEADERS, way
    for way in (*READ, *PARTS, "POST uploadId"):
        assert not _HEADERS.keys() & seen[way].keys(), way
    assert seen["copy PUT"]["x-amz-tagging-directive"] == "REPLACE"


@pytest.mark.parametrize("key", [KEY, base64.b64encode(KEY).decode()], ids=["bytes", "base64"])
def test_a_key_of_the_customer_is_sent_wherever_bytes_are_read_or_written(key: object) -> None:
    seen = _all_ways({"SSECustomerKey": key})
    headers = {f"x-amz-server-side-encryption-customer-{name}": value for name, value in SSE_C.items()}
    for way in (*MAKE, *READ, *PARTS):
        assert headers.items() <= seen[way].items(), way
    source = {
        f"x-amz-copy-source-server-side-encryption-customer-{name}": value for name, value in SSE_C.items()
    }
    for way in ("copy PUT", "copy PUT partNumber"):
        assert source.items() <= seen[way].items(), way
    assert not headers.keys() & seen["POST uploadId"].keys()


def test_the_owner_of_the_bucket_is_expected_in_each_request() -> None:
    for way, headers in _all_ways(
        {"ExpectedBucketOwner": "111122223333", "RequestPayer": "requester"}
    ).items():
        assert headers["x-amz-expected-bucket-owner"] == "111122223333", way
        assert headers["x-amz-request-payer"] == "requester", way


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"StorageClas": "X"}, "StorageClas cannot be sent.*StorageClass"),
        ({"ChecksumAlgorithm": "SHA256"}, "ChecksumAlgorithm cannot be sent"),
        ({"SSECustomerAlgorithm": "AES256"}, "needs SSECustomerKey"),
        ({"SSECustomerKey": "short"}, "SSECustomerKey is no key"),
        ({"SSECustomerKey": KEY, "SSECustomerKeyMD5": "x"}, "SSECustomerKeyMD5 is not the MD5"),
        ({"CacheControl": "a\r\nx-amz-acl: public-read"}, "CacheControl has other characters"),
        ({"Metadata": {"name": "ü"}}, "Metadata.name has other characters"),
        ({"Metadata": {"a\r\nb": "c"}}, "is no name for metadata"),
        ({"Metadata": {"naïve": "c"}}, "is no name for metadata"),
        ("StorageClass", "s3_additional_kwargs: str is not a choice"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(parameters: Any, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        store_at(1, parameters)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"signature_version": "s3"}, "signature_version 's3' is not a choice"),
        ({"use_dualstack_endpoint": True}, "nbdata has no use_dualstack_endpoint"),
        ({"s3": {"use_accelerate_endpoint": True}}, "nbdata has no s3.use_accelerate_endpoint"),
        ({"s3": {"payload_signing_enabled": True}}, "nbdata has no s3.payload_signing_enabled"),
        ({"proxies": {"https": "http://p"}}, "nbdata has no proxies"),
        ("x", "config_kwargs is no dictionary"),
    ],
)
def test_settings_that_nbdata_does_not_have_are_refused_by_name(config: Any, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        s3_config(
            "s3", Context("/", env={}, storage_options={"key": "k", "secret": "s", "config_kwargs": config})
        )


def test_settings_that_only_tune_are_taken() -> None:
    config = {
        "max_pool_connections": 50,
        "retries": {"max_attempts": 3},
        "use_fips_endpoint": False,
        "proxies": {},
        "signature_version": None,
        "s3": {"addressing_style": "path"},
    }
    options = {"key": "k", "secret": "s", "config_kwargs": config}
    found = s3_config("s3", Context("/", env={}, storage_options=options))
    assert (found.addressing, found.identity is None) == ("path", False)


def test_unsigned_requests_are_anonymous() -> None:
    from botocore import UNSIGNED

    for version in (UNSIGNED, "unsigned"):
        options = {"key": "k", "secret": "s", "config_kwargs": {"signature_version": version}}
        assert s3_config("s3", Context("/", env={}, storage_options=options)).identity is None


def test_a_customer_s_key_is_in_no_output() -> None:
    key = os.urandom(32)
    store_at(1, {"SSECustomerKey": key})
    assert base64.b64encode(key).decode() not in scrub(f"sent {base64.b64encode(key).decode()}")
    assert "SSECustomerKey" not in repr(store_at(1, {"SSECustomerKey": key})._client._config)


def test_a_real_store_has_what_was_asked_for(moto: EmbeddedServer, tmp_path: Path) -> None:
    client = client_of(moto)
    client.create_bucket(Bucket="parameters")
    (tmp_path / "small").write_bytes(b"small")
    (tmp_path / "large").write_bytes(b"l" * (6 << 20))
    options: dict[str, Any] = {
        **moto.storage_options(),
        "s3_additional_kwargs": {
            "StorageClass": "STANDARD_IA",
            "ServerSideEncryption": "AES256",
            "Tagging": "team=blue",
            "Metadata": {"Owner": "me"},
            "ContentType": "text/x-log",
        },
    }
    nbdata.push(f"{tmp_path}/", "s3://parameters/p/", part_size="5MiB", storage_options=options, quiet=True)
    options["s3_additional_kwargs"]["Metadata"] = {"Owner": "you"}
    nbdata.copy("s3://parameters/p/", "s3://parameters/q/", storage_options=options, quiet=True)
    for key in ("p/small", "p/large", "q/small", "q/large"):
        found = client.head_object(Bucket="parameters", Key=key)
        assert (found["StorageClass"], found["ServerSideEncryption"]) == ("STANDARD_IA", "AES256"), key
        owner = "me" if key < "q" else "you"
        assert (found["Metadata"]["owner"], found["ContentType"]) == (owner, "text/x-log"), key
        tags = client.get_object_tagging(Bucket="parameters", Key=key)["TagSet"]
        assert tags == [{"Key": "team", "Value": "blue"}], key
    assert nbdata.pull("s3://parameters/q/", tmp_path / "t", storage_options=options, quiet=True).files == 2
    client.close()


def test_a_repeated_command_stores_objects_in_the_same_way(
    moto: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    client = client_of(moto)
    client.create_bucket(Bucket="repeated")
    (tmp_path / "x").write_bytes(b"x")
    told = {"StorageClass": "STANDARD_IA", "SSECustomerKey": base64.b64encode(KEY).decode()}
    job = nbdata.push(
        tmp_path / "x",
        "s3://repeated/x",
        storage_options={"s3_additional_kwargs": told},
        background=True,
        quiet=True,
    )
    job.wait()
    assert "--option s3_additional_kwargs.StorageClass=STANDARD_IA" in job.snapshot().command
    assert "SSECustomerKey" not in job.snapshot().command
    client.close()


@pytest.mark.long
def test_an_upload_that_was_begun_otherwise_is_not_taken_up(
    s3: EmbeddedServer, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """S3 decides when an upload begins how its object is stored."""
    content = os.urandom(24 << 20)
    (tmp_path / "x").write_bytes(content)
    url, client = f"s3://{bucket}/x", client_of(s3)
    with Gate(s3.url, limit=12 << 20, answers=False) as line:
        options = {"endpoint_url": line.url}
        job = nbdata.push(
            tmp_path / "x", url, part_size="5MiB", storage_options=options, background=True, quiet=True
        )
        line.wait_until_it_holds()
        job.cancel()
        line.open()
        with contextlib.suppress(NbdataError):
            job.wait()
        told = {**options, "s3_additional_kwargs": {"Metadata": {"owner": "me"}}}
        report = nbdata.push(tmp_path / "x", url, part_size="5MiB", storage_options=told, quiet=True)
    assert report.counts == {"sent": 1}
    assert client.head_object(Bucket=bucket, Key="x")["Metadata"] == {"owner": "me"}
    assert client.get_object(Bucket=bucket, Key="x")["Body"].read() == content
    client.close()
