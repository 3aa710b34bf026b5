"""Other programs read the headers of written members correctly."""

from __future__ import annotations

import io
import subprocess
import tarfile

import pytest

from nbdata.formats.shard_writing import END, header_size, member_header, padding

NAMES = [
    "a.jpg", "x/y.cls", "a" * 100, "a" * 101, "d/" * 60 + "a.jpg", "ä.jpg", "ö" * 300 + ".x", "a\nb.jpg", "\udc80.jpg",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 3, 8**11 - 1, 8**11, 1 << 40])
def test_python_reads_the_name_and_the_size(name: str, size: int) -> None:
    header = member_header(name, size)
    assert len(header) == header_size(name, size)
    with tarfile.open(fileobj=io.BytesIO(header + END)) as archive:
        member = archive.next()
    assert member is not None
    assert (member.name, member.size, member.mode, member.mtime) == (name, size, 0o644, 0)
    assert member.isreg()


@pytest.mark.parametrize("program", ["tar", pytest.param("bsdtar", marks=pytest.mark.needs("bsdtar"))])
def test_other_programs_list_them(program: str) -> None:
    names = [name for name in NAMES if name.isprintable()]
    archive = b"".join(
        member_header(name, len(name)) + name.encode()[: len(name)] + bytes(padding(len(name)))
        for name in names
    )
    listed = subprocess.run(
        [program, "-tf", "-"],
        input=archive + END,
        stdout=subprocess.PIPE,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    assert listed.stdout.decode().replace("\\303\\244", "ä").splitlines() == names
