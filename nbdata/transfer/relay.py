"""A range of an object of one store as what is written to another: nothing of it is kept.

What is in memory of one relay is the block of `stores.filling.fill` and the buffers of two connections; so
copying takes `BLOCK` bytes for each worker of the pool, whatever the size of objects and parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nbdata.errors import SourceChanged, StoreUnavailable
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.fetch import RangesIgnored

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
        self._body = store.read(info.key, start, end, match=info)
        self.info = self._body.info
        self.headers: Mapping[str, str] = self.info.headers
        try:
            fits = self._body.length in (size, -1)
            if self._body.start != start or not (whole or fits):
                raise RangesIgnored("the store answers a range with the whole object", path=info.key)
            if not fits:
                raise SourceChanged(
                    "the object is not as long as it was listed",
                    path=info.key,
                    expected=f"{size} bytes",
                    got=f"{self._body.length} bytes",
                )
        except BaseException:
            self.close()
            raise

    def readinto(self, buffer: memoryview, /) -> int:
        self._control.checkpoint()
        want = min(len(buffer), self._size - self.sent, self._control.block)
        if want <= 0:
            if len(buffer):
                self.at_end()
            return 0
        count = self._body.readinto(buffer[:want])
        if not count:
            raise StoreUnavailable(
                "the store sent fewer bytes than it announced",
                path=self.info.key,
                expected=str(self._size),
                got=str(self.sent),
                details={"retry": True},
            )
        for update in self.updates:
            update(buffer[:count])
        self.sent += count
        self._control.advance(bytes=count)
        return count

    def close(self) -> None:
        """Give the source's connection back."""
        self._body.close()
