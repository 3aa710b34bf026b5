"""Bounds on what decoding a field may make in memory, checked before it is made.

A small field can stand for a large value: two bytes of JSON are an object of 64, and a zip of 2 MB holds 2 GB of zeros.
Headers are read first, and nothing in them is believed: content that is compressed is read up to the bound.
"""

from __future__ import annotations

import io
import math
from typing import IO, Any

__all__ = [
    "Budget",
    "TooLarge",
    "open_image",
    "read_array",
    "read_arrays",
    "refuse_large_image",
    "refuse_large_json",
    "refuse_large_text",
    "unpack",
]

# Longest header of an npy file that NumPy parses.
_LONGEST_HEADER = 10_000
_NPY, _ZIP, _ZIP_ENTRY = b"\x93NUMPY", b"PK\3\4", b"PK\1\2"
# Methods by which NumPy writes npz files: stored and deflate. The decoders of the others have no bound.
_METHODS = (0, 8)
# Bytes of Python objects: a zip entry, an object and its first item, an array, and each further item.
_ENTRY, _MAPPING, _LIST, _ITEM = 1024, 320, 160, 112
_BLOCK = 1 << 20
# Bytes of an unknown picture in a message, so many that they name its format.
_FIRST = 16
# Tags of TIFF (TIFF 6.0, sections 8 and 15): width and length of a tile, samples of a pixel, bits of a sample.
_TILE = (322, 323, 277, 258)
# Bytes that a pixel takes at the most, by mode, while a picture is decoded, converted and copied: measured with each
# format, and one more. A decoder of WebP has two canvases of its own and gives each frame as bytes, too.
_PIXEL = {"L": 4, "RGB": 11, "P": 12, "1": 12}
_OTHER_PIXEL, _WEBP_PIXEL = 15, 23
# Pillow's formats of the extensions that are decoded; it knows their sizes before it decodes. JPEG 2000 and AVIF are
# left out: a picture can be larger than its box says, and the decoders take as much memory as the picture asks for.
_PICTURES = ("JPEG", "MPO", "PNG", "GIF", "WEBP", "TIFF", "BMP", "DIB", "PPM")


class TooLarge(Exception):
    """Raised by `Budget.spend` if a value would be larger than allowed."""


class Budget:
    """The bytes that may still be decoded."""

    def __init__(self, most: int) -> None:
        self.left = most

    def spend(self, size: int) -> None:
        """Count bytes that are about to be made.

        Raises
        ------
        TooLarge
            If they are too many.
        """
        self.left -= size
        if self.left < 0:
            raise TooLarge


def refuse_large_json(data: bytes, budget: Budget) -> None:
    """Count the largest possible value of a JSON text. CPython itself bounds the depth, and the digits of numbers."""
    count = data.count
    budget.spend(
        4 * len(data) + _MAPPING * count(b"{") + _LIST * count(b"[") + _ITEM * (count(b",") + count(b":"))
    )


def refuse_large_text(data: bytes, budget: Budget) -> None:
    """Count a text: with one character beyond the first 65,536, Python takes four bytes for each."""
    budget.spend(len(data) if data.isascii() else 4 * len(data))


def refuse_large_image(image: Any, budget: Budget) -> None:
    """Count the memory that an opened picture takes until its pixels are returned, before they are decoded."""
    width, height = image.size
    if image.format == "TIFF":  # of which a whole tile is decoded, however small the picture is
        numbers = [_largest(image.tag_v2.get(tag, 1)) for tag in _TILE]
        budget.spend(math.prod(numbers) // 8)
    pixel = _WEBP_PIXEL if image.format == "WEBP" else _PIXEL.get(image.mode, _OTHER_PIXEL)
    budget.spend(width * height * pixel)


def _largest(value: Any) -> int:
    return max(map(int, value if isinstance(value, tuple) else (value,)), default=1)


def open_image(data: bytes) -> Any:
    """Open a picture of a common format. For other formats, Pillow takes memory without bound or starts programs.

    Raises
    ------
    ValueError
        If it has none of these formats.
    """
    from PIL import Image, UnidentifiedImageError

    Image.init()
    try:
        return Image.open(io.BytesIO(data), formats=[name for name in _PICTURES if name in Image.OPEN])
    except UnidentifiedImageError as error:
        raise ValueError(
            f"{len(data):,} bytes in none of the formats JPEG, PNG, GIF, WebP, TIFF, BMP and PPM, "
            f"the first are {data[:_FIRST].hex(' ')}"
        ) from error


def unpack(data: bytes, budget: Budget) -> Any:
    """Decode msgpack; arrays, maps and extensions are counted as they end, and their announced lengths before."""
    import msgpack

    def counted_list(value: list[Any]) -> list[Any]:
        budget.spend(_LIST + _ITEM * len(value))
        return value

    def counted_map(value: dict[Any, Any]) -> dict[Any, Any]:
        budget.spend(_MAPPING + 2 * _ITEM * len(value))
        return value

    def counted_extension(code: int, value: bytes) -> Any:
        budget.spend(_MAPPING)
        return msgpack.ExtType(code, value)

    budget.spend(len(data))
    most = max(budget.left // _ITEM, 1)
    if len(data) <= most:  # no array can be longer than the data
        most = len(data)
    try:
        return msgpack.unpackb(
            data,
            list_hook=counted_list,
            object_hook=counted_map,
            ext_hook=counted_extension,
            max_array_len=most,
            max_map_len=most,
        )
    except ValueError as error:
        if "exceeds max_" in str(error) and most < len(data):
            raise TooLarge from error
        raise


def read_array(data: bytes, budget: Budget) -> Any:
    """Read an npy file, or the arrays of an npz file that is called npy."""
    if data.startswith(_ZIP):
        return read_arrays(data, budget)
    return _array(io.BytesIO(data), budget)


def read_arrays(data: bytes, budget: Budget) -> dict[str, Any]:
    """Read an npz file: arrays by name, and members that are none as bytes."""
    import zipfile

    budget.spend(_ENTRY * data.count(_ZIP_ENTRY))
    arrays: dict[str, Any] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            if member.compress_type not in _METHODS:
                raise ValueError(
                    f"{member.filename} is compressed by method {member.compress_type}, not by deflate"
                )
            with archive.open(member) as file:
                is_array = file.read(len(_NPY)) == _NPY
                file.seek(0)
                value = _array(file, budget) if is_array else _bounded(file, budget)
            arrays[member.filename.removesuffix(".npy")] = value
    return arrays


def _bounded(file: IO[bytes], budget: Budget) -> bytes:
    whole = io.BytesIO()
    while block := file.read(_BLOCK):
        budget.spend(len(block))
        whole.write(block)
    return whole.getvalue()


def _array(file: IO[bytes], budget: Budget) -> Any:
    """Read an array; its header says its size, which is counted before memory is taken."""
    import numpy as np

    begins = file.read(8)
    version = (begins[6], begins[7]) if len(begins) == 8 and begins.startswith(_NPY) else (0, 0)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError("this is no npy file, or of an unknown version")
    size = file.read(2 if version == (1, 0) else 4)
    length = int.from_bytes(size, "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"a header of {length:,} bytes, which may be at most {_LONGEST_HEADER:,}")
    header = io.BytesIO(size + file.read(length))
    parse = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = parse(header)
    if min(shape, default=0) < 0:
        raise ValueError(f"an array of the shape {shape}")
    budget.spend(math.prod(shape) * kind.itemsize)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
