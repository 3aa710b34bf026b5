"""The digests of one object, read as a stream through its store; nothing is kept of the bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nbdata.errors import NbdataError, SourceChanged, StoreUnavailable
from nbdata.integrity.digests import Digest
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.retry import Patience

__all__ = ["Hashed", "hash_object"]

_BLOCK = 1 << 20

_local = threading.local()


class Hashed(NamedTuple):
    """The digests, in hexadecimal digits and in the order asked for, and how many bytes they are of."""

    digests: list[str]
    size: int


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
