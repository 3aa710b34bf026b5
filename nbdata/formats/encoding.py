"""Encodes values as bytes of a field, by its extension; `nbdata.formats.decoding` reads them. Nothing is pickled."""

from __future__ import annotations

import io
import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from nbdata.errors import BadOption, NbdataError
from nbdata.formats.decoding import PACKAGES, kind_of

__all__ = ["Encoder", "encode"]

#: Makes the bytes of a value.
Encoder = Callable[[Any], bytes]

_PICKLES = ("pickle", "pkl", "pt", "pth", "pyd")
# JPEG quality that can hardly be told from the original.
_QUALITY = 95
# Extensions whose format has another name in Pillow.
_FORMATS = {"jpg": "jpeg", "tif": "tiff", "pbm": "ppm", "pgm": "ppm", "pnm": "ppm"}


def encode(key: str, field: str, value: Any, encoders: Mapping[str, Encoder]) -> bytes | memoryview:
    """Return the bytes of a field: bytes unchanged, other values encoded by the last extension.

    Parameters
    ----------
    key : str
        The sample's key, for errors.
    field : str
        Such as ``jpg`` or ``seg.png``.
    value : object
    encoders : mapping of str to callable
        By field or last extension; replace the built-in ones.

    Raises
    ------
    BadOption
        If there is no encoder, or the value's type does not fit the extension.
    NbdataError
        If a package for it is missing.
    """
    extension = field.rpartition(".")[2].lower()
    encoder = encoders.get(field) or encoders.get(extension)
    if encoder is not None:
        encoded = encoder(value)
        if not isinstance(encoded, (bytes, bytearray, memoryview)):
            raise _wrong(key, field, f"its encoder gave {type(encoded).__name__}", "bytes")
        return _bytes(encoded)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes(value)
    if extension in _PICKLES:
        raise _wrong(
            key,
            field,
            f"{type(value).__name__} would be pickled, and unpickling foreign data runs foreign code",
            "bytes, or another extension: json, npy, npz, msgpack",
        )
    kind = kind_of(field, b"")
    if kind is None:
        raise _wrong(
            key,
            field,
            f"there is no encoder for {type(value).__name__} with this extension",
            "bytes, or a function in encoders=",
        )
    try:
        return _ENCODERS[kind](value, extension)
    except ImportError as error:
        raise NbdataError(
            f"the field {field!r} of the sample {key!r} needs the package {error.name}, which is not installed",
            remedy=f"pip install {PACKAGES.get(str(error.name), error.name)}",
        ) from error
    except Exception as error:  # any of many libraries' errors
        raise _wrong(
            key,
            field,
            f"{type(value).__name__} cannot be written as {kind} ({type(error).__name__}: {error})",
            "bytes, or " + _VALUES[kind],
        ) from error


def _wrong(key: str, field: str, what: str, expected: str) -> BadOption:
    return BadOption(f"the field {field!r} of the sample {key!r}: {what}", expected=expected)


def _bytes(value: bytes | bytearray | memoryview) -> bytes | memoryview:
    """Return a value as contiguous bytes; copies data that the caller may change."""
    return value if isinstance(value, bytes) else bytes(value)


def _image(value: Any, extension: str) -> bytes:
    from PIL import Image

    image = value if isinstance(value, Image.Image) else Image.fromarray(_array_of(value))
    out = io.BytesIO()
    name = _FORMATS.get(extension, extension)
    image.save(out, format=name, **({"quality": _QUALITY} if name == "jpeg" else {}))
    return out.getvalue()


def _array_of(value: Any) -> Any:
    import numpy as np

    array = np.asarray(value)
    if array.dtype.hasobject or not array.ndim:
        raise TypeError("no array of numbers")
    return array


def _number(value: Any, _extension: str) -> bytes:
    return b"%d" % operator.index(value)


def _text(value: Any, _extension: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError("no str")
    return value.encode()


def _npy(value: Any, _extension: str) -> bytes:
    import numpy as np

    out = io.BytesIO()
    np.save(out, np.asarray(value), allow_pickle=False)
    return out.getvalue()


def _npz(value: Any, _extension: str) -> bytes:
    import numpy as np

    arrays = {name: np.asarray(array) for name, array in dict(value).items()}
    if any(array.dtype.hasobject for array in arrays.values()):  # savez would pickle them
        raise TypeError("arrays of objects")
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def _msgpack(value: Any, _extension: str) -> bytes:
    import msgpack

    return bytes(msgpack.packb(value))


_ENCODERS: dict[str, Callable[[Any, str], bytes]] = {
    "image": _image,
    "number": _number,
    "text": _text,
    "json": lambda value, _: json.dumps(value, ensure_ascii=False).encode(),
    "npy": _npy,
    "npz": _npz,
    "msgpack": _msgpack,
}
_VALUES = {
    "image": "a PIL image or an array of uint8",
    "number": "an int",
    "text": "a str",
    "json": "what the json module writes",
    "npy": "an array of numbers",
    "npz": "a dict of arrays of numbers",
    "msgpack": "what msgpack writes",
}
