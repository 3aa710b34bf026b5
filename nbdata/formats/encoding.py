"""Values as the bytes of a field, by its extension: what `nbdata.formats.decoding` reads. Nothing is pickled."""

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
# Of JPEG: what is hardly to be told from the original.
_QUALITY = 95
# The extensions that Pillow knows under another name.
_FORMATS = {"jpg": "jpeg", "tif": "tiff", "pbm": "ppm", "pgm": "ppm", "pnm": "ppm"}


def encode(key: str, field: str, value: Any, encoders: Mapping[str, Encoder]) -> bytes | memoryview:
    """The bytes of a field: bytes as they are, other values by the last extension.

    Parameters
    ----------
    key : str
        Of the sample, for errors.
    field : str
        As ``jpg`` or ``seg.png``.
    value : object
    encoders : mapping of str to callable
        By field or last extension, instead of those that are known.

    Raises
    ------
    BadOption
        If nobody knows how, or the value is of another kind than the extension says.
    NbdataError
        If a package is missing that can.
    """
    extension = field.rpartition(".")[2].lower()
    encoder = encoders.get(field) or encoders.get(extension)
    if encoder is not None:
        found = encoder(value)
        if not isinstance(found, (bytes, bytearray, memoryview)):
            raise _wrong(key, field, f"its encoder gave {type(found).__name__}", "bytes")
        return _bytes(found)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes(value)
    if extension in _PICKLES:
        raise _wrong(
            key, field, f"{type(value).__name__} would be pickled, and who unpickles foreign data runs foreign code",
            "bytes, or another extension: json, npy, npz, msgpack",
        )  # fmt: skip
    kind = kind_of(field, b"")
    if kind is None:
        raise _wrong(
            key, field, f"nobody knows how {type(value).__name__} is written with this extension",
            "bytes, or a function in encoders=",
        )  # fmt: skip
    try:
        return _ENCODERS[kind](value, extension)
    except ImportError as error:
        raise NbdataError(
            f"the field {field!r} of the sample {key!r} needs the package {error.name}, which is not installed",
            remedy=f"pip install {PACKAGES.get(str(error.name), error.name)}",
        ) from error
    except Exception as error:  # of many libraries, each of which has its own
        raise _wrong(
            key, field, f"{type(value).__name__} cannot be written as {kind} ({type(error).__name__}: {error})",
            "bytes, or " + _VALUES[kind],
        ) from error  # fmt: skip


def _wrong(key: str, field: str, what: str, expected: str) -> BadOption:
    return BadOption(f"the field {field!r} of the sample {key!r}: {what}", expected=expected)


def _bytes(value: bytes | bytearray | memoryview) -> bytes | memoryview:
    """As bytes one after the other; a copy of what the caller may change."""
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
