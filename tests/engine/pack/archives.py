"""Trees to pack into archives, and functions that read the archives with other programs."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
import zipfile
from pathlib import Path

import zstandard

__all__ = ["MIB", "files", "joined", "members_of", "run", "tree_of", "write_tree"]

MIB = 1 << 20


def files(count: int = 120, *, large: int = 0, seed: int = 3) -> dict[str, bytes]:
    """Create files of many sizes and names, some of them empty; with `large`, one large file among them."""
    source = random.Random(seed)
    found = {}
    for number in range(count):
        name = f"in/d{number % 4}/{'ü' if number % 7 == 1 else ''}{number:04}{'x' * 100 * (number % 11 == 2)}.bin"
        size = 0 if number % 13 == 0 else source.randrange(1, 20_000)
        found[name] = source.randbytes(size // 2) + bytes(size - size // 2)
    if large:
        found["in/d2/large.bin"] = source.randbytes(large // 2) + b"nbdata " * (large // 14)
    return found


def joined(found: dict[str, bytes]) -> bytes:
    """Join volumes as ``cat`` does, without their checksum files."""
    return b"".join(data for name, data in sorted(found.items()) if not name.endswith(".md5"))


def members_of(archive: bytes, form: str) -> dict[str, bytes]:
    """Read the files of an archive with Python's own modules, or zst with its own library."""
    if form == "zip":
        with zipfile.ZipFile(io.BytesIO(archive)) as found:
            assert found.testzip() is None
            return {one.filename: found.read(one) for one in found.infolist() if not one.is_dir()}
    if form == "tar.zst":
        with zstandard.ZstdDecompressor().stream_reader(archive, read_across_frames=True) as stream:
            archive = stream.read()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar if one.isfile()}  # type: ignore[union-attr]


def write_tree(folder: Path, content: dict[str, bytes]) -> None:
    """Write files below a folder."""
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def tree_of(folder: Path) -> dict[str, tuple[str, bytes | str, int]]:
    """Return kind, content, time of files and executable bit of all entries below a folder, by path."""
    found: dict[str, tuple[str, bytes | str, int]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path), 0)
        elif path.is_dir():
            if not any(path.iterdir()):
                found[name] = ("empty folder", "", 0)
        else:
            kind = "program" if path.stat().st_mode & 0o100 else "file"
            found[name] = (kind, path.read_bytes(), int(path.stat().st_mtime))
    return found


def run(*words: str | Path, data: bytes = b"", cwd: Path | None = None) -> bytes:
    """Run a program with this standard input and return its output."""
    done = subprocess.run(
        [*map(str, words)], input=data, capture_output=True, cwd=cwd, check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout
