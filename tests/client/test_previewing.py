"""What a preview makes of bytes: text, tables and pictures in bounds, and nothing of an object runs."""

from __future__ import annotations

import io
import json
import struct
import zlib

import pytest
from PIL import Image

from nbdata.client.previewing.pictures import dimensions, media_of
from nbdata.client.previewing.texts import MOST_CHARACTERS, notebook_text, pretty, table_of, text_of


def png(width: int, height: int) -> bytes:
    """Return a black PNG, or of a large one its beginning alone."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = (b"\0" + bytes(width)) * (height if width * height < 1 << 20 else 1)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\rc\td", "a\nb\nc\td"),
        (b"\xef\xbb\xbfa", "a"),
        ("é".encode("utf-16"), "é"),
        ("grün".encode()[:-2], "gr"),  # cut within a character
        (b"", ""),
        (bytes(range(256)), None),
        (b"\0" * 100, None),
    ],
)
def test_bytes_are_text_or_they_are_not(data: bytes, text: str | None) -> None:
    assert text_of(data) == text


def test_json_is_indented_and_bounded() -> None:
    assert pretty('{"a":[1,"ü"]}') == '{\n  "a": [\n    1,\n    "ü"\n  ]\n}'
    for wrong in ("{", "[" * 100_000, "1" * 10_000):
        assert pretty(wrong) is None
    far = "[" * 500 + ",".join("1" for _ in range(100_000)) + "]" * 500
    shown = pretty(far)
    assert shown is not None
    assert len(shown) == MOST_CHARACTERS + 1


def test_of_a_notebook_the_cells_and_their_text_are_shown() -> None:
    script = "<script>alert(1)</script>"
    outputs = [
        {"output_type": "stream", "text": ["5\n", "6"]},
        {"output_type": "display_data", "data": {"text/html": script, "application/javascript": "alert(1)"}},
        {"output_type": "execute_result", "data": {"text/html": script, "text/plain": "a table"}},
        {"output_type": "error", "ename": "KeyError", "evalue": "'a'", "traceback": ["\x1b[31m"]},
        7,
    ]
    cells = [
        {"cell_type": "markdown", "source": "# Title"},
        {"cell_type": "code", "execution_count": 3, "source": ["print(5)\n", "6"], "outputs": outputs},
        "odd",
        {"cell_type": "code", "outputs": {"a": 1}},
    ]
    shown = notebook_text(json.dumps({"cells": cells}))
    assert shown == (
        "markdown:\n# Title\n\nIn [3]:\nprint(5)\n6\n\nOut:\n5\n6\n\nOut:\n(text/html, application/javascript)\n\n"
        "Out:\na table\n\nOut:\nKeyError: 'a'\n\nIn [ ]:\n\n\n"
    )
    for odd in ("[]", '{"cells": 5}', "{", "[" * 100_000):
        assert notebook_text(odd) is None


def test_a_table_has_the_first_rows_and_columns_and_a_formula_is_text() -> None:
    assert table_of('a,b\n"=1+1|x","2,3"\n', ",", whole=True) == ([["a", "b"], ["=1+1|x", "2,3"]], True)
    assert table_of("a;b\n1,5;2\n", ",", whole=True) == ([["a", "b"], ["1,5", "2"]], True)
    assert table_of("a\tb\n1\t2\n3", "\t", whole=False) == ([["a", "b"], ["1", "2"]], False)
    found = table_of("\n".join(",".join("x" * 60) for _ in range(300)), ",", whole=True)
    assert found is not None
    assert (len(found[0]), len(found[0][0]), found[1]) == (200, 50, False)
    long = table_of("y" * 5_000, ",", whole=True)
    assert long is not None
    assert (len(long[0][0][0]), long[0][0][0][-1]) == (200, "…")
    assert table_of("z" * 200_000, ",", whole=True) is None  # more than a cell may have


def test_pictures_are_told_by_their_first_bytes_and_svg_is_none() -> None:
    assert media_of(b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>') == ""
    assert media_of(b"<html>") == ""
    assert dimensions(png(30, 20), media_of(png(30, 20))) == (30, 20)
    assert dimensions(b"GIF89a\x05\x00\x04\x00\0\0\0;", "image/gif") == (5, 4)
    assert dimensions(b"BM" + bytes(16) + struct.pack("<ii", 7, -6), "image/bmp") == (7, 6)
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2\x00\x0b\x08" + struct.pack(">HH", 11, 12)
    assert dimensions(jpeg, media_of(jpeg)) == (12, 11)
    for kind, rest, sides in (
        (b"VP8X", bytes(4) + bytes(4) + b"\x09\0\0\x08\0\0", (10, 9)),
        (b"VP8L", bytes(4) + b"\x2f" + (9 | 8 << 14).to_bytes(4, "little"), (10, 9)),
        (b"VP8 ", bytes(4) + bytes(6) + struct.pack("<HH", 10, 9), (10, 9)),
    ):
        webp = b"RIFF\0\0\0\0WEBP" + kind + rest
        assert dimensions(webp, media_of(webp)) == sides
    for head in (jpeg[:12], png(3, 3)[:18], b"RIFF\0\0\0\0WEBPVP8X", b"\xff\xd8\xff"):
        assert dimensions(head, media_of(head)) is None


def test_pillow_sees_the_same_sides() -> None:
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP"):
        file = io.BytesIO()
        Image.new("RGB", (123, 45)).save(file, kind)
        head = file.getvalue()
        assert dimensions(head, media_of(head)) == (123, 45), kind


@pytest.mark.parametrize("marker", [0x00, 0x01, 0xD0, 0xD7, 0xD8])
def test_no_marker_hides_the_frame_of_a_jpeg(marker: int) -> None:
    """Behind a marker without a length, browsers go on at once; behind a comment, what they show comes first."""
    large, small = (
        b"\xff\xc0\x00\x0b\x08" + struct.pack(">HH", side, side) + b"\1\1\x11\0" for side in (60_000, 1)
    )
    hidden = large + b"\xff\xfe" + struct.pack(">H", 2 + len(small))
    head = b"\xff\xd8\xff" + bytes([marker]) + struct.pack(">H", 2 + len(hidden)) + hidden + small
    assert dimensions(head, "image/jpeg") is None


def test_a_png_whose_first_chunk_is_not_its_header_tells_no_sides() -> None:
    plain = png(60_000, 50_000)
    chunk = struct.pack(">I4sIIi", 8, b"aaAa", 1, 1, 0)
    assert dimensions(plain[:8] + chunk + plain[8:], "image/png") is None


@pytest.mark.parametrize("colors", [0, 2])
def test_a_gif_is_as_large_as_its_first_frame_which_may_be_larger_than_it_says(colors: int) -> None:
    flags = 0x80 if colors else 0
    head = b"GIF89a" + struct.pack("<HHBBB", 5, 4, flags, 0, 0) + bytes(3 * colors)
    comment = b"\x21\xfe" + b"\x03abc" + b"\x02de" + b"\0"
    frame = b"\x2c" + struct.pack("<HHHHB", 10, 0, 60_000, 50_000, 0)
    assert dimensions(head + comment + frame, "image/gif") == (60_010, 50_000)
    assert dimensions(head + comment[:5], "image/gif") is None
