"""Limit the memory of members that are being sent to a store, and serve their bytes to the sender."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from isal.isal_zlib import crc32

from nbdata.errors import Cancelled, StoreUnavailable
from nbdata.stores.base import Store
from nbdata.transfer.control import Control
from nbdata.transfer.send import Hasher, upload_part_size

__all__ = ["IN_MEMORY", "HeldBytes", "MembersInMemory", "PassingBytes", "part_in_memory"]

#: Bytes of members that are in memory at a time, unless a single member or part is larger.
IN_MEMORY = 64 << 20
# Bytes of the largest part, unless --part-size is larger: an archive of 2 KB can claim a file of any size.
_LARGEST_PART = 512 << 20
# Seconds between two checks whether the work is to end.
_LOOK = 0.2


def part_in_memory(size: int, wanted: int | None, store: Store) -> int:
    """Return the bytes of a part that is in memory until it is sent: those of `upload_part_size`, up to a bound."""
    return min(upload_part_size(size, wanted, store), max(_LARGEST_PART, wanted or 0))


class MembersInMemory:
    """Limits the bytes of members in memory, and knows which members have not been sent yet.

    Parameters
    ----------
    over : callable
        Returns True if the work has ended, so nothing more will be released.
    """

    def __init__(self, control: Control, over: Callable[[], bool]) -> None:
        self._control, self._over = control, over
        self._changed = threading.Condition()
        self._names: set[str] = set()
        self._bytes = 0

    def __contains__(self, name: str) -> bool:
        with self._changed:
            return name in self._names

    def begin(self, name: str) -> None:
        """Note that a member is being sent."""
        with self._changed:
            self._names.add(name)

    def has_room(self, size: int) -> bool:
        """True if this many more bytes may be read."""
        return not self._bytes or self._bytes + size <= IN_MEMORY

    def hold(self, size: int) -> None:
        """Count this many more bytes; wait until there is room for them."""
        self._wait(lambda: self.has_room(size))
        with self._changed:
            self._bytes += size

    def release(self, size: int, name: str = "") -> None:
        """Count this many bytes less; if a member is named, it is no longer being sent."""
        with self._changed:
            self._bytes -= size
            self._names.discard(name)
            self._changed.notify_all()

    def wait_until_empty(self) -> None:
        """Wait until all members have been sent or have failed."""
        self._wait(lambda: not self._names)

    def _wait(self, condition: Callable[[], bool]) -> None:
        while True:
            self._control.checkpoint()
            if self._over():
                raise Cancelled("the members in memory can no longer be sent")
            with self._changed:
                if self._changed.wait_for(condition, _LOOK):
                    return


class HeldBytes:
    """Bytes in memory that are sent to a store; see `nbdata.transfer.send.Outgoing`.

    They were counted when the archive was read, so `sent` stays 0.

    Parameters
    ----------
    hasher : Hasher or None
        Hashes the bytes while they are read; None if they are hashed already.
    md5 : str
        MD5 of all bytes in hex, or ''.
    """

    sent = 0

    def __init__(self, data: bytes | memoryview, hasher: Hasher | None, *, md5: str = "") -> None:
        self._left, self._hasher, self.md5 = memoryview(data), hasher, md5
        self.headers: Mapping[str, str] = {}

    def readinto(self, buffer: memoryview, /) -> int:
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        if self._hasher is not None:
            self._hasher.update(buffer[:count])
        return count

    def close(self) -> None:
        self._left = memoryview(b"")


class PassingBytes:
    """Bytes that are read from the archive while they are sent, only once.

    Parameters
    ----------
    read : callable
        Reads into a buffer; returns the number of bytes, 0 at the end.

    Attributes
    ----------
    crc : int
        CRC-32 of the bytes read so far.
    error : Exception or None
        The exception that `read` raised.
    """

    sent = 0
    md5 = ""

    def __init__(self, read: Callable[[memoryview], int]) -> None:
        self._read = read
        self._hasher: Hasher | None = None
        self.headers: Mapping[str, str] = {}
        self.crc = 0
        self.error: Exception | None = None

    def outgoing(self, start: int, size: int, hasher: Hasher) -> PassingBytes:
        """Return this object for sending; raise StoreUnavailable on the second call."""
        del start, size
        if self._hasher is not None:
            raise StoreUnavailable(
                "it could not be sent, and the archive has been read past it",
                remedy="Run the command again",
                details={"retry": False},
            )
        self._hasher = hasher
        return self

    def readinto(self, buffer: memoryview, /) -> int:
        assert self._hasher is not None
        try:
            count = self._read(buffer)
        except Exception as error:
            self.error = error
            raise
        self._hasher.update(buffer[:count])
        self.crc = crc32(buffer[:count], self.crc)
        return count

    def close(self) -> None:
        """Do nothing: the reader of the archive closes it."""
