"""Compute digests of one object, read as a stream from its store. No bytes are kept.

Several objects are hashed at the same time, because Python's digests let other threads run. The page cache is left
alone. With ``posix_fadvise``, cold files were read no faster, and users mostly read checked files next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nbdata.integrity.digests import Digest
from nbdata.report import Plan, Row
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.threads import processors
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Reader

__all__ = ["Hashed", "biggest_first", "hash_object", "hashing_workers", "note_size"]

# From this size on, a file that starts last would keep one thread busy while all others are idle.
_BIG = 64 << 20
# Local files hashed at the same time: enough for a fast disk, and few enough for a disk that seeks.
_AT_ONCE = 16


class Hashed(NamedTuple):
    """The digests, in hex and in the requested order, and the number of hashed bytes."""

    digests: list[str]
    size: int


def hashing_workers(concurrency: int | None, store: Store) -> int | None:
    """The number of hashing threads: as requested, or two per processor for local files."""
    if concurrency is not None or not isinstance(store, LocalStore):
        return concurrency
    return min(_AT_ONCE, 2 * processors())


def biggest_first(planned: Plan) -> Iterator[Row]:
    """Return the rows of a plan with those of large files first, largest first.

    Holds only the rows of large files in memory. ``details["biggest"]`` is the largest size, see `note_size`.
    """
    if planned.details["biggest"] < _BIG:
        return iter(planned.rows)
    big = sorted((row for row in planned.rows if row.size >= _BIG), key=lambda row: -row.size)
    return itertools.chain(big, (row for row in planned.rows if row.size < _BIG))


def note_size(planned: Plan, size: int) -> None:
    """Add a file to the sums of its plan."""
    planned.files += 1
    planned.bytes += max(size, 0)
    planned.details["biggest"] = max(size, planned.details.get("biggest", 0))


def hash_object(
    control: Control, store: Store, info: ObjectInfo, make: Callable[[], Sequence[Digest]]
) -> Hashed:
    """Read all bytes of exactly this version of an object through each digest from `make`.

    An interrupted read resumes (see `nbdata.transfer.reader`). If nothing identifies versions, it starts over with new
    digests. Bytes count as they come, and are subtracted if the object cannot be read to its end.

    Raises
    ------
    SourceChanged
        If the object is not, or no longer, the version of `info`.
    StoreUnavailable
        If the store fails after all retries.
    """
    digests: Sequence[Digest] = ()
    size = 0

    def begins(_told: ObjectInfo) -> None:
        nonlocal digests, size
        control.advance(bytes=-size)
        digests, size = make(), 0

    try:
        with Reader(control, store, info, begins=begins, anew=True) as reader:
            for block in reader.blocks():
                for digest in digests:
                    digest.update(block)
                size += len(block)
                control.advance(bytes=len(block))
    except BaseException:
        control.advance(bytes=-size)
        raise
    return Hashed([digest.hexdigest() for digest in digests], size)
