"""Reads pickles of plain data only: containers, numbers, text, bytes and NumPy arrays. Runs none of their code.

A pickle names functions and classes, and unpickling calls them: that is how a file runs code. Here a short table
resolves names, and nothing else is ever imported. NumPy's functions are not called either: the arguments in a malicious
pickle can make them read memory outside the array. This module makes the arrays itself, from checked parts.

Memory is bounded by the pickle's own size. Each array and set has its own bytes in a pickle, so content that is copied
again and again is refused. What else loading would cost is found before it (`formats.pickle_cost`). What is left is
the ratio of objects to bytes: at most 64.
"""

from __future__ import annotations

import collections
import functools
import io
import math
import pickle
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from nbdata.errors import BadArchive, BadOption, NbdataError
from nbdata.formats.pickle_cost import HashSteps, refuse_costly

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["load_plain"]

# NumPy type kinds without references: bool, integers, floats, complex, bytes and text.
_KINDS = "biufcSU"
_NUMPY = (
    "numpy",
    "numpy.core.multiarray",
    "numpy._core.multiarray",
    "numpy.core.numeric",
    "numpy._core.numeric",
)


# How often the bytes of a pickle may be copied: once into the content of an array, and from there into the array.
_COPIES, _LEAST_COPIES = 2, 1024

# Most dimensions of an array in NumPy 2.
_MOST_SIDES = 64

_TRUST = "Unpickling runs its code: say allow_pickle=True only if you trust who made it"


def load_plain(data: Buffer, what: str, *, remedy: str = _TRUST) -> Any:
    """Return the object of a pickle that holds only plain data.

    Parameters
    ----------
    data : bytes-like
    what : str
        The data's name in errors.
    remedy : str
        What to do if the pickle is more than plain data.

    Raises
    ------
    BadOption
        If it names anything that is not plain data; nothing of that was called.
    BadArchive
        If it is not a pickle, or is damaged.
    """
    try:
        view = memoryview(data).cast("B")
        refuse_costly(view)
        return _unwrapped(_Plain(io.BytesIO(data), what, remedy, _Copies(len(view))).load(), {})
    except NbdataError:
        raise
    except MemoryError:
        raise BadArchive(f"{what} names more bytes than there is memory", remedy="Make it again") from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise BadArchive(
            f"{what} is no pickle, or a damaged one ({type(error).__name__}: {error})",
            remedy="Make it again from its source",
        ) from None


class _Copies:
    """Limits the copies that are made of a pickle's content, in bytes and items, and the hashing of the items."""

    def __init__(self, size: int) -> None:
        self._left = _COPIES * size + _LEAST_COPIES
        self._hashing = HashSteps(size)

    def take(self, of: Any) -> None:
        """Count a copy that is about to be made."""
        self._left -= len(of)
        if self._left < 0:
            raise ValueError("copies of one content, of more bytes than the whole has")

    def take_keys(self, keys: Collection[Any]) -> None:
        """Count a copy into a set or a dict that is about to be made."""
        self.take(keys)
        self._hashing.take_keys(keys)


class _Plain(pickle.Unpickler):
    """Resolves names only from `_NAMES`."""

    def __init__(self, file: io.BytesIO, what: str, remedy: str, copies: _Copies) -> None:
        super().__init__(file)
        self._what, self._remedy, self._copies = what, remedy, copies

    def find_class(self, module: str, name: str, /) -> Any:
        known = _NAMES.get((module, name))
        if known is None:
            raise BadOption(
                f"{self._what} is a pickle with {module}.{name}, which is more than plain data",
                remedy=self._remedy,
            )
        return _Maker(functools.partial(known, self._copies))

    def persistent_load(self, pid: Any, /) -> Any:
        raise BadOption(
            f"{self._what} is a pickle that refers to objects outside of it",
            remedy="Make it again, as pickle.dumps does it",
        )


class _Ordered(collections.OrderedDict[Any, Any]):
    """An ordered dict until all of it is there; it takes no attributes, which would be copied into each."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise TypeError("attributes of a dict")


class _Type:
    """A NumPy type in the steps of a pickle: ``dtype('f8', False, True)``, then its state."""

    def __init__(self, _copies: _Copies, name: object, *_: object) -> None:
        self.name, self.order = name, "="

    def __setstate__(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) >= 5 and state[1] in ("<", ">", "|", "=")):
            raise ValueError("the state of a dtype")
        if any(part is not None for part in state[2:5]):
            raise ValueError("a dtype with fields")
        self.order = state[1]

    def real(self) -> Any:
        import numpy as np

        if not isinstance(self.name, str):
            raise TypeError("a dtype is named by text")
        dtype = np.dtype(self.name)
        if dtype.kind not in _KINDS:
            raise ValueError(f"an array of {dtype} holds more than numbers and text")
        return dtype if self.order in "|=" else dtype.newbyteorder(self.order)  # type: ignore[arg-type]


class _Array:
    """An array in the steps of a pickle: empty, then its state."""

    def __init__(self, copies: _Copies, *_: object) -> None:
        self._copies = copies
        self.array: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        if not isinstance(data, bytes):
            raise TypeError("the bytes of an array")
        self.array = _array(self._copies, data, kind, shape, "F" if fortran else "C")


def _array(copies: _Copies, data: Any, kind: Any, shape: Any, order: str = "C", axes: Any = None) -> Any:
    """Make an array; NumPy stores transposed ones in order K, with the axes to transpose it by."""
    import numpy as np

    if not isinstance(kind, _Type) or not isinstance(data, (bytes, bytearray)):
        raise TypeError("the parts of an array")
    real = kind.real()
    if not _are_small(shape) or order not in ("C", "F", "K"):
        raise ValueError("the shape of an array")
    if order == "K" and not (_are_small(axes) and sorted(axes) == list(range(len(shape)))):
        raise ValueError("the axes of an array")
    if math.prod(shape) * real.itemsize != len(data):
        raise ValueError("the size of an array")
    copies.take(data)
    if order == "K":
        return np.frombuffer(bytearray(data), real).reshape(shape).transpose(axes)
    return np.frombuffer(bytearray(data), real).reshape(shape, order=order)  # type: ignore[call-overload]


def _are_small(sides: Any) -> bool:
    """True for the sides or axes of an array: others could take for ever to multiply or to compare."""
    return (
        isinstance(sides, tuple)
        and len(sides) <= _MOST_SIDES
        and all(isinstance(side, int) and 0 <= side < 1 << 63 for side in sides)
    )


def _number(copies: _Copies, kind: Any, data: Any = b"") -> Any:
    """Make a NumPy number."""
    if isinstance(data, str):  # from a pickle of Python 2
        copies.take(data)
        data = data.encode("latin-1")
    return _array(copies, data, kind, ())[()]


def _encoded(copies: _Copies, text: Any, encoding: Any) -> bytes:
    """Make bytes from the text that old protocols write."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("bytes in another encoding than latin1")
    copies.take(text)
    return text.encode("latin-1")


def _bytes(_copies: _Copies, *given: Any) -> bytes:
    if given:
        raise ValueError("bytes by a call")  # given a number, they would be as large as it says
    return b""


def _byte_array(copies: _Copies, given: Any = b"") -> bytearray:
    if not isinstance(given, bytes):
        raise TypeError("the bytes of a bytearray")
    copies.take(given)
    return bytearray(given)


def _set(copies: _Copies, items: Any = ()) -> set[Any]:
    copies.take_keys(items)
    return set(items)


def _frozen_set(copies: _Copies, items: Any = ()) -> frozenset[Any]:
    copies.take_keys(items)
    return frozenset(items)


def _ordered(copies: _Copies, items: Any = ()) -> _Ordered:
    copies.take_keys([pair[0] for pair in (items.items() if isinstance(items, dict) else items)])
    return _Ordered(items)


def _complex(_copies: _Copies, *parts: Any) -> complex:
    return complex(*parts)


def _uncalled(*_: object) -> None:
    """Stands for ``numpy.ndarray``, which pickles name but do not call."""
    raise TypeError("an array by a call")


class _Maker:
    """A function for pickles, which cannot change it as they could attributes of functions and classes."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *given: Any) -> Any:
        return self._make(*given)

    def __setstate__(self, state: Any) -> None:
        raise TypeError("a state for what is named")


def _names() -> dict[tuple[str, str], Callable[..., Any]]:
    """Return the functions by module and name; each is also given the `_Copies` of its pickle, first."""
    found: dict[tuple[str, str], Callable[..., Any]] = {
        ("collections", "OrderedDict"): _ordered,
        ("_codecs", "encode"): _encoded,
    }
    for module in ("builtins", "__builtin__"):
        found[module, "set"] = _set
        found[module, "frozenset"] = _frozen_set
        found[module, "complex"] = _complex
        found[module, "bytearray"] = _byte_array
        found[module, "bytes"] = _bytes
    for module in _NUMPY:
        found[module, "dtype"] = _Type
        found[module, "ndarray"] = _uncalled
        found[module, "_reconstruct"] = _Array
        found[module, "scalar"] = _number
        found[module, "_frombuffer"] = _array
    return found


_NAMES = _names()


def _unwrapped(value: Any, known: dict[int, Any]) -> Any:
    """Return the value with real arrays in place of each `_Array`."""
    kind = type(value)
    if kind is _Array:
        if value.array is None:
            raise ValueError("an array without its state")
        return value.array
    if kind is _Type:
        return value.real()
    if kind is _Maker:
        raise ValueError("a function or a class in place of data")
    if kind not in (dict, _Ordered, list, tuple):
        return value
    if id(value) in known:
        return known[id(value)]
    known[id(value)] = value
    if kind is list:
        value[:] = [_unwrapped(one, known) for one in value]
    elif kind is tuple:
        inside = tuple(_unwrapped(one, known) for one in value)
        known[id(value)] = (
            inside if any(one is not other for one, other in zip(inside, value, strict=True)) else value
        )
    else:
        made = known[id(value)] = collections.OrderedDict() if kind is _Ordered else value
        for key, one in value.items():
            made[key] = _unwrapped(one, known)
    return known[id(value)]
