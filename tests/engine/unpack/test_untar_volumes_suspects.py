"""untar_volumes of sets that a failed transfer damaged: empty, short or zeroed volumes, or a wrong order."""

from __future__ import annotations

import gzip
import os
import random
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.engine.unpack.unpacking import archive, pack, untar, upload

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """An archive whose members end at volume boundaries, so it is a valid archive even without its third volume."""
    content = tmp_path / "packed"
    content.mkdir()
    for number in range(4):
        (content / f"zl{number}").write_bytes(os.urandom(200_000))
    folder = tmp_path / "v"
    folder.mkdir()
    tar = "tar --format=gnu -b1 -cf - zl0 zl1 zl2 zl3"
    subprocess.run(f"{tar} | split -b 200704 - '{folder}/z.tar.'", shell=True, cwd=content, check=True)
    return folder


@pytest.mark.parametrize("name", ["aa", "ac", "ae"])
def test_an_empty_volume_is_refused_and_named_while_planning(
    volumes: Path, name: str, tmp_path: Path
) -> None:
    empty = volumes / f"z.tar.{name}"
    empty.write_bytes(b"")
    everything = sorted(str(path) for path in volumes.iterdir())
    for source in (volumes, volumes / "z.tar.ab", f"{volumes}/z.tar.*", everything):
        for options in ({"delete_volumes": True}, {"dry_run": True}, {"list": True}):
            target = None if "list" in options else tmp_path / "out"
            with pytest.raises(nbdata.MissingVolume, match=f"empty volume z.tar.{name}.*Fetch it again"):
                untar(str(source) if isinstance(source, Path) else source, target, **options)
    assert sorted(map(str, volumes.iterdir())) == everything
    assert not (tmp_path / "out").exists()


def test_an_empty_volume_in_a_store_is_refused_while_planning(
    volumes: Path, s3: EmbeddedServer, bucket: str, tmp_path: Path
) -> None:
    (volumes / "z.tar.ac").write_bytes(b"")
    upload(s3, bucket, volumes)
    with pytest.raises(nbdata.MissingVolume, match=r"empty volume z\.tar\.ac"):
        untar(f"s3://{bucket}/v/", tmp_path / "out")


def shorten(folder: Path, name: str, size: int) -> None:
    os.truncate(folder / name, size)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.bz2"])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.in_ci("False-*", 1)
def test_a_volume_that_is_shorter_than_its_neighbours_is_named(
    name: str, listed: bool, tmp_path: Path
) -> None:
    content = tmp_path / "c"
    content.mkdir()
    for number in range(30):
        (content / f"{number:02}").write_bytes(os.urandom(100_000))
    folder = pack(content, tmp_path / "v", name, volume=400_000, letters=True)
    shorten(folder, f"{name}.ac", 250_001)
    source = sorted(map(str, folder.iterdir())) if listed else folder
    with pytest.raises(nbdata.BadArchive) as caught:
        untar(source, tmp_path / "out")
    said = str(caught.value)
    assert f"Most likely {name}.ac (250,001 bytes) is too short: others have 400,000" in said
    assert "what was unpacked last may be wrong" in said
    assert caught.value.details["odd_sized"] == [f"{name}.ac"]


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_the_error_says_that_the_list_may_be_in_the_wrong_order(name: str, tmp_path: Path) -> None:
    content = tmp_path / "c"
    content.mkdir()
    noise = random.Random(1)  # other bytes can end the gzip stream early, with a wrong checksum
    for number in range(30):
        (content / f"{number:02}").write_bytes(noise.randbytes(100_000))
    for path in (*content.iterdir(), content):  # and so can other times, which the archive has
        os.utime(path, (1, 1))
    pack(content, tmp_path / "v", name, volume=400_000, letters=True)
    first, second, third, *rest = sorted(str(path) for path in (tmp_path / "v").iterdir())
    with pytest.raises(nbdata.BadArchive) as caught:
        untar([first, third, second, *rest], tmp_path / "out")
    said = str(caught.value)
    assert "is damaged, too short or out of order" in said
    # The message names the volume where the fault was noticed, unless plain tar cannot know it. It never names a
    # second, good volume.
    assert said.count(f"{name}.a") == ("in volume" in said)


@pytest.mark.parametrize("first", [False, True])
def test_a_wrong_checksum_at_the_end_puts_every_volume_and_every_file_in_doubt(
    first: bool, tmp_path: Path
) -> None:
    content = tmp_path / "c"
    content.mkdir()
    noise = random.Random(1)
    for number in range(30):
        (content / f"{number:02}").write_bytes(noise.randbytes(100_000))
    folder = pack(content, tmp_path / "v", "a.tar.gz", volume=400_000, letters=True)
    with open(folder / "a.tar.gz.ac", "r+b") as file:  # random bytes are stored as they are
        file.seek(200_000)
        byte = file.read(1)[0]
        file.seek(200_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(nbdata.BadArchive) as caught:
        untar(folder / "a.tar.gz.aa" if first else folder, tmp_path / "out")
    said = str(caught.value)
    assert (
        "any volume up to that one may be damaged or out of order, and any file unpacked so far may be wrong"
        in said
    )
    assert f"`md5check {folder}{'/' * first}` tells which volume" in said
    assert re.search(r"which writes \d+ files of them anew", said)


def test_a_volume_of_another_size_is_no_fault_where_the_archive_is_whole(
    volumes: Path, tmp_path: Path
) -> None:
    whole = b"".join(path.read_bytes() for path in sorted(volumes.iterdir()))
    cuts = [0, 200_704, 300_000, 500_704, 701_408, len(whole)]
    for path in volumes.iterdir():
        path.unlink()
    for number, (begin, end) in enumerate(pairwise(cuts)):
        (volumes / f"z.tar.{number:03}").write_bytes(whole[begin:end])
    report = untar(volumes, tmp_path / "out")
    assert report.counts == {"extracted": 4}
    assert "smaller than the other volumes: z.tar.001;" in report.text()


# -- zeros ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [512, 1024, 10_240])
def test_an_archive_of_no_members_is_one_record_of_zeros(size: int, tmp_path: Path) -> None:
    (tmp_path / "empty.tar").write_bytes(bytes(size))
    assert untar(tmp_path / "empty.tar", tmp_path / "out").counts == {}


@pytest.mark.parametrize("size", [10_241, 3_000_000])
def test_more_zeros_are_no_archive(size: int, tmp_path: Path) -> None:
    source, packed = tmp_path / "z.tar", tmp_path / "z.tar.gz"
    source.write_bytes(bytes(size))
    packed.write_bytes(gzip.compress(bytes(size)))
    for options in ({"delete_volumes": True}, {"dry_run": True}, {"format": "tar"}):
        with pytest.raises(nbdata.BadArchive, match="zeros"):
            untar(source, tmp_path / "out", **options)
    for options in ({"delete_volumes": True}, {"members": "*.txt"}):
        with pytest.raises(nbdata.BadArchive, match="only zeros"):
            untar(packed, tmp_path / "out", **options)
    assert source.exists()
    assert packed.exists()


def test_zeros_behind_the_end_that_fill_a_volume_keep_the_volumes(volumes: Path, tmp_path: Path) -> None:
    (volumes / "z.tar.af").write_bytes(bytes(200_704))
    report = untar(volumes, tmp_path / "out", delete_volumes=True)
    assert report.counts["extracted"] == 4
    assert "200,704 bytes of zeros, which fill whole volumes" in report.text()
    assert {"z.tar.ae", "z.tar.af"} <= {path.name for path in volumes.iterdir()}
    again = untar(volumes, tmp_path / "out", delete_volumes=True)
    assert "deleted" not in again.counts
    assert (volumes / "z.tar.af").exists()


def test_zeros_behind_compressed_data_keep_the_volumes(content: Path, tmp_path: Path) -> None:
    folder = pack(content, tmp_path / "v", volume=300_000)
    last = max(folder.iterdir())
    os.truncate(last, 300_000)
    (folder / f"{last.name[:-2]}{int(last.name[-2:]) + 1:02}").write_bytes(bytes(300_000))
    before = sorted(folder.iterdir())
    report = untar(folder, tmp_path / "out", delete_volumes=True)
    assert "which fill whole volumes" in report.text()
    assert sorted(folder.iterdir()) == before


def test_zeros_behind_the_end_are_told_where_they_are_more_than_padding(tmp_path: Path) -> None:
    source = archive(tmp_path / "v", ("x", "file", b"x"), name="x.tar")
    size = source.stat().st_size
    os.truncate(source, size + 60_000 - 8_192)
    assert untar(source, tmp_path / "few").notes == []
    os.truncate(source, size + 100_000)
    report = untar(source, tmp_path / "many", delete_volumes=True)
    assert "bytes of zeros; if a transfer failed" in report.text()
    assert report.counts == {"extracted": 1, "deleted": 1}


def test_padding_by_tar_is_not_reported(volumes: Path, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    tar = f"tar -b 128 -cf - -C {tmp_path}/packed zl0 | split -b 4000 -a 3 - {tmp_path}/w/z.tar."
    subprocess.run(tar, shell=True, check=True)
    report = untar(tmp_path / "w", tmp_path / "out", delete_volumes=True)
    assert report.notes == []
    assert list((tmp_path / "w").iterdir()) == []


@pytest.mark.parametrize("several", [False, True])
def test_a_damaged_archive_in_a_store_is_not_to_be_repaired_in_place(
    several: bool, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    content = tmp_path / "packed"
    content.mkdir()
    (content / "a").write_bytes(os.urandom(300_000))
    volumes = pack(content, tmp_path / "v", volume=100_000 if several else 1_000_000)
    first = min(volumes.iterdir())
    data = bytearray(first.read_bytes())
    data[10:10_000] = bytes(9_990)  # no block of deflate begins so
    first.write_bytes(data)
    with pytest.raises(nbdata.BadArchive, match="md5check --repair finds it"):
        untar(volumes, tmp_path / "out")
    nbdata.push(volumes, f"s3://{bucket}/v/", quiet=True)
    with pytest.raises(nbdata.BadArchive, match="md5check finds it, and copy --overwrite always") as caught:
        untar(f"s3://{bucket}/v/", tmp_path / "other")
    assert "--repair" not in str(caught.value)
