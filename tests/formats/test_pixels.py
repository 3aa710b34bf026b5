"""Pictures of every mode are decoded right or refused: grey ones keep 16 and 32 bits, others become RGB."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import nbdata
from nbdata.client.reading.overview import _picture
from nbdata.errors import NbdataError
from nbdata.loaders.mmdet3d import _image

GREY = np.arange(0, 65536, 4369, dtype=np.uint16).reshape(4, 4)  # 0x0000, 0x1111 … 0xffff
COLORS = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3) * 5
PHOTOMETRIC, SAMPLE_FORMAT = 262, 339


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def png(array: Any, color_type: int) -> bytes:
    """A PNG of 16 bits, written without Pillow."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in array)
    head = struct.pack(">2I5B", array.shape[1], array.shape[0], 16, color_type, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def with_tag(tiff: bytes, tag: int, value: int) -> bytes:
    """The same TIFF with another short value of a tag."""
    at = tiff.index(struct.pack("<2H", tag, 3)) + 8
    return tiff[:at] + struct.pack("<H", value) + tiff[at + 2 :]


def decoded(data: bytes, images: str = "numpy") -> Any:
    return nbdata.decode({"image": data}, images=images)["image"]


SIXTEEN = {
    "png": png(GREY, 0),
    "pillow": saved(Image.fromarray(GREY), "PNG"),
    "tiff": saved(Image.fromarray(GREY), "TIFF"),
    "big-endian": saved(Image.frombytes("I;16B", (4, 4), GREY.astype(">u2").tobytes()), "TIFF"),
    "pgm": b"P5 4 4 65535\n" + GREY.astype(">u2").tobytes(),
}


@pytest.mark.parametrize("kind", SIXTEEN)
def test_a_grey_picture_of_16_bits_keeps_them(kind: str) -> None:
    field = "pgm" if kind == "pgm" else "image"
    for images, wanted in (("numpy", np.uint16), ("torch", torch.int32)):
        got = nbdata.decode({field: SIXTEEN[kind]}, images=images)[field]
        assert got.dtype == wanted
        assert np.array_equal(np.asarray(got).reshape(4, 4), GREY)
    assert got.shape == (1, 4, 4)


def test_a_grey_picture_of_32_bits_keeps_them() -> None:
    for array in (GREY.astype(np.int32) * 30_000 - 10**9, GREY.astype(np.float32) / 7):
        tiff = saved(Image.fromarray(array), "TIFF")
        assert decoded(tiff).dtype == array.dtype
        assert (decoded(tiff) == array).all()
        assert decoded(tiff, "torch").tolist() == [array.tolist()]
    small = with_tag(saved(Image.fromarray(GREY.astype(np.int32)), "TIFF"), SAMPLE_FORMAT, 1)
    assert (decoded(small) == GREY).all()


@pytest.mark.parametrize(
    ("tiff", "why"),
    [
        (saved(Image.fromarray(GREY), "TIFF", tiffinfo={PHOTOMETRIC: 0}), "0 is white"),
        (saved(Image.fromarray(GREY.astype(np.float32)), "TIFF", tiffinfo={PHOTOMETRIC: 0}), "0 is white"),
        (
            with_tag(saved(Image.fromarray(GREY.astype(np.int32) - 1), "TIFF"), SAMPLE_FORMAT, 1),
            "above 2,147,483,647",
        ),
    ],
)
def test_a_tiff_that_pillow_would_misread_is_refused(tiff: bytes, why: str) -> None:
    with pytest.raises(NbdataError, match=f"cannot be read as image .*{why}"):
        decoded(tiff)


def test_pictures_of_other_modes_become_rgb() -> None:
    plain = Image.fromarray(COLORS)
    palette = plain.convert("P", palette=Image.Palette.ADAPTIVE)
    grey = plain.convert("L")
    clear = plain.convert("RGBA")
    clear.putalpha(9)
    half = grey.convert("LA")
    half.putalpha(9)
    of_palette, of_grey = np.array(palette.convert("RGB")), np.array(grey.convert("RGB"))
    dots = plain.convert("1")
    for data, wanted in (
        (saved(palette, "PNG"), of_palette),
        (saved(palette, "GIF", transparency=3), of_palette),
        (saved(palette, "PNG", transparency=3), of_palette),
        (saved(palette, "PNG", transparency=bytes(range(10))), of_palette),
        (saved(clear, "PNG"), COLORS),
        (saved(half, "PNG"), of_grey),
        (saved(half, "TIFF"), of_grey),
        (saved(dots, "PNG"), np.array(dots.convert("RGB"))),
        (saved(dots, "TIFF"), np.array(dots.convert("RGB"))),
        (saved(plain.convert("CMYK"), "TIFF"), COLORS),
        (saved(plain.convert("CMYK"), "JPEG", quality=100, subsampling=0), COLORS),
        (png(COLORS.astype(np.uint16) * 256 + 77, 2), COLORS),  # the upper bits of each color
    ):
        got = decoded(data)
        assert (got.dtype, got.shape) == (np.uint8, (4, 4, 3))
        assert np.abs(got.astype(int) - wanted).max() <= 1


def test_small_pictures_and_those_of_mmdet3d_have_the_upper_8_bits() -> None:
    for data in (SIXTEEN["png"], SIXTEEN["pgm"], SIXTEEN["big-endian"]):
        for color, shape in (("color", (4, 4, 3)), ("grayscale", (4, 4)), ("unchanged", (4, 4))):
            got = _image(data, color)
            assert got.shape == shape
            assert (got.reshape(4, 4, -1)[..., 0] == GREY >> 8).all()
    assert _picture("png", SIXTEEN["png"]) != _picture("png", png(np.full((4, 4), 65535, np.uint16), 0))
