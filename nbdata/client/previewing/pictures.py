"""Tells the kind of a picture and its width and height by its first bytes. Pure functions.

Only kinds that consist of pixels are known. SVG is none: it is a document that may hold scripts.
"""

from __future__ import annotations

import struct

__all__ = ["dimensions", "media_of"]


def media_of(head: bytes) -> str:
    """Return the media type of a picture; empty if these are not the first bytes of one that browsers show."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    if head.startswith(b"BM") and head[6:10] == bytes(4):
        return "image/bmp"
    return ""


def dimensions(head: bytes, media: str) -> tuple[int, int] | None:
    """Return width and height in pixels; None if the first bytes do not tell them.

    Parameters
    ----------
    head : bytes
        The first bytes; those of a JPEG may have to be some tens of thousands.
    media : str
        As `media_of` told it.
    """
    try:
        if media == "image/png":  # its header comes first, else it is none
            return _pair(">II", head, 16) if head[12:16] == b"IHDR" else None
        if media == "image/gif":
            return _gif(head)
        if media == "image/bmp":
            width, height = _pair("<ii", head, 18)
            return abs(width), abs(height)
        return _webp(head) if media == "image/webp" else _jpeg(head)
    except (struct.error, IndexError):
        return None


def _pair(shape: str, head: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(shape, head, at)
    return first, second


def _gif(head: bytes) -> tuple[int, int]:
    """Return the sides of the whole picture; browsers enlarge it to hold its first frame. See GIF89a, 18 to 20."""
    width, height = _pair("<HH", head, 6)
    flags = head[10]
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while head[at] == 0x21:  # an extension, in blocks
        at += 2
        while size := head[at]:
            at += 1 + size
        at += 1
    if head[at] != 0x2C:
        return width, height
    left, top = _pair("<HH", head, at + 1)
    wide, high = _pair("<HH", head, at + 5)
    return max(width, left + wide), max(height, top + high)


def _webp(head: bytes) -> tuple[int, int] | None:
    """See the container specification of WebP, and RFC 6386, 9.1."""
    kind = head[12:16]
    if kind == b"VP8X":
        sides = [int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27)]
        return (sides[0], sides[1]) if len(head) >= 30 else None
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = _pair("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Walk over the segments to the start of the frame; see ITU-T T.81, B.2.2."""
    at = 2
    while head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = _pair(">HH", head, at + 5)
            return width, height
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        size = int(struct.unpack_from(">H", head, at + 2)[0])
        # A marker without a length would hide a frame here, and browsers go on right behind it.
        if marker < 0xC0 or 0xD0 <= marker <= 0xD9 or size < 2:
            return None
        at += 2 + size
    return None
