"""md5check --repair pulls only wrong files again, and replaces a file only with correct bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.check.repair import Repair
from nbdata.seals import Seals
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.partials import Partial
from nbdata.transfer.staging import Staging
from tests.conftest import client_of
from tests.waiting import PATIENCE

from .test_md5check import check, flip, found, manifest, sidecars

pytestmark = pytest.mark.usefixtures("inline")

MIB = 1 << 20


@pytest.fixture
def client(s3: EmbeddedServer) -> Iterator[Any]:
    made = client_of(s3)
    yield made
    made.close()


@pytest.fixture
def good(client: Any, bucket: str, tree: Path) -> str:
    """Create a tree with a manifest beside it, and upload a correct copy; return the URL of the copy."""
    for path in tree.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=bucket, Key=f"data/{path.relative_to(tree)}", Body=path.read_bytes())
    (tree / "MD5SUMS").write_text(manifest(tree))
    return f"s3://{bucket}/data"


def damage(tree: Path) -> dict[str, bytes]:
    """Make two files wrong and one missing; return the original contents."""
    before = {name: (tree / name).read_bytes() for name in ("b/c.bin", "a.txt", "b/e.txt")}
    flip(tree / "b/c.bin")
    os.truncate(tree / "b/e.txt", 10)
    (tree / "a.txt").unlink()
    return before


def test_what_is_wrong_or_missing_is_pulled_again_and_checked_once_more(good: str, tree: Path) -> None:
    before = damage(tree)
    report = check(tree, repair=good)
    assert (report.state, report.counts) == ("DONE", {"ok": 2, "repaired": 3})
    assert {row.path for row in report.rows if row.action == "repaired"} == before.keys()
    assert {name: (tree / name).read_bytes() for name in before} == before
    assert report.notes[-1] == f"3 repaired from {good}"
    subprocess.run(["md5sum", "--check", "--quiet", "MD5SUMS"], cwd=tree, check=True)
    assert not (tree / ".nbdata").exists()
    assert check(tree, repair=good).counts == {"ok": 5}


def test_a_repair_leaves_what_an_interrupted_pull_has_of_other_objects(good: str, tree: Path) -> None:
    damage(tree)
    staging = tree / ".nbdata"
    staging.mkdir()
    seals = Seals(os.environ["NBDATA_STATE_DIR"])
    begun = Partial(
        Staging(str(staging)), "large", f"{good}/", ObjectInfo("data/large", 40 * MIB, '"etag"'), seals
    )
    begun.close()
    assert check(tree, repair=good).counts == {"ok": 2, "repaired": 3}
    assert os.path.exists(begun.data)


def test_without_checksum_files_the_source_of_the_repair_says_what_is_right(good: str, tree: Path) -> None:
    (tree / "MD5SUMS").unlink()
    before = damage(tree)
    planned = nbdata.Md5check(str(tree), repair=good).plan()
    assert any(f"compared with {good}" in note for note in planned.notes)
    report = check(tree, repair=good)
    assert (report.state, report.counts) == ("DONE", {"ok": 2, "repaired": 3})
    assert {name: (tree / name).read_bytes() for name in before} == before
    assert check(tree, repair=good).counts == {"ok": 5}


def test_what_was_pulled_is_read_from_the_disk_once_more_before_it_counts_as_repaired(
    good: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(tree)
    perform = Repair.perform

    def and_then_the_disk_errs(self: Repair) -> None:
        perform(self)
        flip(tree / "b/c.bin")

    monkeypatch.setattr(Repair, "perform", and_then_the_disk_errs)
    report = check(tree, repair=good)
    assert report.counts == {"ok": 2, "repaired": 2, "mismatch": 1}
    assert f"2 repaired from {good}; 1 could not be" in report.notes


def test_the_agent_repairs_too_and_shows_both_halves_of_the_work(
    good: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NBDATA_HOST")
    damage(tree)
    assert nbdata.md5check(tree, repair=good, dry_run=True).actions["repair"][0] == 3
    job = nbdata.Md5check(str(tree), repair=good).start()
    assert job.wait(timeout=PATIENCE).counts == {"ok": 2, "repaired": 3}
    seen = job.snapshot()
    assert (seen.files, seen.files_total) == (seen.files_total, seen.files)
    assert seen.bytes == seen.bytes_total


def test_nothing_that_is_right_is_pulled(client: Any, bucket: str, good: str, tree: Path) -> None:
    damage(tree)
    client.put_object(Bucket=bucket, Key="data/b/d/empty", Body=b"not empty any more")
    stat = (tree / "b/d/empty").stat()
    assert check(tree, repair=good).counts == {"ok": 2, "repaired": 3}
    assert (tree / "b/d/empty").stat().st_ino == stat.st_ino


def test_a_dry_run_reads_the_files_shows_what_would_be_repaired_and_writes_nothing(
    client: Any, bucket: str, good: str, tree: Path
) -> None:
    damage(tree)
    client.delete_object(Bucket=bucket, Key="data/b/e.txt")
    seen = {p: p.stat().st_mtime_ns for p in tree.rglob("*")}
    plan = nbdata.md5check(tree, repair=good, dry_run=True)
    assert {name: count for name, (count, _) in plan.actions.items()} == {"ok": 2, "repair": 2, "mismatch": 1}
    assert {row.path for row in plan.rows if row.action == "repair"} == {"a.txt", "b/c.bin"}
    (left,) = [row for row in plan.rows if row.action == "mismatch"]
    assert "does not have it" in left.detail["reason"]
    assert "  repair a.txt\n  repair b/c.bin" in plan.text()
    assert plan.actions["repair"] == [2, 100_006], "also of the missing file"
    assert (plan.files, plan.bytes, plan.fits) == (2, 100_006, True)
    assert plan.needed >= 100_006
    assert {p: p.stat().st_mtime_ns for p in tree.rglob("*")} == seen


def test_a_wrong_copy_replaces_nothing_and_is_still_wrong(
    client: Any, bucket: str, good: str, tree: Path
) -> None:
    damage(tree)
    now = (tree / "b/c.bin").read_bytes()
    client.put_object(Bucket=bucket, Key="data/b/c.bin", Body=b"as long as the store itself vouches for it")
    client.put_object(Bucket=bucket, Key="data/a.txt", Body=b"ALPHA\n")
    report = check(tree, repair=good)
    assert (report.state, report.counts) == ("FAILED", {"ok": 2, "repaired": 1, "mismatch": 1, "missing": 1})
    assert (tree / "b/c.bin").read_bytes() == now
    assert not (tree / "a.txt").exists()
    (row,) = [row for row in report.rows if row.action == "mismatch"]
    assert "not repaired: the md5 of the bytes is wrong" in row.detail["reason"]
    assert f"1 repaired from {good}; 2 could not be" in report.notes


def test_what_the_other_copy_does_not_have_is_still_wrong(
    client: Any, bucket: str, good: str, tree: Path
) -> None:
    damage(tree)
    client.delete_object(Bucket=bucket, Key="data/a.txt")
    report = check(tree, repair=good)
    assert report.counts == {"ok": 2, "repaired": 2, "missing": 1}
    (row,) = [row for row in report.rows if row.action == "missing"]
    assert "does not have it" in row.detail["reason"]


@pytest.mark.long
def test_a_file_in_parts_is_repaired_against_the_store_that_vouches_for_it(
    client: Any, bucket: str, tree: Path
) -> None:
    data = os.urandom(40 * MIB)
    upload_id = client.create_multipart_upload(Bucket=bucket, Key="data/big")["UploadId"]
    where = {"Bucket": bucket, "Key": "data/big", "UploadId": upload_id}
    sent = [
        {
            "PartNumber": n,
            "ETag": client.upload_part(**where, PartNumber=n, Body=data[at : at + 16 * MIB])["ETag"],
        }
        for n, at in enumerate(range(0, len(data), 16 * MIB), 1)
    ]
    client.complete_multipart_upload(**where, MultipartUpload={"Parts": sent})
    # The copy used for the repair has the right size, but wrong bytes.
    bad = bytearray(data)
    bad[-1] ^= 1
    client.put_object(Bucket=bucket, Key="bad/big", Body=bytes(bad))
    (tree / "big").write_bytes(bytes(bad)[::-1])
    options = {"against": f"s3://{bucket}/data/", "include": "big"}
    report = check(tree, repair=f"s3://{bucket}/bad/", **options)
    assert report.counts == {"mismatch": 1}
    assert hashlib.md5((tree / "big").read_bytes()).digest() == hashlib.md5(bytes(bad)[::-1]).digest()
    report = check(tree, repair=f"s3://{bucket}/data/", **options)
    assert report.counts == {"repaired": 1}
    assert hashlib.md5((tree / "big").read_bytes()).digest() == hashlib.md5(data).digest()


def test_a_single_file_is_repaired_from_its_object_or_the_folder_of_it(good: str, tree: Path) -> None:
    for source in (f"{good}/b/c.bin", f"{good}/b/"):
        flip(tree / "b/c.bin")
        sidecar = (tree / "MD5SUMS").read_text().split("  b/c.bin")[0].split()[-1]
        (tree / "b/c.bin.md5").write_text(sidecar)
        assert found(check(tree / "b/c.bin", repair=source)) == {"c.bin": "repaired"}


def test_files_are_repaired_from_another_folder_of_the_disk(tree: Path, tmp_path: Path) -> None:
    names = sidecars(tree)
    other = tmp_path / "other"
    subprocess.run(["cp", "-r", str(tree), str(other)], check=True)
    for name in names:
        (tree / name).unlink()
    assert check(tree, repair=other).counts == {"repaired": 5}
    assert check(tree).counts == {"ok": 5}


def test_a_repair_that_does_not_fit_is_refused_with_numbers_and_changes_nothing(
    good: str, tree: Path
) -> None:
    (tree / "b/c.bin").unlink()
    nbdata.quota(tree, limit="100KB", quiet=True)
    try:
        with pytest.raises(nbdata.NotEnoughSpace, match="it needs"):
            check(tree, repair=good)
    finally:
        nbdata.quota(tree, limit="none", quiet=True)
    assert not (tree / "b/c.bin").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"repair": "s3://b/*"}, "globs"),
        ({"repair": "s3://b/data", "write": True}, "exclude each other"),
    ],
)
def test_what_makes_no_sense_is_refused(tree: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(nbdata.BadOption, match=words):
        check(tree, **options)
    with pytest.raises(nbdata.BadOption, match="lie in each other"):
        check(tree, repair=tree / "b")
    with pytest.raises(nbdata.BadOption, match="copy --overwrite always"):
        check("s3://bucket/data/", repair="s3://other/data/")
