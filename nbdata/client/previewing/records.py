"""Reads the first samples of an FFRecord object, with a few ranges, and tells which of them are pictures or text."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from isal.isal_zlib import crc32

from nbdata.client.previewing.pictures import dimensions, media_of
from nbdata.client.previewing.texts import text_of
from nbdata.formats.ffrecord import FIXED, SUFFIX, count_in

__all__ = ["SUFFIX", "ShownSample", "first_samples"]

# Most samples that are shown; most bytes and pixels of all of them together.
_SAMPLES, _MOST, _PIXELS = 24, 8 << 20, 50_000_000
# Most characters of a sample that is text, and most bytes that are read of one that is too large to be shown whole.
_CHARACTERS, _PART = 200, 4096


@dataclass(frozen=True)
class ShownSample:
    """A sample as it is shown.

    Attributes
    ----------
    number : int
    size : int
        Its bytes.
    media : str
        The media type of a picture; else empty.
    data : bytes
        All bytes of a picture.
    text : str
        The beginning of a text.
    problem : str
        What is wrong with it.
    """

    number: int
    size: int
    media: str = ""
    data: bytes = b""
    text: str = ""
    problem: str = ""


def first_samples(read: Callable[[int, int], bytes], size: int, path: str) -> tuple[list[ShownSample], int]:
    """Return the first samples, and how many there are.

    The header is read in part, because it may be large. So its own checksum is not compared; those of samples are.

    Parameters
    ----------
    read : callable
        Returns the bytes ``start:end`` of the object.
    size : int
        Bytes of the object.
    path : str
        Its name in errors.

    Raises
    ------
    BadArchive
        If it is too short for its header, or was never finished.
    """
    count = count_in(read(0, min(FIXED, size)), size, path)
    shown = min(count, _SAMPLES)
    crcs = struct.unpack(f"<{shown}I", read(FIXED, FIXED + 4 * shown)) if shown else ()
    at = FIXED + 4 * count
    known = min(shown + 1, count)
    starts = [*struct.unpack(f"<{known}q", read(at, at + 8 * known))] if known else []
    starts += [size] * (shown + 1 - known)
    found, left, pixels = list[ShownSample](), _MOST, _PIXELS
    for number, crc in enumerate(crcs):
        start, end = starts[number], starts[number + 1]
        if not FIXED + 12 * count <= start <= end <= size:
            found.append(ShownSample(number, 0, problem="the header says no place of it"))
            break
        is_whole = end - start <= left
        data = read(start, end if is_whole else min(end, start + min(left, _PART)))
        left -= len(data)
        sample = _shown(number, end - start, data, pixels)
        if is_whole and crc32(data) != crc:
            sample = ShownSample(
                number, end - start, problem="its checksum is another one than the header says"
            )
        elif sample.media and not is_whole:
            sample = ShownSample(number, end - start)
        if sample.media:
            width, height = dimensions(sample.data, sample.media) or (0, 0)
            pixels -= width * height
        found.append(sample)
        if left <= 0:
            break
    return found, count


def _shown(number: int, size: int, data: bytes, pixels: int) -> ShownSample:
    media = media_of(data)
    if media:
        sides = dimensions(data, media)
        is_small = sides is not None and sides[0] * sides[1] <= pixels
        return ShownSample(number, size, media, data) if is_small else ShownSample(number, size)
    text = text_of(data[:_PART])
    if text is None or not text:
        return ShownSample(number, size)
    return ShownSample(number, size, text=text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…")
