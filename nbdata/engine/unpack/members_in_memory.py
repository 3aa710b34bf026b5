"""Members that are on their way to a store: how many bytes of them are in memory, and how these are given out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from isal.isal_zlib import crc32

from nbdata.errors import Cancelled, StoreUnavailable
from nbdata.transfer.control import Control
from nbdata.transfer.send import Hasher

__all__ = ["IN_MEMORY", "HeldBytes", "MembersInMemory", "PassingBytes"]

#: Bytes of members that are in memory at a time, unless a single one or a part has more.
IN_MEMORY = 64 << 20
# Seconds between two looks whether the work is to end.
_LOOK = 0.2


class MembersInMemory:
    """Bounds the bytes of members in memory, and knows which members are not at the store yet.

    Parameters
    ----------
    over : callable
        Whether the work has ended, so that nothing will be released any more.
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
        """A member is on its way."""
        with self._changed:
            self._names.add(name)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more may be read."""
        return not self._bytes or self._bytes + size <= IN_MEMORY

    def hold(self, size: int) -> None:
        """Count so many bytes more; waits until there is room for them."""
        self._wait(lambda: self.has_room(size))
        with self._changed:
            self._bytes += size

    def release(self, size: int, name: str = "") -> None:
        """So many bytes less; and a member, if one is named, is on its way no longer."""
        with self._changed:
            self._bytes -= size
            self._names.discard(name)
            self._changed.notify_all()

    def wait_until_empty(self) -> None:
        """Wait until all members are at the store, or have failed."""
        self._wait(lambda: not self._names)

    def _wait(self, condition: Callable[[], bool]) -> None:
        while True:
            self._control.checkpoint()
            if self._over():
                raise Cancelled("what is read cannot be sent any more")
            with self._changed:
                if self._changed.wait_for(condition, _LOOK):
                    return


class HeldBytes:
    """Bytes in memory as what is sent to a store; see `nbdata.transfer.send.Outgoing`.

    They were counted when the archive was read, so `sent` stays 0.

    Parameters
    ----------
    hasher : Hasher or None
        Hashes them while they are given out; None if that is done.
    md5 : str
        Of all of them in hex, or ''.
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
    """Bytes that are read while they are sent, once.

    Parameters
    ----------
    read : callable
        Reads into a buffer; returns how many bytes, 0 at the end.

    Attributes
    ----------
    crc : int
        CRC-32 of what was given out.
    error : Exception or None
        What `read` raised.
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
        """This, as what is sent; StoreUnavailable the second time."""
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
        """The archive is closed by who reads it."""
