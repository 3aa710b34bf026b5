"""Archives with incompressible content in every compression, cut into volumes, and partial extractions of them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

import nbdata
from nbdata.engine.unpack.targets.folder.extraction import Extraction
from nbdata.errors import Cancelled
from tests.engine.unpack.unpacking import untar

# Bytes between checkpoints in these tests, bytes per volume, files per archive, and bytes per file.
STEP = 100_000
VOLUME = 150_000
COUNT = 60
SIZE = 30_000

# -- archives -------------------------------------------------------------------------------------

Entry = tuple[str, str, Any]


def entries() -> list[Entry]:
    """Return incompressible files in folders with their own times, a link and a hard link."""
    source = random.Random(3)
    made: list[Entry] = [("d0", "folder", None), ("d1", "folder", None), ("d2", "folder", None)]
    made += [(f"d{n % 3}/f{n:02}", "file", source.randbytes(SIZE)) for n in range(COUNT)]
    made.insert(10, ("link", "symlink", "d0/f00"))
    made.append(("hard", "hardlink", "d0/f03"))
    return made


def packed(made: list[Entry], **options: Any) -> tuple[bytes, list[int]]:
    """Return a tar archive and the offsets of its headers."""
    kinds = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE}
    kinds |= {"symlink": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE}
    out, offsets = io.BytesIO(), []
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, **options) as tar:
        for number, (name, kind, value) in enumerate(made):
            info = tarfile.TarInfo(name)
            info.type, info.mtime, info.mode = kinds[kind], 1_400_000_000 + number, 0o644
            info.size = len(value) if kind == "file" else 0
            info.linkname = value if "link" in kind else ""
            offsets.append(tar.offset)
            tar.addfile(info, io.BytesIO(value) if kind == "file" else None)
    return out.getvalue(), offsets


def in_pieces(data: bytes, compress: Callable[[bytes], bytes], size: int = 70_000) -> bytes:
    """Compress data as members, streams or frames of `size` bytes each."""
    return b"".join(compress(data[at : at + size]) for at in range(0, len(data), size))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "tar": lambda data: data,
    "tar.gz": lambda data: in_pieces(data, lambda piece: gzip.compress(piece, 1)),
    "tar.bz2": lambda data: in_pieces(data, bz2.compress),
    "whole.tar.bz2": lambda data: bz2.compress(data, 1),
    "tar.xz": lambda data: in_pieces(data, lambda piece: lzma.compress(piece, preset=0)),
    "tar.zst": lambda data: in_pieces(data, zstandard.ZstdCompressor(1, write_checksum=True).compress),
    "tar.lz4": lambda data: in_pieces(data, partial(lz4.frame.compress, content_checksum=True)),
}


def cut(data: bytes, folder: Path, name: str = "a.tar", size: int = VOLUME) -> Path:
    """Write data in volumes ``NAME.000 …`` into a folder."""
    folder.mkdir(exist_ok=True)
    for number in range(-(-len(data) // size)):
        (folder / f"{name}.{number:03}").write_bytes(data[number * size : (number + 1) * size])
    return folder


# -- running and interrupting ---------------------------------------------------------------------


def interrupted(source: Any, target: Path, after: int, **options: Any) -> None:
    """Extract until `after` members are written, then end as a cancel does."""
    take, taken = Extraction.take, iter(range(after))

    def stop(extraction: Extraction, member: Any) -> bool:
        if next(taken, None) is None:
            extraction._flush()
            raise Cancelled("cancelled")
        return take(extraction, member)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Extraction, "take", stop)
        with pytest.raises(nbdata.Cancelled):
            untar(source, target, **options)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
