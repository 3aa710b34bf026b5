"""Turns a batch into a JSON header and frames of bytes, and back: without pickle, and without a copy of large data.

Dicts, lists and tuples become the header. Arrays, tensors and bytes are referred to by frame, offset and length. Small
ones share the first frame; each large one is a frame of its own. A receiver checks all of it before it makes anything.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nbdata.errors import BadOption, NbdataError
from nbdata.sizes import format_size

__all__ = ["FRAME_MOST", "PIECE", "Encoded", "decoded", "encoded", "in_pieces", "joined", "refuse_too_many"]

#: The most bytes of a frame, the frames of a batch, and the bytes of its header.
FRAME_MOST, _FRAMES, _HEADER = 1 << 30, 1 << 14, 16 << 20
#: The most bytes of a frame over TCP, where a stranger could send one before it shows that it has keys.
PIECE = 64 << 20
# The most bytes of a batch, how deep it nests, and the most dimensions of an array.
_BATCH, _DEEP, _DIMENSIONS = 4 << 30, 32, 64
# Up to this size an array, or bytes, share the first frame, at a multiple of _ALIGN. A frame of its own costs more time
# than a copy of some 100 KB, and bytes are copied by the receiver anyway.
_SMALL, _SMALL_BYTES, _ALIGN = 16 << 10, 1 << 20, 16
_WORD = 1 << 63
_NUMPY = {np.dtype(char).newbyteorder(order).str for char in "?bhilqBHILQefdFD" for order in ("<", ">")}
_TORCH = {
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
}
_PLAIN = "dicts with str keys, lists, tuples, bytes, str, int, float, bool, None, numpy arrays, torch tensors"


@dataclass(frozen=True)
class Encoded:
    """A batch as bytes; the frames are views of its arrays, which nobody may change meanwhile.

    Attributes
    ----------
    header : bytes
    frames : list
    size : int
        The bytes of all of it.
    """

    header: bytes
    frames: list[Any]
    size: int


# -- to bytes ---------------------------------------------------------------------------------------


@dataclass
class _Writer:
    small: list[memoryview | bytes] = field(default_factory=list)
    shared: int = 0  # the bytes of the first frame
    large: list[memoryview] = field(default_factory=list)

    def place(self, data: memoryview, path: str, small: int = _SMALL) -> list[int]:
        """Return where these bytes are: frame, offset and length."""
        size = data.nbytes
        if size <= small:
            at = self.shared
            self.shared += size + -size % _ALIGN
            self.small += [data, bytes(-size % _ALIGN)]
            return [0, at, size]
        if size > FRAME_MOST:
            raise _refused(path, f"{format_size(size)}", f"at most {format_size(FRAME_MOST)} in one value")
        self.large.append(data)
        return [len(self.large), 0, size]

    def node(self, value: Any, path: str, deep: int = 0) -> Any:
        """Return what the header says of a value."""
        kind = type(value)
        if deep > _DEEP:
            raise _refused(path, "a deeper one", f"at most {_DEEP} levels")
        if kind is int and not -_WORD <= value < 2 * _WORD:
            raise _refused(path, "a larger int", "ints of 64 bits")
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is dict:
            if other := [key for key in value if type(key) is not str]:
                raise _refused(path, f"the key {other[0]!r}"[:60], "keys of type str")
            return [
                "d",
                *([key, self.node(one, f"{path}[{key!r}]", deep + 1)] for key, one in value.items()),
            ]
        if kind in (list, tuple):
            letter = "l" if kind is list else "t"
            return [letter, *(self.node(one, f"{path}[{n}]", deep + 1) for n, one in enumerate(value))]
        if kind is bytes:
            return ["b", *self.place(memoryview(value), path, _SMALL_BYTES)]
        if kind is np.ndarray or isinstance(value, np.generic):
            return self._array(value, path)
        torch = sys.modules.get("torch")
        if torch is not None and kind is torch.Tensor:
            return self._tensor(value, path)
        raise _refused(path, f"{kind.__module__}.{kind.__qualname__}", _PLAIN)

    def _array(self, value: Any, path: str) -> list[Any]:
        if value.dtype.str not in _NUMPY:
            raise _refused(path, f"an array of {value.dtype}", "bool, int, uint, float or complex")
        letter = "n" if type(value) is np.ndarray else "g"
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return [letter, value.dtype.str, list(value.shape), *self.place(flat.data, path)]

    def _tensor(self, value: Any, path: str) -> list[Any]:
        torch, name = sys.modules["torch"], str(value.dtype).rpartition(".")[2]
        if value.device.type != "cpu" or value.layout is not torch.strided or name not in _TORCH:
            got = f"a tensor {value.layout} of {value.dtype} on {value.device}"
            raise _refused(path, got, "dense tensors of numbers on the CPU")
        shape = list(value.shape)
        flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        return ["T", name, shape, *self.place(memoryview(flat.numpy()), path)]


def encoded(batch: Any) -> Encoded:
    """Return a batch as bytes.

    Raises
    ------
    BadOption
        If there is anything in it that is not handed over. It names the place in the batch.
    """
    writer = _Writer()
    try:
        header = json.dumps(writer.node(batch, "batch"), separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise _refused("batch", "a deeper one", f"at most {_DEEP} levels") from None
    if writer.shared > FRAME_MOST:
        raise _refused(
            "batch", f"{format_size(writer.shared)} of small values", f"at most {format_size(FRAME_MOST)}"
        )
    frames: list[Any] = [memoryview(b"".join(writer.small)), *writer.large]
    size = len(header) + sum(memoryview(frame).nbytes for frame in frames)
    if len(frames) > _FRAMES or len(header) > _HEADER or size > _BATCH:
        got = f"{len(frames):,} large values, {format_size(len(header))} of text, {format_size(size)}"
        most = f"at most {_FRAMES:,}, {format_size(_HEADER)} and {format_size(_BATCH)}"
        raise _refused("batch", got, most)
    return Encoded(header, frames, size)


def _refused(path: str, got: str, expected: str) -> BadOption:
    return BadOption(
        f"a loader service cannot hand over {path}",
        expected=expected,
        got=got,
        remedy="Make it one of these in the transform or the collate_fn",
    )


def in_pieces(frames: Sequence[Any], most: int) -> Iterator[Any]:
    """Yield frames of at most so many bytes. One of exactly so many is continued by the next."""
    for frame in frames:
        yield frame[:most]
        for at in range(most, len(frame) + 1, most):
            yield frame[at : at + most]


# -- from bytes -------------------------------------------------------------------------------------


def refuse_too_many(frames: int, size: int) -> None:
    """Raise an error if a message has more than a batch may have, before the rest of it is received."""
    if frames > _FRAMES + 2 + 2 * _BATCH // PIECE or size > _BATCH + _HEADER:
        raise _wrong(f"it has over {_FRAMES:,} frames or {format_size(_BATCH)}")


def joined(frames: Iterable[Any], most: int) -> Iterator[Any]:
    """Yield the frames of which `in_pieces` made these."""
    pieces = list[Any]()
    for frame in frames:
        pieces.append(frame)
        if len(frame) < most:
            yield pieces[0] if len(pieces) == 1 else _as_one(pieces)
            pieces = []
    yield from pieces


def _as_one(pieces: list[Any]) -> memoryview:
    whole, at = np.empty(sum(map(len, pieces)), np.uint8), 0
    for piece in pieces:
        whole[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    return whole.data


def decoded(header: Sequence[int] | memoryview | bytes, frames: Sequence[Any]) -> Any:
    """Return the batch. Its large arrays and tensors are views of these frames.

    Raises
    ------
    NbdataError
        If the header does not fit the frames, or says anything that `encoded` does not write.
    """
    raw = bytes(header)
    if len(raw) > _HEADER or not 1 <= len(frames) <= _FRAMES:
        raise _wrong("its header is too large, or a frame is missing")
    views = [memoryview(frame).cast("B") for frame in frames]
    if len(views[0]) <= _SMALL:
        views[0] = memoryview(bytearray(views[0]))  # which may begin at any address; a larger one is aligned
    try:
        return _Reader(views).value(json.loads(raw))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise _wrong(f"{type(error).__name__}: {error}"[:200]) from None


@dataclass
class _Reader:
    views: list[memoryview]

    def __post_init__(self) -> None:
        self._left = sum(map(len, self.views))  # each byte belongs to one value

    def value(self, node: Any, deep: int = 0) -> Any:
        """Return what a node of the header stands for."""
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if not isinstance(node, list) or deep > _DEEP:
            raise ValueError("no node of a batch")
        letter, *rest = node
        if letter == "d":
            return dict(self._pairs(rest, deep))
        if letter in ("l", "t"):
            values = [self.value(one, deep + 1) for one in rest]
            return values if letter == "l" else tuple(values)
        if letter == "b":
            return bytes(self._bytes(*rest))
        dtype, shape, *place = rest
        if letter == "T":
            return self._tensor(dtype, shape, self._bytes(*place))
        if letter not in ("n", "g") or dtype not in _NUMPY:
            raise ValueError(f"unknown: {letter!r} {dtype!r}"[:80])
        data = self._bytes(*place)
        _check(shape, np.dtype(dtype).itemsize, data)
        array = np.frombuffer(data, dtype).reshape(shape)
        return array[()].copy() if letter == "g" else array

    def _pairs(self, pairs: list[Any], deep: int) -> Iterator[tuple[str, Any]]:
        for key, node in pairs:
            if not isinstance(key, str):
                raise TypeError("a key is no str")
            yield key, self.value(node, deep + 1)

    def _bytes(self, frame: int, offset: int, length: int) -> memoryview:
        if any(type(number) is not int or number < 0 for number in (frame, offset, length)):
            raise ValueError("a place is no number")
        view = self.views[frame]
        if offset + length > len(view):
            raise ValueError("a value ends behind its frame")
        self._left -= length
        if self._left < 0:
            raise ValueError("its values have more bytes than its frames")
        return view[offset : offset + length]

    def _tensor(self, name: str, shape: list[int], data: memoryview) -> Any:
        try:
            import torch
        except ImportError:
            raise NbdataError("this batch has tensors, and PyTorch is not installed here") from None
        if name not in _TORCH:
            raise ValueError(f"unknown dtype {name!r}"[:80])
        dtype = getattr(torch, name)
        _check(shape, torch.empty(0, dtype=dtype).element_size(), data)
        return (torch.frombuffer(data, dtype=dtype) if len(data) else torch.empty(0, dtype=dtype)).reshape(
            shape
        )


def _check(shape: Any, itemsize: int, data: memoryview) -> None:
    """Raise ValueError unless an array of this shape has exactly these bytes."""
    if not isinstance(shape, list) or len(shape) > _DIMENSIONS:
        raise ValueError("no shape")
    if any(type(one) is not int or one < 0 for one in shape) or math.prod(shape) * itemsize != len(data):
        raise ValueError(f"the shape {shape} has other bytes than its frame"[:120])


def _wrong(why: str) -> NbdataError:
    return NbdataError("the loader service sent a batch that cannot be read", got=why)
