"""md5check of files in a store and against a store: data is streamed, and no ETag is trusted beyond its meaning."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import StoreUnavailable
from nbdata.report import Report
from nbdata.stores.http.answers import ResponseBody
from nbdata.stores.s3.store import S3Store
from tests.verification.test_checker import BARE

from .test_md5check import check, flip, found, manifest, sidecars

pytestmark = pytest.mark.usefixtures("inline")

MIB = 1 << 20


@pytest.fixture
def client(s3: EmbeddedServer) -> Iterator[Any]:
    made = boto3.client(
        "s3",
        endpoint_url=s3.url,
        region_name="us-east-1",
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
    )
    yield made
    made.close()


def upload(client: Any, bucket: str, key: str, parts: list[bytes]) -> None:
    upload_id = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    sent = []
    for number, body in enumerate(parts, 1):
        etag = client.upload_part(Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=body)[
            "ETag"
        ]
        sent.append({"PartNumber": number, "ETag": etag})
    client.complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": sent}
    )


def put(client: Any, bucket: str, tree: Path, prefix: str = "data/") -> None:
    for path in tree.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=bucket, Key=prefix + str(path.relative_to(tree)), Body=path.read_bytes())


# -- PATH is remote -------------------------------------------------------------------------------


def test_remote_files_are_checked_by_sidecars_or_a_manifest_beside_them(
    client: Any, bucket: str, tree: Path
) -> None:
    names = sidecars(tree)
    put(client, bucket, tree)
    client.put_object(Bucket=bucket, Key="data/b/c.bin", Body=b"other bytes")
    client.delete_object(Bucket=bucket, Key="data/a.txt")
    report = check(f"s3://{bucket}/data")
    assert found(report) == dict.fromkeys(names, "ok") | {"b/c.bin": "mismatch", "a.txt": "missing"}
    assert {row.detail["algorithm"] for row in report.rows} == {"md5"}
    assert found(check(f"s3://{bucket}/data/b/c.bin")) == {"c.bin": "mismatch"}
    assert found(check(f"s3://{bucket}/data/*.txt")) == {"a.txt": "missing", "with space & ünï.txt": "ok"}


def test_a_single_remote_file_is_checked_by_a_manifest_beside_it(
    client: Any, bucket: str, tree: Path
) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    put(client, bucket, tree)
    report = check(f"s3://{bucket}/data/a.txt")
    assert [(row.action, row.detail["source"]) for row in report.rows] == [("ok", "MD5SUMS")]


def test_remote_files_are_checked_against_local_checksum_files(
    client: Any, bucket: str, tree: Path, tmp_path: Path
) -> None:
    sidecars(tree, tmp_path / "md5")
    put(client, bucket, tree)
    assert check(f"s3://{bucket}/data", against=tmp_path / "md5").counts == {"ok": 5}


def test_without_checksum_files_remote_bytes_are_compared_with_their_etags_and_that_is_said(
    client: Any, bucket: str, tree: Path
) -> None:
    put(client, bucket, tree)
    upload(client, bucket, "data/parts", [os.urandom(5 * MIB), os.urandom(5 * MIB), b"end"])
    report = check(f"s3://{bucket}/data")
    assert report.counts == {"ok": 6}
    assert {row.detail["algorithm"] for row in report.rows} == {"md5", "etag"}
    assert "not whether the right bytes were uploaded" in report.notes[0]


def test_bytes_that_are_not_what_the_etag_says_are_a_mismatch(
    client: Any, bucket: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, bucket, tree)
    upload(client, bucket, "data/parts", [os.urandom(5 * MIB), b"end"])
    monkeypatch.setattr(ResponseBody, "readinto", _spoiling(ResponseBody.readinto))
    assert check(f"s3://{bucket}/data", exclude="empty").counts == {"mismatch": 5}


def _spoiling(readinto: Any) -> Any:
    def spoiled(self: ResponseBody, buffer: memoryview) -> int:
        count = readinto(self, buffer)
        if count:
            buffer[0] ^= 1
        return int(count)

    return spoiled


def test_a_read_that_breaks_off_goes_on_where_it_stopped(
    client: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put_object(Bucket=bucket, Key="big", Body=os.urandom(9 * MIB))
    starts, readinto, read = [], ResponseBody.readinto, S3Store.read
    broken: list[int] = []

    def breaking(self: ResponseBody, buffer: memoryview) -> int:
        count = readinto(self, buffer)
        # This breaks more often than the limit of tries without progress, but each time after more bytes.
        if count and len(broken) < 12 and self.length > 0 and getattr(self, "seen", False):
            broken.append(count)
            raise StoreUnavailable("the connection broke", details={"retry": True})
        self.seen = True  # type: ignore[attr-defined]
        return count

    def reading(self: S3Store, key: str, start: int = 0, *args: Any, **options: Any) -> Any:
        if key == "big":
            starts.append(start)
        return read(self, key, start, *args, **options)

    monkeypatch.setattr(ResponseBody, "readinto", breaking)
    monkeypatch.setattr(S3Store, "read", reading)
    monkeypatch.setattr("nbdata.transfer.retry._FIRST", 0.001)
    monkeypatch.setattr("nbdata.transfer.retry._LONGEST", 0.01)
    report = check(f"s3://{bucket}/big")
    assert report.counts == {"ok": 1}
    assert report.retries == len(broken) > 2
    assert starts == sorted(set(starts))  # no byte is requested twice
    assert report.bytes == 9 * MIB


def test_an_object_that_changes_while_it_is_read_has_no_verdict(
    client: Any, bucket: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, bucket, tree)
    read, done = S3Store.read, []

    def late(self: S3Store, key: str, *args: Any, **options: Any) -> Any:
        if not done:
            done.append(client.put_object(Bucket=bucket, Key="data/a.txt", Body=b"ALPHA\n"))
        return read(self, key, *args, **options)

    monkeypatch.setattr(S3Store, "read", late)
    report = check(f"s3://{bucket}/data", concurrency=1)
    assert report.counts == {"ok": 4, "failed": 1}
    assert report.failures[0][0] == "a.txt"


def test_a_manifest_is_written_as_an_object(client: Any, bucket: str, tree: Path) -> None:
    put(client, bucket, tree)
    report = check(f"s3://{bucket}/data", write=True)
    assert report.details["written"] == f"s3://{bucket}/data/MD5SUMS"
    body = client.get_object(Bucket=bucket, Key="data/MD5SUMS")["Body"].read()
    subprocess.run(["md5sum", "--check", "--strict", "--quiet"], input=body, cwd=tree, check=True)
    assert check(f"s3://{bucket}/data").counts == {"ok": 5}
    client.put_object(Bucket=bucket, Key="data/a.txt", Body=b"ALPHA\n")
    assert check(f"s3://{bucket}/data", write=True).counts == {"ok": 4, "mismatch": 1}
    assert client.get_object(Bucket=bucket, Key="data/MD5SUMS")["Body"].read() == body


# -- --against a store ----------------------------------------------------------------------------


def test_local_files_are_checked_against_the_etags_of_the_objects(
    client: Any, bucket: str, tree: Path
) -> None:
    parts = [os.urandom(6 * MIB), os.urandom(6 * MIB), os.urandom(MIB)]
    (tree / "even.bin").write_bytes(b"".join(parts))
    put(client, bucket, tree)
    upload(client, bucket, "data/even.bin", parts)
    report = check(tree, against=f"s3://{bucket}/data/")
    assert report.counts == {"ok": 6}
    assert {row.path for row in report.rows if row.detail["algorithm"] == "etag"} == {"even.bin"}
    assert {row.detail["source"] for row in report.rows} == {f"s3://{bucket}/data/"}
    flip(tree / "even.bin")
    flip(tree / "b/c.bin")
    os.truncate(tree / "b/e.txt", 10)
    (tree / "a.txt").unlink()
    (tree / "new").write_bytes(b"new")
    report = check(tree, against=f"s3://{bucket}/data/")
    assert found(report) == {
        "even.bin": "mismatch",
        "b/c.bin": "mismatch",
        "b/e.txt": "mismatch",
        "a.txt": "missing",
        "new": "extra",
        "b/d/empty": "ok",
        "with space & ünï.txt": "ok",
    }
    (short,) = [row for row in report.rows if row.path == "b/e.txt"]
    assert (short.detail["expected"], short.detail["got"]) == ("5000 bytes", "10 bytes")


@pytest.mark.long
def test_parts_of_unequal_size_can_be_neither_right_nor_wrong(client: Any, bucket: str, tree: Path) -> None:
    parts = [os.urandom(7 * MIB), os.urandom(5 * MIB), os.urandom(5 * MIB)]
    (tree / "uneven.bin").write_bytes(b"".join(parts))
    put(client, bucket, tree)
    upload(client, bucket, "data/uneven.bin", parts)
    report = check(tree, against=f"s3://{bucket}/data/")
    assert (report.state, found(report)["uneven.bin"]) == ("DONE", "unverifiable")
    with pytest.raises(nbdata.NotFound, match="part size"):
        check(tree / "uneven.bin", against=f"s3://{bucket}/data/uneven.bin")


def test_an_unknown_part_size_is_guessed_and_a_wrong_guess_proves_no_mismatch(
    client: Any, bucket: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, odd = [os.urandom(5 * MIB), b"end"], [os.urandom(5 * MIB + 12345), b"the end"]
    (tree / "usual.bin").write_bytes(b"".join(usual))
    (tree / "odd.bin").write_bytes(b"".join(odd))
    put(client, bucket, tree)
    upload(client, bucket, "data/usual.bin", usual)
    upload(client, bucket, "data/odd.bin", odd)
    monkeypatch.setattr(S3Store, "part_size", lambda self, info: None)
    report = check(tree, against=f"s3://{bucket}/data/")
    assert (found(report)["usual.bin"], found(report)["odd.bin"]) == ("ok", "unverifiable")
    assert report.state == "DONE"


def test_a_single_file_is_checked_against_its_object_or_the_folder_of_it(
    client: Any, bucket: str, tree: Path
) -> None:
    put(client, bucket, tree)
    for against in (f"s3://{bucket}/data/b/c.bin", f"s3://{bucket}/data/b/"):
        assert found(check(tree / "b/c.bin", against=against)) == {"c.bin": "ok"}
    flip(tree / "b/c.bin")
    assert found(check(tree / "b/c.bin", against=f"s3://{bucket}/data/b/")) == {"c.bin": "mismatch"}


def test_checksum_files_in_the_store_come_before_its_etags_which_fill_in(
    client: Any, bucket: str, tree: Path
) -> None:
    put(client, bucket, tree)
    client.put_object(Bucket=bucket, Key="data/a.txt.md5", Body=b"0" * 32)
    client.put_object(Bucket=bucket, Key="data/gone.md5", Body=b"0" * 32)
    report = check(tree, against=f"s3://{bucket}/data/")
    assert found(report).pop("a.txt") == "mismatch"
    assert report.counts == {"ok": 4, "mismatch": 1, "missing": 1}


def test_an_etag_does_not_settle_what_checksum_files_dispute(client: Any, bucket: str, tree: Path) -> None:
    put(client, bucket, tree)
    (tree / "new").write_bytes(b"new")
    for name in ("a.txt", "new"):
        client.put_object(Bucket=bucket, Key=f"data/{name}.md5", Body=b"0" * 32)
        client.put_object(Bucket=bucket, Key=f"data/{name}.md5sum", Body=b"1" * 32)
    report = check(tree, against=f"s3://{bucket}/data/")
    assert report.counts == {"ok": 4, "conflict": 2}
    assert {found(report)[name] for name in ("a.txt", "new")} == {"conflict"}
    assert found(check(tree / "a.txt", against=f"s3://{bucket}/data/")) == {"a.txt": "conflict"}


def test_a_store_folder_of_checksum_files_only_is_one_of_checksum_files(
    client: Any, bucket: str, tree: Path, tmp_path: Path
) -> None:
    sidecars(tree, tmp_path / "md5")
    put(client, bucket, tmp_path / "md5", "md5/")
    client.put_object(Bucket=bucket, Key="md5/readme", Body=b"no data of the set")
    (tree / "a.txt").unlink()
    assert check(tree, against=f"s3://{bucket}/md5/").counts == {"ok": 4, "missing": 1}


def test_the_wrong_folder_of_a_store_is_an_error_and_not_a_thousand_missing_files(
    client: Any, bucket: str, tree: Path
) -> None:
    put(client, bucket, tree)
    with pytest.raises(nbdata.NotFound, match="--against"):
        check(tree, against=f"s3://{bucket}/")


def test_all_files_are_missing_in_an_empty_folder(
    client: Any, bucket: str, tree: Path, tmp_path: Path
) -> None:
    put(client, bucket, tree)
    (tmp_path / "empty").mkdir()
    assert check(tmp_path / "empty", against=f"s3://{bucket}/data/").counts == {"missing": 5}


def test_an_md5_is_not_taken_for_another_algorithm(client: Any, bucket: str, tree: Path) -> None:
    put(client, bucket, tree)
    assert check(tree, against=f"s3://{bucket}/data/", algorithm="md5").counts == {"ok": 5}
    parts = [os.urandom(5 * MIB), b"end"]
    (tree / "parts").write_bytes(b"".join(parts))
    upload(client, bucket, "data/parts", parts)
    assert found(check(tree, against=f"s3://{bucket}/data/", algorithm="md5"))["parts"] == "unverifiable"
    with pytest.raises(nbdata.NotFound, match="keeps no sha256"):
        check(tree, against=f"s3://{bucket}/data/", algorithm="sha256")


def test_an_object_replaced_during_the_check_gives_no_verdict(
    client: Any, bucket: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, bucket, tree)
    flip(tree / "a.txt")
    head = S3Store.head

    def late(self: S3Store, key: str) -> Any:
        if key == "data/a.txt":
            client.put_object(Bucket=bucket, Key=key, Body=(tree / "a.txt").read_bytes())
        return head(self, key)

    monkeypatch.setattr(S3Store, "head", late)
    report = check(tree, against=f"s3://{bucket}/data/")
    assert report.counts == {"ok": 4, "failed": 1}


# -- on moto, for features that SeaweedFS lacks -----------------------------------------------------


@pytest.fixture
def aws(moto: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    moto.create_bucket("checks")
    made = boto3.client(
        "s3",
        endpoint_url=moto.url,
        region_name="us-east-1",
        aws_access_key_id=moto.access_key,
        aws_secret_access_key=moto.secret_key,
        config=BARE,
    )
    yield made
    made.close()


def _kms(aws: Any, tree: Path, prefix: str, **options: Any) -> Report:
    """Check local bytes against an object encrypted by KMS whose ETag looks like the MD5 of other bytes."""
    (tree / "secret").write_bytes(b"the very bytes")
    aws.put_object(Bucket="checks", Key=f"{prefix}/a.txt", Body=b"alpha\n")
    aws.put_object(
        Bucket="checks",
        Key=f"{prefix}/secret",
        Body=b"THE VERY BYTES",
        ServerSideEncryption="aws:kms",
        **options,
    )
    return check(tree, against=f"s3://checks/{prefix}/", include=("a.txt", "secret"))


def test_the_etag_of_an_encrypted_object_proves_no_mismatch(aws: Any, tree: Path) -> None:
    report = _kms(aws, tree, "kms")
    assert found(report) == {"a.txt": "ok", "secret": "unverifiable"}
    (row,) = [row for row in report.rows if row.path == "secret"]
    assert "encrypt with keys of KMS" in row.detail["reason"]


def test_a_stored_sha256_refutes_where_the_etag_cannot(aws: Any, tree: Path) -> None:
    report = _kms(aws, tree, "kms-sha256", ChecksumAlgorithm="SHA256")
    assert found(report) == {"a.txt": "ok", "secret": "mismatch"}
    (row,) = [row for row in report.rows if row.path == "secret"]
    assert row.detail["algorithm"] == "sha256"


@pytest.mark.in_ci("CRC64*", "SHA256*")
@pytest.mark.parametrize(
    ("algorithm", "kind", "said"),
    [
        ("SHA256", "COMPOSITE", "composite sha256"),
        ("SHA1", "COMPOSITE", "composite sha1"),
        ("CRC32", "COMPOSITE", "composite crc32"),
        ("CRC32", "FULL_OBJECT", "crc32"),
        ("CRC64NVME", "FULL_OBJECT", "crc64nvme"),
    ],
)
def test_a_checksum_stored_with_a_multipart_upload_refutes_where_the_etag_cannot(
    aws: Any, tree: Path, algorithm: str, kind: str, said: str
) -> None:
    parts, prefix = [os.urandom(5 * MIB), os.urandom(5 * MIB), b"end"], f"parts-{algorithm}-{kind}"
    (tree / "parts").write_bytes(b"".join(parts))
    options = {"ChecksumAlgorithm": algorithm, "ChecksumType": kind, "ServerSideEncryption": "aws:kms"}
    begun = aws.create_multipart_upload(Bucket="checks", Key=f"{prefix}/parts", **options)["UploadId"]
    where = {"Bucket": "checks", "Key": f"{prefix}/parts", "UploadId": begun}
    sent = [
        {"PartNumber": n, "ETag": aws.upload_part(**where, PartNumber=n, Body=body)["ETag"]}
        for n, body in enumerate(parts, 1)
    ]
    aws.complete_multipart_upload(**where, MultipartUpload={"Parts": sent})
    (row,) = check(tree / "parts", against=f"s3://checks/{prefix}/").rows
    assert (row.action, row.detail["algorithm"]) == ("ok", said)
    flip(tree / "parts")
    (row,) = check(tree / "parts", against=f"s3://checks/{prefix}/").rows
    assert (row.action, row.detail["algorithm"]) == ("mismatch", said)
    out = nbdata.pull(f"s3://checks/{prefix}/", tree / "out", quiet=True)
    assert [row.detail["verified"] for row in out.rows] == [True]


def test_a_checksum_of_unknown_type_proves_no_mismatch(aws: Any, tree: Path) -> None:
    # Without a requested checksum, moto returns a composite checksum without its type and number of parts.
    parts = [os.urandom(5 * MIB), b"end"]
    (tree / "parts").write_bytes(b"".join(parts))
    options = {"ChecksumAlgorithm": "SHA256", "ServerSideEncryption": "aws:kms"}
    where = {"Bucket": "checks", "Key": "untold/parts"}
    where["UploadId"] = aws.create_multipart_upload(**where, **options)["UploadId"]
    sent = [
        {"PartNumber": n, "ETag": aws.upload_part(**where, PartNumber=n, Body=body)["ETag"]}
        for n, body in enumerate(parts, 1)
    ]
    aws.complete_multipart_upload(**where, MultipartUpload={"Parts": sent})
    with pytest.raises(nbdata.NotFound, match="its ETag tells no MD5"):
        check(tree / "parts", against="s3://checks/untold/")


def test_a_requested_algorithm_is_chosen_among_the_stored_checksums(aws: Any, tree: Path) -> None:
    for path in tree.rglob("*"):
        if path.is_file():
            key = f"sha/{path.relative_to(tree)}"
            aws.put_object(Bucket="checks", Key=key, Body=path.read_bytes(), ChecksumAlgorithm="SHA256")
    report = check(tree, against="s3://checks/sha/", algorithm="sha256")
    assert {row.detail["algorithm"] for row in report.rows} == {"sha256"}
    assert report.counts == {"ok": 5}


def test_keys_that_no_manifest_can_name_are_told_and_the_rest_is_written(aws: Any) -> None:
    for key in ("odd/a.txt", "odd/.nbdata/x", "odd/x//y", "odd/../z"):
        aws.put_object(Bucket="checks", Key=key, Body=b"alpha\n")
    report = check("s3://checks/odd", write=True)
    assert found(report) == {"a.txt": "hashed", "x//y": "unrepresentable", "../z": "unrepresentable"}
    assert report.details["written"] == "s3://checks/odd/MD5SUMS"
    assert aws.get_object(Bucket="checks", Key="odd/MD5SUMS")["Body"].read().endswith(b"  a.txt\n")


# -- any other file system ------------------------------------------------------------------------


def test_a_file_system_of_fsspec_is_checked_by_sidecars_and_vouches_for_nothing_itself(tree: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for path in tree.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/checked/{path.relative_to(tree)}", path.read_bytes())
    try:
        with pytest.raises(nbdata.NotFound, match="keeps no checksum"):
            check("memory://checked")
        assert check("memory://checked", write=True).details["written"] == "memory://checked/MD5SUMS"
        assert memory.cat_file("/checked/MD5SUMS").decode() == manifest(tree)
        memory.pipe_file("/checked/a.txt", b"ALPHA\n")
        assert check("memory://checked").counts == {"ok": 4, "mismatch": 1}
        assert check(tree, against="memory://checked/").counts == {"ok": 5}
    finally:
        memory.rm("/checked", recursive=True)


def test_checksum_files_that_are_on_both_sides_are_compared_like_others(
    client: Any, bucket: str, tree: Path
) -> None:
    (tree / "MD5SUMS").write_bytes(b"")
    put(client, bucket, tree)
    (tree / "MD5SUMS").write_bytes(b"not what was pushed")
    (tree / "only-here.md5").write_bytes(b"")
    report = check(tree, against=f"s3://{bucket}/data/")
    assert [row.path for row in report.rows if row.action == "mismatch"] == ["MD5SUMS"]
    assert report.counts["ok"] == sum(p.is_file() for p in tree.rglob("*")) - 2


def test_a_folder_that_was_pulled_is_told_where_it_can_be_compared(
    put: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the agent, which remembers its jobs."""
    monkeypatch.delenv("NBDATA_HOST")
    url = put({"d/a": b"1", "d/below/b": b"2"})
    nbdata.pull(f"{url}d/", tmp_path / "data", quiet=True)
    for below in ("", "/below"):
        place, origin = f"{tmp_path}/data{below}", f"{url}d{below or '/'}"
        with pytest.raises(
            nbdata.NotFound, match=f"pulled from {origin}: `md5check {place} --against {origin}.*` compares"
        ):
            nbdata.md5check(place, quiet=True)
        assert nbdata.md5check(place, against=origin, quiet=True).ok
