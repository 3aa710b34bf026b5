"""Send a file in parts while it is read, whether its size is known or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

from isal.isal_zlib import crc32

from nbdata.engine.unpack.targets.store.members_in_memory import HeldBytes, MembersInMemory
from nbdata.errors import NbdataError
from nbdata.sizes import format_size
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.control import Control
from nbdata.transfer.object_upload import Uploads
from nbdata.transfer.send import SentPart, hashed_parts
from nbdata.transfer.worker_pool import Unit
from nbdata.verification.sent_checker import MultipartChecker, SentHasher

__all__ = ["GrowingSend", "larger_than_its_parts"]

_BLOCK = 1 << 20


def larger_than_its_parts(name: str, count: int, size: int) -> NbdataError:
    """Return the error for a file that is larger than `count` parts of `size` bytes."""
    return NbdataError(
        f"it is larger than {count:,} parts of {format_size(size)}, the maximum of the store",
        path=name,
        remedy="Use a larger --part-size",
    )


class GrowingSend:
    """Sends one object in parts that are read one by one and sent by several threads; `finish` then makes the object.

    Parameters
    ----------
    size : int or None
        Bytes of the object; None if they are known only at its end.

    Attributes
    ----------
    crc, size : int
        CRC-32 and number of the bytes read so far.
    """

    def __init__(self, control: Control, uploads: Uploads, key: str, size: int | None) -> None:
        self._store, self._key, self._whole_size = uploads.store, key, size
        self._upload = uploads.open(key, size, MultipartChecker(key, "auto"))
        self._data: dict[int, memoryview] = {}  # the parts in memory, by offset
        self._send_part = hashed_parts(
            control,
            lambda start, _size, hasher: HeldBytes(self._data[start], hasher),
            partial(SentHasher, key, "auto"),
        )
        self._lock = threading.Lock()
        self._parts: dict[int, SentPart] = {}
        self._open, self._ended = 0, False
        self.crc = self.size = 0
        self.error: Exception | None = None

    def units(
        self, read: Callable[[memoryview], int], memory: MembersInMemory, part_size: int, then: Unit
    ) -> Iterator[Unit]:
        """Yield units that each send a part; asking for the next one reads on, within `memory`.

        The thread that is done last, whether it sends a part or reads, calls `then`, also after errors.
        """
        known, number, ends = self._whole_size, 0, False
        while not ends and self.error is None:
            wanted = part_size if known is None else min(part_size, known - self.size)
            memory.hold(wanted)
            data, filled = memoryview(bytearray(wanted)), 0
            while filled < wanted:
                count = read(data[filled : filled + _BLOCK])
                if not count and known is None:
                    break
                filled += count
            self.crc, self.size = crc32(data[:filled], self.crc), self.size + filled
            ends = filled < wanted or self.size == known
            if not filled and number:
                memory.release(wanted)
                break
            if number == self._store.max_parts:
                memory.release(wanted)
                self.error = self.error or larger_than_its_parts(self._key, number, part_size)
                break
            start, number = self.size - filled, number + 1
            with self._lock:
                self._open += 1
            self._data[start] = data[:filled]
            del data  # else it would be in memory with the next one
            yield partial(self._send, number, start, memory, wanted, then)
        with self._lock:
            self._ended = True
            last = not self._open
        if last:
            then()

    def _send(self, number: int, start: int, memory: MembersInMemory, held: int, then: Unit) -> None:
        try:
            if self.error is None:
                size = len(self._data[start])
                self._parts[number] = self._send_part(self._upload.begun(), number, start, size)
        except Exception as error:
            self.error = self.error or error
        finally:
            del self._data[start]  # the unit may outlive it
            memory.release(held)
        with self._lock:
            self._open -= 1
            last = self._ended and not self._open
        if last:
            then()

    def finish(self) -> tuple[ObjectInfo, bool]:
        """Make the object. Returns the store's metadata, and whether the object is verified.

        After an error of a part or here it gives the upload up, and raises the first error.
        """
        try:
            if self.error is not None:
                raise self.error
            return self._upload.finish([self._parts[number] for number in sorted(self._parts)])
        except Exception as error:
            self._upload.give_up(error)
            raise
