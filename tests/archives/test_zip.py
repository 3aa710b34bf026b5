"""Zip archives of many programs, read by ranges: names, contents, times and links; and archives that are refused."""

from __future__ import annotations

import io
import os
import random
import shutil
import stat
import struct
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.archives.remarks import Remarks
from nbdata.archives.zip import read_zip
from nbdata.errors import BadArchive, MissingVolume, NotFound, UnsafeMember

TIME = 1_400_000_000


class Ranges:
    """Volumes in memory that record the requested ranges."""

    def __init__(self, *volumes: bytes) -> None:
        self.data = b"".join(volumes)
        self.starts = [sum(map(len, volumes[:number])) for number in range(len(volumes))]
        self.size = len(self.data)
        self.asked: list[tuple[int, int]] = []

    def range(self, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        return self.data[start:end]

    def stream(self, start: int, end: int) -> io.RawIOBase:
        self.asked.append((start, end))
        return io.BytesIO(self.data[start:end])  # type: ignore[return-value]


def members(*volumes: bytes, **options: Any) -> dict[str, tuple[str, bytes, int | None, int, str]]:
    """Return kind, content, mode, time and target by name."""
    return {
        one.name: (
            one.kind,
            one.reader.read() if one.kind == "file" else b"",
            one.mode,
            one.mtime_ns,
            one.linkname,
        )
        for one in read_zip(Ranges(*volumes), **options)
    }


def contents(*volumes: bytes, **options: Any) -> dict[str, bytes]:
    return {name: data for name, (kind, data, *_) in members(*volumes, **options).items() if kind == "file"}


FILES = {
    "a.txt": b"alpha\n" * 1000,
    "d/empty": b"",
    "d/random.bin": random.Random(1).randbytes(70_000),
    "d/e/ünï ☃.txt": b"snow\n",
    "d/zeros": bytes(300_000),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
        os.utime(root / name, (TIME, TIME))
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("d/empty")
    (root / "nothing").mkdir()
    return root


def by(command: str) -> Callable[[Path, Path], None]:
    def make(tree: Path, out: Path) -> None:
        subprocess.run(command.format(out=out), shell=True, check=True, cwd=tree, stdout=subprocess.DEVNULL)

    return make


def by_python(method: int) -> Callable[[Path, Path], None]:
    def make(tree: Path, out: Path) -> None:
        with zipfile.ZipFile(out, "w", method) as archive:
            for path in sorted(tree.rglob("*")):
                if path.is_symlink():
                    info = zipfile.ZipInfo(str(path.relative_to(tree)))
                    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
                    archive.writestr(info, os.readlink(path))
                else:
                    archive.write(path, path.relative_to(tree))

    return make


def by_stream(tree: Path, out: Path) -> None:
    """Write a zip without sizes in the local headers, as programs do that write to a pipe."""

    class Pipe(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            written.extend(bytes(data))
            return len(data)

    written = bytearray()
    with zipfile.ZipFile(Pipe(), "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[arg-type]
        for path in sorted(tree.rglob("*")):
            if not path.is_symlink():
                archive.write(path, path.relative_to(tree))
    out.write_bytes(written)


PROGRAMS = {
    "zip": by("zip -qry {out} ."),
    "zip, stored": by("zip -qry0 {out} ."),
    "zip, bzip2": by("zip -qry -Z bzip2 {out} ."),
    "zip, to a pipe": by("zip -qry - . > {out}"),
    "7z": by("7zz a -tzip -snl {out} . > /dev/null"),
    "7z, bzip2": by("7zz a -tzip -mm=BZip2 {out} . > /dev/null"),
    "7z, lzma": by("7zz a -tzip -mm=LZMA {out} . > /dev/null"),
    "bsdtar": by("bsdtar -cf {out} --format=zip *"),
    "jar": by("jar --create --no-manifest --file {out} *"),
    "Python": by_python(zipfile.ZIP_DEFLATED),
    "Python, stored": by_python(zipfile.ZIP_STORED),
    "Python, lzma": by_python(zipfile.ZIP_LZMA),
    "Python, to a pipe": by_stream,
}


NEEDS = {"zip": "zip", "7z": "7zz", "bsdtar": "bsdtar", "jar": "java"}


@pytest.mark.in_ci(5)
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            name,
            marks=[pytest.mark.needs(NEEDS[first])] if (first := name.partition(",")[0]) in NEEDS else [],
        )
        for name in PROGRAMS
    ],
)
def test_archives_of_many_programs_are_read(program: str, tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    PROGRAMS[program](tree, out)
    found = members(out.read_bytes())
    assert FILES.items() <= {name: data for name, (kind, data, *_) in found.items() if kind == "file"}.items()
    assert found["run.sh"][1] == b"#!/bin/sh\n"
    if program != "jar":  # jar stores no permissions
        assert found["run.sh"][2] == 0o755
    assert abs(found["a.txt"][3] / 1e9 - TIME) <= 2
    if "link" in found and found["link"][0] == "symlink":
        assert found["link"][4] == "d/empty"


@pytest.mark.needs("zip")
@pytest.mark.parametrize("count", [2, 5])
def test_a_split_archive_of_zip_is_read_in_its_volumes(count: int, tree: Path, tmp_path: Path) -> None:
    random_file = tree / "more.bin"
    random_file.write_bytes(random.Random(2).randbytes(70_000 * count))
    subprocess.run(["zip", "-qry", "-s", "64k", str(tmp_path / "s.zip"), "."], cwd=tree, check=True)
    volumes = [*sorted(tmp_path.glob("s.z[0-9]*")), tmp_path / "s.zip"]
    assert len(volumes) > count
    data = [path.read_bytes() for path in volumes]
    found = contents(*data)
    assert FILES.items() <= found.items()
    assert found["more.bin"] == random_file.read_bytes()
    with pytest.raises(MissingVolume, match=rf"missing volume s\.z0{len(data) - 1}: .*{len(data)} volumes"):
        contents(*data[:-2], data[-1], name="s.zip")
    with pytest.raises(MissingVolume, match=r"missing volumes? s\.z01.* got 1"):
        contents(data[-1], name="s.zip")
    remarks = Remarks()
    assert contents(b"".join(data), remarks=remarks) == found, "joined by cat, as many do"
    assert "joined into one file" in " ".join(remarks.notes())
    assert remarks.complete


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def test_one_member_out_of_many_takes_few_bytes() -> None:
    source = random.Random(3)
    files = {f"f{n:04}": source.randbytes(10_000) for n in range(2000)}
    ranges = Ranges(zipped(files, zipfile.ZIP_STORED))
    (found,) = ((one.name, one.reader.read()) for one in read_zip(ranges, members=["f1234"]))
    assert found == ("f1234", files["f1234"])
    assert len(ranges.asked) <= 3
    assert sum(end - start for start, end in ranges.asked) < 500_000


def test_members_that_lie_together_are_asked_for_at_once() -> None:
    files = {f"{'ab'[n // 500]}/f{n:04}": bytes([n % 256]) * 3000 for n in range(1000)}
    ranges = Ranges(zipped(files, zipfile.ZIP_STORED))
    found = {one.name: one.reader.read() for one in read_zip(ranges, members=["b/**"])}
    assert found == {name: data for name, data in files.items() if name.startswith("b")}
    assert len(ranges.asked) <= 3


def test_members_that_are_not_read_are_not_fetched() -> None:
    files = {f"f{n}": bytes([n]) * 3_000_000 for n in range(5)}
    ranges = Ranges(zipped(files, zipfile.ZIP_STORED))
    assert [one.name for one in read_zip(ranges)] == list(files)
    assert sum(end - start for start, end in ranges.asked) <= 256 << 10


@pytest.mark.long
def test_the_64_bit_form_is_read() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("big", "w", force_zip64=True) as file:
        file.write(b"content")
    assert contents(out.getvalue()) == {"big": b"content"}
    many = zipped({f"{n}": b"" for n in range(70_000)}, zipfile.ZIP_STORED)
    assert len(contents(many)) == 70_000


@pytest.mark.needs("bsdtar")
def test_the_64_bit_form_is_read_where_none_is_needed(tree: Path, tmp_path: Path) -> None:
    """libarchive writes it on request, and then the short record says everything, too."""
    out = tmp_path / "out.zip"
    subprocess.run(
        ["bsdtar", "--format", "zip", "--options", "zip:zip64", "-cf", str(out), "a.txt"],
        cwd=tree,
        check=True,
    )
    data = out.read_bytes()
    assert b"PK\6\6" in data
    assert contents(data) == {"a.txt": (tree / "a.txt").read_bytes()}


@pytest.mark.needs("bsdtar")
@pytest.mark.parametrize("options", [[], ["--options", "zip:zip64"]])
def test_zeros_may_follow_the_end(tree: Path, options: list[str]) -> None:
    """libarchive pads what it writes into a pipe to whole blocks."""
    data = subprocess.run(
        ["bsdtar", "--format", "zip", *options, "-cf", "-", "a.txt"],
        cwd=tree,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    assert data.endswith(bytes(1000))
    assert contents(data) == {"a.txt": (tree / "a.txt").read_bytes()}


@pytest.mark.in_ci(4)
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_leaves_bytes_that_belong_to_no_member(program: str, tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    PROGRAMS[program](tree, out)
    for read in (True, False):
        remarks = Remarks()
        for one in read_zip(Ranges(out.read_bytes()), remarks=remarks):
            if read and one.kind == "file":
                one.reader.read()
        assert remarks.complete


def test_backslashes_in_names_from_windows_separate_folders() -> None:
    data = bytearray(zipped({"d/a.txt": b"1"}))
    data = data.replace(b"d/a.txt", b"d\\a.txt")
    at = data.find(b"PK\1\2")
    data[at + 5] = 0  # the field for a DOS origin
    assert contents(bytes(data)) == {"d/a.txt": b"1"}


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/../x", ".nbdata/x"])
def test_a_name_that_leads_out_is_refused(name: str) -> None:
    with pytest.raises(UnsafeMember):
        contents(zipped({name: b"1"}))


def test_a_link_that_leads_out_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "../../etc/passwd")
    with pytest.raises(UnsafeMember):
        members(out.getvalue())


@pytest.mark.needs("zip")
def test_what_is_encrypted_or_compressed_in_an_unknown_way_is_refused_by_name(
    tree: Path, tmp_path: Path
) -> None:
    out = tmp_path / "secret.zip"
    subprocess.run(["zip", "-qr", "-P", "word", str(out), "a.txt"], cwd=tree, check=True)
    with pytest.raises(BadArchive, match=r"a member is encrypted: a\.txt"):
        contents(out.read_bytes())
    data = bytearray(zipped({"a": b"1" * 1000}))
    at = data.find(b"PK\1\2")
    data[at + 10] = 9
    with pytest.raises(BadArchive, match="compressed by Deflate64: a"):
        contents(bytes(data))


def test_a_bomb_ends_at_the_limit() -> None:
    with pytest.raises(BadArchive, match=r"expands to more than 1\.0 MB"):
        contents(zipped({"a": bytes(900_000), "b": bytes(900_000)}), max_expansion=1_000_000)


def test_members_that_overlap_are_refused() -> None:
    """Such archives store one content under many names, and expand without limit."""
    data = bytearray(zipped({"a": b"x" * 1000, "b": b"y" * 1000, "c": b"z" * 1000}, zipfile.ZIP_STORED))
    begins, ends = data.find(b"xxx"), data.rfind(b"yyy") + 3
    first = data.find(b"PK\1\2")
    size, crc = ends - begins, zlib.crc32(data[begins:ends])
    data[first + 16 : first + 28] = struct.pack("<III", crc, size, size)
    with pytest.raises(BadArchive, match="reaches into the next one: a"):
        contents(bytes(data))


def test_a_pattern_that_matches_nothing_is_an_error_before_anything_is_read() -> None:
    with pytest.raises(NotFound, match=r"no member matches \*\.jpg"):
        contents(zipped({"a": b"1"}), members=["*.jpg"])


def test_components_are_stripped_and_what_is_left_out_is_told() -> None:
    remarks = Remarks()
    found = contents(zipped({"top/a": b"1", "b": b"2"}), strip_components=1, remarks=remarks)
    assert found == {"a": b"1"}
    assert remarks.left_out == ["b"]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_spoilt_archives_give_an_error_or_what_was_packed(data: st.DataObject) -> None:
    files = {"a.txt": b"alpha " * 50, "d/b": bytes(range(256)) * 4, "empty": b""}
    packed = bytearray(zipped(files, data.draw(st.sampled_from([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED]))))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(packed)))
    packed = packed[:cut] if data.draw(st.booleans()) else packed
    try:
        found = contents(bytes(packed))
    except (BadArchive, MissingVolume, UnsafeMember):
        return
    assert set(found.values()) <= set(files.values())


@pytest.mark.needs("zip", "unzip")
def test_unzip_extracts_the_same(tree: Path, tmp_path: Path) -> None:
    out, target = tmp_path / "out.zip", tmp_path / "by-unzip"
    PROGRAMS["zip"](tree, out)
    subprocess.run(["unzip", "-q", str(out), "-d", str(target)], check=True)
    theirs = {
        str(path.relative_to(target)): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    assert contents(out.read_bytes()) == theirs
    shutil.rmtree(target)
