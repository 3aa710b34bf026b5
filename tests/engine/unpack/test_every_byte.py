"""Volumes are deleted only if every byte in them was unpacked, or is known to be none of anybody's data."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import random
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
import zstandard

import nbdata
from tests.engine.unpack.unpacking import archive, untar

pytestmark = pytest.mark.usefixtures("inline")

VOLUME = 4000  # bytes
OTHER = b"bytes of something else"


def noise(name: str) -> bytes:
    return random.Random(name).randbytes(9000)


def tar(name: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as out:
        info = tarfile.TarInfo(name)
        info.size = 9000
        out.addfile(info, io.BytesIO(noise(name)))
    return file.getvalue()


def zipped(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        out.writestr(name, noise(name))
    return file.getvalue()


def compressed(compress: Callable[[bytes], bytes]) -> Callable[[str], bytes]:
    return lambda name: compress(tar(name))


FORMATS: dict[str, Callable[[str], bytes]] = {
    "tar": tar,
    "tar.gz": compressed(lambda data: gzip.compress(data, 0)),
    "tar.bz2": compressed(bz2.compress),
    "tar.xz": compressed(lzma.compress),
    "tar.zst": compressed(zstandard.ZstdCompressor().compress),
    "tar.lz4": compressed(lz4.frame.compress),
    "zip": zipped,
}
# What is wrong with the volumes, and how they are made of two archives, one with a and one with b.
FAULTS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "another archive behind": lambda a, b: a + b,
    "other bytes behind": lambda a, b: a + OTHER,
    "other bytes before": lambda a, b: OTHER + a,
    "cut off": lambda a, b: a[:600],
    "the end alone": lambda a, b: a[600:],
    "zeros as long as volumes behind": lambda a, b: a + bytes(200_000),
    "other bytes between two": lambda a, b: a + OTHER + b,
}


def cut(data: bytes, folder: Path, title: str) -> list[Path]:
    folder.mkdir()
    for number in range(0, len(data), VOLUME):
        (folder / f"{title}.{number // VOLUME + 1:03}").write_bytes(data[number : number + VOLUME])
    return sorted(folder.iterdir())


@pytest.mark.parametrize("form", FORMATS)
def test_volumes_of_a_right_archive_are_deleted(form: str, tmp_path: Path) -> None:
    volumes = cut(FORMATS[form]("a"), tmp_path / "v", f"x.{form}")
    report = untar(tmp_path / "v", tmp_path / "out", delete_volumes=True)
    assert (tmp_path / "out" / "a").read_bytes() == noise("a")
    assert report.counts["deleted"] == len(volumes)
    assert not os.listdir(tmp_path / "v")


@pytest.mark.in_ci(
    "another archive behind-tar.bz2",
    "another archive behind-tar.xz",
    "another archive behind-zip",
    "cut off-tar.lz4",
    "cut off-tar",
    "other bytes before-tar.gz",
    "other bytes before-tar.zst",
    "other bytes behind-tar.bz2",
    "other bytes behind-tar.xz",
    "other bytes behind-zip",
    "other bytes between two-tar.lz4",
    "other bytes between two-tar",
    "the end alone-tar.gz",
    "the end alone-tar.zst",
    "zeros as long as volumes behind-tar.bz2",
    "zeros as long as volumes behind-tar.xz",
    5,
)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("fault", FAULTS)
def test_volumes_with_bytes_that_were_not_unpacked_stay(fault: str, form: str, tmp_path: Path) -> None:
    """Or all of their members are there. The second run finds what the first one recorded."""
    data = FAULTS[fault](FORMATS[form]("a"), FORMATS[form]("b"))
    volumes = cut(data, tmp_path / "v", f"x.{form}")
    for _ in range(2):
        with contextlib.suppress(nbdata.NbdataError):
            untar(tmp_path / "v", tmp_path / "out", delete_volumes=True)
        there = sorted(path.name for path in (tmp_path / "out").glob("[ab]"))
        if not ((form, fault) == ("zip", "another archive behind") and there == ["a", "b"]):
            assert b"".join(path.read_bytes() for path in volumes) == data


@pytest.mark.needs("zip")
@pytest.mark.parametrize("fault", [*(fault for fault in FAULTS if "zeros" not in fault), "nothing"])
def test_volumes_of_zip_itself(fault: str, tmp_path: Path) -> None:
    """Its volumes are not cut anywhere: it knows where each member is."""
    (tmp_path / "a").write_bytes(os.urandom(200_000))
    subprocess.run(["zip", "-qs", "64k", "x.zip", "a"], cwd=tmp_path, check=True)
    last = tmp_path / "x.zip"
    if fault != "nothing":
        last.write_bytes(FAULTS[fault](last.read_bytes(), zipped("b")))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("x.z*")}
    with contextlib.suppress(nbdata.NbdataError):
        untar(last, tmp_path / "out", delete_volumes=True)
    after = {path.name: path.read_bytes() for path in tmp_path.glob("x.z*")}
    both = (
        fault == "another archive behind"
    )  # the members of all archives that follow one another are unpacked
    assert after == ({} if fault == "nothing" or both else before)
    assert not both or {"a", "b"} <= {*os.listdir(tmp_path / "out")}


@pytest.mark.parametrize("fault", [*(fault for fault in FAULTS if "zeros" not in fault), "nothing"])
def test_volumes_of_gnu_tar_itself(fault: str, tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "a").write_bytes(os.urandom(45_000))
    subprocess.run(
        ["tar", "-cML20", *(f"-fv/x.tar{behind}" for behind in ("", "-2", "-3")), "a"],
        cwd=tmp_path,
        check=True,
    )
    last = max((tmp_path / "v").iterdir())
    if fault != "nothing":
        last.write_bytes(FAULTS[fault](last.read_bytes(), tar("b")))
    before = {path.name: path.read_bytes() for path in (tmp_path / "v").iterdir()}
    with contextlib.suppress(nbdata.NbdataError):
        untar(tmp_path / "v" / "x.tar", tmp_path / "out", delete_volumes=True)
    after = {path.name: path.read_bytes() for path in (tmp_path / "v").iterdir()}
    assert after == ({} if fault == "nothing" else before)


@pytest.mark.parametrize("form", ["gz", "bz2", "xz", "zst", "lz4"])
@pytest.mark.parametrize(
    "fault", ["other bytes behind", "cut off", "the end alone", "other bytes between two"]
)
def test_volumes_of_a_single_file(fault: str, form: str, tmp_path: Path) -> None:
    """Of such files all that follow one another are one content, as for gunzip."""
    compress: dict[str, Callable[[bytes], bytes]] = {
        "gz": lambda data: gzip.compress(data, 0), "bz2": bz2.compress, "xz": lzma.compress,
        "zst": zstandard.ZstdCompressor().compress, "lz4": lz4.frame.compress,
    }  # fmt: skip
    data = FAULTS[fault](compress[form](noise("a")), compress[form](b"b"))
    volumes = cut(data, tmp_path / "v", f"x.csv.{form}")
    with contextlib.suppress(nbdata.NbdataError):
        untar(tmp_path / "v", tmp_path / "out", delete_volumes=True)
    assert b"".join(path.read_bytes() for path in volumes) == data


def test_a_member_without_a_name_and_its_volumes_stay(tmp_path: Path) -> None:
    archive(tmp_path / "v", (".", "file", b"x"), ("a", "file", b"y"), name="x.tar")
    untar(tmp_path / "v", tmp_path / "out", delete_volumes=True)
    assert os.listdir(tmp_path / "v") == ["x.tar"]
