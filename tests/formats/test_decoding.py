"""Fields are decoded by extension, or else by their first bytes, as in other libraries, and never unpickled."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import torch
from PIL import Image

import nbdata
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.decoding import kind_of
from tests.hostile import bombs

PIXELS = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)


def image(kind: str, mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(out, kind)
    return out.getvalue()


def array(value: Any, save: Any = np.save, **options: Any) -> bytes:
    out = io.BytesIO()
    save(out, value, **options)
    return out.getvalue()


def test_each_extension_is_what_it_says() -> None:
    sample = {
        "__key__": "n/1", "__url__": "s3://b/n/1.png", "png": image("PNG"), "seg.PNG": image("PNG", "L"),
        "json": b'{"a": [1]}', "txt": "Grüße".encode(), "cls": b"7\n", "index": b"-1",
        "npy": array(PIXELS), "mp": msgpack.packb({"a": 1}), "wav": b"RIFF....WAVE", "pkl": pickle.dumps([1]),
    }  # fmt: skip
    before = dict(sample)
    got = nbdata.decode(sample, images="numpy")
    assert sample == before
    assert (got.pop("png") == PIXELS).all()
    assert got.pop("seg.PNG").shape == (5, 4)
    assert (got.pop("npy") == PIXELS).all()
    assert got == {
        "__key__": "n/1", "__url__": "s3://b/n/1.png", "json": {"a": [1]}, "txt": "Grüße", "cls": 7, "index": -1,
        "mp": {"a": 1}, "wav": sample["wav"], "pkl": sample["pkl"],
    }  # fmt: skip
    several = io.BytesIO()
    np.savez(several, a=PIXELS, b=np.ones(2))
    assert {name: value.shape for name, value in nbdata.decode({"npz": several.getvalue()})["npz"].items()} == {
        "a": (5, 4, 3), "b": (2,),
    }  # fmt: skip


def test_images_come_as_is_asked_for() -> None:
    grey, colored = image("PNG", "L"), image("PNG", "P")
    assert nbdata.decode({"png": image("PNG")})["png"].size == (4, 5)
    got = nbdata.decode({"png": image("PNG")}, images="torch")["png"]
    assert (got.shape, got.dtype) == ((3, 5, 4), torch.uint8)
    assert (got.permute(1, 2, 0).numpy() == PIXELS).all()
    got += 1  # the array belongs to the caller and is writable
    assert nbdata.decode({"png": grey}, images="torch")["png"].shape == (1, 5, 4)
    assert nbdata.decode({"png": colored}, images="numpy")["png"].shape == (5, 4, 3)
    with pytest.raises(BadOption, match="pil, numpy, torch"):
        nbdata.decode({}, images="jax")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "TIFF", "WEBP"])
def test_an_extension_that_says_nothing_leaves_it_to_the_first_bytes(kind: str) -> None:
    got = nbdata.decode({"image": image(kind), "label": b"3"}, images="numpy")
    assert got["image"].shape[:2] == (5, 4)
    assert got["label"] == b"3", "which may be anything"
    assert kind_of("data", array(PIXELS)) == "npy"
    assert kind_of("data", b"") is None


def test_what_cannot_be_decoded_names_sample_and_field() -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("it was unpickled",))

    for field, data in {
        "jpg": b"\xff\xd8\xff cut off", "json": b"{", "cls": b"cat", "txt": b"\xff", "npy": b"\x93NUMPY",
        "msgpack": b"\xc1", "x.npy": array(np.array([Trap()], dtype=object), allow_pickle=True),
        "npz": pickle.dumps(Trap()),
    }.items():  # fmt: skip
        with pytest.raises(
            NbdataError, match=f"the field '{field}' of the sample 'n/1' cannot be read"
        ) as caught:
            nbdata.decode({"__key__": "n/1", "__url__": "s3://b/n/1.jpg", field: data})
        assert caught.value.path == "s3://b/n/1.jpg"
        assert " object at 0x" not in str(caught.value)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(NbdataError, match="pip install pillow"):
        nbdata.decode({"__key__": "1", "png": image_bytes})


image_bytes = image("PNG")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("s3://b/a.d/44.cls", "s3://b/a.d/44.jpg"),
        ("s3://b/44.jpg", "s3://b/44.jpg"),
        ("s3://b/x.tar", "s3://b/x.tar"),
    ],
)
def test_the_object_of_the_broken_field_is_named(url: str, named: str) -> None:
    with pytest.raises(NbdataError) as caught:
        nbdata.decode({"__key__": "44", "__url__": url, "cls": b"1", "jpg": b"broken"})
    assert caught.value.path == named


def test_what_is_no_sample_is_not_decoded() -> None:
    with pytest.raises(BadOption, match=r"bytes is no sample \(expected a dict of fields"):
        nbdata.decode(b"x")  # type: ignore[arg-type]


def test_a_sample_without_a_key_is_not_called_none() -> None:
    with pytest.raises(NbdataError, match=r"^the field 'json' cannot be read as json"):
        nbdata.decode({"json": b"{"})


@pytest.mark.parametrize(
    ("field", "data", "enough"),
    [
        ("npy", array(np.zeros(1000)), 8000),
        ("npz", array(np.zeros(1000), np.savez_compressed), 9100),
        ("png", image("PNG"), 220),
        ("json", b"[" + b"{}," * 999 + b"{}]", 450_000),
        ("json", b'"' + "Grüße".encode() * 100 + b'"', 2808),
        ("txt", b"x" * 1000, 1000),
        ("txt", "ü".encode() * 500, 4000),
        ("msgpack", msgpack.packb([[]] * 1000), 300_000),
        ("msgpack", msgpack.packb([{}] * 1000), 500_000),
        ("msgpack", msgpack.packb([msgpack.ExtType(5, b"x")] * 1000), 500_000),
    ],
)
def test_what_would_take_too_much_memory_is_refused(field: str, data: bytes, enough: int) -> None:
    assert field in nbdata.decode({field: data}, max_bytes=enough)
    with pytest.raises(
        NbdataError, match=f"the field '{field}' of the sample 'n/1' would take too much"
    ) as caught:
        nbdata.decode({"__key__": "n/1", field: data}, max_bytes=f"{enough // 3}B")
    assert "max_bytes=" in caught.value.remedy


def tiled(side: int) -> bytes:
    """Return a TIFF of one pixel, in a tile of this width and length (TIFF 6.0, section 15)."""
    tile = zlib.compress(bytes(side * side))
    tags = [
        (256, 1), (257, 1), (258, 8), (259, 8), (262, 1), (277, 1),
        (322, side), (323, side), (324, 138), (325, len(tile)),
    ]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return (b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)).ljust(138, b"\0") + tile


def test_a_small_picture_in_a_large_tile_is_refused() -> None:
    assert nbdata.decode({"tif": tiled(16)}, max_bytes="1MB")["tif"].size
    with pytest.raises(NbdataError, match="would take too much"):
        nbdata.decode({"tif": tiled(4096)}, max_bytes="1MB")


def jpeg_2000_in_tiles(side: int) -> bytes:
    """Return a JPEG 2000 in tiles of one pixel, each of which takes memory (ISO 15444-1, A.5.1)."""
    whole = image("JPEG2000", "L")
    code = whole[whole.index(b"\xff\x4f\xff\x51") :]
    return code[:6] + struct.pack(">H8I", 0, side, side, 0, 0, 1, 1, 0, 0) + code[40:]


@pytest.mark.parametrize("data", [jpeg_2000_in_tiles(255), image("JPEG2000"), image("AVIF"), image("TGA")])
def test_a_picture_whose_decoder_takes_memory_without_bound_is_refused(data: bytes) -> None:
    with pytest.raises(
        NbdataError, match="in none of the formats JPEG, PNG, GIF, WebP, TIFF, BMP and PPM"
    ) as caught:
        nbdata.decode({"__key__": "n/1", "jpg": data}, max_bytes="100MB")
    assert f"the first are {data[:16].hex(' ')}" in str(caught.value)


def test_the_fields_of_a_sample_share_the_limit() -> None:
    sample = {f"{number}.npy": array(np.zeros(1000)) for number in range(3)}
    assert len(nbdata.decode(sample, max_bytes=24_000)) == 3
    with pytest.raises(NbdataError, match=r"the field '2\.npy'"):
        nbdata.decode(sample, max_bytes=23_999)
    with pytest.raises(BadOption, match="max_bytes: 'much' is not a size"):
        nbdata.decode(sample, max_bytes="much")


def test_npz_members_of_other_methods_are_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", array(PIXELS))
    with pytest.raises(NbdataError, match="compressed by method 14"):
        nbdata.decode({"npz": out.getvalue()})


def test_an_npz_is_read_as_numpy_reads_it() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", array(PIXELS))
        archive.writestr("b/c.npy", array(np.asfortranarray(np.arange(6.0).reshape(2, 3))))
        archive.writestr("readme", b"text")
        archive.writestr("empty", b"")
    data = out.getvalue()
    with np.load(io.BytesIO(data)) as wanted:
        for field in ("npz", "npy"):
            got = nbdata.decode({field: data})[field]
            assert list(got) == list(wanted)
            for name in got:
                assert type(got[name]) is type(wanted[name])
                assert np.array_equal(got[name], wanted[name])


@pytest.mark.parametrize(
    "kind", ["<f4", ">i8", "|u1", "<U5", "|S3", "?", "<c16", [("x", "<f4"), ("ü", "<i2", (2,))]], ids=str
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_an_array_of_each_kind_comes_back(kind: Any, shape: tuple[int, ...]) -> None:
    value = np.zeros(shape, kind)
    got = nbdata.decode({"npy": array(value)})["npy"]
    assert (got.dtype, got.shape) == (value.dtype, value.shape)
    assert np.array_equal(got, value)


def test_an_array_with_a_long_header_is_refused_before_it_is_read() -> None:
    for data in (
        b"\x93NUMPY\2\0" + b"\xff\xff\xff\x7f" + bytes(100),
        b"\x93NUMPY\4\0" + bytes(100),
        b"\x93NUM",
        bombs.npy("(-1, 2)"),
    ):
        with pytest.raises(NbdataError, match="cannot be read as npy"):
            nbdata.decode({"npy": data})


def test_no_program_is_started_for_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pillow gives EPS to Ghostscript, whatever the name of the field.
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(NbdataError):
        nbdata.decode({"__key__": "a", "jpg": data}, images="numpy")
    assert not (tmp_path / "started").exists()
