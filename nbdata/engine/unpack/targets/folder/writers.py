"""Write small files in threads, while another thread keeps parsing the archive.

Files are handed over in batches, so the cost of waking a thread is shared. The number of waiting bytes is
limited. Any free thread writes a batch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from nbdata.archives.member import Member
from nbdata.ending import Daemon

__all__ = ["SmallMember", "Writers"]

#: Total bytes that may wait to be written: few, so they stay in the processor's cache.
WAITING = 4 << 20
# A batch is handed over when it holds this many bytes or items.
_BATCH_BYTES, _BATCH_ITEMS = 1 << 20, 64

_T = TypeVar("_T")


class SmallMember(NamedTuple):
    """A member whose content is in memory, and the number of the volume by which it ends."""

    member: Member
    staging: str
    blocks: Iterable[bytes | memoryview]
    volume: int


class Writers(Generic[_T]):
    """A thread pool; one thread calls `put` and `drain`, which raise the first error of a writer.

    Parameters
    ----------
    count : int
        Number of threads, which start with the first batch.
    write : callable
        Called with each batch, in one of the threads. If it raises, no further batch is written.
    """

    def __init__(self, count: int, write: Callable[[list[_T]], None]) -> None:
        self._count, self._write = count, write
        self._batch: list[_T] = []
        self._batch_bytes = 0
        self._queue: deque[tuple[list[_T], int]] = deque()
        self._waiting = self._busy = 0  # bytes in the queue; batches being written
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._closed = False
        self._threads: list[threading.Thread] = []

    def put(self, item: _T, size: int) -> None:
        """Queue an item for writing; wait while too many bytes are waiting already."""
        if self._error is not None:
            raise self._error
        self._batch.append(item)
        self._batch_bytes += size
        if self._batch_bytes >= _BATCH_BYTES or len(self._batch) >= _BATCH_ITEMS:
            self._hand_over()

    def _hand_over(self) -> None:
        if not self._batch:
            return
        while len(self._threads) < self._count:
            name = f"writer-{len(self._threads)}"
            self._threads.append(Daemon(self._work, name=name))
            self._threads[-1].start()
        with self._changed:
            self._changed.wait_for(lambda: self._waiting < WAITING or self._error is not None)
            self._queue.append((self._batch, self._batch_bytes))
            self._waiting += self._batch_bytes
            self._changed.notify_all()
        self._batch, self._batch_bytes = [], 0

    def drain(self) -> None:
        """Wait until everything is written."""
        self._hand_over()
        with self._changed:
            self._changed.wait_for(lambda: not (self._queue or self._busy))
        if self._error is not None:
            raise self._error

    def close(self, *, drop: bool) -> None:
        """End the threads; with `drop`, waiting items are not written."""
        if not drop:
            self._hand_over()
        with self._changed:
            self._closed = True
            if drop:
                self._queue.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                batch, size = self._queue.popleft()
                self._waiting -= size
                self._busy += 1
                self._changed.notify_all()
            try:
                if self._error is None:
                    self._write(batch)
            except BaseException as error:
                self._error = self._error or error
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()
