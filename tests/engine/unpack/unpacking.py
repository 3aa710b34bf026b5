"""Archives from the real tar, cut with the real split, and functions that inspect the extracted tree."""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.report import Report
from tests.conftest import client_of


def untar(source: Any, target: Path | None = None, **options: Any) -> Report:
    return nbdata.untar_volumes(source, target, quiet=True, **options)


def pack(
    content: Path, folder: Path, name: str = "a.tar.gz", volume: int = 300_000, letters: bool = False
) -> Path:
    """Write an archive of `content` in volumes ``NAME.00 …`` into `folder`."""
    folder.mkdir(exist_ok=True)
    program = {"gz": "gzip", "bz2": "bzip2", "xz": "xz -0", "zst": "zstd -q"}.get(name.rpartition(".")[2])
    filters = f"| {program}" if program and shutil.which(program.split()[0]) else "| cat"
    suffix = "" if letters else "-d"
    tar = f"tar --sort=name --format=posix -cf - -C '{content}' ."
    cut = f"split {suffix} -b {volume} - '{folder}/{name}.'"
    subprocess.run(f"{tar} {filters} | {cut}", shell=True, check=True)
    return folder


def look(root: Path) -> dict[str, tuple[object, ...]]:
    """Return everything visible about a tree, by path."""
    names: dict[tuple[int, int], str] = {}
    seen = {}
    for path in sorted(root.rglob("*")):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            what: object = os.readlink(path)
        elif stat.S_ISDIR(found.st_mode):
            what = "folder"
        else:
            first = names.setdefault((found.st_dev, found.st_ino), str(path.relative_to(root)))
            what = (path.read_bytes(), first)
        seen[str(path.relative_to(root))] = (what, stat.S_IMODE(found.st_mode), found.st_mtime_ns)
    return seen


def by_tar(volumes: Path, target: Path, program: str = "gzip") -> dict[str, tuple[object, ...]]:
    target.mkdir()
    filters = "" if program == "cat" else f"| {program} -dc"
    subprocess.run(f"cat {volumes}/* {filters} | tar xf - -C {target}", shell=True, check=True)
    return look(target)


def archive(folder: Path, *members: tuple[str, str, object], name: str = "evil.tar") -> Path:
    """Write a tar archive with members given as (name, kind, content or link)."""
    folder.mkdir(exist_ok=True)
    kinds = {
        "file": tarfile.REGTYPE,
        "folder": tarfile.DIRTYPE,
        "symlink": tarfile.SYMTYPE,
        "hardlink": tarfile.LNKTYPE,
    }
    with tarfile.open(folder / name, "w:gz" if name.endswith("gz") else "w") as tar:
        for path, kind, value in members:
            info = tarfile.TarInfo(path)
            info.type = kinds[kind]
            if isinstance(value, bytes):
                info.size = len(value)
            else:
                info.linkname = str(value or "")
            tar.addfile(info, io.BytesIO(value) if isinstance(value, bytes) else None)
    return folder / name


def inodes(root: Path) -> dict[str, int]:
    return {str(p): p.lstat().st_ino for p in root.rglob("*") if not p.is_dir()}


def no_leftovers(target: Path) -> bool:
    return not list(target.rglob(".nbdata"))


def whole(target: Path, content: Path) -> int:
    """Count the files with final names; check that each has the packed content."""
    files = [p for p in target.rglob("*") if p.is_file() and not p.is_symlink()]
    for path in files:
        assert path.read_bytes() == (content / path.relative_to(target)).read_bytes()
    return len(files)


def upload(s3: EmbeddedServer, bucket: str, folder: Path) -> None:
    """Upload the volumes of a folder to a bucket, below ``v/``."""
    client = client_of(s3)
    for path in folder.iterdir():
        client.put_object(Bucket=bucket, Key=f"v/{path.name}", Body=path.read_bytes())
    client.close()
