"""A mounted archive: its members are files, with the bytes that other programs unpack."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import BadArchive, BadOption, ChecksumMismatch, NotFound
from nbdata.files.mounted.unpacked import LARGEST
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.waiting import PATIENCE

pytestmark = pytest.mark.needs("mount")
Put = Callable[[dict[str, bytes]], str]

NAMES = ["a/1.jpg", "a/2.jpg", "a/b/deep.bin", "empty", "ünï.txt", "top"]
FILES = {
    name: random.Random(name).randbytes(size)
    for name, size in zip(NAMES, (1000, 70_000, 3_000_000, 0, 5, 300_000), strict=True)
} | {"text": b"compresses well " * 50_000}


def written(folder: Path) -> Path:
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def read(folder: str) -> dict[str, bytes]:
    """Return all files of a mount but the text about it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file() and path.name != ".nbdata-mount"
    }


def about(folder: str) -> str:
    return Path(folder, ".nbdata-mount").read_text()


def by_tar(source: Path, target: Path, *options: str) -> bytes:
    subprocess.run(["tar", *options, "-cf", target, "-C", source, "."], check=True, timeout=PATIENCE)
    return target.read_bytes()


def by_python(method: int, files: dict[str, bytes] = FILES) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


LONG = [pytest.param(kind, marks=pytest.mark.long) for kind in ("pax", "v7", "lzma")]


@pytest.mark.in_ci("deflated")
@pytest.mark.parametrize("kind", ["gnu", "stored", "deflated", *LONG])
def test_members_are_files_with_their_bytes(kind: str, put: Put, tmp_path: Path) -> None:
    if kind in ("gnu", "pax", "v7"):
        data, name = by_tar(written(tmp_path / "in"), tmp_path / "a.tar", f"--format={kind}"), "x/a.tar"
    else:
        method = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED, "lzma": zipfile.ZIP_LZMA}
        data, name = by_python(method[kind]), "x/a.zip"
    url = put({name: data}) + name
    with nbdata.mount(url, tmp_path / "m", archive=True, quiet=True) as mount:
        assert read(mount.folder) == FILES
        assert sorted(os.listdir(mount.folder)) == sorted(
            ["a", "empty", "text", "top", "ünï.txt", ".nbdata-mount"]
        )
        info = os.stat(f"{mount.folder}/a/b/deep.bin")
        assert (info.st_size, oct(info.st_mode)) == (3_000_000, "0o100444")
        with open(f"{mount.folder}/a/b/deep.bin", "rb", buffering=0) as file:
            chance = random.Random(kind)
            for at in [chance.randrange(3_000_000) for _ in range(30)]:
                assert os.pread(file.fileno(), 5000, at) == FILES["a/b/deep.bin"][at : at + 5000]
        assert "errors: 0" in about(mount.folder)


def test_only_the_bytes_of_members_that_are_read_are_fetched(
    put: Put, tmp_path: Path, proxy: FaultProxy
) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for number in range(20):
            archive.writestr(f"{number}", os.urandom(1_000_000))
    url = put({"a.zip": data.getvalue()}) + "a.zip"
    with nbdata.mount(url, tmp_path / "m", archive=True, quiet=True) as mount:
        tally = proxy.begin()
        assert len(Path(mount.folder, "7").read_bytes()) == 1_000_000
        assert len(os.listdir(mount.folder)) == 21
        assert sum(tally.down.values()) < 3_000_000


def test_what_cannot_be_shown_is_counted_and_named(put: Put, tmp_path: Path) -> None:
    data = io.BytesIO()
    contents = {"ok": b"fine", "../out": b"evil", "/absolute": b"root"}
    links = (("soft", tarfile.SYMTYPE, "ok"), ("hard", tarfile.LNKTYPE, "ok"), ("pipe", tarfile.FIFOTYPE, ""))
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in [*contents.items(), ("twice", b"first"), ("twice", b"last")]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, kind, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    url = put({"a.tar": data.getvalue()}) + "a.tar"
    with nbdata.mount(url, tmp_path / "m", archive=True, quiet=True) as mount:
        # Of two, the last one counts, as when they are unpacked.
        assert read(mount.folder) == {"ok": b"fine", "absolute": b"root", "twice": b"last", "hard": b"fine"}
        told = about(mount.folder)
        assert "3 members of the archive do not show" in told
        for what in ("'../out' is no name of a file", "'soft' is a symlink", "'pipe' is a fifo"):
            assert what in told
    assert not (tmp_path / "out").exists()


def test_a_replaced_archive_is_an_error_and_no_mix(put: Put, tmp_path: Path) -> None:
    url = put({"a.zip": by_python(zipfile.ZIP_STORED)}) + "a.zip"
    with nbdata.mount(url, tmp_path / "m", archive=True, verify="none", quiet=True) as mount:
        assert Path(mount.folder, "a/1.jpg").read_bytes() == FILES["a/1.jpg"]
        put({"a.zip": by_python(zipfile.ZIP_STORED, {**FILES, "top": os.urandom(len(FILES["top"]))})})
        with pytest.raises(OSError, match="Input/output"):
            Path(mount.folder, "top").read_bytes()


@pytest.mark.in_ci("8")
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_an_error_and_the_others_are_not(method: int, put: Put, tmp_path: Path) -> None:
    data = bytearray(by_python(method))
    at = data.index(b"a/2.jpg") + 5000
    data[at] ^= 1
    url = put({"a.zip": bytes(data)}) + "a.zip"
    with nbdata.mount(url, tmp_path / "m", archive=True, quiet=True) as mount:
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                Path(mount.folder, "a/2.jpg").read_bytes()
        assert Path(mount.folder, "top").read_bytes() == FILES["top"]
        assert "a/2.jpg" in about(mount.folder)


def test_wrong_bytes_on_the_line_are_found_when_a_tar_is_read(
    put: Put, tmp_path: Path, proxy: FaultProxy
) -> None:
    url = put({"a.tar": by_tar(written(tmp_path / "in"), tmp_path / "a.tar")}) + "a.tar"
    proxy.begin(lambda request, before: Fault("flip", BODY, 0.9) if request.download else None)
    with pytest.raises((ChecksumMismatch, BadArchive)):
        nbdata.mount(url, tmp_path / "m", archive=True, quiet=True)
    assert not os.path.ismount(tmp_path / "m")
    proxy.begin()
    with nbdata.mount(url, tmp_path / "m", archive=True, quiet=True) as mount:
        proxy.begin(lambda request, before: Fault("flip", BODY, 0.9) if request.download else None)
        with pytest.raises(OSError, match="Input/output"):
            Path(mount.folder, "top").read_bytes()


def test_what_is_no_archive_is_refused_with_the_way_out(put: Put, tmp_path: Path) -> None:
    compressed = io.BytesIO()
    with tarfile.open(fileobj=compressed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    top = put(
        {
            "a.tar.gz": compressed.getvalue(),
            "text.tar": b"just text " * 100,
            "a.zip": b"PK\5\6",
            "b.zip": by_python(0),
        }
    )
    for name, error, words in (
        ("a.tar.gz", BadOption, "compressed"),
        ("text.tar", BadArchive, "text"),
        ("a.zip", BadArchive, "directory|zip"),
        ("none.tar", NotFound, "none.tar.* without --archive"),
    ):
        with pytest.raises(error, match=words):
            nbdata.mount(top + name, tmp_path / "m", archive=True, quiet=True)
    with pytest.raises(NotFound, match="--archive"):
        nbdata.mount(f"{top}b.zip", tmp_path / "m", quiet=True)
    with pytest.raises(BadOption, match="--cache"):
        nbdata.mount(f"{top}b.zip", tmp_path / "m", archive=True, cache="1GB")


@pytest.mark.long
def test_an_empty_archive_is_an_empty_folder(put: Put, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    top = put({"a.zip": empty.getvalue(), "a.tar": by_tar(tmp_path / "in", tmp_path / "a.tar")})
    for name in ("a.zip", "a.tar"):
        with nbdata.mount(top + name, tmp_path / "m", archive=True, quiet=True) as mount:
            assert os.listdir(mount.folder) == [".nbdata-mount"]


@pytest.mark.long
def test_compressed_members_are_unpacked_once_for_all_who_read_them(
    put: Put, tmp_path: Path, proxy: FaultProxy
) -> None:
    url = put({"a.zip": by_python(zipfile.ZIP_DEFLATED)}) + "a.zip"
    with (
        nbdata.mount(url, tmp_path / "m", archive=True, quiet=True) as mount,
        ThreadPoolExecutor(8) as pool,
    ):
        tally = proxy.begin()
        path = Path(mount.folder, "a/b/deep.bin")
        assert set(pool.map(lambda _: path.read_bytes(), range(8))) == {FILES["a/b/deep.bin"]}
        assert sum(tally.down.values()) < 2 * len(FILES["a/b/deep.bin"])


@pytest.mark.long
def test_a_large_compressed_member_is_named_and_not_shown(put: Put, tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("large", bytes(LARGEST + 1))
        archive.writestr("small", b"x")
    url = put({"a.zip": data.getvalue()}) + "a.zip"
    with nbdata.mount(url, tmp_path / "m", archive=True, quiet=True) as mount:
        assert set(read(mount.folder)) == {"small"}
        assert "'large' is compressed, and larger than 67.1 MB" in about(mount.folder)


@pytest.mark.long
def test_names_in_very_many_folders_are_refused(put: Put, tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for number in range(100):
            archive.writestr(f"{number}/" + "a/" * 4000 + "f", b"")
    url = put({"a.zip": data.getvalue()}) + "a.zip"
    with pytest.raises(BadArchive, match="take"):
        nbdata.mount(url, tmp_path / "m", archive=True, quiet=True)
