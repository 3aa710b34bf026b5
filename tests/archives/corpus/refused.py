"""Archives that nbdata refuses, completely or in part, although GNU tar or bsdtar unpacks them; with the reasons."""

from __future__ import annotations

import io
import lzma
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zstandard

__all__ = ["REFUSED", "Refused"]


@dataclass(frozen=True)
class Refused:
    """A kind of archive that nbdata refuses.

    Attributes
    ----------
    what : str
        The kind, as text of the table's row.
    make : callable
        Writes such an archive.
    suffix : str
    error : str
        The class of error that ends the command.
    says : str
        A part of its message.
    why : str
        Why nbdata refuses it, and what to do instead.
    """

    what: str
    make: Callable[[Path], None]
    error: str
    says: str
    why: str
    suffix: str = ".tar"


def _tar(*entries: tuple[str, bytes, object]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind, value in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            if isinstance(value, bytes):
                info.size = len(value)
            else:
                info.linkname = str(value or "")
            tar.addfile(info, io.BytesIO(value) if isinstance(value, bytes) else None)
    return file.getvalue()


def _encrypted() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"content")
    data = bytearray(out.getvalue())
    data[data.find(b"PK\1\2") + 8] |= 1
    return bytes(data)


def _split() -> bytes:
    """Return a zip archive whose end says that it is the third volume of a set."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"content")
    data = bytearray(out.getvalue())
    data[data.rfind(b"PK\5\6") + 4] = 2
    return bytes(data)


def _two_zips() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"content")
    return out.getvalue()[:-5] + out.getvalue()


_FILE = ("a", tarfile.REGTYPE, b"content")


def _of(*entries: tuple[str, bytes, object]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(_tar(_FILE, *entries)) and None


def _bytes(content: Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content()) and None


def _multi_volume(path: Path) -> None:
    """Write the second volume of a set that GNU tar split itself."""
    (path.parent / "big").write_bytes(os.urandom(30_000))
    first = path.with_name("first.tar")
    words = ["tar", "-cM", "-L20", "--format=gnu", f"--file={first}", f"--file={path}", "big"]
    subprocess.run(words, cwd=path.parent, check=True)


REFUSED = [
    Refused(
        "a device or a pipe",
        _of(("null", tarfile.CHRTYPE, None)),
        "UnsafeMember",
        "is a device",
        "data has no use for one; `--members` selects the other members",
    ),
    Refused(
        "a symbolic link to an absolute path",
        _of(("link", tarfile.SYMTYPE, "/etc/hostname")),
        "UnsafeMember",
        "absolute path",
        "it leads out of the target; `--members` selects the other members",
    ),
    Refused(
        "a symbolic link that leads out of the target",
        _of(("link", tarfile.SYMTYPE, "../outside")),
        "UnsafeMember",
        "leaves the target",
        "the same",
    ),
    Refused(
        "a member whose path leads through a symbolic link of the archive",
        _of(("link", tarfile.SYMTYPE, "."), ("link/b", tarfile.REGTYPE, b"x")),
        "UnsafeMember",
        "through the symbolic link",
        "that is how archives write outside the target",
    ),
    Refused(
        "no end: no zero block after the last member",
        _bytes(lambda: _tar(_FILE)[:1024]),
        "BadArchive",
        "ends too early",
        "it looks like an archive whose last volume is missing; the existing members are unpacked",
    ),
    Refused(
        "other data after the end, or archives joined by `cat`",
        _bytes(lambda: _tar(_FILE) * 2),
        "BadArchive",
        "more data after its end",
        "zeros of a failed download look the same; the members before are unpacked",
    ),
    Refused(
        "only zeros, more than 10,240 bytes",
        _bytes(lambda: bytes(3_000_000)),
        "BadArchive",
        "zeros at its beginning",
        "`tar` makes an empty archive of 10,240 bytes of zeros; more zeros come from a failed download",
    ),
    Refused(
        "other data after the end of xz",
        _bytes(lambda: lzma.compress(_tar(_FILE)) + b"junk"),
        "BadArchive",
        "followed by something else",
        "`xz` refuses it too (after gzip and bzip2 it is skipped, and the report says so)",
        ".tar.xz",
    ),
    Refused(
        "other data after the end of Zstandard",
        _bytes(lambda: zstandard.compress(_tar(_FILE)) + b"junk"),
        "BadArchive",
        "followed by something else",
        "`zstd` refuses it too",
        ".tar.zst",
    ),
    Refused(
        "a later volume of a multi-volume archive of GNU tar, by itself",
        _multi_volume,
        "BadArchive",
        "another volume",
        "its first volume is missing; name the first volume, or all volumes",
    ),
    Refused(
        "lzip, `compress`, LZMA alone, 7-Zip, RAR",
        _bytes(lambda: b"LZIP\x01" + bytes(600)),
        "BadArchive",
        "lzip",
        "not supported; unpack it with the program that made it, or pack the data again with Zstandard",
        ".tar.lz",
    ),
    Refused(
        "an encrypted member of a zip, or one compressed by Deflate64, PPMd …",
        _bytes(_encrypted),
        "BadArchive",
        "a member is encrypted",
        "7-Zip unpacks it; `--members` selects the other members",
        ".zip",
    ),
    Refused(
        "the last volume alone of a set that `zip -s` split, or a set that lacks others",
        _bytes(_split),
        "MissingVolume",
        "missing volumes",
        "the directory says how many there are; put all of them into one folder",
        ".zip",
    ),
    Refused(
        "a zip archive behind another one that is damaged",
        _bytes(_two_zips),
        "BadArchive",
        "comes before this one, and is damaged",
        "the members of the first one would be lost; get the file that it was joined from again",
        ".zip",
    ),
]
