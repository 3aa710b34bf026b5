"""Limits the window of a decoder: the decompressed bytes that it keeps, whose number the archive chooses.

Zstandard calls them a window, xz and LZMA a dictionary. A few bytes of header can ask for gigabytes, so a decoder is
given a limit, and an archive that asks for more is refused before anything is decompressed. The windows of gzip (32
KiB), LZ4 (64 KiB) and bzip2 (900 kB) are fixed by the formats.

Sources of the formats: RFC 8878, 3.1.1.1 (Zstandard); xz-file-format.txt 1.2, 3.1 and 5.3.1 (xz).
"""

from __future__ import annotations

from nbdata.errors import BadArchive

__all__ = ["LARGEST_WINDOW", "MAX_WINDOW", "WindowTooLarge", "too_large", "xz_dictionary", "zstd_window"]

#: Largest window by default: what zstd itself decompresses without ``--long``, and twice the dictionary of ``xz -9``.
MAX_WINDOW = 128 << 20
#: Largest window that the decoders have: that of ``zstd --long=31``, and more than the largest dictionary of xz.
LARGEST_WINDOW = 2 << 30
_LZMA2 = 0x21


class WindowTooLarge(Exception):
    """Raised by a decoder whose data needs a larger window than allowed.

    Attributes
    ----------
    needed : int or None
        Bytes of the window, if the header could be read.
    limit : int
    """

    def __init__(self, needed: int | None, limit: int) -> None:
        super().__init__(f"a window of {needed} bytes, of at most {limit}")
        self.needed, self.limit = needed, limit


def too_large(what: str, error: WindowTooLarge, *, name: str | None, offset: int) -> BadArchive:
    """Build the error for an archive whose window is too large.

    Parameters
    ----------
    what : str
        What is compressed, as the start of the message.
    error : WindowTooLarge
    name : str or None
        Name of the archive.
    offset : int
        Offset in the compressed bytes at which this frame or stream begins, roughly.
    """
    remedy = "If you trust it, and have the memory, give --max-window 2GiB (in Python max_window=)"
    if (error.needed or 0) > LARGEST_WINDOW:
        remedy = "nbdata reads windows of at most 2 GiB: check where it comes from, or compress it anew"
    return BadArchive(
        f"{what} needs a larger window in memory than is allowed",
        path=name,
        expected=f"at most {_size(error.limit)}",
        got=None if error.needed is None else f"{_size(error.needed)} in its header",
        remedy=remedy,
        details={"offset": offset, "limit": error.limit},
    )


def _size(count: int) -> str:
    return f"{count:,} bytes" if count % (1 << 20) else f"{count >> 20:,} MiB"


def zstd_window(header: bytes) -> int | None:
    """Return the window of a Zstandard frame in bytes, from its first bytes; None if they do not tell it."""
    if len(header) < 6 or header[:4] != b"\x28\xb5\x2f\xfd":
        return None
    descriptor = header[4]
    single = descriptor >> 5 & 1
    if not single:
        base = 1 << 10 + (header[5] >> 3)
        return base + (base >> 3) * (header[5] & 7)
    start = 5 + (0, 1, 2, 4)[descriptor & 3]
    width = (1, 2, 4, 8)[descriptor >> 6]
    content = header[start : start + width]
    return int.from_bytes(content, "little") + (256 if width == 2 else 0) if len(content) == width else None


def xz_dictionary(header: bytes) -> int | None:
    """Return the bytes of the dictionary of an xz stream's first block, from its first bytes; None if unknown."""
    try:
        end = 12 + 4 * (header[12] + 1)
        at, flags = 14, header[13]
        for bit in (6, 7):  # the sizes of the block
            if flags >> bit & 1:
                _, at = _number(header, at)
        for _ in range((flags & 3) + 1):
            kind, at = _number(header, at)
            length, at = _number(header, at)
            if kind == _LZMA2 and at < end:
                bits = header[at]
                return (2 | (bits & 1)) << (bits // 2 + 11) if bits <= 40 else None
            at += length
    except IndexError:
        pass
    return None


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and the offset after it."""
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if not byte & 0x80 or shift > 56:
            return found, at
        shift += 7
