"""A range of an object of one store as what is written to another: nothing of it is kept.

What is in memory of one relay is the block of `stores.filling.fill` and the buffers of two connections; so
copying takes `BLOCK` bytes for each worker of the pool, whatever the size of objects and parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nbdata.errors import SourceChanged
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Reader

__all__ = ["BLOCK", "Relay"]

#: Bytes that are in memory of one relay: what `stores.filling.fill` takes at a time.
BLOCK = 1 << 20


class Relay:
    """Reads while it is written elsewhere; an `Outgoing` of transfer.send.

    Parameters
    ----------
    info : ObjectInfo
        The version that is meant.
    start, size : int
        The range, in bytes.

    Attributes
    ----------
    info : ObjectInfo
        What came with these very bytes.
    updates : list of callable
        Called with all bytes, in order, before `sent` counts them.
    at_end : callable
        Called before the receiver has the last piece; what it raises leaves the receiver without the object.
    md5 : str
        Of all bytes, in hex, if somebody vouches for it; '' until it is set.

    Raises
    ------
    SourceChanged
        If the object is another one now.
    RangesIgnored
        If the store answers a range with the whole object.
    """

    def __init__(self, control: Control, store: Store, info: ObjectInfo, start: int, size: int) -> None:
        self._control, self._size = control, size
        self.updates: list[Callable[[memoryview], object]] = []
        self.at_end: Callable[[], None] = lambda: None
        self.sent = 0
        self.md5 = ""
        whole = start == 0 and size == info.size
        end = None if whole else start + size
        # What broke off was sent in part: it begins again with all of it.
        self._reader = Reader(control, store, info, start, end, skips=False, retries=False)
        body = self._reader.open()
        self.info = body.info
        self.headers: Mapping[str, str] = self.info.headers
        if body.length not in (size, -1):
            self.close()
            raise SourceChanged(
                "the object is not as long as it was listed",
                path=info.key,
                expected=f"{size} bytes",
                got=f"{body.length} bytes",
            )

    def readinto(self, buffer: memoryview, /) -> int:
        want = min(len(buffer), self._size - self.sent, self._control.block)
        if want <= 0:
            self._control.checkpoint()
            if len(buffer):
                self.at_end()
            return 0
        count = self._reader.readinto(buffer[:want])
        for update in self.updates:
            update(buffer[:count])
        self.sent += count
        self._control.advance(bytes=count)
        return count

    def close(self) -> None:
        """Give the source's connection back."""
        self._reader.close()
