"""Decompressing a stream: tar as it is, gzip, bzip2, xz and Zstandard, told apart by their first bytes.

All of them may consist of several members, streams or frames, as ``cat a.gz b.gz``, pigz, pbzip2
and pzstd make them, and may be padded with zero bytes, as tapes and block devices do. An end in the
middle is an error, and so is anything else behind the end of xz and Zstandard. Behind the end of gzip
and bzip2 up to 64 KiB are passed over and counted, as their own programs do with a warning: whether
something is missing, the tar archive inside tells.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from nbdata.archives.decoded import Decoded
from nbdata.archives.decoders import CODECS
from nbdata.archives.decompressed import Decompressed, Headed
from nbdata.archives.looks import looks_like
from nbdata.archives.place import Restart
from nbdata.archives.stream import volume_at
from nbdata.archives.tar_headers import is_header
from nbdata.errors import BadArchive, BadOption
from nbdata.sizes import format_size

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Decompressed", "ExpansionLimit", "begins_archive", "detect", "open_decompressed"]

_TAR_BLOCK = 512

_FORMATS = {"tar": "tar", "tar.gz": "gz", "tar.bz2": "bz2", "tar.xz": "xz", "tar.zst": "zst", "zip": "zip"}
_FORMATS |= {"tar.lz4": "lz4", **{name: name for name in ("gz", "bz2", "xz", "zst", "lz4")}}


def detect(head: bytes, name: str | None = None) -> str:
    """``tar``, ``gz``, ``bz2``, ``xz``, ``zst``, ``lz4`` or ``zip``, by the first bytes of a stream.

    Parameters
    ----------
    head : bytes
        The first 512 bytes, or the whole stream if it is shorter.
    name : str, optional
        For the message only; names lie.

    Raises
    ------
    BadArchive
        If it is none of them; says what was found.
    """
    for format_, codec in CODECS.items():
        if codec.begins(head):
            return format_
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08", b"PK00PK")):
        return "zip"
    if _is_tar(head):
        return "tar"
    found = looks_like(head)
    remedy = "Check that this is the first volume, and that it was stored whole"
    if found.startswith("text"):
        remedy = "Check that this is the first volume; a list of volumes is called NAME.lst"
    raise BadArchive(
        "not an archive",
        path=name,
        expected="tar, gzip, bzip2, xz, zstd or zip",
        got=found,
        remedy=remedy,
        details={"offset": 0},
    )


def begins_archive(head: bytes) -> bool:
    """Whether an archive begins with these bytes, rather than a later part of one.

    Parameters
    ----------
    head : bytes
        The first 512 bytes.
    """
    for codec in CODECS.values():
        if codec.begins(head):
            try:
                inner = codec.decoder().decompress(head, _TAR_BLOCK)
            except codec.errors:
                return True
            return len(inner) < _TAR_BLOCK or _is_tar(inner)
    return _is_tar(head)


def open_decompressed(
    raw: io.RawIOBase,
    *,
    format: str = "auto",  # noqa: A002
    name: str | None = None,
    start: Restart | None = None,
    threads: int = 1,
) -> tuple[Decompressed, str]:
    """A stream of the decompressed bytes, and the format that it has.

    The stream reads `raw` forwards only, and closing it closes `raw`. It yields up to 1 MiB at a
    time. Its errors carry the offset in the *compressed* bytes (``details["offset"]``, exact to
    256 KiB, or a bzip2 block, where data is damaged) and, if `raw` is made of volumes, the volume that it lies in.

    Parameters
    ----------
    raw : readable raw stream
        Typically a `JoinedStream` or a `Readahead` over one.
    format : str
        ``auto`` looks at the first bytes; else ``tar``, ``gz``, ``tar.gz`` and so on.
    name : str, optional
        How messages call the archive.
    start : Restart, optional
        Where `raw` stands, which is not at its beginning; then `format` has to be said.
    threads : int
        How many may decompress side by side, where the format tells which pieces are independent
        (`nbdata.archives.units`); 1: only the one who reads.

    Raises
    ------
    BadArchive
        If the data is none of the formats; when read: if it is damaged, ends too early, or is
        followed by something else.
    BadOption
        For zip, and for an unknown `format`.
    """
    if format != "auto" and format not in _FORMATS:
        raise BadOption(
            f"format: {format!r} is not known",
            expected=f"auto, {', '.join(_FORMATS)}",
            remedy="Leave it out, and the first bytes decide",
        )
    head = _read_head(raw)
    found = detect(head, name) if format == "auto" else _FORMATS[format]
    if found == "zip":
        raise BadOption(
            "a zip archive is read by its directory, not as a stream",
            path=name,
            remedy="Unpack it with untar_volumes",
        )
    at = start or Restart()
    stream = Headed(raw, head)
    return (stream if found == "tar" else Decoded(stream, CODECS[found], name, at, threads)), found


class ExpansionLimit(io.RawIOBase):
    """A stream that may not become longer than a limit: the guard against decompression bombs.

    Parameters
    ----------
    source : readable raw stream
        Not closed by closing this.
    limit : int
        Bytes that may be read in all.

    Raises
    ------
    BadArchive
        When read: by the read that passes the limit, before it returns a byte too many.
    """

    def __init__(self, source: io.RawIOBase, limit: int) -> None:
        super().__init__()
        self._source = source
        self._limit = limit
        self._count = 0

    def readable(self) -> bool:
        return True

    def volume_at(self, offset: int) -> tuple[str, int] | None:
        """`JoinedStream.volume_at` of the source."""
        return volume_at(self._source, offset)

    def spend(self, count: int) -> None:
        """Count bytes that come out of the archive without being read, such as holes of sparse files."""
        self._count += count
        if self._count > self._limit:
            raise BadArchive(
                f"the archive expands to more than {format_size(self._limit)}",
                remedy="If that is right, raise --max-expansion",
                details={"offset": self._limit, "limit": self._limit},
            )

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = self._source.readinto(buffer) or 0
        self.spend(count)
        return count


def _is_tar(head: bytes) -> bool:
    """Whether a header's checksum is right, or it is the zero block that an empty archive begins with."""
    block = head[:_TAR_BLOCK]
    if len(block) < _TAR_BLOCK:
        return False
    if not any(block):
        return True
    return is_header(block)


def _read_head(raw: io.RawIOBase) -> bytes:
    head = b""
    while len(head) < _TAR_BLOCK and (more := raw.read(_TAR_BLOCK - len(head))):
        head += more
    return head
