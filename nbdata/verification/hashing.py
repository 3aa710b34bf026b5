"""The digests of one object, read as a stream through its store; nothing is kept of the bytes.

Of many objects several are hashed at a time: Python's digests let other threads run meanwhile. The page cache is left
alone: with ``posix_fadvise`` cold files were read no faster, and who has checked files mostly reads them next.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nbdata.errors import NbdataError, SourceChanged, StoreUnavailable
from nbdata.integrity.digests import Digest
from nbdata.report import Plan, Row
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.retry import Patience

__all__ = ["Hashed", "biggest_first", "hash_object", "hashing_workers", "note_size"]

_BLOCK = 1 << 20
# From this size on a file that is begun last would keep one thread busy while all others have nothing to do.
_BIG = 64 << 20
# Files of a disk that are hashed at a time: enough to keep a fast one busy, and few enough for one that seeks.
_AT_ONCE = 16

_local = threading.local()


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

    A read that breaks off goes on at the offset it had reached; in a store without ranges it begins anew,
    with new digests. Tries are counted anew whenever a read got further than all before. Bytes are
    counted as they come, and taken back if the object cannot be read to its end.

    Raises
    ------
    SourceChanged
        If the object is not, or no longer, the one that `info` describes.
    StoreUnavailable
        If the store gives up, after retries.
    """
    reading = _Reading(control, store, info, make)
    patience, furthest = Patience(control), 0
    try:
        while True:
            control.checkpoint()
            try:
                reading.go_on()
            except Exception as error:
                if reading.at > furthest:
                    furthest = reading.at
                    patience.succeeded()
                patience.after(error)
            else:
                return Hashed([digest.hexdigest() for digest in reading.digests], reading.at)
    except BaseException:
        control.advance(bytes=-reading.at)
        raise


class _Reading:
    """How far an object is read, and the digests of that much of it."""

    def __init__(
        self, control: Control, store: Store, info: ObjectInfo, make: Callable[[], Sequence[Digest]]
    ) -> None:
        self._control, self._store, self._info, self._make = control, store, info, make
        self.at, self.digests = 0, make()

    def go_on(self) -> None:
        """Read from where the last attempt stopped to the end."""
        if not self._store.ranges:
            self._begin_anew()
        size = self._info.size
        if self.at and self.at == size:  # a range that begins at the end is an error to stores
            return
        body = self._store.read(self._info.key, self.at, match=self._info)
        try:
            if body.start != self.at:
                if body.start != 0:
                    raise NbdataError("the store answers with another range", path=self._info.key)
                self._begin_anew()
            view = _buffer()
            while count := body.readinto(view):
                if 0 <= size < self.at + count:
                    raise SourceChanged("the object is longer than the store said", path=self._info.key)
                for digest in self.digests:
                    digest.update(view[:count])
                self.at += count
                self._control.advance(bytes=count)
                self._control.checkpoint()
        finally:
            body.close()
        if self.at < size:
            raise StoreUnavailable(
                "the store sent fewer bytes than it announced",
                path=self._info.key,
                expected=str(size),
                got=str(self.at),
                details={"retry": True},
            )

    def _begin_anew(self) -> None:
        if self.at:
            self._control.advance(bytes=-self.at)
            self.at, self.digests = 0, self._make()


def _buffer() -> memoryview:
    """One block per thread, made once."""
    view: memoryview | None = getattr(_local, "view", None)
    if view is None:
        view = _local.view = memoryview(bytearray(_BLOCK))
    return view
