"""Decodes the bytes of a sample's fields, by extension or else by their first bytes. Nothing is ever unpickled.

Extensions are those of WebDataset's basic handlers (https://github.com/webdataset/webdataset, autodecode.py), without
the ones that execute code; magic numbers are from the PNG, JPEG (JFIF), GIF, TIFF, WebP and NumPy format definitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nbdata.errors import BadOption, NbdataError
from nbdata.formats.decoding_bounds import (
    Budget,
    TooLarge,
    open_image,
    read_array,
    read_arrays,
    refuse_large_image,
    refuse_large_json,
    refuse_large_text,
    unpack,
)
from nbdata.formats.pixels import pixels_of
from nbdata.formats.samples import split_name
from nbdata.sizes import parse_size

__all__ = ["IMAGES", "MAX_DECODED", "PACKAGES", "decode", "is_image", "kind_of"]

#: The forms in which images can be returned.
IMAGES = ("pil", "numpy", "torch")
#: Bytes that the fields of one sample may take when decoded, by default.
MAX_DECODED = 1 << 30
_IMAGE = ("bmp", "gif", "jpeg", "jpg", "pbm", "pgm", "png", "pnm", "ppm", "tif", "tiff", "webp")
_NUMBER = ("class", "cls", "cls2", "count", "id", "index", "inx")
_TEXT = ("text", "transcript", "txt")
_KINDS = {
    **dict.fromkeys(_IMAGE, "image"),
    **dict.fromkeys(_NUMBER, "number"),
    **dict.fromkeys(_TEXT, "text"),
    "json": "json",
    "npy": "npy",
    "npz": "npz",
    **dict.fromkeys(("mp", "msg", "msgpack"), "msgpack"),
}
# Offsets and the bytes there; a format needs all of its line.
_BEGINNINGS: tuple[tuple[str, tuple[tuple[int, bytes], ...]], ...] = (
    ("image", ((0, b"\xff\xd8\xff"),)),
    ("image", ((0, b"\x89PNG\r\n\x1a\n"),)),
    ("image", ((0, b"GIF8"),)),
    ("image", ((0, b"RIFF"), (8, b"WEBP"))),
    ("image", ((0, b"II*\0"),)),
    ("image", ((0, b"MM\0*"),)),
    ("npy", ((0, b"\x93NUMPY"),)),
)


def kind_of(field: str, data: bytes) -> str | None:
    """Return the kind of a field: ``image``, ``number``, ``text``, ``json``, ``npy``, ``npz`` or ``msgpack``, or None.

    Parameters
    ----------
    field : str
        The last extension counts, such as ``png`` of ``seg.png``.
    data : bytes
        Checked if the extension is unknown.
    """
    kind = _KINDS.get(field.rpartition(".")[2].lower())
    if kind is not None:
        return kind
    for name, places in _BEGINNINGS:
        if all(data[at : at + len(expected)] == expected for at, expected in places):
            return name
    return None


def is_image(field: str, data: bytes) -> bool:
    """True if a field holds an image of a known format."""
    return kind_of(field, data) == "image"


def decode(
    sample: dict[str, Any], *, images: str = "pil", max_bytes: int | str = MAX_DECODED
) -> dict[str, Any]:
    """Return a sample with its fields decoded: a new dict; unknown fields stay ``bytes``.

    By extension, else by the first bytes: images (jpg, png, gif, bmp, webp, tif, ppm and their kin); json; txt, text
    and transcript as ``str``; cls, cls2, class, count, id, index and inx as ``int``; npy and npz as NumPy arrays;
    msgpack, msg and mp. Nothing is unpickled: pickles stay bytes, and arrays of objects are an error.

    Parameters
    ----------
    sample : dict
        From `nbdata.samples`. Names that start with two underscores stay as they are.
    images : {"pil", "numpy", "torch"}, default "pil"
        ``"pil"``: a PIL image. ``"numpy"``: uint8 array of height × width × channels, or height × width for grey
        images. ``"torch"``: uint8 tensor of channels × height × width. Grey images of 16 bits are uint16, as tensors
        int32; grey TIFFs of 32 bits are int32 or float32. Images of modes other than grey and RGB become RGB of 8 bits:
        without transparency, and with the upper 8 bits of each color.
    max_bytes : int or str, default 1 GiB
        Limit on the memory of all decoded fields together, such as ``"4GiB"``. A field that would exceed it is an
        error before it is decoded. Pictures count with what their decoder and their copies take meanwhile: 11 bytes
        for each pixel of RGB, 4 of a grey picture, 23 of a WebP, and at most 15 of any other.

    Returns
    -------
    dict

    Raises
    ------
    NbdataError
        If a field cannot be decoded, with the key of the sample and the field; if it would exceed `max_bytes`; or if a
        package for it is missing.
    BadOption
        If `images` is not one of these, or `sample` is no dict.

    Examples
    --------
    >>> import functools
    >>> functools.partial(nbdata.decode, images="torch")  # as the transform of a loader  # doctest: +SKIP
    """
    if images not in IMAGES:
        raise BadOption(f"decode: images={images!r} is not known", expected=", ".join(IMAGES))
    if not isinstance(sample, dict):
        raise BadOption(
            f"decode: {type(sample).__name__} is no sample",
            expected='a dict of fields, as nbdata.samples gives it, such as {"jpg": b"…"}',
        )
    most = parse_size(max_bytes, option="decode: max_bytes")
    budget = Budget(most)
    out: dict[str, Any] = {}
    for field, data in sample.items():
        kind = None if field.startswith("__") or not isinstance(data, bytes) else kind_of(field, data)
        if kind is None:
            out[field] = data
            continue
        try:
            out[field] = _DECODERS[kind](data, images, budget)
        except TooLarge as error:
            raise NbdataError(
                f"{_where(sample, field)} would take too much memory when decoded",
                path=_url(sample, field),
                expected=f"at most {most:,} bytes for all fields of a sample",
                remedy="If you trust it, give nbdata.decode(…, max_bytes='4GiB'); without decode, the sample has its "
                f"{len(data):,} bytes, which your own function can read",
                details={"limit": most},
            ) from error
        except ImportError as error:
            raise NbdataError(
                f"{_where(sample, field)} needs the package {error.name}, which is not installed",
                remedy=f"pip install {PACKAGES.get(str(error.name), error.name)}",
            ) from error
        except NbdataError:
            raise
        except Exception as error:  # any of many libraries' errors
            raise NbdataError(
                f"{_where(sample, field)} cannot be read as {kind} ({type(error).__name__}: {error})",
                path=_url(sample, field),
            ) from error
    return out


#: The package's name of a module.
PACKAGES = {"PIL": "pillow"}


def _where(sample: dict[str, Any], field: str) -> str:
    key = sample.get("__key__")
    return f"the field {field!r}" + (f" of the sample {key!r}" if key is not None else "")


def _url(sample: dict[str, Any], field: str) -> str | None:
    """Return the URL of a field's object. ``__url__`` is that of the sample's first object, or of its shard."""
    url = sample.get("__url__")
    if not isinstance(url, str):
        return None
    stem, extension = split_name(url)
    return f"{stem}.{field}" if extension in sample else url


def _image(data: bytes, images: str, budget: Budget) -> Any:
    with open_image(data) as opened:
        refuse_large_image(opened, budget)
        if images == "pil":
            opened.load()
            return opened.copy()
        array = pixels_of(opened)
    if images == "numpy":
        return array
    import torch

    # Few operations of PyTorch take uint16.
    tensor = torch.from_numpy(array.astype("int32") if array.dtype == "uint16" else array)
    return tensor.unsqueeze(0) if tensor.ndim == 2 else tensor.permute(2, 0, 1).contiguous()


def _text(data: bytes, _images: str, budget: Budget) -> str:
    refuse_large_text(data, budget)
    return data.decode()


def _json(data: bytes, _images: str, budget: Budget) -> Any:
    refuse_large_json(data, budget)
    return json.loads(data)


_DECODERS: dict[str, Callable[[bytes, str, Budget], Any]] = {
    "image": _image,
    "number": lambda data, _, __: int(data),
    "text": _text,
    "json": _json,
    "npy": lambda data, _, budget: read_array(data, budget),
    "npz": lambda data, _, budget: read_arrays(data, budget),
    "msgpack": lambda data, _, budget: unpack(data, budget),
}
