"""The keys of samples as a sequence, and the check that an index is a number."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Protocol, overload

from nbdata.errors import BadOption

__all__ = ["Keys", "number_of"]


class _Keyed(Protocol):
    """Samples with keys."""

    def __len__(self) -> int: ...
    def key(self, number: int) -> str: ...


class Keys(Sequence[str]):
    """The keys of samples in their order; each is read from the index when it is used."""

    def __init__(self, samples: _Keyed) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._samples.key(number) for number in range(len(self))[index]]
        return self._samples.key(index)

    def __repr__(self) -> str:
        shown = ", ".join(repr(key) for key in self[:3])
        return f"<{len(self):,} keys: {shown}{', …' if len(self) > 3 else ''}>"


def number_of(index: Any) -> int:
    """Return an index as an int, also if it is one of NumPy or torch; BadOption if it is no whole number."""
    try:
        return operator.index(index)
    except TypeError:
        raise BadOption(
            f"samples are read by number, and {index!r} is none",
            expected="a number from 0, or a slice",
            remedy="samples[samples.keys.index(KEY)] is the sample with a key",
        ) from None
