"""untar_volumes of zip archives, from the disk and a store to both: split, resumed, and single members."""

from __future__ import annotations

import io
import os
import random
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.unpack.extract import Extraction
from nbdata.errors import BadArchive, Cancelled, MissingVolume
from tests.conftest import client_of
from tests.engine.unpack.checkpointing import packed
from tests.engine.unpack.test_untar_to_store import stored
from tests.engine.unpack.unpacking import untar
from tests.faults.proxy import FaultProxy
from tests.faults.test_lines import proxy

__all__ = ["proxy"]
pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]
MIB = 1 << 20


def content(count: int = 120, seed: int = 4) -> dict[str, bytes]:
    source = random.Random(seed)
    made = {
        f"d{number % 5}/f{number:03} ü": source.randbytes(source.randrange(1, 30_000)) + bytes(2000)
        for number in range(count)
    }
    return made | {"large.bin": source.randbytes(11 * MIB), "empty": b""}


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".nbdata" not in path.parts
    }


def test_a_zip_is_unpacked_to_the_disk_and_not_read_again(tmp_path: Path) -> None:
    files = content()
    (tmp_path / "a.zip").write_bytes(zipped(files))
    report = untar(tmp_path / "a.zip", tmp_path / "out")
    assert files_of(tmp_path / "out") == files
    assert report.counts == {"extracted": len(files)}
    assert report.details["format"] == "zip"
    again = untar(tmp_path / "a.zip", tmp_path / "out")
    assert again.counts == {"unchanged": len(files)}
    assert again.details["compressed"] == 0


@pytest.mark.needs("zip")
def test_a_split_zip_goes_from_store_to_store(
    put: Put, bucket: str, s3: EmbeddedServer, tmp_path: Path
) -> None:
    files = content(60)
    tree = tmp_path / "tree"
    for name, data in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    (tree / "link").symlink_to("empty")
    subprocess.run(["zip", "-qry", "-s", "1m", str(tmp_path / "s.zip"), "."], cwd=tree, check=True)
    volumes = {f"v/{path.name}": path.read_bytes() for path in tmp_path.glob("s.z*")}
    assert len(volumes) > 5
    url = put(volumes)
    report = untar(f"{url}v/", f"{url}out/")
    assert report.ok
    assert stored(s3, bucket, "out/") == files | {"link": b""}
    assert untar(f"{url}v/", f"{url}out/").counts == {"unchanged": len(files) + 1}
    client = client_of(s3)
    client.delete_object(Bucket=bucket, Key="v/s.z02")
    client.close()
    with pytest.raises(MissingVolume, match=r"s\.z02"):
        untar(f"{url}v/", f"{url}other/")


def test_an_interrupted_line_reads_only_what_is_missing(tmp_path: Path) -> None:
    files = {f"f{n:03}": random.Random(n).randbytes(200_000) for n in range(60)}
    (tmp_path / "a.zip").write_bytes(zipped(files, zipfile.ZIP_STORED))
    take, taken = Extraction.take, iter(range(40))

    def stop(extraction: Extraction, member: object) -> bool:
        if next(taken, None) is None:
            extraction._flush()
            raise Cancelled("cancelled")
        return take(extraction, member)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Extraction, "take", stop)
        with pytest.raises(nbdata.Cancelled):
            untar(tmp_path / "a.zip", tmp_path / "out")
    report = untar(tmp_path / "a.zip", tmp_path / "out")
    assert report.counts == {"unchanged": 40, "extracted": 20}
    assert report.details["compressed"] < 22 * 200_000
    assert files_of(tmp_path / "out") == files


def test_one_member_of_a_remote_zip_takes_few_requests_and_bytes(
    proxy: FaultProxy, put: Put, bucket: str, tmp_path: Path
) -> None:
    source = random.Random(7)
    files = {f"f{n:04}": source.randbytes(10_000) for n in range(3000)}
    url = put({"big.zip": zipped(files, zipfile.ZIP_STORED)})
    tally = proxy.begin(lambda request, before: None)
    report = untar(f"{url}big.zip", tmp_path / "out", members=["f1234"])
    assert files_of(tmp_path / "out") == {"f1234": files["f1234"]}
    assert report.counts == {"extracted": 1}
    assert tally.down["big.zip"] < MIB
    assert report.details["compressed"] < MIB


def test_a_zip_is_listed_by_its_directory_alone(put: Put, bucket: str) -> None:
    files = {f"f{n}": bytes([n]) * 1_000_000 for n in range(20)}
    url = put({"big.zip": zipped(files, zipfile.ZIP_STORED)})
    report = untar(f"{url}big.zip", list=True)
    assert report.counts == {"members": 20}
    assert report.details["size"] == 20_000_000
    assert report.details["compressed"] < MIB


def test_damage_in_a_member_ends_the_line_and_what_came_before_stays(tmp_path: Path) -> None:
    files = {f"f{n}": random.Random(n).randbytes(50_000) for n in range(10)}
    data = bytearray(zipped(files, zipfile.ZIP_STORED))
    data[data.find(files["f7"]) + 1000] ^= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(BadArchive, match="another CRC-32 than its directory says: f7"):
        untar(tmp_path / "a.zip", tmp_path / "out")
    assert files_of(tmp_path / "out") == {name: data for name, data in files.items() if name < "f7"}


def test_a_zip_that_breaks_off_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(content(20))[:-500])
    with pytest.raises(BadArchive, match="no directory at its end"):
        untar(tmp_path / "a.zip", tmp_path / "out")


def test_volumes_of_a_zip_are_deleted_at_the_end(tmp_path: Path) -> None:
    data = zipped(content(30))
    (tmp_path / "v").mkdir()
    for number in range(4):
        part = -(-len(data) // 4)
        (tmp_path / "v" / f"a.zip.{number + 1:03}").write_bytes(data[number * part : (number + 1) * part])
    plan = untar(tmp_path / "v", tmp_path / "out", delete_volumes=True, dry_run=True)
    assert plan.details["deletion"] == "at the end"
    assert untar(tmp_path / "v", tmp_path / "out", delete_volumes=True).counts["deleted"] == 4
    assert files_of(tmp_path / "out") == content(30)
    assert not os.listdir(tmp_path / "v")


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_members_can_be_left_out(form: str, tmp_path: Path) -> None:
    files = {"a/x.txt": b"1", "a/y.log": b"2", "b/z.txt": b"3", "b/tmp/w.txt": b"4"}
    data = zipped(files) if form == "zip" else packed([(name, "file", one) for name, one in files.items()])[0]
    (tmp_path / f"a.{form}").write_bytes(data)
    untar(tmp_path / f"a.{form}", tmp_path / "out", exclude=["**/*.log", "b/tmp"])
    assert set(files_of(tmp_path / "out")) == {"a/x.txt", "b/z.txt"}
    untar(tmp_path / f"a.{form}", tmp_path / "some", members=["a/**"], exclude="**/*.log")
    assert set(files_of(tmp_path / "some")) == {"a/x.txt"}
    untar(tmp_path / f"a.{form}", tmp_path / "out")
    assert files_of(tmp_path / "out") == files
    with pytest.raises(nbdata.BadOption, match="--exclude and --delete-volumes"):
        untar(tmp_path / f"a.{form}", tmp_path / "out", exclude=["b"], delete_volumes=True)


def test_two_archives_that_look_like_volumes_of_one_are_refused_and_kept(tmp_path: Path) -> None:
    """Together they would be the second one with something before it, and the first one's files would be lost."""
    volumes = {"a.zip.001": zipped({"first": b"1"}), "a.zip.002": zipped({"second": b"2"})}
    for name, data in volumes.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(BadArchive, match="another zip archive comes before this one"):
        untar(tmp_path / "a.zip.001", tmp_path / "out", delete_volumes=True)
    assert {name: (tmp_path / name).read_bytes() for name in volumes} == volumes
    assert files_of(tmp_path / "out") == {}
