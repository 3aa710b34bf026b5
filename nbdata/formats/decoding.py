"""Decodes the bytes of a sample's fields, by extension or else by their first bytes. Nothing is ever unpickled.

Extensions are those of WebDataset's basic handlers (https://github.com/webdataset/webdataset, autodecode.py), without
the ones that execute code; magic numbers are from the PNG, JPEG (JFIF), GIF, TIFF, WebP and NumPy format definitions.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from nbdata.errors import BadOption, NbdataError
from nbdata.formats.samples import split_name

__all__ = ["IMAGES", "PACKAGES", "decode", "is_image", "kind_of"]

#: The forms in which images can be returned.
IMAGES = ("pil", "numpy", "torch")
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


def decode(sample: dict[str, Any], *, images: str = "pil") -> dict[str, Any]:
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
        images. ``"torch"``: uint8 tensor of channels × height × width. Images of modes other than grey and RGB
        become RGB.

    Returns
    -------
    dict

    Raises
    ------
    NbdataError
        If a field cannot be decoded, with the key of the sample and the field; or if a package for it is missing.
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
    out: dict[str, Any] = {}
    for field, data in sample.items():
        kind = None if field.startswith("__") or not isinstance(data, bytes) else kind_of(field, data)
        if kind is None:
            out[field] = data
            continue
        try:
            out[field] = _DECODERS[kind](data, images)
        except ImportError as error:
            raise NbdataError(
                f"{_where(sample, field)} needs the package {error.name}, which is not installed",
                remedy=f"pip install {PACKAGES.get(str(error.name), error.name)}",
            ) from error
        except NbdataError:
            raise
        except Exception as error:  # any of many libraries' errors
            why = f"{type(error).__name__}: {error}"
            if " object at 0x" in why:  # Pillow's message contains it
                why = f"{len(data):,} bytes in no format that is known, the first are {data[:8].hex(' ')}"
            raise NbdataError(
                f"{_where(sample, field)} cannot be read as {kind} ({why})",
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


def _image(data: bytes, images: str) -> Any:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as opened:
        if images == "pil":
            opened.load()
            return opened.copy()
        import numpy as np

        plain = opened if opened.mode in ("L", "RGB") else opened.convert("RGB")
        array = np.array(plain)
    if images == "numpy":
        return array
    import torch

    tensor = torch.from_numpy(array)
    return tensor.unsqueeze(0) if tensor.ndim == 2 else tensor.permute(2, 0, 1).contiguous()


def _array(data: bytes, _images: str) -> Any:
    import numpy as np

    return np.load(io.BytesIO(data), allow_pickle=False)


def _arrays(data: bytes, _images: str) -> dict[str, Any]:
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        return dict(found)


def _msgpack(data: bytes, _images: str) -> Any:
    import msgpack

    return msgpack.unpackb(data)


_DECODERS: dict[str, Callable[[bytes, str], Any]] = {
    "image": _image,
    "number": lambda data, _: int(data),
    "text": lambda data, _: data.decode(),
    "json": lambda data, _: json.loads(data),
    "npy": _array,
    "npz": _arrays,
    "msgpack": _msgpack,
}
