"""The digests of one object, read as a stream through its store; nothing is kept of the bytes.

Of many objects several are hashed at a time: Python's digests let other threads run meanwhile. The page cache is left
alone: with ``posix_fadvise`` cold files were read no faster, and who has checked files mostly reads them next.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nbdata.integrity.digests import Digest
from nbdata.report import Plan, Row
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Reader

__all__ = ["Hashed", "biggest_first", "hash_object", "hashing_workers", "note_size"]

# From this size on a file that is begun last would keep one thread busy while all others have nothing to do.
_BIG = 64 << 20
# Files of a disk that are hashed at a time: enough to keep a fast one busy, and few enough for one that seeks.
_AT_ONCE = 16


class Hashed(NamedTuple):
    """The digests, in hexadecimal digits and in the order asked for, and how many bytes they are of."""

    digests: list[str]
    size: int


def hashing_workers(concurrency: int | None, store: Store) -> int | None:
    """Threads for hashing: what was asked for, else two for each processor for files of the disk."""
    if concurrency is not None or not isinstance(store, LocalStore):
        return concurrency
    return min(_AT_ONCE, 2 * processors())


def processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def biggest_first(planned: Plan) -> Iterator[Row]:
    """The rows of a plan with those of big files first, the biggest of them at the very beginning.

    Only those of big files are held. ``details["biggest"]`` is the size of the biggest, see `note_size`.
    """
    if planned.details["biggest"] < _BIG:
        return iter(planned.rows)
    big = sorted((row for row in planned.rows if row.size >= _BIG), key=lambda row: -row.size)
    return itertools.chain(big, (row for row in planned.rows if row.size < _BIG))


def note_size(planned: Plan, size: int) -> None:
    """Add a file that is to be read to the sums of its plan."""
    planned.files += 1
    planned.bytes += max(size, 0)
    planned.details["biggest"] = max(size, planned.details.get("biggest", 0))


def hash_object(
    control: Control, store: Store, info: ObjectInfo, make: Callable[[], Sequence[Digest]]
) -> Hashed:
    """All bytes of exactly this version of an object, through each of the digests that `make` gives.

    A read that breaks off goes on where it was (see `nbdata.transfer.reader`); where nothing tells versions apart it
    begins anew, with new digests. Bytes are counted as they come, and taken back if it cannot be read to its end.

    Raises
    ------
    SourceChanged
        If the object is not, or no longer, the one that `info` describes.
    StoreUnavailable
        If the store gives up, after retries.
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
