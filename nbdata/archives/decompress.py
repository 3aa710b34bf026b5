"""Decompresses a stream of gzip, bzip2, xz, Zstandard or plain tar; the first bytes tell the format.

A stream may consist of several members, streams or frames, as ``cat a.gz b.gz``, pigz, pbzip2 and pzstd make them.
It may be padded with zero bytes, as on tapes and block devices. An end in the middle is an error. Other data after the
end of xz and Zstandard is an error too. After the end of gzip and bzip2, up to 64 KiB are skipped and counted, because
their own programs only warn about them. The tar archive inside shows whether something is missing.
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
from nbdata.archives.windows import MAX_WINDOW
from nbdata.errors import BadArchive, BadOption
from nbdata.sizes import format_size

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Decompressed", "ExpansionLimit", "detect", "open_decompressed"]

_TAR_BLOCK = 512

_FORMATS = {"tar": "tar", "tar.gz": "gz", "tar.bz2": "bz2", "tar.xz": "xz", "tar.zst": "zst", "zip": "zip"}
_FORMATS |= {"tar.lz4": "lz4", **{name: name for name in ("gz", "bz2", "xz", "zst", "lz4")}}
# Programs that unpack archives which nbdata does not read, by their description in `looks_like`.
_UNPACKED_BY = {
    "a RAR archive": "unrar or 7-Zip",
    "a 7-Zip archive": "7-Zip (`7z x`)",
    "an archive of ar (.a, .deb)": "`ar x`",
}


def detect(head: bytes, name: str | None = None) -> str:
    """Return the format of a stream: ``tar``, ``gz``, ``bz2``, ``xz``, ``zst``, ``lz4`` or ``zip``, by its first bytes.

    Parameters
    ----------
    head : bytes
        The first 512 bytes, or the whole stream if it is shorter.
    name : str, optional
        For the message only; the name does not affect the result.

    Raises
    ------
    BadArchive
        If the format is none of these; the message says what was found.
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
    if found in _UNPACKED_BY:
        remedy = f"nbdata does not read it: unpack it with {_UNPACKED_BY[found]}"
    elif found.startswith(("a web page", "XML", "JSON")):
        remedy = "A server's answer was stored in place of the archive: fetch it again"
    elif found.startswith("text"):
        remedy = "Check that this is the first volume; a list of volumes is called NAME.lst"
    raise BadArchive(
        "not an archive",
        path=name,
        expected="tar, gzip, bzip2, xz, zstd or zip",
        got=found,
        remedy=remedy,
        details={"offset": 0},
    )


def open_decompressed(
    raw: io.RawIOBase,
    *,
    format: str = "auto",  # noqa: A002
    name: str | None = None,
    start: Restart | None = None,
    threads: int = 1,
    max_window: int | None = None,
) -> tuple[Decompressed, str]:
    """Open a stream of the decompressed bytes; also returns the format.

    The stream reads `raw` forwards only, and closing it closes `raw`. It yields up to 1 MiB at a time. Its errors carry
    the offset in the *compressed* bytes (``details["offset"]``). For damaged data this offset is exact to 256 KiB or a
    bzip2 block. If `raw` is made of volumes, errors also carry the volume that contains the offset.

    Parameters
    ----------
    raw : readable raw stream
        Typically a `JoinedStream` or a `Readahead` over one.
    format : str
        ``auto`` looks at the first bytes; otherwise ``tar``, ``gz``, ``tar.gz`` and so on.
    name : str, optional
        Name of the archive in messages.
    start : Restart, optional
        Position of `raw`, if that is not its beginning; `format` is then required.
    threads : int
        Number of threads that decompress in parallel, if the format shows which pieces are independent
        (`nbdata.archives.units`); 1 means only the reading thread.
    max_window : int, optional
        Largest window of the decoder in bytes (default: `nbdata.archives.windows.MAX_WINDOW`). It is the limit for all
        threads together, and not for each: see `nbdata.archives.unit_pool`.

    Raises
    ------
    BadArchive
        If the data has none of the formats. When read: if it is damaged, ends too early, is followed by other data, or
        needs a larger window.
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
    if found == "tar":
        return stream, found
    return Decoded(stream, CODECS[found], name, at, threads, max_window or MAX_WINDOW), found


class ExpansionLimit(io.RawIOBase):
    """Limits the length of a stream, as a guard against decompression bombs.

    Parameters
    ----------
    source : readable raw stream
        Stays open when this stream is closed.
    limit : int
        Total number of bytes that may be read.

    Raises
    ------
    BadArchive
        When read: raised by the read that passes the limit, before it returns any byte beyond it.
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
        """Count expanded bytes that are not read, such as holes of sparse files."""
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
    """True if the header's checksum is right, or it is the zero block at the start of an empty archive."""
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
