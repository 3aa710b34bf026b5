"""untar_volumes of a single compressed file, as gunzip and zstd -d extract it, to a disk and to a store."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadArchive, NotFound, TransferFailed
from nbdata.stores.s3.store import S3Store
from nbdata.transfer.object_upload import ObjectUpload
from tests.conftest import client_of
from tests.engine.unpack.test_untar_to_store import stored
from tests.engine.unpack.unpacking import archive, no_leftovers, untar

pytestmark = pytest.mark.usefixtures("inline")

MIB = 1 << 20
Put = Callable[[dict[str, bytes]], str]
PROGRAMS = {
    "gz": ("gzip", "gunzip"),
    "bz2": ("bzip2", "bunzip2"),
    "xz": ("xz", "unxz"),
    "zst": ("zstd", "unzstd"),
}


def text(size: int) -> bytes:
    source = random.Random(size)
    line = b"".join(b"%d;%d\n" % (n, source.randrange(10**9)) for n in range(min(size // 8 + 1, 200_000)))
    return (line * (size // len(line) + 1))[:size]


def compressed(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    program = PROGRAMS[name.rpartition(".")[2]][0]
    path.write_bytes(subprocess.run([program, "-c"], input=data, capture_output=True, check=True).stdout)
    return path


def cut(path: Path, count: int = 4) -> Path:
    data = path.read_bytes()
    path.unlink()
    size = -(-len(data) // count)
    for number in range(count):
        path.with_name(f"{path.name}.{number:02}").write_bytes(data[number * size : (number + 1) * size])
    return path.with_name(f"{path.name}.00")


@pytest.mark.parametrize("suffix", [*PROGRAMS])
@pytest.mark.parametrize("size", [0, 5, 511, 512, 700_000, MIB, MIB + 1, 5 * MIB + 7])
@pytest.mark.in_ci("5-*", "511-zst")
def test_a_single_file_is_written_as_its_own_program_writes_it(
    tmp_path: Path, suffix: str, size: int
) -> None:
    path = compressed(tmp_path / "v", f"x.csv.{suffix}", text(size))
    report = untar(path, tmp_path / "out")
    assert [(p.name, p.read_bytes()) for p in (tmp_path / "out").iterdir()] == [("x.csv", text(size))]
    assert report.counts == {"extracted": 1}
    assert report.bytes == size
    assert (tmp_path / "out" / "x.csv").stat().st_mtime == pytest.approx(path.stat().st_mtime, abs=1e-3)
    subprocess.run([PROGRAMS[suffix][1], "-k", str(path)], check=True)
    assert path.with_suffix("").read_bytes() == text(size)

    again = untar(path, tmp_path / "out")
    assert again.counts == {"unchanged": 1}
    assert no_leftovers(tmp_path / "out")


def test_one_in_volumes_becomes_an_object_in_parts(
    tmp_path: Path, s3: EmbeddedServer, bucket: str, put: Put
) -> None:
    data = random.Random(1).randbytes(19 * MIB + 5)
    cut(compressed(tmp_path / "v", "dump.sql.zst", data))
    put({f"v/{path.name}": path.read_bytes() for path in (tmp_path / "v").iterdir()})
    plan = nbdata.UntarVolumes(f"s3://{bucket}/v/", f"s3://{bucket}/out/").plan()
    assert "if it contains no tar archive, it is a single file and becomes dump.sql" in plan.notes

    report = untar(f"s3://{bucket}/v/", f"s3://{bucket}/out/")
    assert stored(s3, bucket, "out/") == {"dump.sql": data}
    assert (report.files, report.bytes) == (1, len(data))
    assert untar(f"s3://{bucket}/v/", f"s3://{bucket}/out/").counts == {"unchanged": 1}
    client = client_of(s3)
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    client.close()


@pytest.mark.parametrize("size", [300_000, 8 * MIB, 16 * MIB, 16 * MIB + 1])
@pytest.mark.in_ci("16777217")
def test_its_size_may_be_one_part_several_or_just_fill_them(
    tmp_path: Path, s3: EmbeddedServer, bucket: str, size: int
) -> None:
    path = compressed(tmp_path / "v", "x.bin.gz", text(size))
    untar(path, f"s3://{bucket}/out/")
    assert stored(s3, bucket, "out/") == {"x.bin": text(size)}


def damaged(data: bytes) -> bytes:
    return data[:-30]


def test_a_single_file_gets_its_name_only_when_it_is_complete(
    tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    path = compressed(tmp_path / "v", "x.bin.gz", random.Random(1).randbytes(17 * MIB))
    whole = path.read_bytes()
    path.write_bytes(damaged(whole))
    with pytest.raises(BadArchive, match=r"ends in the middle|ends too early"):
        untar(path, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*"))
    with pytest.raises(BadArchive):
        untar(path, f"s3://{bucket}/out/")
    assert stored(s3, bucket, "out/") == {}
    client = client_of(s3)
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    client.close()

    path.write_bytes(whole)
    untar(path, tmp_path / "out")
    untar(path, f"s3://{bucket}/out/")
    data = random.Random(1).randbytes(17 * MIB)
    assert (
        stored(s3, bucket, "out/") == {"x.bin": (tmp_path / "out" / "x.bin").read_bytes()} == {"x.bin": data}
    )


def test_a_part_that_the_store_refuses_fails_the_file_and_leaves_no_upload(
    tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    path = compressed(tmp_path / "v", "x.bin.gz", random.Random(1).randbytes(30 * MIB))
    begun = ObjectUpload.begun
    asked = list[int]()

    def refused(self: ObjectUpload) -> object:
        asked.append(1)
        if len(asked) == 2:
            raise nbdata.AccessDenied("no")
        return begun(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ObjectUpload, "begun", refused)
        with pytest.raises(TransferFailed):
            untar(path, f"s3://{bucket}/out/")
    assert stored(s3, bucket, "out/") == {}
    client = client_of(s3)
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    client.close()
    untar(path, f"s3://{bucket}/out/")
    assert len(stored(s3, bucket, "out/")["x.bin"]) == 30 * MIB


def test_one_that_becomes_larger_than_the_parts_of_an_object_is_told_how_to_send_it(
    s3: EmbeddedServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Store, "max_parts", 2)
    path = compressed(tmp_path / "v", "x.bin.gz", bytes(20 * MIB))
    with pytest.raises(TransferFailed, match=r"larger than 2 parts of .* Use a larger --part-size"):
        untar(path, f"s3://{bucket}/out/")
    assert not stored(s3, bucket, "out/")
    client = client_of(s3)
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket)
    client.close()
    untar(path, f"s3://{bucket}/out/", part_size=10 * MIB)
    assert len(stored(s3, bucket, "out/")["x.bin"]) == 20 * MIB


def test_an_archive_is_an_archive_whatever_its_name(tmp_path: Path) -> None:
    tar = archive(tmp_path / "v", ("one", "file", b"1"), name="x.tar.gz")
    untar(tar.rename(tmp_path / "v" / "x.csv.gz"), tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["one"]


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a", "vol-00"])
def test_what_is_not_called_a_single_file_and_is_no_tar_is_refused(tmp_path: Path, name: str) -> None:
    path = compressed(tmp_path / "v", "x.gz", b"<html><title>Not found</title></html>" * 40)
    with pytest.raises(BadArchive):
        untar(path.rename(tmp_path / "v" / name), tmp_path / "out")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.long
def test_a_listing_tells_its_name_and_the_limit_holds(tmp_path: Path) -> None:
    path = compressed(tmp_path / "v", "x.csv.gz", text(5 * MIB))
    assert [(row.path, row.size) for row in untar(path, list=True).rows] == [("x.csv", -1)]
    with pytest.raises(BadArchive, match="expands to more than"):
        untar(path, tmp_path / "out", max_expansion=3 * MIB)
    with pytest.raises(NotFound, match="no member matches"):
        untar(path, tmp_path / "out", members=["*.json"])
    assert not list((tmp_path / "out").rglob("*"))


def test_an_unchanged_single_file_has_no_negative_size(tmp_path: Path, put: Put) -> None:
    path = compressed(tmp_path / "v", "x.bin.xz", bytes(9 * MIB))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.bin").write_bytes(b"mine")
    url = put({"out/x.bin": b"mine"})
    for target in (tmp_path / "out", f"{url}out/"):
        report = untar(path, target, overwrite="never")
        assert [(row.action, row.size) for row in report.rows] == [("skipped", 0)]


@pytest.mark.long
def test_its_volumes_are_deleted_when_it_is_there(tmp_path: Path) -> None:
    first = cut(compressed(tmp_path / "v", "x.csv.gz", text(3 * MIB)))
    untar(first, tmp_path / "out", delete_volumes=True)
    assert (tmp_path / "out" / "x.csv").read_bytes() == text(3 * MIB)
    assert not list((tmp_path / "v").iterdir())


@pytest.mark.long
def test_room_grows_with_it_and_a_limit_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compressed(tmp_path / "v", "x.bin.gz", bytes(40 * MIB))
    (tmp_path / "out").mkdir()
    monkeypatch.setenv("NBDATA_QUOTA", f"10m:{tmp_path / 'out'}")
    with pytest.raises(nbdata.NotEnoughSpace):
        untar(path, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("x.bin"))
    monkeypatch.setenv("NBDATA_QUOTA", f"100m:{tmp_path / 'out'}")
    untar(path, tmp_path / "out")
    assert (tmp_path / "out" / "x.bin").stat().st_size == 40 * MIB
