"""The trees of the corpus; each contains one kind of entry that archives store in unusual ways."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

__all__ = ["CONTENT", "make_content"]

_MIB = 1 << 20
_WHEN = 1_700_000_000 * 10**9


def make_content(root: Path) -> Path:
    """Create a folder below `root` for each name in `CONTENT`.

    Bytes and times are the same in every run.
    """
    for name, make in CONTENT.items():
        folder = root / name
        folder.mkdir(parents=True)
        make(folder)
        for path in sorted(folder.rglob("*"), reverse=True):
            if name != "times":
                os.utime(path, ns=(_WHEN, _WHEN), follow_symlinks=False)
    return root


def _bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def _plain(folder: Path) -> None:
    """Files with sizes around tar's block sizes of 512 and 10,240 bytes; an empty folder; an executable."""
    for size in (0, 1, 511, 512, 513, 10_239, 10_240, 10_241, 300_000):
        (folder / f"{size}.bin").write_bytes(_bytes(size, size))
    (folder / "empty folder").mkdir()
    deep = folder / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "run.sh").write_text("#!/bin/sh\n")
    (deep / "run.sh").chmod(0o755)


def _long(folder: Path) -> None:
    """Names of files, folders and link targets with lengths around the header's limits of 100 and 255 bytes."""
    for length in (99, 100, 101, 155, 156, 255):
        name = f"{length}-".ljust(length, "n")
        (folder / name).write_bytes(_bytes(length))
        os.symlink(name, folder / f"to-{length}")
    deep = folder.joinpath(*[f"{n}-".ljust(90, "d") for n in range(4)])
    deep.mkdir(parents=True)
    (deep / "at the end").write_bytes(b"deep")
    os.link(deep / "at the end", folder / "also at the end")


def _links(folder: Path) -> None:
    """Several names of one file; symbolic links to files, folders and nothing; hard links to symbolic links."""
    (folder / "file").write_bytes(_bytes(5000))
    (folder / "folder").mkdir()
    os.link(folder / "file", folder / "folder" / "second name")
    os.link(folder / "file", folder / "z third name")
    os.symlink("file", folder / "symbolic")
    os.symlink("../file", folder / "folder" / "up and down")
    os.symlink("folder", folder / "to a folder")
    os.symlink("nothing", folder / "dangling")
    os.link(folder / "symbolic", folder / "symbolic again", follow_symlinks=False)


def _sparse(folder: Path) -> None:
    """Files with holes: at the start, at the end, everywhere, and in more pieces than one header can hold."""
    pieces = {
        "data in the middle": (10_000_000, [4_000_000]),
        "data at the start": (_MIB, [0]),
        "data at the end": (_MIB, [_MIB - 4]),
        "only a hole": (_MIB + 1, []),
        "four pieces": (_MIB, [n << 17 for n in range(4)]),
        "five pieces": (_MIB, [n << 17 for n in range(5)]),
        "fifty pieces": (4 * _MIB, [(2 * n + 1) << 15 for n in range(50)]),
    }
    for name, (size, offsets) in pieces.items():
        with open(folder / name, "wb") as file:
            for offset in offsets:
                file.seek(offset)
                file.write(b"data")
            file.truncate(size)
    (folder / "no hole").write_bytes(_bytes(50_000))


def _names(folder: Path) -> None:
    """Names that are not ASCII or not UTF-8, and names that a shell, a header or an option parser would misread."""
    for name in (
        "größe",
        "数据",
        "e\u0301",
        "with blank",
        " leading",
        "trailing ",
        "-dash",
        "a\\b",
        "a\nb",
        "*?[",
        "é" * 70,
    ):
        (folder / name).write_bytes(name.encode())
    with open(os.fsencode(folder) + b"/latin-\xe4", "wb") as file:
        file.write(b"latin")


def _times(folder: Path) -> None:
    """Times before 1970, with nanoseconds, and beyond the 11 octal digits of a header."""
    for name, when in {
        "zero": 0,
        "before 1970": -86_400 * 10**9,
        "nanoseconds": _WHEN + 123_456_789,
        "in 2300": 10_413_792_000 * 10**9,
    }.items():
        (folder / name).write_bytes(name.encode())
        os.utime(folder / name, ns=(when, when))


CONTENT: dict[str, Callable[[Path], None]] = {
    "plain": _plain,
    "long": _long,
    "links": _links,
    "sparse": _sparse,
    "names": _names,
    "times": _times,
}
