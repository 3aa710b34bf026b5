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
from nbdata.engine.unpack.targets.folder.extraction import Extraction
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


@pytest.mark.long
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


@pytest.mark.parametrize("names", [("a.zip.001", "a.zip.002"), ("x.zip.aa", "x.zip.ab")])
def test_archives_that_are_called_like_volumes_are_unpacked_each(
    names: tuple[str, str], tmp_path: Path
) -> None:
    """Together they would be the second one with something before it, and the first one's files would be lost."""
    for name, data in zip(names, (zipped({"first": b"1"}), zipped({"second": b"2"})), strict=True):
        (tmp_path / "v").mkdir(exist_ok=True)
        (tmp_path / "v" / name).write_bytes(data)
    report = untar(tmp_path / "v", tmp_path / "out", delete_volumes=True)
    assert files_of(tmp_path / "out") == {f"{names[0]}/first": b"1", f"{names[1]}/second": b"2"}
    assert report.counts == {"extracted": 2, "deleted": 2}
    assert not os.listdir(tmp_path / "v")


@pytest.mark.parametrize("way", ["one file", "a list"])
def test_archives_that_follow_one_another_are_all_unpacked_before_their_volumes_are_deleted(
    way: str, tmp_path: Path
) -> None:
    first, second = zipped({"first": b"1"}), zipped({"second": b"2"})
    volumes = [tmp_path / "x.zip.aa", tmp_path / "x.zip.ab"]
    if way == "one file":
        volumes = [tmp_path / "x.zip"]
        volumes[0].write_bytes(first + second)
    else:
        for path, data in zip(volumes, (first, second), strict=True):
            path.write_bytes(data)
    source = volumes[0] if way == "one file" else [str(path) for path in volumes]
    report = untar(source, tmp_path / "out", delete_volumes=True)
    assert files_of(tmp_path / "out") == {"first": b"1", "second": b"2"}
    assert "2 zip archives follow one another" in " ".join(report.notes)
    assert not any(path.exists() for path in volumes)


def test_a_self_extracting_zip_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "setup.exe"
    with open("/bin/true", "rb") as program:
        path.write_bytes(program.read() + zipped({"a": b"1"}))
    report = untar(path, tmp_path / "out", delete_volumes=True)
    assert files_of(tmp_path / "out") == {"a": b"1"}
    assert report.counts == {"extracted": 1, "deleted": 1}


@pytest.mark.needs("zip")
def test_the_last_volume_alone_names_those_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "bulk").write_bytes(random.Random(1).randbytes(300_000))
    subprocess.run(["zip", "-qs", "64k", "s.zip", "bulk"], cwd=tmp_path, check=True)
    joined = b"".join(path.read_bytes() for path in [*sorted(tmp_path.glob("s.z0*")), tmp_path / "s.zip"])
    for path in tmp_path.glob("s.z0*"):
        path.unlink()
    with pytest.raises(
        MissingVolume, match=r"missing volumes s\.z01, s\.z02, s\.z03, s\.z04: .*5 volumes.*got 1"
    ):
        untar(tmp_path / "s.zip", tmp_path / "out")
    (tmp_path / "joined.zip").write_bytes(joined)
    report = untar(tmp_path / "joined.zip", tmp_path / "out", delete_volumes=True)
    assert files_of(tmp_path / "out") == {"bulk": (tmp_path / "bulk").read_bytes()}
    assert "were joined into one file" in " ".join(report.notes)
    assert not (tmp_path / "joined.zip").exists()


@pytest.mark.in_ci("-d")
@pytest.mark.parametrize("suffix", ["-d", "-a2"])
def test_what_split_cut_with_a_prefix_of_z_is_joined(suffix: str, tmp_path: Path) -> None:
    """``x.z00`` and ``x.zaa`` look like a volume of ``zip -s`` and like a file type."""
    files = content(10)
    (tmp_path / "x.zip").write_bytes(zipped(files))
    (tmp_path / "v").mkdir()
    subprocess.run(["split", "-b", "1M", suffix, "x.zip", "v/x.z"], cwd=tmp_path, check=True)
    for source in (tmp_path / "v", min((tmp_path / "v").iterdir())):
        untar(source, tmp_path / f"out-{source.name}")
        assert files_of(tmp_path / f"out-{source.name}") == files
