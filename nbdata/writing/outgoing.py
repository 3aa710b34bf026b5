"""Sends bytes from memory to a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbdata.transfer.send import Hasher

__all__ = ["OutgoingBytes"]


class OutgoingBytes:
    """Some bytes in memory, hashed as they are read; see `nbdata.transfer.send.Outgoing`.

    Parameters
    ----------
    data : sequence of memoryview
    start, size : int
        The range to read, out of all bytes of `data`.
    """

    def __init__(self, data: Sequence[memoryview], start: int, size: int, hasher: Hasher) -> None:
        self._data: list[memoryview] = []  # the next ones last
        for view in data:
            part = view[start : start + size]
            start, size = max(0, start - len(view)), size - len(part)
            self._data.append(part)
        self._data.reverse()
        self._hasher = hasher
        self.sent = 0
        self.headers: Mapping[str, str] = {}
        self.md5 = ""

    def readinto(self, buffer: memoryview, /) -> int:
        while self._data and not self._data[-1]:
            self._data.pop()
        if not self._data:
            return 0
        view = self._data[-1]
        count = min(len(buffer), len(view))
        buffer[:count], self._data[-1] = view[:count], view[count:]
        self._hasher.update(buffer[:count])
        self.sent += count
        return count

    def close(self) -> None:
        self._data = []
