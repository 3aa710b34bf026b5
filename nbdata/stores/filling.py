"""Read a source of known length for a receiver, which never gets a complete object of another length."""

from __future__ import annotations

import os
from collections.abc import Iterator

from nbdata.errors import NbdataError, SourceChanged, StoreUnavailable
from nbdata.stores.objects import Source

__all__ = ["Pieces", "begun", "fill"]


class Pieces(Iterator[memoryview]):
    """The pieces of a body. They can be sent once, and tell whether the first one was taken."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces, self.begun = pieces, False

    def __next__(self) -> memoryview:
        self.begun = True
        return next(self._pieces)


def begun(body: bytes | Iterator[memoryview] | None) -> bool:
    """Whether a body cannot be sent again from its start, because some of its pieces may be used up."""
    return not (body is None or isinstance(body, bytes)) and getattr(body, "begun", True)


def fill(source: Source, size: int, path: str, *, block: int = 1 << 20) -> Iterator[memoryview]:
    """Yield the bytes of a source piece by piece. Each piece is valid until the next one is requested.

    The last piece is given only after the source was found to end there. So a receiver that counts bytes never
    completes an object from a source that is longer or shorter.

    Raises
    ------
    SourceChanged
        If the source does not give exactly `size` bytes.
    StoreUnavailable
        If the source cannot be read. An OSError could be mistaken for an error of the receiver.
    """
    view = memoryview(bytearray(min(block, max(size, 1))))
    left = size
    while left:
        count = _read(source, view[: min(len(view), left)], path)
        left -= count
        if not count or (not left and _read(source, memoryview(bytearray(1)), path)):
            break
        yield view[:count]
        if not left:
            return
    if size or _read(source, view, path):
        raise SourceChanged("the source changed while it was copied", path=path, expected=f"{size} bytes")


def _read(source: Source, view: memoryview, path: str) -> int:
    try:
        return source.readinto(view)
    except NbdataError:
        raise
    except OSError as error:
        raise StoreUnavailable(
            f"the source cannot be read ({os.strerror(error.errno or 0)})", path=path
        ) from error
