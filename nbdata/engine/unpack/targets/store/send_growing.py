"""Send a file whose size is known only at its end: in parts, while it is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

from isal.isal_zlib import crc32

from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.unpack.targets.store.members_in_memory import HeldBytes, MembersInMemory
from nbdata.errors import NbdataError
from nbdata.sizes import format_size
from nbdata.stores.base import ObjectInfo, Store, Upload
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying
from nbdata.transfer.send import SentPart, hashed_parts, withdrawn
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
    """Sends one object in parts that are read one by one and sent by several threads.

    The thread that finishes last, whether it sends a part or reads, ends the upload. It completes the upload and
    calls `done` with the store's answer and whether that was verified. On failure it aborts the upload and calls
    `failed` with the first error.

    Attributes
    ----------
    crc, size : int
        CRC-32 and number of the bytes read so far.
    """

    def __init__(
        self,
        control: Control,
        store: Store,
        key: str,
        uploads: BegunUploads,
        *,
        done: Callable[[ObjectInfo, bool], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._control, self._store, self._key, self._uploads = control, store, key, uploads
        self._done, self._failed = done, failed
        self._lock, self._beginning = threading.Lock(), threading.Lock()
        self._upload: Upload | None = None
        self._parts: dict[int, SentPart] = {}
        self._open, self._ended = 0, False
        self.crc = self.size = 0
        self.error: Exception | None = None
        uploads.unfinished[key] = self._give_up

    def units(self, read: Callable[[memoryview], int], memory: MembersInMemory, size: int) -> Iterator[Unit]:
        """Yield units that each send a part of `size` bytes; asking for the next one reads on, within `memory`."""
        number, filled = 0, size
        while filled == size and self.error is None:
            memory.hold(size)
            data, filled = memoryview(bytearray(size)), 0
            while filled < size and (count := read(data[filled : filled + _BLOCK])):
                filled += count
            self.crc, self.size = crc32(data[:filled], self.crc), self.size + filled
            if not filled and number:
                memory.release(size)
                break
            if number == self._store.max_parts:
                memory.release(size)
                self.error = self.error or larger_than_its_parts(self._key, number, size)
                break
            number += 1
            with self._lock:
                self._open += 1
            yield partial(self._send, number, data[:filled], memory, size)
            del data  # else it would be in memory with the next one
        with self._lock:
            self._ended = True
            last = not self._open
        if last:
            self._finish()

    def _send(self, number: int, data: memoryview, memory: MembersInMemory, held: int) -> None:
        try:
            if self.error is None:
                send = hashed_parts(
                    self._control,
                    lambda _start, _size, hasher: HeldBytes(data, hasher),
                    partial(SentHasher, self._key, "auto"),
                )
                self._parts[number] = send(self._begun(), number, 0, len(data))
        except Exception as error:
            self.error = self.error or error
        finally:
            memory.release(held)
        with self._lock:
            self._open -= 1
            last = self._ended and not self._open
        if last:
            self._finish()

    def _begun(self) -> Upload:
        with self._beginning:
            if self._upload is None:
                self._upload = self._uploads.begin(self._store, self._key, -1)
            return self._upload

    def _finish(self) -> None:
        info, verified = None, False
        try:
            if self.error is not None:
                raise self.error
            info, verified = self._whole(self._begun())
        except Exception as error:
            self._give_up(error)
            del self._uploads.unfinished[self._key]
            self._failed(error)
            return
        del self._uploads.unfinished[self._key]
        self._uploads.finished(self._key)
        self._done(info, verified)

    def _whole(self, upload: Upload) -> tuple[ObjectInfo, bool]:
        parts = [self._parts[number] for number in sorted(self._parts)]
        info = retrying(self._control, lambda: upload.finish([part.answer for part in parts]))
        try:
            right = MultipartChecker(self._key, "auto")(info, [part.digest for part in parts])
        except NbdataError as error:
            self._upload = None
            error.remedy = withdrawn(self._control, self._store, self._key, info)
            raise
        return info, right and all(part.verified for part in parts)

    def _give_up(self, error: Exception | None = None) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            self._uploads.abandon(self._key, upload, error)
