"""Copy a range of an object from one store to another, without keeping it.

A relay's memory holds the block of `stores.filling.fill` and the buffers of two connections. So copying takes `BLOCK`
bytes per worker, whatever the size of objects and parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nbdata.errors import SourceChanged
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Reader

__all__ = ["BLOCK", "Relay"]

#: The bytes that a relay holds in memory: the block of `stores.filling.fill`.
BLOCK = 1 << 20


class Relay:
    """Reads from one store while another store writes; an `Outgoing` of transfer.send.

    Parameters
    ----------
    info : ObjectInfo
        The version to copy.
    start, size : int
        The range, in bytes.

    Attributes
    ----------
    info : ObjectInfo
        The metadata that came with these very bytes.
    updates : list of callable
        Called with all bytes, in order, before `sent` counts them.
    at_end : callable
        Called before the receiver gets the last piece. If it raises, the receiver never has the complete object.
    md5 : str
        MD5 of all bytes in hex, if the source reports it; '' until it is set.

    Raises
    ------
    SourceChanged
        If the object is no longer this version.
    RangesIgnored
        If the store ignores the range and sends the whole object.
    """

    def __init__(self, control: Control, store: Store, info: ObjectInfo, start: int, size: int) -> None:
        self._control, self._size = control, size
        self.updates: list[Callable[[memoryview], object]] = []
        self.at_end: Callable[[], None] = lambda: None
        self.sent = 0
        self.md5 = ""
        whole = start == 0 and size == info.size
        end = None if whole else start + size
        # An interrupted relay was sent in part, so it starts over as a whole.
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
        """Release the source's connection."""
        self._reader.close()
