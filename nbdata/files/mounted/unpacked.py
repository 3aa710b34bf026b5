"""The members of a mounted zip that were unpacked last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from nbdata.errors import without_calls

__all__ = ["LARGEST", "Unpacked"]

#: The largest member that is unpacked.
LARGEST = 64 << 20
# The most bytes that are kept, what each member counts beside its own, and how many are unpacked at a time.
_KEPT, _EACH, _AT_A_TIME = 64 << 20, 512, 2


class Unpacked:
    """Unpacks each member once for all who want it, and keeps the last ones; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock, self._turns = threading.Lock(), threading.BoundedSemaphore(_AT_A_TIME)
        self._coming = dict[str, Future[bytes]]()
        self._kept = OrderedDict[str, bytes]()  # in the order of use
        self._size = 0

    def get(self, name: str, unpack: Callable[[], bytes]) -> bytes:
        """Return the bytes of a member, which `unpack` returns if they are not kept; its errors are raised."""
        with self._lock:
            data = self._kept.get(name)
            if data is not None:
                self._kept.move_to_end(name)
                return data
            before = self._coming.get(name)
            mine = self._coming[name] = before or Future()
        if before is not None:
            return before.result()
        try:
            with self._turns:
                data = unpack()
        except BaseException as error:
            with self._lock:
                del self._coming[name]
            mine.set_exception(without_calls(error))
            raise
        with self._lock:
            self._keep(name, data)
            del self._coming[name]
        mine.set_result(data)
        return data

    def _keep(self, name: str, data: bytes) -> None:
        """Keep a member, and forget those that were used longest ago."""
        self._kept[name] = data
        self._size += len(data) + _EACH
        while self._size > _KEPT and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self._size -= len(gone) + _EACH
