"""The bytes of a source for who receives them, who must never have a whole object of another length."""

from __future__ import annotations

import os
from collections.abc import Iterator

from nbdata.errors import NbdataError, SourceChanged, StoreUnavailable
from nbdata.stores.objects import Source

__all__ = ["fill"]


def fill(source: Source, size: int, path: str, *, block: int = 1 << 20) -> Iterator[memoryview]:
    """The bytes of a source piece by piece, each valid until the next is asked for.

    The last piece is given only after the source was found to end there, so that a receiver who counts
    never has a whole object of a source that is longer or shorter.

    Raises
    ------
    SourceChanged
        If the source does not give just `size` bytes.
    StoreUnavailable
        If it cannot be read; an OSError must not look like one of the receiver.
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
