"""untar_volumes compares each volume with the checksum file beside it, while it is read."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.archives.stream import Readahead
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.unpack.volumes import checksum_files
from nbdata.integrity.etags import ETag
from nbdata.stores.local import LocalStore
from nbdata.stores.s3 import answers
from nbdata.verification import checker
from tests.conftest import client_of
from tests.engine.unpack.unpacking import look, pack, untar, upload

pytestmark = pytest.mark.usefixtures("inline")


def names(volumes: Path) -> list[str]:
    return sorted(path.name for path in volumes.iterdir())


def lines(volumes: Path, digest: Callable[[bytes], Any] = hashlib.md5) -> dict[str, str]:
    """The line of md5sum for each volume, by name."""
    return {name: f"{digest((volumes / name).read_bytes()).hexdigest()}  {name}\n" for name in names(volumes)}


def sidecars(volumes: Path) -> Path:
    for name, line in lines(volumes).items():
        (volumes / f"{name}.md5").write_text(line)
    return volumes


def listed(volumes: Path, name: str = "MD5SUMS") -> Path:
    (volumes / name).write_text("".join(lines(volumes).values()))
    return volumes


def spoil(volume: Path, at: int = -1000) -> bytes:
    """Change one byte of the content; return what was there."""
    right = volume.read_bytes()
    wrong = bytearray(right)
    wrong[at] ^= 1
    volume.write_bytes(wrong)
    return right


# -- beside the volumes ---------------------------------------------------------------------------


@pytest.mark.parametrize("published", [sidecars, listed])
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_volumes_that_match_are_told(
    published: Callable[[Path], Path], name: str, content: Path, tmp_path: Path
) -> None:
    volumes = pack(content, tmp_path / "v", name, volume=1_000_000)
    count = len(names(published(volumes))) // (2 if published is sidecars else 1)
    where = "their checksum files" if published is sidecars else "MD5SUMS"
    plan = untar(volumes, tmp_path / "out", dry_run=True)
    assert f"the volumes are compared with {where} while they are read" in plan.notes
    report = untar(volumes, tmp_path / "out")
    assert report.details["compared"] == report.details["volumes"]
    assert f"{report.details['volumes']} of {report.details['volumes']} volumes match {where}" in report.notes
    assert count >= report.details["volumes"] > 1
    assert look(tmp_path / "out") == look(content)


@pytest.mark.parametrize("published", [sidecars, listed])
def test_a_wrong_byte_in_a_plain_tar_on_the_disk_is_found_and_what_it_spoilt_is_written_anew(
    published: Callable[[Path], Path], content: Path, tmp_path: Path
) -> None:
    volumes, out = published(pack(content, tmp_path / "v", "a.tar", volume=1_000_000)), tmp_path / "out"
    right = spoil(volumes / "a.tar.01")
    with pytest.raises(
        nbdata.ChecksumMismatch, match=r"do not match its digest in .*--verify none"
    ) as caught:
        untar(volumes, out)
    assert caught.value.path.endswith("a.tar.01")
    (volumes / "a.tar.01").write_bytes(right)
    untar(volumes, out)
    assert look(out) == look(content)


class Spoiling:
    """A body whose first byte arrives wrong."""

    def __init__(self, body: Any) -> None:
        self._body, self._first = body, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def readinto(self, buffer: memoryview) -> int:
        count = self._body.readinto(buffer)
        if self._first:
            buffer[0] ^= 1
        self._first = False
        return count


@pytest.mark.usefixtures("small_steps")
def test_what_a_disk_read_wrongly_is_written_anew_though_volumes_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, out = tmp_path / "content", tmp_path / "out"
    content.mkdir()
    for number in range(40):
        (content / f"{number:02}").write_bytes(os.urandom(60_000))
    volumes = listed(pack(content, tmp_path / "v", "a.tar", volume=500_000))
    read, left = LocalStore.read, [1]

    def spoilt(self: LocalStore, key: str, start: int, end: int | None, **options: Any) -> Any:
        body = read(self, key, start, end, **options)
        return Spoiling(body) if key.endswith("a.tar.02") and end is None and left and left.pop() else body

    monkeypatch.setattr(LocalStore, "read", spoilt)
    monkeypatch.setattr(Readahead, "BLOCKS", 1)  # so members are taken before the end of their volume is read
    monkeypatch.setattr(Readahead, "BLOCK_SIZE", 50_000)
    with pytest.raises(nbdata.ChecksumMismatch):
        untar(volumes, out, delete_volumes=True)
    assert {"a.tar.02", "a.tar.03"} <= {*names(volumes)}
    report = untar(volumes, out, delete_volumes=True)
    assert report.details["resumed_at"] > 500_000
    assert look(out) == look(content)


@pytest.mark.parametrize("place", ["disk", "store"])
def test_a_file_that_is_known_to_be_wrong_is_replaced_also_by_a_run_that_replaces_none(
    place: str, tmp_path: Path, s3: EmbeddedServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Readahead, "BLOCKS", 1)
    monkeypatch.setattr(Readahead, "BLOCK_SIZE", 50_000)
    (tmp_path / "content").mkdir()
    for number in range(40):
        (tmp_path / "content" / f"{number:02}").write_bytes(os.urandom(60_000))
    volumes = listed(pack(tmp_path / "content", tmp_path / "v", "a.tar", volume=500_000))
    out = str(tmp_path / "out") if place == "disk" else f"s3://{bucket}/out/"
    right = spoil(volumes / "a.tar.02", 0)
    with pytest.raises(nbdata.ChecksumMismatch):
        untar(volumes, out)
    (volumes / "a.tar.02").write_bytes(right)
    assert untar(volumes, out, overwrite="never").ok
    got = tmp_path / "out"
    if place == "store":
        nbdata.pull(out, got, quiet=True)
    for path in (tmp_path / "content").iterdir():
        assert (got / path.name).read_bytes() == path.read_bytes()


def test_without_verification_volumes_are_taken_as_they_are(content: Path, tmp_path: Path) -> None:
    volumes = listed(pack(content, tmp_path / "v", "a.tar", volume=1_000_000))
    spoil(volumes / "a.tar.01")
    report = untar(volumes, tmp_path / "out", verify="none")
    assert report.ok
    assert report.details["compared"] == 0
    assert not [note for note in report.notes if "MD5SUMS" in note]
    assert look(tmp_path / "out") != look(content)


def test_a_file_of_checksums_as_source_is_compared_too(content: Path, tmp_path: Path) -> None:
    volumes = listed(pack(content, tmp_path / "v", "a.tar", volume=1_000_000), "all.md5")
    report = untar(volumes / "all.md5", tmp_path / "out")
    assert report.details["compared"] == report.details["volumes"] > 1
    spoil(volumes / "a.tar.00")
    with pytest.raises(nbdata.ChecksumMismatch, match=r"its digest in all\.md5"):
        untar(volumes / "all.md5", tmp_path / "out2")


def test_a_single_archive_is_compared_with_the_file_beside_it(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar.gz", volume=10**9)
    one = (volumes / "a.tar.gz.00").rename(volumes / "a.tar.gz")
    digest = hashlib.sha256(one.read_bytes()).hexdigest()
    (volumes / "a.tar.gz.sha256").write_text(digest.replace(digest[0], "0" if digest[0] != "0" else "1"))
    with pytest.raises(nbdata.ChecksumMismatch, match=r"its digest in a\.tar\.gz\.sha256"):
        untar(one, tmp_path / "out")
    (volumes / "a.tar.gz.sha256").write_text(f"{digest}\n")
    report = untar(one, tmp_path / "out2")
    assert "1 of 1 volume matches a.tar.gz.sha256" in report.notes
    assert look(tmp_path / "out2") == look(content)


def test_a_zip_is_not_said_to_be_compared_with_the_file_beside_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "content")
    digest = hashlib.md5((tmp_path / "a.zip").read_bytes()).hexdigest()
    (tmp_path / "a.zip.md5").write_text(f"{digest}  a.zip\n")
    notes = untar(tmp_path / "a.zip", tmp_path / "out", dry_run=True).notes
    assert [note for note in notes if "compared" in note] == [
        "a zip archive is not compared as a whole: each of its members has a checksum"
    ]
    assert "compared" not in untar(tmp_path / "a.zip", tmp_path / "out").details


@pytest.mark.parametrize("published", [sidecars, listed])
def test_a_store_with_another_md5_than_the_published_one_is_refused_before_the_start(
    published: Callable[[Path], Path], content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    volumes = published(pack(content, tmp_path / "v", "a.tar", volume=1_000_000))
    spoil(volumes / "a.tar.01")
    upload(s3, bucket, volumes)
    with pytest.raises(
        nbdata.ChecksumMismatch,
        match=r"contradict each other: a\.tar\.01 .*in the store.*--verify none",
    ):
        untar(f"s3://{bucket}/v/", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert untar(f"s3://{bucket}/v/", tmp_path / "out", verify="none").ok


def test_an_etag_that_is_no_md5_as_kms_encrypts_the_volume_contradicts_nothing(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(s3, bucket, listed(pack(content, tmp_path / "v", "a.tar", volume=1_000_000)))
    monkeypatch.setattr(checker, "parse_etag", lambda _: ETag("md5", "0" * 32, md5="0" * 32))
    with pytest.raises(nbdata.ChecksumMismatch, match="contradict each other"):
        untar(f"s3://{bucket}/v/", tmp_path / "out")
    monkeypatch.setattr(answers, "encrypted", lambda _: True)  # by HEAD and GET; a listing does not say it
    report = untar(f"s3://{bucket}/v/", tmp_path / "out")
    assert report.details["compared"] == report.details["volumes"] > 1
    assert look(tmp_path / "out") == look(content)


def test_a_digest_that_the_store_has_not_is_computed(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    (volumes / "SHA256SUMS").write_text("".join(lines(volumes, hashlib.sha256).values()))
    right = spoil(volumes / "a.tar.01")
    upload(s3, bucket, volumes)
    with pytest.raises(nbdata.ChecksumMismatch, match="its digest in SHA256SUMS"):
        untar(f"s3://{bucket}/v/a.tar.00", tmp_path / "out")
    (volumes / "a.tar.01").write_bytes(right)
    upload(s3, bucket, volumes)
    report = untar(f"s3://{bucket}/v/a.tar.00", tmp_path / "out")
    assert report.details["compared"] == report.details["volumes"]
    assert look(tmp_path / "out") == look(content)


def test_an_md5_that_store_and_list_agree_on_is_computed_once(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(s3, bucket, listed(pack(content, tmp_path / "v", "a.tar", volume=1_000_000)))
    made, check = [], checker._Whole
    monkeypatch.setattr(checker, "_Whole", lambda *args: made.append(args[0].key) or check(*args))
    report = untar(f"s3://{bucket}/v/", tmp_path / "out")
    assert report.details["compared"] == len(made) == len({*made})


def test_checksum_files_that_contradict_each_other_are_refused(content: Path, tmp_path: Path) -> None:
    volumes = sidecars(pack(content, tmp_path / "v", "a.tar", volume=1_000_000))
    (volumes / "MD5SUMS").write_text(f"{'0' * 32}  a.tar.00\n")
    with pytest.raises(nbdata.ChecksumMismatch, match=r"contradict each other: a\.tar\.00 .*0{32}.*MD5SUMS"):
        untar(volumes, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_spoilt_checksum_file_is_told_and_the_volumes_are_unpacked(content: Path, tmp_path: Path) -> None:
    volumes = sidecars(pack(content, tmp_path / "v", "a.tar", volume=1_000_000))
    (volumes / "a.tar.00.md5").write_text("0123456789abcdef0123456789abcde  a.tar.00\n")
    plan = untar(volumes, tmp_path / "out", dry_run=True)
    assert any(note.startswith("a.tar.00.md5: line 1") for note in plan.notes)
    report = untar(volumes, tmp_path / "out")
    assert report.details["compared"] == report.details["volumes"] - 1


def test_an_empty_list_is_not_called_too_large(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    (volumes / "MD5SUMS").touch()
    assert "MD5SUMS: holds no checksum" in untar(volumes, tmp_path / "out", dry_run=True).notes
    assert untar(volumes, tmp_path / "out").ok


def test_a_compressed_list_is_not_read_if_it_is_large_once_decompressed(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen lists of 3 MB beside the volumes were twenty million names, and took gigabytes."""
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    text = "".join(lines(volumes).values()) + f"{'0' * 32}  {'a' * 5000}\n"
    (volumes / "MD5SUMS.gz").write_bytes(gzip.compress(text.encode()))
    monkeypatch.setattr(checksum_files, "LARGEST", 5000)
    notes = untar(volumes, tmp_path / "out", dry_run=True).notes
    assert "MD5SUMS.gz: not read, as too large, of unknown size or too many" in notes


@pytest.mark.usefixtures("small_steps")
def test_a_volume_that_was_begun_by_an_earlier_run_is_not_called_compared(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes = listed(pack(content, tmp_path / "v", "a.tar", volume=500_000))
    read, left, last = LocalStore.read, [1], names(volumes)[-2]

    def once(self: LocalStore, key: str, *args: Any, **options: Any) -> Any:
        if key.endswith(last) and left:
            left.pop()
            raise nbdata.NbdataError("broken")
        return read(self, key, *args, **options)

    monkeypatch.setattr(LocalStore, "read", once)
    with pytest.raises(nbdata.NbdataError, match="broken"):
        untar(volumes, tmp_path / "out")
    report = untar(volumes, tmp_path / "out")
    assert report.details["resumed_at"] > 0
    assert report.details["compared"] == 2
    assert "2 of 3 volumes match MD5SUMS" in report.notes
    assert "1 of 3 volumes could not be compared" in " ".join(report.notes)
    assert look(tmp_path / "out") == look(content)


def test_the_archives_of_a_folder_are_compared_each_and_a_wrong_one_stops_no_other(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    pack(content, volumes, "b.tar", volume=1_000_000)
    sidecars(volumes)
    spoil(volumes / "b.tar.01")
    upload(s3, bucket, volumes)
    with pytest.raises(nbdata.TransferFailed, match=r"b\.tar"):
        untar(f"s3://{bucket}/v/", tmp_path / "out")
    assert look(tmp_path / "out" / "a") == look(content)


def test_volumes_left_by_a_run_that_deletes_them_are_still_compared(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    volumes, out = pack(content, tmp_path / "v", "a.tar", volume=500_000), tmp_path / "out"
    (volumes / "SHA256SUMS").write_text("".join(lines(volumes, hashlib.sha256).values()))
    upload(s3, bucket, volumes)
    client = client_of(s3)
    last = [name for name in names(volumes) if name.startswith("a.tar")][-1]
    right = (volumes / last).read_bytes()
    spoil(volumes / last, 0)
    client.put_object(Bucket=bucket, Key=f"v/{last}", Body=(volumes / last).read_bytes())
    with pytest.raises(nbdata.NbdataError):
        untar(f"s3://{bucket}/v/", out, delete_volumes=True)
    client.put_object(Bucket=bucket, Key=f"v/{last}", Body=right)
    client.close()
    report = untar(f"s3://{bucket}/v/", out, delete_volumes=True)
    assert report.details["compared"] >= 1
    assert look(out) == look(content)


@pytest.mark.in_ci(
    "-CHECKSUMS", "-a.tar.md5", "-all.md5", "a.tar.00-CHECKSUMS", "a.tar.00-a.tar.md5", "a.tar.00-all.md5"
)
@pytest.mark.parametrize(
    "list_", ["checksums.md5", "all.md5", "a.tar.md5", "a.tar.md5sum", "CHECKSUMS", "MD5SUMS.txt"]
)
@pytest.mark.parametrize("source", ["", "a.tar.00", "a.tar*[0-9]"])
def test_a_list_of_any_usual_name_is_found(list_: str, source: str, content: Path, tmp_path: Path) -> None:
    volumes = listed(pack(content, tmp_path / "v", "a.tar", volume=1_000_000), list_)
    spoil(volumes / "a.tar.01")
    (volumes / "other.bin").write_bytes(b"other")
    (volumes / "other.bin.md5").write_text(f"{'0' * 32}  other.bin\n")
    with pytest.raises(nbdata.ChecksumMismatch, match=f"its digest in {list_}"):
        untar(volumes / source, tmp_path / "out")


@pytest.mark.parametrize("list_", ["checksums.md5", "a.tar.md5"])
def test_a_list_in_a_store_is_found(
    list_: str, content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    upload(s3, bucket, listed(volumes, list_))
    assert untar(f"s3://{bucket}/v/", tmp_path / "out").details["compared"] > 1


def test_the_files_beside_volumes_that_a_list_names_are_found(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    parts = [volumes / name for name in names(volumes)]
    listed(volumes)
    assert untar(parts, tmp_path / "out").details["compared"] == len(parts)
    (volumes / "a.lst").write_text("".join(f"{part.name}\n" for part in parts))
    assert untar(volumes / "a.lst", tmp_path / "out2").details["compared"] == len(parts)
    sidecars(volumes)
    with pytest.raises(nbdata.BadOption, match=r"a\.tar\.00\.md5 is in the list .* a checksum file"):
        untar(sorted(volumes.glob("a.tar.0*")), tmp_path / "out3")


@pytest.mark.parametrize("folder", ["v/", "/home/me/v/", "D:\\v\\"])
def test_a_list_made_from_the_folder_above_or_on_another_machine_is_understood(
    folder: str, content: Path, tmp_path: Path
) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    text = "".join(line.replace("  ", f"  {folder}") for line in lines(volumes).values())
    (volumes / "MD5SUMS").write_text(text)
    report = untar(volumes, tmp_path / "out")
    assert report.details["compared"] == report.details["volumes"] > 1
    assert not [note for note in report.notes if "absolute" in note]


@pytest.mark.parametrize(
    "text", ["", "part,md5\n", f"{'0' * 32}  elsewhere/a.tar.00\n", f"{'0' * 32}  a.tar\n"]
)
def test_a_list_that_says_nothing_of_the_volumes_is_told_in_plan_and_report(
    text: str, content: Path, tmp_path: Path
) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    (volumes / "MD5SUMS").write_text(text)
    told = "no digest of these volumes is in MD5SUMS: nothing is compared"
    assert told in untar(volumes, tmp_path / "out", dry_run=True).notes
    assert told in untar(volumes, tmp_path / "out").notes


@pytest.mark.parametrize("options", [{}, {"delete_volumes": True}])
def test_what_was_unpacked_without_a_comparison_is_compared_once_there_are_checksums(
    options: dict[str, bool], content: Path, tmp_path: Path
) -> None:
    volumes, out = pack(content, tmp_path / "v", "a.tar", volume=1_000_000), tmp_path / "out"
    count, right = len(names(volumes)), spoil(volumes / "a.tar.01")
    assert untar(volumes, out).ok
    (volumes / "a.tar.01").write_bytes(right)  # only to make the list
    text = "".join(lines(volumes).values())
    spoilt = untar(volumes, out)  # the volume looks new
    assert spoilt.ok
    (volumes / "MD5SUMS").write_text(text.replace(text[:32], "0" * 32))
    with pytest.raises(nbdata.ChecksumMismatch, match="its digest in MD5SUMS"):
        untar(volumes, out, **options)
    assert len(names(volumes)) == count + 1
    (volumes / "MD5SUMS").write_text(text)
    report = untar(volumes, out)
    assert report.details["compared"] == count
    plan = untar(volumes, out, dry_run=True)
    assert not plan.notes
    (volumes / "MD5SUMS").write_text(text.replace(text[:32], "0" * 32))
    with pytest.raises(nbdata.ChecksumMismatch):
        untar(volumes, out, **options)
    assert look(out) == look(content)


def test_a_volume_too_many_in_a_list_has_a_way_out(content: Path, tmp_path: Path) -> None:
    volumes = listed(pack(content, tmp_path / "v", "a.tar", volume=1_000_000))
    with (volumes / "MD5SUMS").open("a") as file:
        file.write(f"{'0' * 32}  a.tar.{len(names(volumes)) - 1:02}\n")
    with pytest.raises(nbdata.MissingVolume, match="--verify none"):
        untar(volumes, tmp_path / "out")
    assert untar(volumes, tmp_path / "out", verify="none").ok


# -- checksum files elsewhere ---------------------------------------------------------------------


def test_checksum_files_may_lie_in_a_folder_of_their_own(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    upload(s3, bucket, volumes)
    (tmp_path / "md5").mkdir()
    for name, line in lines(volumes).items():
        (tmp_path / "md5" / f"{name}.md5").write_text(line)
    (tmp_path / "md5" / "other.md5").write_text(f"{'0' * 32}  other\n")
    report = untar(f"s3://{bucket}/v/", f"s3://{bucket}/out/", against=str(tmp_path / "md5"))
    assert report.details["compared"] == report.details["volumes"] > 1
    spoil(volumes / "a.tar.01")
    with pytest.raises(nbdata.ChecksumMismatch, match=r"its digest in a\.tar\.01\.md5"):
        untar(volumes, tmp_path / "out", against=str(tmp_path / "md5"))


def test_one_list_elsewhere_names_the_volumes_of_several_archives(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    pack(content, volumes, "b.tar", volume=1_000_000)
    (tmp_path / "sums.txt").write_text("".join(lines(volumes).values()))
    report = untar(volumes, tmp_path / "out", against=str(tmp_path / "sums.txt"))
    assert report.ok
    for told in report.details["sets"].values():
        assert told["compared"] == told["volumes"] > 1


def test_a_volume_without_a_digest_is_told_beforehand(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    told = list(lines(volumes).values())
    (tmp_path / "sums.md5").write_text("".join(told[:-1]))
    line = {"against": str(tmp_path / "sums.md5")}
    plan = untar(volumes, tmp_path / "out", dry_run=True, **line)
    assert any(note.endswith("except 1 volume without a digest") for note in plan.notes)
    report = untar(volumes, tmp_path / "out", **line)
    assert f"{len(told) - 1} of {len(told)} volumes match sums.md5" in report.notes


def test_a_place_without_digests_of_the_volumes_is_refused(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    (tmp_path / "md5").mkdir()
    (tmp_path / "md5" / "other.md5").write_text(f"{'0' * 32}  other\n")
    with pytest.raises(nbdata.NotFound, match=r"digest of these volumes.*--against"):
        untar(volumes, tmp_path / "out", against=str(tmp_path / "md5"))
    with pytest.raises(nbdata.BadOption, match="--verify none"):
        untar(volumes, tmp_path / "out", against=str(tmp_path / "md5"), verify="none")


def test_a_list_of_the_folder_above_is_understood(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    text = "".join(line.replace("  ", "  v/") for line in lines(volumes).values())
    (tmp_path / "MD5SUMS").write_text(text + f"{'0' * 32}  w/b.tar.00\n")
    report = untar(volumes, tmp_path / "out", against=str(tmp_path / "MD5SUMS"))
    assert report.details["compared"] == report.details["volumes"] > 1
    (tmp_path / "MD5SUMS").write_text(text + f"{'0' * 32}  w/a.tar.00\n")
    again = untar(volumes, tmp_path / "out2", against=str(tmp_path / "MD5SUMS"))
    assert again.details["compared"] == report.details["volumes"]


def test_a_zip_is_not_compared_as_a_whole(content: Path, tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    with zipfile.ZipFile(tmp_path / "v" / "a.zip", "w") as file:
        file.writestr("x", b"x" * 1000)
    (tmp_path / "v" / "MD5SUMS").write_text(f"{'0' * 32}  a.zip\n")
    assert untar(tmp_path / "v", tmp_path / "out").notes == []
    plan = untar(tmp_path / "v", tmp_path / "out2", against=str(tmp_path / "v" / "MD5SUMS"), dry_run=True)
    assert any("not compared as a whole" in note for note in plan.notes)


def test_archives_below_a_folder_with_other_files_are_found(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    (tmp_path / "all").mkdir()
    volumes.rename(tmp_path / "all" / "v")
    (tmp_path / "all" / "README.txt").write_text("read me")
    untar(tmp_path / "all", tmp_path / "out")
    assert look(tmp_path / "out") == look(content)


def test_a_digest_elsewhere_is_for_no_volume_that_shares_its_name(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", volume=1_000_000)
    places = [volumes / name for name in names(volumes)]
    (tmp_path / "sums.md5").write_text("".join(lines(volumes).values()))
    (tmp_path / "other").mkdir()
    places[-1] = places[-1].rename(tmp_path / "other" / "a.tar.00")
    report = untar(list(map(str, places)), tmp_path / "out", against=str(tmp_path / "sums.md5"))
    assert report.details["compared"] == len(places) - 2 > 0
    assert look(tmp_path / "out") == look(content)
